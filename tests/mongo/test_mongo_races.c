/* Races between the steps of a request, and between requests of one client. */
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "lib/mongo_queue.h"
#include "lib/runner.h"

#define TIMEOUT_MS 60000
#define CROWD 30 /* waiters of one client for one key */

/* ---- Between two steps of a LOCK ----------------------------------------*/

/* Make the server execute each findAndModify from now on, but report that no
 * majority confirmed it. */
static void fail_confirmations(void)
{
    (void)fail_commands(0, "\"findAndModify\"", "\"alwaysOn\"",
                        "\"writeConcernError\":{\"code\":64,"
                        "\"errmsg\":\"timed out\"}");
}

/* Delay the commands `names` by `ms` from now on. If `ms` is 0, stop delaying
 * them. */
static void delay_commands(const char *names, unsigned ms)
{
    char data[64];

    (void)snprintf(data, sizeof(data),
                   "\"blockConnection\":true,\"blockTimeMS\":%u", ms);
    (void)fail_commands(0, names, ms ? "\"alwaysOn\"" : "\"off\"", data);
}

/* Wait until the server delays the find with which a waiter reads its
 * position. */
static void await_find(void)
{
    while (!strstr(hf_test_mongo_command(&mongo, 0, "admin",
                                         "{\"currentOp\":1,\"active\":true}"),
                   "\"find\" : \"locks\""))
        (void)poll(NULL, 0, 5);
}

/* A repeated LOCK finds its claim in the queue. The claim is granted the key
 * before its position is read. Then the claim is not in the queue, but it must
 * not count as refused either. */
static void a_claim_granted_before_its_position_is_read_is_not_refused(
    void **state)
{
    struct hf_client *client, *other;
    struct queued queued = {NULL, NULL};
    struct hf_lock *lock;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    other = open_driven();
    lock = hold_key(client);
    fail_confirmations();
    join_queue(other, &queued, "");
    await_queue_length(1);
    delay_commands("\"find\"", 1000);
    await_find(); /* the find belongs to the repeated LOCK */
    expect_ok(hf_release(lock));
    await_grant(&queued);
    delay_commands("\"find\"", 0);
    expect_ok(hf_release(queued.lock));
    hf_lock_free(queued.lock);
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

/* ---- Between an offer and its confirmation ------------------------------*/

static uint64_t read_token(void)
{
    const char *reply = hf_test_mongo_command(
        &mongo, 0, "holdfast",
        "{\"find\":\"locks\",\"filter\":{\"_id\":\"k\"},\"projection\":{\"token\":1}}");

    return (uint64_t)find_number(reply, "\"token\" : ");
}

/* An offer expires after 3 seconds, but it may reach the waiter later, because
 * a change stream waits for the majority. Unless another client was granted the
 * key, the waiter can still confirm the offer. */
static void a_late_offer_can_be_confirmed(void **state)
{
    struct hf_client *client, *other, *later;
    struct queued queued = {NULL, NULL}, next = {NULL, NULL};
    struct hf_lock *lock;
    uint64_t offered;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    /* Nobody drives these two clients, so the offer is noticed late. */
    other = hf_test_mongo_open(&mongo, "");
    later = hf_test_mongo_open(&mongo, "");
    lock = hold_key(client);
    join_queue(other, &queued, "");
    await_queue_length(1);
    join_queue(later, &next, "");
    await_queue_length(2);
    expect_ok(hf_release(lock));
    offered = read_token();
    assert_true(offered > hf_lock_token(lock));
    (void)poll(NULL, 0, 3500);
    await_grant(&queued);
    assert_int_equal(hf_lock_token(queued.lock), offered);
    expect_ok(hf_release(queued.lock));
    await_grant(&next);
    expect_ok(hf_release(next.lock));
    hf_lock_free(next.lock);
    hf_lock_free(queued.lock);
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
    expect_ok(hf_close(later, TIMEOUT_MS));
}

/* ---- Between requests of one client -------------------------------------*/

static unsigned count_waiters(struct hf_client *client)
{
    struct hf_info info;
    unsigned waiters;

    expect_ok(hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info));
    waiters = info.waiters;
    hf_info_fini(&info);
    return waiters;
}

static void give_up_waiting(struct queued *queued, unsigned count)
{
    enum hf_err err = HF_OK;

    for (unsigned i = 0; i < count; i++)
        hf_future_cancel(queued[i].future);
    for (unsigned i = 0; i < count; i++) {
        expect_ok(hf_future_wait(queued[i].future, TIMEOUT_MS, &err));
        assert_int_not_equal(err, HF_OK);
        hf_future_free(queued[i].future);
        hf_lock_free(queued[i].lock);
    }
}

/* Withdrawals of many claims on one key run one after another. The holder's
 * renewal does not wait for them. */
static void renewals_go_before_withdrawals(void **state)
{
    struct queued queued[CROWD] = {{NULL, NULL}};
    struct hf_client *client;
    struct hf_lock *lock;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = open_driven();
    lock = hold_key(client);
    for (unsigned i = 0; i < CROWD; i++)
        join_queue(client, &queued[i], "");
    await_queue_length(CROWD);
    delay_commands("\"findAndModify\"", 1000);
    give_up_waiting(queued, CROWD);
    expect_ok(hf_renew(lock, 0));
    assert_true(count_waiters(client) > 0);
    delay_commands("\"findAndModify\"", 0);
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(a_claim_granted_before_its_position_is_read_is_not_refused),
        CASE(a_late_offer_can_be_confirmed),
        CASE(renewals_go_before_withdrawals),
    };

    return hf_test_main("mongo races", cases, HF_TEST_COUNT(cases), 4);
}
