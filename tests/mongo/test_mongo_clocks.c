/* Leases do not depend on the wall clocks of clients, and no server ends a
 * lease by the clock of another server. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "lib/mongo_case.h"
#include "lib/runner.h"

#define TIMEOUT_MS 60000

/* ---- Clients ------------------------------------------------------------*/

/* The functions below replace those of libc, so that the test sets the wall
 * clock of the whole program, including libmongoc. */
static atomic_llong offset_s;

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): libc's own
 * names are reserved. */
int clock_gettime(clockid_t clock, struct timespec *at)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, at);

    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += (time_t)atomic_load(&offset_s);
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}

/* libmongoc passes deadlines on the shifted wall clock, so shift them back. */
int pthread_cond_timedwait(pthread_cond_t *restrict cond,
                           pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
    struct timespec at = *until;

    at.tv_sec -= (time_t)atomic_load(&offset_s);
    return pthread_cond_clockwait(cond, mutex, CLOCK_REALTIME, &at);
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

/* Shift the wall clock of this program by `offset` seconds while a lock is
 * held. Another client must get the key when the lease expires: no earlier, and
 * not an hour later. Returns false if the lease expired before it was renewed;
 * the caller retries with a longer ttl. */
static bool try_lease_with_clock(long long offset, uint32_t ttl_ms)
{
    struct hf_lock_opts opts = hf_test_opts(ttl_ms, TIMEOUT_MS, TIMEOUT_MS);
    struct hf_lock_opts once = hf_test_opts(HF_TEST_LONG_MS, 0, TIMEOUT_MS);
    struct hf_client *holder = hf_test_mongo_open(&mongo, ""), *other;
    struct hf_lock *lock = NULL, *next = NULL;
    bool renewed = false;

    expect_ok(hf_acquire(holder, hf_key_of("k"), &opts, &lock));
    atomic_store(&offset_s, offset);
    other = hf_test_mongo_open(&mongo, "");
    if (hf_acquire(other, hf_key_of("k"), &once, &next) == HF_EBUSY)
        renewed = hf_renew(lock, 0) == HF_OK;
    if (renewed) {
        int64_t deadline = hf_lock_deadline(lock);

        once.wait_ms = TIMEOUT_MS;
        expect_ok(hf_acquire(other, hf_key_of("k"), &once, &next));
        assert_true(now_ms() >= deadline);
    } else {
        assert_true(now_ms() >= hf_lock_deadline(lock));
    }
    assert_false(hf_lock_valid_for(lock, 0));
    if (next)
        expect_ok(hf_release(next));
    atomic_store(&offset_s, 0);
    hf_lock_free(lock);
    hf_lock_free(next);
    (void)hf_close(holder, TIMEOUT_MS);
    (void)hf_close(other, TIMEOUT_MS);
    return renewed;
}

static void check_lease_with_clock(long long offset)
{
    uint32_t ttl_ms = 5000;

    while (!try_lease_with_clock(offset, ttl_ms)) {
        ttl_ms *= 2;
        assert_true(ttl_ms < TIMEOUT_MS);
    }
}

static void client_clocks_do_not_affect_leases(void **state)
{
    (void)state;
    hf_test_mongo_require(&mongo, 1);
    check_lease_with_clock(3600);
    check_lease_with_clock(-3600);
}

/* ---- Servers ------------------------------------------------------------*/

/* The clocks of any two members are an hour or two apart. A failover does not
 * shorten the lease, whether the clock of the new primary is ahead or
 * behind. */
static void no_lease_ends_early_in_a_failover(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(3000, TIMEOUT_MS, TIMEOUT_MS);
    struct hf_client *client, *other;

    (void)state;
    if (!hf_test_mongo_has_clocks())
        hf_test_skip("no libfaketime");
    set_clocks_apart();
    require_two_clients(3, &client, &other);
    for (unsigned round = 0; round < 2; round++) {
        struct hf_lock_opts waits =
            hf_test_opts(HF_TEST_LONG_MS, TIMEOUT_MS, TIMEOUT_MS);
        struct hf_lock *lock = NULL, *next = NULL;
        char key[16];
        int64_t deadline;

        (void)snprintf(key, sizeof(key), "k%u", round);
        expect_ok(hf_acquire(client, hf_key_of(key), &opts, &lock));
        deadline = hf_lock_deadline(lock);
        assert_true(hf_test_mongo_step_down(&mongo) >= 0);
        expect_ok(hf_acquire(other, hf_key_of(key), &waits, &next));
        assert_true(now_ms() >= deadline);
        assert_false(hf_lock_valid_for(lock, 0));
        assert_true(hf_lock_token(next) > hf_lock_token(lock));
        expect_ok(hf_release(next));
        hf_lock_free(next);
        hf_lock_free(lock);
    }
    (void)hf_close(client, TIMEOUT_MS);
    (void)hf_close(other, TIMEOUT_MS);
}

/* The only server crashes and restarts at the same address, with its clock an
 * hour ahead. The lease must not expire early. */
static void a_restarted_server_counts_leases_again(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(240000, 0, TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_info info;

    (void)state;
    if (!hf_test_mongo_has_clocks())
        hf_test_skip("no libfaketime");
    require_two_clients(1, &client, &other);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    hf_test_mongo_kill(&mongo, 0);
    (void)snprintf(mongo.members[0].clock, sizeof(mongo.members[0].clock),
                   "+3600");
    assert_true(hf_test_mongo_restart(&mongo, 0));
    assert_int_equal(primary(), 0);

    expect_err(hf_acquire(other, hf_key_of("k"), &opts, &none), HF_EBUSY);
    expect_ok(hf_read(other, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_true(info.held);
    hf_info_fini(&info);
    expect_ok(hf_renew(lock, 0));
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    (void)hf_close(client, TIMEOUT_MS);
    (void)hf_close(other, TIMEOUT_MS);
}

/* Count the passes of the TTL monitor, which deletes documents, at a member. */
static long count_ttl_passes(unsigned member)
{
    const char *status =
        hf_test_mongo_command(&mongo, member, "admin", "{\"serverStatus\":1}");
    const char *at = strstr(status, "\"ttl\" : {");

    at = at ? strstr(at, "\"passes\" : ") : NULL;
    return at ? strtol(at + strlen("\"passes\" : "), NULL, 10) : -1;
}

static void step_down_until(bool (*wanted)(int member))
{
    int primary = hf_test_mongo_primary(&mongo);

    while (!wanted(primary)) {
        assert_true(primary >= 0);
        primary = hf_test_mongo_step_down(&mongo);
    }
}

static bool has_wrong_clock(int member)
{
    return member == 1;
}

static bool has_right_clock(int member)
{
    return member == 0 || member == 2;
}

/* To a primary whose clock is days ahead, every document seems old. The primary
 * must not delete the document of a held lock. */
static void a_wrong_clock_deletes_no_held_key(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *none = NULL;
    long passes;

    (void)state;
    if (!hf_test_mongo_has_clocks())
        hf_test_skip("no libfaketime");
    (void)snprintf(mongo.members[1].clock, sizeof(mongo.members[1].clock),
                   "+5d");
    hf_test_mongo_require(&mongo, 3);
    step_down_until(has_right_clock);
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    step_down_until(has_wrong_clock);
    passes = count_ttl_passes(1);
    while (count_ttl_passes(1) < passes + 2) /* a pass may be running already */
        (void)poll(NULL, 0, 20);

    expect_err(hf_acquire(other, hf_key_of("k"), &opts, &none), HF_EBUSY);
    expect_ok(hf_renew(lock, 0));
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    (void)hf_close(client, TIMEOUT_MS);
    (void)hf_close(other, TIMEOUT_MS);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(client_clocks_do_not_affect_leases),
        CASE(no_lease_ends_early_in_a_failover),
        CASE(a_restarted_server_counts_leases_again),
        CASE(a_wrong_clock_deletes_no_held_key),
    };

    return hf_test_main("mongo clocks", cases, HF_TEST_COUNT(cases), 4);
}
