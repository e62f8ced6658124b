/* Clocks that differ, and clocks that start over: processes in several time
 * namespaces exclude each other, and a reboot ends locks but never repeats a
 * token. */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/time.h"
#include "lib/child.h"
#include "lib/expect.h"
#include "lib/recorded.h"
#include "lib/recording.h"
#include "lib/site.h"
#include "strategy/file/layout.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080 /* old headers do not define it */
#endif

/* The time namespace of a process: how far its clocks are ahead of the
 * machine's, and what the process does there. */
struct zone {
    int64_t offset_s;
    void (*act)(const struct zone *zone);
};

static struct {
    _Atomic hf_time requested_at, granted_at; /* on the machine's clock */
    atomic_ullong token;
} * shared;

static int set_up(void **state)
{
    shared = hf_child_share(sizeof(*shared));
    return hf_site_set_up(state);
}

static hf_time machine_now(const struct zone *zone)
{
    return hf_time_now() - zone->offset_s * 1000;
}

/* ---- Time namespaces ----------------------------------------------------*/

/* Create a time namespace with other clocks. Children of this process will be
 * in it, but not this process. Returns false if that is not possible. */
static bool move_clock(int64_t offset_s)
{
    char text[64];
    int size = snprintf(text, sizeof(text), "monotonic %lld 0\nboottime %lld 0",
                        (long long)offset_s, (long long)offset_s);
    int offsets = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    bool moved = offsets >= 0 && unshare(CLONE_NEWTIME) == 0 &&
                 write(offsets, text, (size_t)size) == size;

    close(offsets);
    return moved;
}

static void zone_main(void *arg)
{
    const struct zone *zone = arg;

    zone->act(zone);
}

static void enter_zone(void *arg)
{
    const struct zone *zone = arg;

    if (zone->offset_s != 0)
        assert_true(move_clock(zone->offset_s));
    hf_child_join(hf_child_start(zone_main, arg));
}

static pid_t start_in_zone(struct zone *zone)
{
    return hf_child_start(enter_zone, zone);
}

static bool can_move_clock(void)
{
    return move_clock(1);
}

static void require_time_namespaces(void)
{
    if (!hf_child_try(can_move_clock))
        hf_test_skip("a time namespace needs root");
}

#define HERE 0
#define AHEAD 18000 /* seconds */

/* An offset that sets the clock back by half of its value. It cannot be set
 * back by more than its value, because a clock cannot be negative. */
static int64_t behind(void)
{
    return -(hf_time_now() / 2000);
}

static struct hf_lock *take_key(struct hf_client *client, uint32_t ttl_ms)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = ttl_ms;
    opts.wait_ms = HF_FOREVER;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_OK);
    return lock;
}

#define ROUNDS 50

/* Every fifth lock is detached and expires. A waiter that is too slow to use
 * such a short lease queues again, so the order is not checked. */
static void contend(const struct zone *zone)
{
    struct hf_client *client = hf_site_open();
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    recording_set_offset(zone->offset_s * 1000);
    hf_lock_opts_init(&opts);
    opts.wait_ms = HF_FOREVER;
    for (unsigned i = 0; i < ROUNDS; i++) {
        opts.ttl_ms = i % 5 == 4 ? 20 : HF_TEST_LONG_MS;
        assert_int_equal(
            recorded_acquire_fifo(client, hf_key_of("k"), &opts, &lock), HF_OK);
        if (i % 5 == 4) {
            assert_int_equal(hf_lock_detach(lock), HF_OK);
            continue;
        }
        assert_int_equal(recorded_release(client, lock), HF_OK);
        hf_lock_free(lock);
    }
}

static void clients_in_different_time_namespaces_exclude_each_other(
    void **state)
{
    struct zone zones[] = {
        {HERE, contend}, {AHEAD, contend}, {behind(), contend}};
    pid_t pids[3];

    (void)state;
    require_time_namespaces();
    recorded_init(false);
    for (unsigned i = 0; i < 3; i++)
        pids[i] = start_in_zone(&zones[i]);
    for (unsigned i = 0; i < 3; i++)
        hf_child_join(pids[i]);
    assert_true(recording_grants() >= (size_t)3 * ROUNDS);
    assert_int_equal(recorded_check("case"), 0);
}

#define TTL_MS 500
#define LEASE_MS (TTL_MS + TTL_MS / 16 + 50)

static void detach_and_exit(const struct zone *zone)
{
    struct hf_lock *lock;

    atomic_store(&shared->requested_at, machine_now(zone));
    lock = take_key(hf_site_open(), TTL_MS);
    assert_true(hf_lock_remaining_ms(lock) <= TTL_MS);
    assert_int_equal(hf_lock_detach(lock), HF_OK);
    atomic_store(&shared->token, hf_lock_token(lock));
}

static void take_over(const struct zone *zone)
{
    struct hf_lock *lock = take_key(hf_site_open(), HF_TEST_LONG_MS);

    atomic_store(&shared->granted_at, machine_now(zone));
    assert_true(hf_lock_token(lock) > shared->token);
    assert_int_equal(hf_release(lock), HF_OK);
}

/* A process whose clock is `holder_s` seconds ahead takes and detaches the
 * lock, and a process whose clock is `next_s` seconds ahead waits for it. Check
 * that the lease expires, but not early. On a wrong clock the lease would run
 * for hours, or expire at once. */
static void expect_lease(int64_t holder_s, int64_t next_s)
{
    struct zone holder = {holder_s, detach_and_exit};
    struct zone next = {next_s, take_over};

    hf_child_join(start_in_zone(&holder));
    hf_child_join(start_in_zone(&next));
    assert_true(shared->granted_at >= shared->requested_at + LEASE_MS);
}

static void lease_expires_on_time_in_every_time_namespace(void **state)
{
    (void)state;
    require_time_namespaces();
    expect_lease(HERE, AHEAD);
    expect_lease(HERE, behind());
    expect_lease(AHEAD, HERE);
    expect_lease(behind(), HERE);
    expect_lease(AHEAD, behind());
    expect_lease(behind(), AHEAD);
}

static void on_expiry(const struct hf_event *event, void *arg)
{
    (void)event;
    atomic_store((atomic_bool *)arg, true);
}

static void watch_for_an_expiry(const struct zone *zone)
{
    const struct timespec delay = {.tv_nsec = 1000000};
    struct hf_client *client = hf_site_open();
    struct hf_watch_opts opts;
    struct hf_watch *watch;
    atomic_bool expired = false;

    (void)zone;
    hf_watch_opts_init(&opts);
    opts.kinds = HF_EVENT_EXPIRED;
    assert_int_equal(hf_watch_open(client, hf_key_of("k"), &opts, on_expiry,
                                   &expired, &watch),
                     HF_OK);
    (void)take_key(client, 200);
    while (!atomic_load(&expired))
        nanosleep(&delay, NULL);
}

static void watches_report_expiry_in_every_time_namespace(void **state)
{
    struct zone ahead = {AHEAD, watch_for_an_expiry};
    struct zone late = {behind(), watch_for_an_expiry};

    (void)state;
    require_time_namespaces();
    hf_child_join(start_in_zone(&ahead));
    hf_child_join(start_in_zone(&late));
}

/* A client that cannot read its offset must not use the clock without it,
 * because the leases of others would seem to have expired long ago. */
static void open_with_few_descriptors(const struct zone *zone)
{
    struct rlimit limit = {.rlim_cur = 3}, old_limit;
    struct hf_error error;
    struct hf_client *client;
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    (void)zone;
    hf_lock_opts_init(&opts);
    opts.wait_ms = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old_limit), 0);
    limit.rlim_max = old_limit.rlim_max;
    do {
        limit.rlim_cur++;
        assert_true(limit.rlim_cur < old_limit.rlim_cur);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    } while (hf_site_try("locks", "", &error, &client));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old_limit), 0);
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock),
                     HF_EBUSY);
}

static void unreadable_clock_offset_is_an_error(void **state)
{
    struct zone ahead = {AHEAD, open_with_few_descriptors};
    struct hf_client *client;
    struct hf_lock *lock;

    (void)state;
    require_time_namespaces();
    client = hf_site_open();
    lock = take_key(client, HF_TEST_LONG_MS);
    hf_child_join(start_in_zone(&ahead));
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

/* ---- Reboots ------------------------------------------------------------*/

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* Let this process see a boot id that begins with `number`. Returns false if
 * that is not possible. */
static bool set_boot_id(unsigned number)
{
    char id[64];
    FILE *file = fopen(hf_site_path("boot_id"), "we");
    int size =
        snprintf(id, sizeof(id), "%08u-0000-4000-8000-000000000000\n", number);

    assert_non_null(file);
    assert_int_equal(fwrite(id, 1, (size_t)size, file), size);
    assert_int_equal(fclose(file), 0);
    return unshare(CLONE_NEWNS) == 0 &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount(hf_site_path("boot_id"), BOOT_ID, NULL, MS_BIND, NULL) == 0;
}

static bool can_set_boot_id(void)
{
    return set_boot_id(0);
}

/* Move the stamp of the last command into the future, where it seems to be
 * after a reboot has reset the clock. */
static void reset_clock(void)
{
    const hf_time later = INT64_MAX;
    int file = open(hf_site_path("locks/arena"), O_RDWR | O_CLOEXEC);

    if (file < 0)
        return; /* no client has created the arena yet */
    assert_int_equal(pwrite(file, &later, sizeof(later),
                            offsetof(struct hf_arena_header, stamped)),
                     sizeof(later));
    close(file);
}

/* No lock survives a reboot, whatever its lease: not even a detached one, which
 * would survive its process. */
static void lock_in_new_boot(void *arg)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock, *none;

    assert_true(set_boot_id(*(const unsigned *)arg));
    hf_lock_opts_init(&opts);
    opts.wait_ms = 0;
    assert_int_equal(hf_acquire(hf_site_open(), hf_key_of("k"), &opts, &lock),
                     HF_OK);
    assert_true(hf_lock_token(lock) > shared->token);
    atomic_store(&shared->token, hf_lock_token(lock));
    assert_int_equal(hf_acquire(hf_site_open(), hf_key_of("k"), &opts, &none),
                     HF_EBUSY);
    assert_int_equal(hf_lock_detach(lock), HF_OK);
}

static void reboot_ends_locks_and_never_repeats_a_token(void **state)
{
    (void)state;
    if (!hf_child_try(can_set_boot_id))
        hf_test_skip("a mount namespace needs root");
    for (unsigned i = 0; i < 5; i++) {
        reset_clock();
        hf_child_join(hf_child_start(lock_in_new_boot, &i));
    }
    assert_true(shared->token > 0);
}

/* A container may have its own boot id. Its clients join a store that is in
 * use, and find the key held. */
static void expect_busy_in_a_container(void *arg)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    assert_true(set_boot_id(*(const unsigned *)arg));
    hf_lock_opts_init(&opts);
    opts.wait_ms = 0;
    assert_int_equal(hf_acquire(hf_site_open(), hf_key_of("k"), &opts, &lock),
                     HF_EBUSY);
    assert_int_equal(
        hf_acquire(hf_site_open(), hf_key_of("free"), &opts, &lock), HF_OK);
    assert_int_equal(hf_release(lock), HF_OK);
}

static void boot_id_of_a_container_does_not_end_a_lock(void **state)
{
    struct hf_client *client;
    struct hf_lock *lock;

    (void)state;
    if (!hf_child_try(can_set_boot_id))
        hf_test_skip("a mount namespace needs root");
    client = hf_site_open();
    lock = take_key(client, HF_TEST_LONG_MS);
    for (unsigned i = 1; i < 4; i++)
        hf_child_join(hf_child_start(expect_busy_in_a_container, &i));
    assert_int_equal(hf_renew(lock, 0), HF_OK);
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

static void exit_without_release(void *arg)
{
    assert_true(set_boot_id(*(const unsigned *)arg));
    (void)take_key(hf_site_open(), HF_TEST_LONG_MS);
}

static void expect_refusal_in_a_container(void *arg)
{
    assert_true(set_boot_id(*(const unsigned *)arg));
    hf_site_refuse("locks", "", HF_EUNAVAIL, "may run for another");
}

/* The container that held the lock has exited, but the lease still runs, so a
 * container with another boot id must not replace the arena. */
static void boot_id_of_a_container_does_not_end_a_lease(void **state)
{
    unsigned first = 1, second = 2;

    (void)state;
    if (!hf_child_try(can_set_boot_id))
        hf_test_skip("a mount namespace needs root");
    hf_child_join(hf_child_start(exit_without_release, &first));
    hf_child_join(hf_child_start(expect_refusal_in_a_container, &second));
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, set_up, hf_site_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(clients_in_different_time_namespaces_exclude_each_other),
        CASE(lease_expires_on_time_in_every_time_namespace),
        CASE(watches_report_expiry_in_every_time_namespace),
        CASE(unreadable_clock_offset_is_an_error),
        CASE(boot_id_of_a_container_does_not_end_a_lock),
        CASE(boot_id_of_a_container_does_not_end_a_lease),
        CASE(reboot_ends_locks_and_never_repeats_a_token),
    };

    return hf_test_main("clock", cases, HF_TEST_COUNT(cases), 0);
}
