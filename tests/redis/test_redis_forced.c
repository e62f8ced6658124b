/* A broken lock is reported to its holder at once. The leases are so long that
 * no renewal is due while a case runs. */
#include <string.h>
#include <unistd.h>

#include "client/client.h"
#include "one_server.h"

#define DAY_MS 86400000

static struct hf_lock *take_renewed_lock(void)
{
    struct hf_lock_opts opts = hf_test_opts(DAY_MS, 0, HF_TEST_TIMEOUT_MS);
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

static void await_loss(const struct hf_lock *lock)
{
    while (hf_lock_state(lock) != HF_LOCK_LOST)
        usleep(1000);
    assert_false(hf_lock_valid_for(lock, 0));
}

static void await_subscription(void)
{
    while (
        !strstr(hf_test_redis_command(&redis, "PUBSUB NUMSUB hf:forced"), "1"))
        usleep(1000);
}

static void a_subscribed_holder_loses_the_lock_at_once(void **state)
{
    struct hf_lock *lock = take_renewed_lock();

    (void)state;
    await_subscription();
    assert_true(hf_lock_valid_for(lock, 0));
    force_now(lock);
    await_loss(lock);
    hf_lock_free(lock);
}

/* The lock is broken before the holder opens its pub/sub connection. */
static void a_holder_checks_its_locks_when_it_subscribes(void **state)
{
    struct hf_lock *lock = take_renewed_lock();

    (void)state;
    force_now(lock);
    await_loss(lock);
    hf_lock_free(lock);
}

/* The lock is broken while the holder reconnects. */
static void a_holder_checks_its_locks_when_it_resubscribes(void **state)
{
    struct hf_lock *lock = take_renewed_lock();

    (void)state;
    await_subscription();
    (void)hf_test_redis_command(&redis, "CLIENT KILL TYPE pubsub");
    force_now(lock);
    await_loss(lock);
    hf_lock_free(lock);
}

static void a_user_who_may_not_publish_can_break_locks(void **state)
{
    struct hf_lock *lock = take_renewed_lock();
    struct hf_client *operator= NULL;

    (void)state;
    (void)hf_test_redis_command(&redis,
                                "ACL SETUSER op on >pw ~* resetchannels +@all");
    expect_ok(
        hf_open(hf_test_redis_url(&redis, "op:pw@", NULL), NULL, &operator));
    expect_ok(hf_force(operator, hf_key_of("k"), hf_lock_token(lock), true));
    expect_ok(hf_close(operator, 1000));
    expect_err(hf_renew(lock, 0), HF_EEXPIRED);
    hf_lock_free(lock);
}

/* ---- A flood of messages ------------------------------------------------*/

#define REPORTS 3000 /* few enough to fit into the socket buffer */

static const char publish_many[] = /* publishes REPORTS messages */
    "for i = 1, 3000 do redis.call('PUBLISH', 'hf:forced', '1') end";

static struct hf_host_ops counting_ops;
static unsigned reports;

static void count_report(struct hf_host *host, uint64_t token)
{
    (void)host;
    (void)token;
    reports++;
}

/* Wait until the server has written all messages to the socket. */
static void await_delivery(void)
{
    while (!strstr(hf_test_redis_command(&redis, "CLIENT LIST TYPE pubsub"),
                   " omem=0 "))
        usleep(1000);
}

/* A turn reads only a part of the messages, so that timers and other
 * connections are served meanwhile. */
static void a_flood_of_reports_is_read_in_parts(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(DAY_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_client *driven = hf_test_redis_open(&redis, NULL);
    const struct hf_host_ops *ops = driven->host.ops;
    struct hf_lock *lock;

    (void)state;
    opts.renew = true;
    assert_true(hf_fd(driven) >= 0); /* now the test drives the client */
    expect_ok(hf_lock_new(driven, hf_key_of("d"), &opts, &lock));
    while (!strstr(hf_test_redis_command(&redis, "PUBSUB NUMSUB hf:forced"),
                   "1") ||
           hf_lock_state(lock) != HF_LOCK_HELD)
        expect_ok(hf_process(driven));
    counting_ops = *ops;
    counting_ops.recheck = count_report;
    driven->host.ops = &counting_ops;
    (void)hf_test_redis_command(&redis, "EVAL %s 0", publish_many);
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
        CASE(a_subscribed_holder_loses_the_lock_at_once),
        CASE(a_holder_checks_its_locks_when_it_subscribes),
        CASE(a_holder_checks_its_locks_when_it_resubscribes),
        CASE(a_user_who_may_not_publish_can_break_locks),
        CASE(a_flood_of_reports_is_read_in_parts),
    };

    return hf_test_main("redis forced", cases, HF_TEST_COUNT(cases), 0);
}
