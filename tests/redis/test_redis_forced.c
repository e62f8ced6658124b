/* A lock that is broken is reported to its holder at once. The leases are so
 * long that no renewal is due while a case runs. */
#include <string.h>
#include <unistd.h>

#include "client/client.h"
#include "one_server.h"

#define DAY_MS 86400000

static struct hf_lock *lock_kept(void)
{
    struct hf_lock_opts opts = hf_test_opts(DAY_MS, 0, HF_TEST_PATIENCE_MS);
    struct hf_lock *lock = NULL;

    opts.renew = true;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    return lock;
}

static void force_now(const struct hf_lock *lock)
{
    struct hf_client *operator= hf_test_redis_open(&redis, NULL);

    expect_ok(hf_force(operator, hf_key_of("k"), hf_lock_token(lock), true));
    expect_ok(hf_close(operator, 1000));
}

static void wait_until_lost(const struct hf_lock *lock)
{
    while (hf_lock_state(lock) != HF_LOCK_LOST)
        usleep(1000);
    assert_false(hf_lock_valid_for(lock, 0));
}

static void wait_until_heard(void)
{
    while (!strstr(hf_test_redis_say(&redis, "PUBSUB NUMSUB hf:forced"), "1"))
        usleep(1000);
}

static void a_holder_that_listens_loses_at_once(void **state)
{
    struct hf_lock *lock = lock_kept();

    (void)state;
    wait_until_heard();
    assert_true(hf_lock_valid_for(lock, 0));
    force_now(lock);
    wait_until_lost(lock);
    hf_lock_free(lock);
}

/* Its connection for messages is made a moment later, and it looks then. */
static void a_holder_that_does_not_listen_yet_loses_when_it_does(void **state)
{
    struct hf_lock *lock = lock_kept();

    (void)state;
    force_now(lock);
    wait_until_lost(lock);
    hf_lock_free(lock);
}

/* What was broken while it was deaf it finds when it hears again. */
static void a_holder_whose_connection_was_lost_looks_again(void **state)
{
    struct hf_lock *lock = lock_kept();

    (void)state;
    wait_until_heard();
    (void)hf_test_redis_say(&redis, "CLIENT KILL TYPE pubsub");
    force_now(lock);
    wait_until_lost(lock);
    hf_lock_free(lock);
}

static void a_user_who_may_not_publish_can_break_locks(void **state)
{
    struct hf_lock *lock = lock_kept();
    struct hf_client *operator= NULL;

    (void)state;
    (void)hf_test_redis_say(&redis,
                            "ACL SETUSER op on >pw ~* resetchannels +@all");
    expect_ok(
        hf_open(hf_test_redis_url(&redis, "op:pw@", NULL), NULL, &operator));
    expect_ok(hf_force(operator, hf_key_of("k"), hf_lock_token(lock), true));
    expect_ok(hf_close(operator, 1000));
    expect_err(hf_renew(lock, 0), HF_EEXPIRED);
    hf_lock_free(lock);
}

/* ---- A neighbour that reports without end -------------------------------*/

#define REPORTS 3000 /* they fit into the buffer of a socket */

static const char publish_many[] = /* REPORTS of them */
    "for i = 1, 3000 do redis.call('PUBLISH', 'hf:forced', '1') end";

static struct hf_host_ops counting_ops;
static unsigned reports;

static void count_report(struct hf_host *host, uint64_t token)
{
    (void)host;
    (void)token;
    reports++;
}

/* What the server has for the subscriber is all in the socket. */
static void await_delivery(void)
{
    while (!strstr(hf_test_redis_say(&redis, "CLIENT LIST TYPE pubsub"),
                   " omem=0 "))
        usleep(1000);
}

/* Timers and other connections have their turns while many messages come. */
static void a_flood_of_reports_is_read_in_parts(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(DAY_MS, 0, HF_TEST_PATIENCE_MS);
    struct hf_client *driven = hf_test_redis_open(&redis, NULL);
    const struct hf_host_ops *ops = driven->host.ops;
    struct hf_lock *lock;

    (void)state;
    opts.renew = true;
    assert_true(hf_fd(driven) >= 0); /* it is driven by hand */
    expect_ok(hf_lock_new(driven, hf_key_of("d"), &opts, &lock));
    while (!strstr(hf_test_redis_say(&redis, "PUBSUB NUMSUB hf:forced"), "1") ||
           hf_lock_state(lock) != HF_LOCK_HELD)
        expect_ok(hf_process(driven));
    counting_ops = *ops;
    counting_ops.recheck = count_report;
    driven->host.ops = &counting_ops;
    (void)hf_test_redis_say(&redis, "EVAL %s 0", publish_many);
    await_delivery();
    expect_ok(hf_process(driven));
    assert_in_range(reports, 1, REPORTS - 1);
    while (reports < REPORTS)
        expect_ok(hf_process(driven));
    driven->host.ops = ops;
    hf_lock_free(lock);
    (void)hf_close(driven, 1000);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest cases[] = {
        CASE(a_holder_that_listens_loses_at_once),
        CASE(a_holder_that_does_not_listen_yet_loses_when_it_does),
        CASE(a_holder_whose_connection_was_lost_looks_again),
        CASE(a_user_who_may_not_publish_can_break_locks),
        CASE(a_flood_of_reports_is_read_in_parts),
    };

    return hf_test_main("redis_forced", cases, HF_TEST_COUNT(cases), 0);
}
