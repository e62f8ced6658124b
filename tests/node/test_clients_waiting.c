/* test_clients_waiting.c - a LOCK of a plain client that waits, or whose
 * session is lost. */
#include "lib/expect.h"
#include "lib/runner.h"
#include "node/plain_client.h"

static void a_blocked_lock_blocks_its_connection(void **state)
{
    struct hf_node *node = *state;

    hf_plain_hold_key(node);
    hf_plain_wait_for_key(node);
    hf_fake_call(node, 2, "PING\r\n", "");
    node->age_ms = 7;
    hf_plain_release_key(node);
    hf_fake_expect(node, 2, GRANTED(NONCE_B, "2", "7") "+PONG\r\n");
}

static void a_wait_ends_by_a_cancel(void **state)
{
    struct hf_node *node = *state;

    hf_plain_hold_key(node);
    hf_plain_wait_for_key(node);
    hf_fake_turn(node, 1999);
    hf_fake_expect(node, 2, "");
    hf_fake_turn(node, 2000);
    hf_fake_expect(node, 2, "-TIMEDOUT timed out\r\n");
    assert_int_equal(hf_table_find(&node->store.table, hf_key_of("k"))->waiters,
                     0);
    hf_fake_call(node, 2, "PING\r\n", "+PONG\r\n");
}

/* If the key is granted before the CANCEL of its claim is applied, the CANCEL
 * releases the key. */
static void a_late_grant_is_withdrawn(void **state)
{
    struct hf_node *node = *state;
    struct hf_dlist *unlock;

    hf_plain_hold_key(node);
    hf_plain_wait_for_key(node);
    node->is_stuck = true;
    hf_fake_turn(node, 2000); /* the CANCEL is submitted */
    hf_fake_send(node, 1, "UNLOCK k " NONCE_A " 1\r\n");
    /* Apply the UNLOCK first, so that the claim holds the key at the CANCEL. */
    unlock = node->requests.prev;
    hf_dlist_remove(unlock);
    hf_dlist_push_front(&node->requests, unlock);
    node->is_stuck = false;
    hf_fake_turn(node, 2000);
    hf_fake_expect(node, 2, "-TIMEDOUT timed out\r\n");
    assert_null(hf_table_find(&node->store.table, hf_key_of("k")));
}

static void a_closed_connection_withdraws_its_waiter(void **state)
{
    struct hf_node *node = *state;

    hf_plain_hold_key(node);
    hf_plain_wait_for_key(node);
    hf_clients_on_closed(node->clients, 2);
    hf_fake_turn(node, 1000);
    assert_int_equal(hf_table_find(&node->store.table, hf_key_of("k"))->waiters,
                     0);
    /* A key that a closed connection holds is kept until the lease expires. */
    hf_clients_on_closed(node->clients, 1);
    hf_fake_turn(node, 1000);
    assert_non_null(hf_table_find(&node->store.table, hf_key_of("k")));
    assert_int_equal(node->store.table.sessions.count, 1);
    hf_fake_turn(node, 1000 + 63800);
    assert_null(hf_table_find(&node->store.table, hf_key_of("k")));
    assert_int_equal(node->store.table.sessions.count, 0);
}

static void a_closed_connection_abandons_what_was_not_sent(void **state)
{
    struct hf_node *node = *state;

    node->is_stuck = true;
    hf_fake_send(node, 1, "LOCK k 1000\r\n");
    assert_int_equal(node->submitted, 1);
    hf_clients_on_closed(node->clients, 1);
    assert_int_equal(node->abandoned, 1);
    node->is_stuck = false;
    hf_fake_turn(node, 1000);
    assert_int_equal(node->store.table.sessions.count, 0);
}

/* The age of the grant is unknown, so the node does not know when the lease
 * started, and renews it. */
static void a_grant_without_an_anchor_is_renewed(void **state)
{
    struct hf_node *node = *state;

    hf_plain_hold_key(node);
    hf_plain_wait_for_key(node);
    node->age_ms = -1;
    hf_fake_turn(node, 1400);
    hf_plain_release_key(node);
    hf_fake_expect(node, 2, GRANTED(NONCE_B, "2", "400"));
    assert_int_equal(
        hf_table_find(&node->store.table, hf_key_of("k"))->generation, 1);
}

static void a_lost_push_is_noticed(void **state)
{
    struct hf_node *node = *state;

    hf_plain_hold_key(node);
    hf_fake_call(node, 2, "LOCK k 60000 WAIT 100000 NONCE " NONCE_B "\r\n", "");
    node->loses_grants = true;
    hf_plain_release_key(node);
    hf_fake_turn(node, 5999);
    hf_fake_expect(node, 2, "");
    hf_fake_turn(node, 6000);
    hf_fake_expect(node, 2, GRANTED(NONCE_B, "2", "5000"));
}

static void a_renewal_in_doubt_makes_the_lock_older(void **state)
{
    struct hf_node *node = *state;

    hf_plain_hold_key(node);
    hf_plain_wait_for_key(node);
    node->age_ms = -1;
    node->failure.err = HF_EINDOUBT;
    node->failing = HF_COMMAND_RENEW;
    hf_fake_turn(node, 1400);
    hf_plain_release_key(node);
    hf_fake_expect(node, 2, GRANTED(NONCE_B, "2", "0"));
}

/* ---- Repeated LOCKs -----------------------------------------------------*/

/* The reply says from when on the lease of the second LOCK counts. */
static void a_lock_of_its_holder_is_renewed(void **state)
{
    struct hf_node *node = *state;

    hf_plain_hold_key(node);
    hf_fake_call(node, 2, "LOCK k 60000 NONCE " NONCE_A "\r\n",
                 GRANTED(NONCE_A, "1", "0"));
    assert_int_equal(
        hf_table_find(&node->store.table, hf_key_of("k"))->generation, 1);
}

/* The lease may have started long before the second LOCK was sent, and no age
 * says so. */
static void a_lock_of_its_holder_is_in_doubt_without_a_renewal(void **state)
{
    struct hf_node *node = *state;

    hf_plain_hold_key(node);
    node->failure.err = HF_EINDOUBT;
    node->failing = HF_COMMAND_RENEW;
    hf_fake_call(node, 2, "LOCK k 60000 NONCE " NONCE_A "\r\n",
                 "-INDOUBT the answer was lost; CANCEL this nonce: " NONCE_A
                 "\r\n");
}

/* ---- Long waits ---------------------------------------------------------*/

static void a_connection_stays_open_after_a_long_wait(void **state)
{
    struct hf_node *node = *state;

    hf_plain_hold_key(node);
    hf_fake_call(node, 2, "LOCK k 60000 WAIT 40000 NONCE " NONCE_B "\r\n", "");
    node->is_stuck = true;
    hf_fake_turn(node, 41000); /* the CANCEL is submitted */
    hf_fake_turn(node, 43000);
    assert_false(node->conns[2].is_closed);
    node->is_stuck = false;
    hf_fake_turn(node, 44000);
    hf_fake_expect(node, 2, "-TIMEDOUT timed out\r\n");
    hf_fake_turn(node, 73000);
    hf_fake_call(node, 2, "PING\r\n", "+PONG\r\n");
    hf_fake_turn(node, 103000);
    assert_true(node->conns[2].is_closed);
}

/* ---- Lost sessions ------------------------------------------------------*/

/* Close the session of `conn`, as the leader does if the node was cut off. */
static void close_session(struct hf_node *node, uint64_t conn)
{
    struct hf_command close = {
        .kind = HF_COMMAND_CLOSE,
        .session = node->conns[conn].session,
        .sequence = UINT64_MAX,
    };
    struct hf_result result;

    expect_ok(hf_store_run(&node->store, node->now, &close, &result));
    expect_ok(result.err);
}

static uint32_t count_waiters(struct hf_node *node)
{
    return hf_table_find(&node->store.table, hf_key_of("k"))->waiters;
}

static void a_lost_session_is_replaced(void **state)
{
    struct hf_node *node = *state;

    hf_fake_call(node, 1, "CANCEL k " NONCE_A "\r\n", "-NOTHELD not held\r\n");
    close_session(node, 1);
    hf_fake_call(node, 1, "CANCEL k " NONCE_A "\r\n",
                 "-INDOUBT the answer was lost; the change may have been made"
                 "\r\n");
    hf_plain_hold_key(node);
}

/* The reply has the nonce: a client that did not choose it needs it to cancel
 * the claim. */
static void a_lock_in_a_lost_session_is_in_doubt(void **state)
{
    struct hf_node *node = *state;

    hf_fake_call(node, 1, "CANCEL k " NONCE_A "\r\n", "-NOTHELD not held\r\n");
    close_session(node, 1);
    hf_fake_call(node, 1, "LOCK k 1000 NONCE " NONCE_A "\r\n",
                 "-INDOUBT the answer was lost; CANCEL this nonce: " NONCE_A
                 "\r\n");
}

static void a_claim_that_ends_with_its_session_is_made_again(void **state)
{
    struct hf_node *node = *state;

    hf_plain_hold_key(node);
    hf_fake_call(node, 2, "LOCK k 60000 WAIT 20000 NONCE " NONCE_B "\r\n", "");
    close_session(node, 2);
    assert_int_equal(count_waiters(node), 0);
    hf_fake_turn(node, 6000);
    hf_fake_expect(node, 2, "");
    assert_int_equal(count_waiters(node), 1);
    hf_fake_turn(node, 20999);
    hf_fake_expect(node, 2, "");
    hf_fake_turn(node, 21000); /* the wait is not longer than the first one */
    hf_fake_expect(node, 2, "-TIMEDOUT timed out\r\n");
    assert_int_equal(count_waiters(node), 0);
}

static void a_claim_that_ends_with_its_session_is_not_made_too_late(
    void **state)
{
    struct hf_node *node = *state;

    hf_plain_hold_key(node);
    hf_plain_wait_for_key(node);
    close_session(node, 2);
    hf_fake_turn(node, 2000);
    hf_fake_expect(node, 2, "-TIMEDOUT timed out\r\n");
    hf_fake_call(node, 2, "LOCK k 1000\r\n", "-BUSY held by another claim\r\n");
}

static void a_claim_that_is_canceled_ends_its_wait(void **state)
{
    struct hf_node *node = *state;

    hf_plain_hold_key(node);
    hf_fake_call(node, 2, "LOCK k 60000 WAIT 20000 NONCE " NONCE_B "\r\n", "");
    hf_fake_call(node, 3, "CANCEL k " NONCE_B "\r\n", "+OK\r\n");
    hf_fake_turn(node, 6000);
    hf_fake_expect(node, 2,
                   "-NOTHELD the claim was canceled, or its lease has ended"
                   "\r\n");
    assert_int_equal(count_waiters(node), 0);
    hf_fake_call(node, 2, "PING\r\n", "+PONG\r\n");
}

/* A table that lacks the entry of the LOCK cannot know the claim. */
static void a_node_that_is_behind_waits_for_its_table(void **state)
{
    struct hf_node *node = *state;

    hf_plain_hold_key(node);
    hf_fake_call(node, 2, "LOCK k 60000 WAIT 20000 NONCE " NONCE_B "\r\n", "");
    hf_fake_call(node, 3, "CANCEL k " NONCE_B "\r\n", "+OK\r\n");
    node->behind = 4;
    hf_fake_turn(node, 6000);
    hf_fake_expect(node, 2, "");
    node->behind = 0;
    hf_fake_turn(node, 11000);
    hf_fake_expect(node, 2, "-NOTHELD the claim was canceled~");
}

/* A lock outlives the session that acquired it. */
static void a_grant_is_renewed_in_another_session(void **state)
{
    struct hf_node *node = *state;

    hf_plain_hold_key(node);
    hf_fake_call(node, 2, "LOCK k 60000 WAIT 20000 NONCE " NONCE_B "\r\n", "");
    node->loses_grants = true;
    hf_plain_release_key(node);
    close_session(node, 2);
    hf_fake_turn(node, 6000);
    hf_fake_expect(node, 2, GRANTED(NONCE_B, "2", "5000"));
    hf_fake_call(node, 2, "UNLOCK k " NONCE_B " 2\r\n", "+OK\r\n");
}

static void a_wait_in_a_lost_session_is_canceled_in_another(void **state)
{
    struct hf_node *node = *state;

    hf_plain_hold_key(node);
    hf_plain_wait_for_key(node);
    node->is_stuck = true;
    hf_fake_turn(node, 2000); /* the CANCEL is submitted */
    close_session(node, 2);
    node->is_stuck = false;
    hf_fake_turn(node, 2000);
    hf_fake_expect(node, 2, "-TIMEDOUT timed out\r\n");
}

/* If no session can be opened, nothing was sent: this is not in doubt. */
static void a_lock_without_a_session_is_not_in_doubt(void **state)
{
    struct hf_node *node = *state;

    node->failure.err = HF_EINDOUBT;
    hf_fake_call(node, 1, "LOCK k 1000 NONCE " NONCE_A "\r\n",
                 "-UNAVAIL no leader answered in time; nothing was changed"
                 "\r\n");
    node->failure.err = HF_OK;
    hf_plain_hold_key(node);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, hf_plain_set_up, hf_plain_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_blocked_lock_blocks_its_connection),
        CASE(a_wait_ends_by_a_cancel),
        CASE(a_late_grant_is_withdrawn),
        CASE(a_closed_connection_withdraws_its_waiter),
        CASE(a_closed_connection_abandons_what_was_not_sent),
        CASE(a_grant_without_an_anchor_is_renewed),
        CASE(a_lost_push_is_noticed),
        CASE(a_renewal_in_doubt_makes_the_lock_older),
        CASE(a_lock_of_its_holder_is_renewed),
        CASE(a_lock_of_its_holder_is_in_doubt_without_a_renewal),
        CASE(a_connection_stays_open_after_a_long_wait),
        CASE(a_lost_session_is_replaced),
        CASE(a_lock_in_a_lost_session_is_in_doubt),
        CASE(a_claim_that_ends_with_its_session_is_made_again),
        CASE(a_claim_that_ends_with_its_session_is_not_made_too_late),
        CASE(a_claim_that_is_canceled_ends_its_wait),
        CASE(a_node_that_is_behind_waits_for_its_table),
        CASE(a_grant_is_renewed_in_another_session),
        CASE(a_wait_in_a_lost_session_is_canceled_in_another),
        CASE(a_lock_without_a_session_is_not_in_doubt),
    };

    return hf_test_main("clients_waiting", cases, HF_TEST_COUNT(cases), 0);
}
