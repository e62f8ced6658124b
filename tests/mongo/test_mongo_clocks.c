/* Wall clocks may be anything: those of clients do not matter, and no server
 * ends a lease by another server's clock. */
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

#define PATIENCE_MS 60000

/* ---- Clients ------------------------------------------------------------*/

/* The wall clock of this whole program, libmongoc too, is set here: these stand
 * before those of libc. */
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

/* libmongoc waits until instants of that clock. */
int pthread_cond_timedwait(pthread_cond_t *restrict cond,
                           pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
    struct timespec at = *until;

    at.tv_sec -= (time_t)atomic_load(&offset_s);
    return pthread_cond_clockwait(cond, mutex, CLOCK_REALTIME, &at);
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

/* Held, and the clock is set an hour on or back: nobody has the key before the
 * lease is over, and it ends no later for that: not in an hour. False if the
 * lease ended before it was renewed. */
static bool lasts_with_clock(long long offset, uint32_t ttl_ms)
{
    struct hf_lock_opts opts = hf_test_opts(ttl_ms, PATIENCE_MS, PATIENCE_MS);
    struct hf_lock_opts once = hf_test_opts(HF_TEST_LONG_MS, 0, PATIENCE_MS);
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

        once.wait_ms = PATIENCE_MS;
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
    (void)hf_close(holder, PATIENCE_MS);
    (void)hf_close(other, PATIENCE_MS);
    return renewed;
}

static void lease_with_clock(long long offset)
{
    uint32_t ttl_ms = 5000;

    while (!lasts_with_clock(offset, ttl_ms)) {
        ttl_ms *= 2;
        assert_true(ttl_ms < PATIENCE_MS);
    }
}

static void clocks_of_clients_change_nothing(void **state)
{
    (void)state;
    hf_test_mongo_need(&mongo, 1);
    lease_with_clock(3600);
    lease_with_clock(-3600);
}

/* ---- Servers ------------------------------------------------------------*/

/* The primary among members whose clocks are an hour apart hands over to
 * another: the lease is not shorter for that, whichever way the clock goes. */
static void no_lease_ends_early_in_a_failover(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(3000, PATIENCE_MS, PATIENCE_MS);
    struct hf_client *client, *other;

    (void)state;
    if (!hf_test_mongo_has_clocks())
        hf_test_skip("no libfaketime");
    set_clocks_apart();
    hf_test_mongo_need(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    for (unsigned round = 0; round < 2; round++) { /* back, and on */
        struct hf_lock_opts waits =
            hf_test_opts(HF_TEST_LONG_MS, PATIENCE_MS, PATIENCE_MS);
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
    (void)hf_close(client, PATIENCE_MS);
    (void)hf_close(other, PATIENCE_MS);
}

/* The only server crashes and comes back, under its name, with its clock an hour
 * ahead: no lease ends before its time. */
static void a_restarted_server_is_another_clock(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(240000, 0, PATIENCE_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_info info;

    (void)state;
    if (!hf_test_mongo_has_clocks())
        hf_test_skip("no libfaketime");
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    hf_test_mongo_kill(&mongo, 0);
    (void)snprintf(mongo.members[0].clock, sizeof(mongo.members[0].clock),
                   "+3600");
    assert_true(hf_test_mongo_again(&mongo, 0));
    assert_int_equal(primary(), 0);

    expect_err(hf_acquire(other, hf_key_of("k"), &opts, &none), HF_EBUSY);
    expect_ok(hf_read(other, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_true(info.held);
    hf_info_fini(&info);
    expect_ok(hf_renew(lock, 0));
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    (void)hf_close(client, PATIENCE_MS);
    (void)hf_close(other, PATIENCE_MS);
}

/* How often a member has looked for what it may delete. */
static long deletion_passes(unsigned member)
{
    const char *status =
        hf_test_mongo_say(&mongo, member, "admin", "{\"serverStatus\":1}");
    const char *at = strstr(status, "\"ttl\" : {");

    at = at ? strstr(at, "\"passes\" : ") : NULL;
    return at ? strtol(at + strlen("\"passes\" : "), NULL, 10) : -1;
}

static void make_primary(bool (*wanted)(int member))
{
    int primary = hf_test_mongo_primary(&mongo);

    while (!wanted(primary)) {
        assert_true(primary >= 0);
        primary = hf_test_mongo_step_down(&mongo);
    }
}

static bool is_ahead(int member)
{
    return member == 1;
}

static bool is_right(int member)
{
    return member == 0 || member == 2;
}

/* A primary whose clock is days ahead would take every document for an old one;
 * but it deletes none of a lock that is held. */
static void no_clock_deletes_what_is_held(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, PATIENCE_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *none = NULL;
    long passes;

    (void)state;
    if (!hf_test_mongo_has_clocks())
        hf_test_skip("no libfaketime");
    (void)snprintf(mongo.members[1].clock, sizeof(mongo.members[1].clock),
                   "+5d");
    hf_test_mongo_need(&mongo, 3);
    make_primary(is_right);
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    make_primary(is_ahead);
    passes = deletion_passes(1);
    while (deletion_passes(1) < passes + 2) /* one may be under way */
        (void)poll(NULL, 0, 20);

    expect_err(hf_acquire(other, hf_key_of("k"), &opts, &none), HF_EBUSY);
    expect_ok(hf_renew(lock, 0));
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    (void)hf_close(client, PATIENCE_MS);
    (void)hf_close(other, PATIENCE_MS);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(clocks_of_clients_change_nothing),
        CASE(no_lease_ends_early_in_a_failover),
        CASE(a_restarted_server_is_another_clock),
        CASE(no_clock_deletes_what_is_held),
    };

    return hf_test_main("mongo clocks", cases, HF_TEST_COUNT(cases), 4);
}
