/* One master of a quorum. A digit names a claim; see one_master.h. */
#include <stdio.h>

#include "lib/alloc.h"
#include "lib/runner.h"
#include "quorum/one_master.h"

static struct one_master one;

static int start_master(void **state)
{
    (void)state;
    one_master_init(&one, NULL);
    return 0;
}

/* Every case ends with a master that forgets everything. */
static int stop_master(void **state)
{
    (void)state;
    one_master_fini(&one);
    assert_int_equal(one.master.bytes, 0);
    assert_int_equal(one.master.bids.bytes, 0);
    return 0;
}

static enum hf_quorum_reply_kind send(struct hf_quorum_request request)
{
    return one_send(&one, request);
}

/* Let the claim hold the key with token `number`. */
static void hold(unsigned claim, uint64_t number)
{
    assert_int_equal(send(one_commit(claim, number)), HF_QUORUM_OK);
}

static bool is_held_by(unsigned claim, uint64_t token)
{
    struct hf_report report = one_report(&one);
    struct hf_claim_id id = one_id(claim);

    return report.state == HF_REPORT_HELD && report.token == token &&
           hf_claim_id_equal(&report.holder, &id);
}

static bool is_voted_for(unsigned claim, uint64_t number)
{
    struct hf_report report = one_report(&one);
    struct hf_claim_id id = one_id(claim);

    return report.has_vote && report.vote_number == number &&
           hf_claim_id_equal(&report.voter, &id);
}

static bool is_value(struct hf_bytes value, const char *text)
{
    return hf_bytes_equal(value, hf_bytes_of(text));
}

/* ---- ASK ----------------------------------------------------------------*/

static void the_first_ask_gets_the_vote(void **state)
{
    struct hf_report report;

    (void)state;
    assert_int_equal(send(one_fast(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(one.reply.anchor, one.serial);
    assert_int_equal(one.reply.age_ms, 0);
    assert_int_equal(one.reply.highest, 5);
    assert_true(is_voted_for(1, 5));
    report = one_report(&one);
    assert_true(report.vote_is_fast);
    assert_int_equal(report.promised, 5);
    assert_int_equal(report.state, HF_REPORT_NONE);
    assert_int_equal(report.vote_left_ms, ONE_LEASE_MS);
    assert_true(is_value(report.data.value, "1"));
    assert_int_equal(one.changes, 1);
}

/* LK-24 */
static void a_repeated_ask_gets_the_same_vote(void **state)
{
    uint32_t anchor;

    (void)state;
    assert_int_equal(send(one_ask(1, 5)), HF_QUORUM_VOTE);
    anchor = one.reply.anchor;
    one_advance(&one, 300);
    assert_int_equal(send(one_fast(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(one.reply.anchor, anchor);
    assert_int_equal(one.reply.age_ms, 0);
    assert_int_equal(one.reply.report.vote_age_ms, 300);
    assert_int_equal(one.reply.report.vote_left_ms, ONE_LEASE_MS - 300);
    assert_false(one.reply.report.vote_is_fast);
    assert_int_equal(one.changes, 1);
}

static void an_ask_of_the_holder_with_its_token_gets_the_vote(void **state)
{
    (void)state;
    hold(1, 5);
    one_advance(&one, 100);
    assert_int_equal(send(one_fast(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(one.reply.anchor, 0); /* not known any more */
    assert_false(one.reply.report.has_vote);
    assert_int_equal(one.reply.report.left_ms, ONE_LEASE_MS - 100);
    assert_int_equal(send(one_wait(1, 6)), HF_QUORUM_BUSY);
    assert_int_equal(one.reply.position, 0);
}

static void a_key_with_a_vote_or_a_lease_is_busy(void **state)
{
    (void)state;
    assert_int_equal(send(one_ask(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_ask(2, 9)), HF_QUORUM_BUSY);
    assert_int_equal(one.reply.position, 0);
    assert_int_equal(one.reply.report.waiters, 0);
    hold(1, 5);
    assert_int_equal(send(one_ask(2, 9)), HF_QUORUM_BUSY);
    assert_true(is_held_by(1, 5));
    assert_int_equal(one_report(&one).promised, 5);
}

/* An equal number of another claim is too low. */
static void an_ask_needs_a_number_above_the_promise(void **state)
{
    (void)state;
    assert_int_equal(send(one_prepare(1, 7)), HF_QUORUM_PROMISE);
    assert_int_equal(send(one_ask(2, 6)), HF_QUORUM_LOW);
    assert_int_equal(send(one_ask(2, 7)), HF_QUORUM_LOW);
    assert_int_equal(send(one_ask(1, 7)), HF_QUORUM_LOW);
    assert_int_equal(one.reply.highest, 7);
    assert_false(one_report(&one).has_vote);
    assert_int_equal(send(one_ask(2, 8)), HF_QUORUM_VOTE);
}

static void a_claim_moves_its_vote_to_a_higher_number(void **state)
{
    (void)state;
    assert_int_equal(send(one_ask(1, 5)), HF_QUORUM_VOTE);
    one_advance(&one, 400);
    assert_int_equal(send(one_ask(1, 8)), HF_QUORUM_VOTE);
    assert_true(is_voted_for(1, 8));
    assert_int_equal(one.reply.report.vote_left_ms, ONE_LEASE_MS);
    assert_int_equal(send(one_ask(1, 6)), HF_QUORUM_LOW);
    assert_true(is_voted_for(1, 8));
}

/* ---- The queue ----------------------------------------------------------*/

static void waiters_are_queued_by_ticket(void **state)
{
    struct hf_quorum_request third = one_wait(4, 9);

    (void)state;
    hold(1, 5);
    assert_int_equal(send(one_wait(2, 7)), HF_QUORUM_BUSY);
    assert_int_equal(one.reply.position, 1);
    assert_int_equal(send(one_wait(3, 8)), HF_QUORUM_BUSY);
    assert_int_equal(one.reply.position, 2);
    third.ticket = 6; /* other masters have queued it earlier */
    third.is_queued = true;
    assert_int_equal(send(third), HF_QUORUM_BUSY);
    assert_int_equal(one.reply.position, 1);
    assert_int_equal(one.reply.report.waiters, 3);
    assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_ENDED);
    (void)one_take_push(&one, 4, HF_QUORUM_VOTE);
    assert_int_equal(send(one_end(4, 9, 0)), HF_QUORUM_ENDED);
    assert_int_equal(one.pushed, 1);
    (void)one_take_push(&one, 2, HF_QUORUM_LOW); /* 7 is below 9 now */
}

/* A claim that arrives later must have a higher ticket. */
static void a_ticket_below_those_that_were_seen_is_too_low(void **state)
{
    struct hf_quorum_request late = one_wait(4, 9);

    (void)state;
    hold(1, 5);
    assert_int_equal(send(one_wait(2, 7)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_wait(3, 6)), HF_QUORUM_LOW);
    assert_int_equal(one.reply.report.waiters, 1);
    assert_int_equal(send(one_wait(3, 7)), HF_QUORUM_LOW);
    assert_int_equal(send(one_wait(3, 8)), HF_QUORUM_BUSY);
    late.ticket = 8;
    assert_int_equal(send(late), HF_QUORUM_LOW);
    assert_int_equal(one.reply.highest, 8);
    late.is_queued = true;
    assert_int_equal(send(late), HF_QUORUM_BUSY);
    assert_int_equal(one.reply.report.waiters, 3);
}

/* The other masters have not queued the first claim with its first ticket. Its
 * position is by the new one here, too, also after it has lost a vote. */
static void a_waiter_with_a_new_ticket_changes_its_position(void **state)
{
    (void)state;
    assert_int_equal(send(one_wait(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_wait(2, 6)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_wait(3, 7)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_wait(2, 8)), HF_QUORUM_BUSY);
    assert_int_equal(one.reply.position, 2);
    assert_int_equal(one.reply.report.waiters, 2);
    assert_int_equal(send(one_wait(1, 9)), HF_QUORUM_VOTE);
    hold(4, 10);
    assert_int_equal(one_report(&one).waiters, 3);
    assert_int_equal(send(one_end(4, 10, 10)), HF_QUORUM_ENDED);
    (void)one_take_push(&one, 3, HF_QUORUM_LOW);
    assert_int_equal(send(one_end(3, 7, 0)), HF_QUORUM_ENDED);
    (void)one_take_push(&one, 2, HF_QUORUM_LOW);
    assert_int_equal(send(one_end(2, 8, 0)), HF_QUORUM_ENDED);
    (void)one_take_push(&one, 1, HF_QUORUM_LOW);
}

static void a_repeated_ask_of_a_waiter_keeps_its_position(void **state)
{
    struct hf_quorum_request again = one_wait(2, 9);

    (void)state;
    hold(1, 5);
    assert_int_equal(send(one_wait(2, 6)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_wait(3, 7)), HF_QUORUM_BUSY);
    one_advance(&one, 300);
    again.ticket = 6;
    again.is_queued = true;
    assert_int_equal(send(again), HF_QUORUM_BUSY);
    assert_int_equal(one.reply.position, 1);
    assert_int_equal(one.reply.report.waiters, 2);
    one_advance(&one, 50);
    assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_ENDED);
    assert_int_equal(one.pushed, 1);
    /* The lease of this vote starts 50 ms after the last ASK was received. */
    assert_int_equal(one.pushes[0].reply.age_ms, 50);
    assert_int_equal(one.pushes[0].reply.anchor, one.serial - 1);
    assert_int_equal(one_take_push(&one, 2, HF_QUORUM_VOTE).number, 9);
    assert_true(is_voted_for(2, 9));
    one_advance(&one, 200);
    assert_int_equal(send(one_wait(2, 9)), HF_QUORUM_VOTE);
    assert_int_equal(one.reply.age_ms, 50);
    assert_int_equal(one.reply.anchor, one.serial - 2);
}

static void an_expired_lease_is_passed_to_the_first_waiter(void **state)
{
    (void)state;
    hold(1, 5);
    assert_int_equal(send(one_wait(2, 6)), HF_QUORUM_BUSY);
    one_advance(&one, ONE_LEASE_MS - 1);
    assert_true(is_held_by(1, 5));
    assert_int_equal(one.pushed, 0);
    one_advance(&one, 1);
    assert_int_equal(one_report(&one).state, HF_REPORT_EXPIRED);
    assert_int_equal(one_take_push(&one, 2, HF_QUORUM_VOTE).report.vote_left_ms,
                     ONE_LEASE_MS);
}

static void an_expired_vote_is_passed_to_the_first_waiter(void **state)
{
    (void)state;
    assert_int_equal(send(one_ask(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_wait(2, 6)), HF_QUORUM_BUSY);
    one_advance(&one, ONE_LEASE_MS - 1);
    assert_true(is_voted_for(1, 5));
    one_advance(&one, 1);
    (void)one_take_push(&one, 2, HF_QUORUM_VOTE);
    assert_true(is_voted_for(2, 6));
}

/* No timer ends a promise: what was sent under a lower number may still be on
 * its way. */
static void an_expired_vote_leaves_its_promise(void **state)
{
    (void)state;
    assert_int_equal(send(one_ask(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_prepare(2, 8)), HF_QUORUM_PROMISE);
    one_advance(&one, ONE_LEASE_MS);
    assert_false(one_report(&one).has_vote);
    assert_int_equal(one_report(&one).promised, 8);
    assert_int_equal(send(one_ask(3, 7)), HF_QUORUM_LOW);
    assert_int_equal(send(one_commit(1, 5)), HF_QUORUM_LOW);
    assert_int_equal(send(one_commit(2, 8)), HF_QUORUM_OK);
}

/* It keeps its ticket, and so its position. */
static void a_waiter_with_a_low_number_is_asked_for_a_higher_one(void **state)
{
    struct hf_quorum_request again = one_wait(2, 11);

    (void)state;
    hold(1, 5);
    assert_int_equal(send(one_wait(2, 6)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_wait(3, 12)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_prepare(4, 10)), HF_QUORUM_PROMISE);
    assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_ENDED);
    assert_int_equal(one.pushed, 1);
    assert_int_equal(one_take_push(&one, 2, HF_QUORUM_LOW).number, 6);
    assert_int_equal(one_report(&one).waiters, 2);
    /* Nobody gets ahead of it meanwhile. */
    assert_int_equal(send(one_ask(5, 20)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_wait(3, 21)), HF_QUORUM_BUSY);
    assert_int_equal(one.pushed, 0);
    again.ticket = 6;
    again.is_queued = true;
    one_advance(&one, HF_QUORUM_LOW_MS - 1);
    assert_int_equal(send(again), HF_QUORUM_VOTE);
    assert_true(is_voted_for(2, 11));
}

static void a_waiter_that_does_not_ask_again_is_passed_over(void **state)
{
    struct hf_quorum_request again = one_wait(2, 30);

    (void)state;
    hold(1, 5);
    assert_int_equal(send(one_wait(2, 6)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_wait(3, 12)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_wait(4, 14)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_prepare(5, 13)), HF_QUORUM_PROMISE);
    assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_ENDED);
    (void)one_take_push(&one, 2, HF_QUORUM_LOW);
    one_advance(&one, HF_QUORUM_LOW_MS);
    (void)one_take_push(&one, 3, HF_QUORUM_LOW);
    hf_master_disconnect(&one.master, one.now, 3);
    (void)one_take_push(&one, 4, HF_QUORUM_VOTE);
    assert_int_equal(send(one_ask(6, 20)), HF_QUORUM_BUSY);
    assert_int_equal(one_report(&one).waiters, 2);
    /* It keeps its position. */
    assert_int_equal(send(again), HF_QUORUM_BUSY);
    assert_int_equal(send(one_end(4, 14, 0)), HF_QUORUM_ENDED);
    (void)one_take_push(&one, 2, HF_QUORUM_VOTE);
}

/* ---- Connections --------------------------------------------------------*/

static void a_waiter_without_a_connection_is_passed_over(void **state)
{
    (void)state;
    hold(1, 5);
    assert_int_equal(send(one_wait(2, 6)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_wait(3, 7)), HF_QUORUM_BUSY);
    hf_master_disconnect(&one.master, one.now, 2);
    assert_int_equal(one_report(&one).waiters, 2);
    assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_ENDED);
    (void)one_take_push(&one, 3, HF_QUORUM_VOTE);
    one_advance(&one, HF_QUORUM_GRACE_MS - 1);
    assert_int_equal(one_report(&one).waiters, 1);
    one_advance(&one, 1);
    assert_int_equal(one_report(&one).waiters, 0);
}

static void a_waiter_that_reconnects_keeps_its_position(void **state)
{
    (void)state;
    hold(1, 5);
    assert_int_equal(send(one_wait(2, 6)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_wait(3, 7)), HF_QUORUM_BUSY);
    hf_master_disconnect(&one.master, one.now, 2);
    one_advance(&one, HF_QUORUM_GRACE_MS - 1);
    assert_int_equal(one_send_over(&one, 77, one_wait(2, 6)), HF_QUORUM_BUSY);
    assert_int_equal(one.reply.position, 1);
    assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_ENDED);
    assert_int_equal(one.pushes[0].conn, 77);
    (void)one_take_push(&one, 2, HF_QUORUM_VOTE);
    one_advance(&one, HF_QUORUM_GRACE_MS - 1);
    assert_true(is_voted_for(2, 6));
}

/* A vote may be part of a grant, so it outlives its connection. */
static void a_vote_stays_without_a_connection(void **state)
{
    struct hf_quorum_request ask = one_ask(1, 5);

    (void)state;
    ask.lease_ms = 5000;
    assert_int_equal(send(ask), HF_QUORUM_VOTE);
    hf_master_disconnect(&one.master, one.now, 1);
    one_advance(&one, HF_QUORUM_GRACE_MS);
    assert_true(is_voted_for(1, 5));
    assert_int_equal(send(one_ask(2, 6)), HF_QUORUM_BUSY);
    one_advance(&one, 5000 - HF_QUORUM_GRACE_MS);
    assert_false(one_report(&one).has_vote);
    hf_master_disconnect(&one.master, one.now, 1); /* unknown by now */
}

/* If it loses the vote later, it waits, and is notified over the connection
 * that it uses now. */
static void a_claim_with_the_vote_that_reconnects_is_not_forgotten(void **state)
{
    struct hf_quorum_request late = one_wait(1, 5);

    (void)state;
    late.serial = 1;
    one.serial = 1;
    assert_int_equal(send(one_wait(1, 5)), HF_QUORUM_VOTE);
    hf_master_disconnect(&one.master, one.now, 1);
    assert_int_equal(one_send_over(&one, 20, one_wait(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(one.reply.anchor, 2);
    assert_int_equal(one_send_over(&one, 10, late), HF_QUORUM_VOTE);
    hf_master_disconnect(&one.master, one.now, 10);
    hold(2, 7);
    assert_int_equal(one_report(&one).waiters, 1);
    one_advance(&one, HF_QUORUM_GRACE_MS);
    assert_int_equal(one.pushes[0].conn, 20);
    (void)one_take_push(&one, 1, HF_QUORUM_LOW);
}

/* All waiters are gone when the key becomes free. */
static void the_first_waiter_that_returns_gets_the_vote(void **state)
{
    (void)state;
    hold(1, 5);
    assert_int_equal(send(one_wait(2, 6)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_wait(3, 7)), HF_QUORUM_BUSY);
    hf_master_disconnect(&one.master, one.now, 2);
    hf_master_disconnect(&one.master, one.now, 3);
    assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_ENDED);
    assert_int_equal(one.pushed, 0);
    assert_int_equal(send(one_wait(3, 7)), HF_QUORUM_VOTE);
    assert_true(is_voted_for(3, 7));
}

/* LK-24: an ASK over an old connection arrives after a later one. */
static void a_late_ask_changes_nothing(void **state)
{
    struct hf_quorum_request late = one_wait(2, 6);

    (void)state;
    late.serial = 1;
    one.serial = 1;
    hold(1, 5);
    assert_int_equal(one_send_over(&one, 20, one_wait(2, 7)), HF_QUORUM_BUSY);
    assert_int_equal(one_send_over(&one, 10, late), HF_QUORUM_BUSY);
    assert_int_equal(one.reply.position, 1);
    hf_master_disconnect(&one.master, one.now, 10);
    assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_ENDED);
    assert_int_equal(one.pushes[0].conn, 20);
    assert_int_equal(one_take_push(&one, 2, HF_QUORUM_VOTE).number, 7);
    assert_int_equal(one_send_over(&one, 10, late), HF_QUORUM_LOW);
    late.number = 9; /* no coordinator sends this */
    assert_int_equal(one_send_over(&one, 10, late), HF_QUORUM_LOW);
    assert_true(is_voted_for(2, 7));
}

/* No coordinator sends this: the serial is an old one, the number is new. */
static void an_ask_with_an_old_serial_gets_no_vote(void **state)
{
    struct hf_quorum_request old = one_wait(2, 11);

    (void)state;
    hold(1, 5);
    assert_int_equal(send(one_wait(2, 6)), HF_QUORUM_BUSY);
    old.serial = one.serial;
    assert_int_equal(send(one_prepare(3, 10)), HF_QUORUM_PROMISE);
    hf_master_disconnect(&one.master, one.now, 2);
    assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_ENDED);
    assert_int_equal(one_send_over(&one, 20, old), HF_QUORUM_BUSY);
    assert_false(one_report(&one).has_vote);
    old.serial++;
    assert_int_equal(one_send_over(&one, 20, old), HF_QUORUM_VOTE);
}

/* ---- PREPARE ------------------------------------------------------------*/

static void a_promise_reports_the_lease_with_its_data(void **state)
{
    (void)state;
    hold(1, 5);
    one_advance(&one, 100);
    assert_int_equal(send(one_prepare(2, 7)), HF_QUORUM_PROMISE);
    assert_int_equal(one.reply.report.state, HF_REPORT_HELD);
    assert_int_equal(one.reply.report.ballot, 5);
    assert_int_equal(one.reply.report.held_ms, 100);
    assert_int_equal(one.reply.report.left_ms, ONE_LEASE_MS - 100);
    assert_int_equal(one.reply.report.promised, 7);
    assert_true(is_value(one.reply.report.data.value, "1"));
    assert_true(is_held_by(1, 5));
    assert_int_equal(send(one_prepare(3, 7)), HF_QUORUM_LOW);
    assert_int_equal(one.reply.report.data.value.size, 0);
    assert_int_equal(send(one_prepare(2, 7)), HF_QUORUM_PROMISE);
    assert_int_equal(send(one_prepare(2, 6)), HF_QUORUM_LOW);
}

/* The claim may hold its lease at other masters: it must learn the value that
 * was accepted here. Others have no use for it. */
static void a_promise_shows_the_data_of_an_own_expired_lease(void **state)
{
    (void)state;
    assert_int_equal(send(one_commit(1, 5)), HF_QUORUM_OK);
    one_advance(&one, ONE_LEASE_MS);
    assert_int_equal(send(one_prepare(1, 6)), HF_QUORUM_PROMISE);
    assert_int_equal(one.reply.report.state, HF_REPORT_EXPIRED);
    assert_true(is_value(one.reply.report.data.value, "1"));
    assert_int_equal(send(one_ask(2, 7)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_prepare(1, 8)), HF_QUORUM_PROMISE);
    assert_true(one.reply.report.has_vote);
    assert_true(is_value(one.reply.report.data.value, "1"));
    assert_int_equal(send(one_prepare(3, 9)), HF_QUORUM_PROMISE);
    assert_true(is_value(one.reply.report.data.value, "2"));
    assert_int_equal(send(one_read()), HF_QUORUM_REPORT);
    assert_true(is_value(one.reply.report.data.value, "2"));
}

static void a_promise_leaves_the_vote_and_reports_it(void **state)
{
    (void)state;
    assert_int_equal(send(one_fast(1, 5)), HF_QUORUM_VOTE);
    one_advance(&one, 20);
    assert_int_equal(send(one_prepare(2, 7)), HF_QUORUM_PROMISE);
    assert_true(one.reply.report.has_vote);
    assert_true(one.reply.report.vote_is_fast);
    assert_int_equal(one.reply.report.vote_number, 5);
    assert_int_equal(one.reply.report.vote_age_ms, 20);
    assert_true(is_value(one.reply.report.data.value, "1"));
    assert_true(is_voted_for(1, 5));
    assert_int_equal(send(one_ask(1, 5)), HF_QUORUM_VOTE);
}

/* ---- COMMIT -------------------------------------------------------------*/

static void a_commit_after_the_vote_makes_a_lease(void **state)
{
    struct hf_report report;

    (void)state;
    assert_int_equal(send(one_ask(1, 5)), HF_QUORUM_VOTE);
    one_advance(&one, 300);
    hold(1, 5);
    report = one_report(&one);
    assert_true(is_held_by(1, 5));
    assert_false(report.has_vote);
    assert_int_equal(report.ballot, 5);
    assert_int_equal(report.left_ms, ONE_LEASE_MS);
    assert_int_equal(report.held_ms, 0); /* the COMMIT is the grant */
    assert_true(is_value(report.data.value, "1"));
}

static void a_commit_below_the_promise_is_too_low(void **state)
{
    (void)state;
    assert_int_equal(send(one_ask(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_prepare(2, 7)), HF_QUORUM_PROMISE);
    assert_int_equal(send(one_commit(1, 5)), HF_QUORUM_LOW);
    assert_int_equal(send(one_commit(1, 7)), HF_QUORUM_LOW);
    assert_int_equal(one_report(&one).state, HF_REPORT_NONE);
    assert_int_equal(send(one_commit(2, 7)), HF_QUORUM_OK);
    assert_int_equal(send(one_commit(3, 6)), HF_QUORUM_LOW);
    assert_true(is_held_by(2, 7));
}

/* LK-24 */
static void a_repeated_commit_moves_nothing(void **state)
{
    (void)state;
    hold(1, 5);
    one_advance(&one, 400);
    assert_int_equal(send(one_commit(1, 5)), HF_QUORUM_OK);
    assert_int_equal(one.reply.report.left_ms, ONE_LEASE_MS - 400);
    assert_int_equal(one.changes, 1);
    assert_int_equal(send(one_prepare(2, 7)), HF_QUORUM_PROMISE);
    assert_int_equal(send(one_commit(1, 5)), HF_QUORUM_OK);
    assert_int_equal(one.reply.report.promised, 7);
    assert_int_equal(send(one_commit(2, 7)), HF_QUORUM_OK);
    assert_int_equal(send(one_commit(1, 5)), HF_QUORUM_LOW);
}

/* The claim that loses the vote waits again, by its ticket. */
static void a_commit_displaces_the_vote_of_another_claim(void **state)
{
    (void)state;
    assert_int_equal(send(one_wait(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_wait(3, 8)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_commit(2, 7)), HF_QUORUM_OK);
    assert_true(is_held_by(2, 7));
    assert_false(one_report(&one).has_vote);
    assert_int_equal(one_report(&one).waiters, 2);
    assert_int_equal(send(one_end(2, 7, 7)), HF_QUORUM_ENDED);
    (void)one_take_push(&one, 1, HF_QUORUM_LOW);
}

static void a_displaced_claim_that_does_not_wait_is_forgotten(void **state)
{
    (void)state;
    assert_int_equal(send(one_ask(1, 5)), HF_QUORUM_VOTE);
    hold(2, 7);
    assert_int_equal(one_report(&one).waiters, 0);
    assert_int_equal(one.master.bids.bytes, 0);
}

static void a_repair_never_shortens_a_lease(void **state)
{
    struct hf_quorum_request repair = one_repair(1, 8, 5);

    (void)state;
    hold(1, 5);
    repair.lease_ms = 300;
    assert_int_equal(send(repair), HF_QUORUM_OK);
    assert_int_equal(one.reply.report.left_ms, ONE_LEASE_MS);
    assert_int_equal(one.reply.report.ballot, 8);
    assert_int_equal(one.reply.report.token, 5);
    one_advance(&one, 900);
    assert_int_equal(send(one_repair(1, 9, 5)), HF_QUORUM_OK);
    assert_int_equal(one.reply.report.left_ms, ONE_LEASE_MS);
    assert_int_equal(one.reply.report.held_ms, 900);
}

/* LK-04: an update leaves the lease as it is, but gives it to a master that
 * lacks it. */
static void an_update_keeps_the_deadline(void **state)
{
    struct hf_quorum_request update = one_repair(1, 8, 5);

    (void)state;
    update.keeps_deadline = true;
    update.lease_ms = 5000;
    update.data.value = hf_bytes_of("new");
    hold(1, 5);
    one_advance(&one, 400);
    assert_int_equal(send(update), HF_QUORUM_OK);
    assert_int_equal(one.reply.report.left_ms, ONE_LEASE_MS - 400);
    assert_true(is_value(one_report(&one).data.value, "new"));
    one_advance(&one, ONE_LEASE_MS);
    update.number = 9;
    assert_int_equal(send(update), HF_QUORUM_OK);
    assert_int_equal(one.reply.report.left_ms, 5000);
}

/* ---- RENEW --------------------------------------------------------------*/

static void a_renewal_extends_the_lease_and_never_shortens_it(void **state)
{
    struct hf_quorum_request renew = one_renew(1, 5);

    (void)state;
    hold(1, 5);
    one_advance(&one, 600);
    assert_int_equal(send(renew), HF_QUORUM_OK);
    assert_int_equal(one.changes, 2); /* replicas need the new deadline */
    assert_int_equal(one.reply.report.left_ms, ONE_LEASE_MS);
    renew.lease_ms = 10;
    assert_int_equal(send(renew), HF_QUORUM_OK);
    assert_int_equal(one.reply.report.left_ms, ONE_LEASE_MS);
    one_advance(&one, ONE_LEASE_MS);
    assert_int_equal(send(renew), HF_QUORUM_MISSING);
    assert_int_equal(one_report(&one).state, HF_REPORT_EXPIRED);
}

/* A claim that is promised a number while the key is held sees the lease in the
 * report, so the promise need not stop the renewal. */
static void a_renewal_of_a_lease_ignores_promises(void **state)
{
    (void)state;
    hold(1, 5);
    one_advance(&one, 600);
    assert_int_equal(send(one_prepare(2, 7)), HF_QUORUM_PROMISE);
    assert_int_equal(send(one_renew(1, 5)), HF_QUORUM_OK);
    assert_int_equal(one.reply.report.left_ms, ONE_LEASE_MS);
    assert_int_equal(one.reply.report.promised, 7);
}

static void a_renewal_makes_a_lease_of_a_vote(void **state)
{
    (void)state;
    assert_int_equal(send(one_fast(1, 5)), HF_QUORUM_VOTE);
    one_advance(&one, 600);
    assert_int_equal(send(one_renew(1, 5)), HF_QUORUM_OK);
    assert_true(is_held_by(1, 5));
    assert_false(one.reply.report.has_vote);
    assert_int_equal(one.reply.report.ballot, 5);
    assert_int_equal(one.reply.report.left_ms, ONE_LEASE_MS);
    assert_int_equal(one.reply.report.held_ms, 600);
    assert_true(is_value(one_report(&one).data.value, "1"));
    assert_int_equal(one.master.bids.bytes, 0);
}

/* A claim that was promised a number has counted the vote as a vote. */
static void a_promise_to_another_claim_voids_the_renewal_of_a_vote(void **state)
{
    (void)state;
    assert_int_equal(send(one_fast(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_prepare(2, 7)), HF_QUORUM_PROMISE);
    assert_int_equal(send(one_renew(1, 5)), HF_QUORUM_MISSING);
    assert_true(is_voted_for(1, 5));
    assert_int_equal(one.reply.report.vote_left_ms, ONE_LEASE_MS);
}

static void a_renewal_creates_nothing(void **state)
{
    struct hf_master_summary summary;

    (void)state;
    assert_int_equal(send(one_renew(1, 5)), HF_QUORUM_MISSING);
    hf_master_summarize(&one.master, &summary);
    assert_int_equal(summary.records, 0);
    assert_int_equal(send(one_fast(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_renew(1, 4)), HF_QUORUM_MISSING);
    assert_int_equal(send(one_renew(2, 5)), HF_QUORUM_MISSING);
    hold(1, 5);
    assert_int_equal(send(one_renew(1, 6)), HF_QUORUM_MISSING);
    assert_int_equal(send(one_renew(2, 5)), HF_QUORUM_MISSING);
    one_advance(&one, ONE_LEASE_MS);
    assert_int_equal(send(one_renew(1, 5)), HF_QUORUM_MISSING);
    assert_int_equal(one_report(&one).state, HF_REPORT_EXPIRED);
}

/* ---- END ----------------------------------------------------------------*/

static void an_end_releases_the_lease(void **state)
{
    (void)state;
    hold(1, 5);
    assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_ENDED);
    assert_int_equal(one.reply.end, HF_QUORUM_END_RELEASED);
    assert_int_equal(one.reply.report.state, HF_REPORT_RELEASED);
    assert_int_equal(one.reply.report.ballot, 5);
    assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_ENDED);
    assert_int_equal(one.reply.end, HF_QUORUM_END_REPEATED);
    assert_int_equal(send(one_ask(2, 6)), HF_QUORUM_VOTE);
}

/* A vote that was recorded as released would hide an older holder that this
 * master has missed. */
static void an_end_of_a_vote_leaves_no_lease(void **state)
{
    (void)state;
    assert_int_equal(send(one_fast(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_end(1, 5, 0)), HF_QUORUM_ENDED);
    assert_int_equal(one.reply.end, HF_QUORUM_END_RELEASED);
    assert_int_equal(one.reply.report.state, HF_REPORT_NONE);
    assert_false(one.reply.report.has_vote);
    assert_int_equal(one.reply.report.promised, 5);
    assert_int_equal(one.reply.report.ended_count, 1);
}

/* The COMMIT may still be on its way to this master or to another one. */
static void an_end_leaves_a_trace_where_the_lease_never_came(void **state)
{
    (void)state;
    assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_ENDED);
    assert_int_equal(one.reply.end, HF_QUORUM_END_NOTHING);
    assert_int_equal(one.reply.report.state, HF_REPORT_RELEASED);
    assert_int_equal(one.reply.report.ballot, 5);
    hold(2, 7);
    assert_int_equal(send(one_end(3, 6, 6)), HF_QUORUM_ENDED);
    assert_true(is_held_by(2, 7));
    /* Claim 4 was allowed to write above claim 2, so that has ended. */
    assert_int_equal(send(one_end(4, 9, 8)), HF_QUORUM_ENDED);
    assert_int_equal(one.reply.end, HF_QUORUM_END_NOTHING);
    assert_int_equal(one.reply.report.state, HF_REPORT_RELEASED);
    assert_int_equal(one.reply.report.ballot, 8);
}

static void an_end_of_another_claim_changes_no_lease(void **state)
{
    (void)state;
    hold(1, 5);
    assert_int_equal(send(one_end(2, 9, 0)), HF_QUORUM_ENDED);
    assert_true(is_held_by(1, 5));
    assert_int_equal(send(one_end(3, 9, 4)), HF_QUORUM_ENDED);
    assert_true(is_held_by(1, 5));
    assert_int_equal(one_report(&one).ballot, 5);
    one_advance(&one, ONE_LEASE_MS);
    assert_int_equal(send(one_ask(4, 10)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_end(5, 9, 0)), HF_QUORUM_ENDED);
    assert_true(is_voted_for(4, 10));
}

static void an_end_displaces_votes_below_its_ballot(void **state)
{
    (void)state;
    assert_int_equal(send(one_wait(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_end(2, 4, 4)), HF_QUORUM_ENDED);
    assert_true(is_voted_for(1, 5));
    assert_int_equal(send(one_end(3, 9, 8)), HF_QUORUM_ENDED);
    assert_false(one_report(&one).has_vote);
    (void)one_take_push(&one, 1, HF_QUORUM_LOW);
    assert_int_equal(send(one_wait(1, 10)), HF_QUORUM_VOTE);
}

/* The END of a claim that lost must not stop the COMMIT of the winner. */
static void an_end_with_an_equal_number_closes_no_promise(void **state)
{
    (void)state;
    assert_int_equal(send(one_prepare(1, 7)), HF_QUORUM_PROMISE);
    assert_int_equal(send(one_end(2, 7, 0)), HF_QUORUM_ENDED);
    assert_int_equal(send(one_commit(1, 7)), HF_QUORUM_OK);
}

static void forget_ended_claims(uint64_t number)
{
    for (unsigned i = 0; i < HF_REPORT_ENDED_MAX; i++)
        assert_int_equal(send(one_end(100 + i, number, 0)), HF_QUORUM_ENDED);
}

/* LK-24: late messages of a claim that has ended, also after the list of ended
 * claims has forgotten it. */
static void an_ended_claim_does_not_return(void **state)
{
    (void)state;
    assert_int_equal(send(one_fast(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_end(1, 9, 0)), HF_QUORUM_ENDED);
    for (int i = 0; i < 2; i++) {
        enum hf_quorum_reply_kind kind = i ? HF_QUORUM_LOW : HF_QUORUM_ENDED;

        assert_int_equal(send(one_fast(1, 5)), kind);
        assert_int_equal(send(one_prepare(1, 9)), kind);
        assert_int_equal(send(one_commit(1, 9)), kind);
        assert_int_equal(send(one_renew(1, 5)),
                         i ? HF_QUORUM_MISSING : HF_QUORUM_ENDED);
        forget_ended_claims(8);
    }
    assert_int_equal(one_report(&one).state, HF_REPORT_NONE);
    assert_false(one_report(&one).has_vote);
}

/* The promise to a claim that has ended is closed, whatever its number is. */
static void an_end_closes_the_promise_of_its_claim(void **state)
{
    (void)state;
    assert_int_equal(send(one_prepare(1, 7)), HF_QUORUM_PROMISE);
    assert_int_equal(send(one_end(1, 7, 0)), HF_QUORUM_ENDED);
    forget_ended_claims(1);
    assert_int_equal(send(one_commit(1, 7)), HF_QUORUM_LOW);
    assert_int_equal(send(one_prepare(1, 7)), HF_QUORUM_LOW);
    assert_int_equal(send(one_prepare(2, 8)), HF_QUORUM_PROMISE);
}

/* A lost reply to an END that found nothing does not make a release of it. */
static void a_repeated_end_finds_the_same_again(void **state)
{
    (void)state;
    hold(1, 5);
    one_advance(&one, ONE_LEASE_MS);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_ENDED);
        assert_int_equal(one.reply.end,
                         i == 0 ? HF_QUORUM_END_NOTHING : HF_QUORUM_END_BROKEN);
        if (i == 1)
            forget_ended_claims(5);
    }
    hold(2, 7);
    assert_int_equal(send(one_end(2, 7, 7)), HF_QUORUM_ENDED);
    assert_int_equal(one.reply.end, HF_QUORUM_END_RELEASED);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(send(one_end(2, 7, 7)), HF_QUORUM_ENDED);
        assert_int_equal(one.reply.end, HF_QUORUM_END_REPEATED);
        if (i == 1)
            forget_ended_claims(5);
    }
}

static void an_end_takes_the_claim_out_of_the_queue(void **state)
{
    (void)state;
    hold(1, 5);
    assert_int_equal(send(one_wait(2, 6)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_wait(3, 7)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_end(2, 6, 0)), HF_QUORUM_ENDED);
    assert_int_equal(one.reply.end, HF_QUORUM_END_NOTHING);
    assert_int_equal(one_report(&one).waiters, 1);
    assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_ENDED);
    (void)one_take_push(&one, 3, HF_QUORUM_VOTE);
}

static void the_list_of_ended_claims_has_the_last_ones(void **state)
{
    struct hf_report report;
    struct hf_claim_id last = one_id(14), evicted = one_id(2);

    (void)state;
    for (unsigned i = 1; i <= 14; i++)
        assert_int_equal(send(one_end(i, i, 0)), HF_QUORUM_ENDED);
    report = one_report(&one);
    assert_int_equal(report.ended_count, HF_REPORT_ENDED_MAX);
    for (unsigned i = 0; i < report.ended_count; i++)
        assert_false(hf_claim_id_equal(&report.ended[i], &evicted));
    assert_true(hf_claim_id_equal(&report.ended[5], &last));
    assert_int_equal(send(one_end(14, 14, 0)), HF_QUORUM_ENDED);
    assert_int_equal(one_report(&one).ended_count, HF_REPORT_ENDED_MAX);
}

/* ---- FORCE --------------------------------------------------------------*/

static void a_forced_lease_ends_at_its_deadline(void **state)
{
    (void)state;
    hold(1, 5);
    assert_int_equal(send(one_force(4, false)), HF_QUORUM_MISSING);
    assert_int_equal(send(one_renew(1, 5)), HF_QUORUM_OK);
    assert_int_equal(send(one_force(5, false)), HF_QUORUM_OK);
    assert_true(one.reply.report.forced);
    assert_int_equal(send(one_force(5, false)), HF_QUORUM_OK);
    assert_true(is_held_by(1, 5));
    one_advance(&one, 400);
    assert_int_equal(send(one_renew(1, 5)), HF_QUORUM_FORCED);
    assert_int_equal(one.reply.report.left_ms, ONE_LEASE_MS - 400);
    assert_int_equal(send(one_repair(1, 8, 5)), HF_QUORUM_FORCED);
    assert_int_equal(one.reply.report.left_ms, ONE_LEASE_MS - 400);
    one_advance(&one, ONE_LEASE_MS - 400);
    assert_int_equal(one_report(&one).state, HF_REPORT_EXPIRED);
    assert_int_equal(send(one_force(5, true)), HF_QUORUM_MISSING);
    hold(2, 10);
    assert_false(one_report(&one).forced);
    assert_int_equal(send(one_renew(2, 10)), HF_QUORUM_OK);
}

static void a_lease_that_is_forced_now_is_passed_on(void **state)
{
    (void)state;
    hold(1, 5);
    assert_int_equal(send(one_wait(2, 6)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_force(5, true)), HF_QUORUM_OK);
    (void)one_take_push(&one, 2, HF_QUORUM_VOTE);
    assert_int_equal(send(one_renew(1, 5)), HF_QUORUM_ENDED);
    assert_int_equal(send(one_commit(1, 5)), HF_QUORUM_ENDED);
    assert_int_equal(send(one_force(5, true)), HF_QUORUM_MISSING);
    assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_ENDED);
    assert_int_equal(one.reply.end, HF_QUORUM_END_BROKEN);
}

/* UPDATE-2: a broken lock can be updated, and cannot be renewed after that. */
static void a_forced_lock_can_be_updated(void **state)
{
    struct hf_quorum_request update = one_repair(1, 8, 5);

    (void)state;
    update.keeps_deadline = true;
    update.lease_ms = 700;
    for (unsigned i = 0; i < 2; i++) { /* with a lease, and with a vote */
        if (i == 0)
            hold(1, 5);
        else
            assert_int_equal(send(one_fast(2, 20)), HF_QUORUM_VOTE);
        assert_int_equal(send(one_force(i ? 20 : 5, false)), HF_QUORUM_OK);
        assert_true(one.reply.report.forced);
        one_advance(&one, 400);
        assert_int_equal(send(update), HF_QUORUM_OK);
        assert_int_equal(one.reply.report.state, HF_REPORT_HELD);
        assert_true(one.reply.report.forced);
        assert_int_equal(one.reply.report.left_ms, ONE_LEASE_MS - 400);
        assert_int_equal(send(one_renew(1 + i, update.token)),
                         HF_QUORUM_FORCED);
        one_advance(&one, ONE_LEASE_MS);
        update.nonce = one_nonce(2);
        update.number = 21;
        update.token = 20;
    }
}

/* The operator broke another grant of the claim. */
static void a_claim_asks_again_after_its_vote_was_forced(void **state)
{
    (void)state;
    assert_int_equal(send(one_wait(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_force(5, false)), HF_QUORUM_OK);
    assert_int_equal(send(one_commit(1, 6)), HF_QUORUM_OK);
    assert_int_equal(send(one_renew(1, 6)), HF_QUORUM_OK);
    assert_int_equal(send(one_end(1, 6, 6)), HF_QUORUM_ENDED);
    assert_int_equal(send(one_wait(2, 7)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_force(7, false)), HF_QUORUM_OK);
    assert_int_equal(send(one_wait(2, 8)), HF_QUORUM_VOTE);
    assert_false(one.reply.report.forced);
    assert_int_equal(send(one_renew(2, 8)), HF_QUORUM_OK);
}

/* The votes of a claim that was granted by votes are its lease. */
static void a_forced_vote_ends_at_its_deadline(void **state)
{
    (void)state;
    assert_int_equal(send(one_fast(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_force(6, false)), HF_QUORUM_MISSING);
    assert_int_equal(send(one_force(5, false)), HF_QUORUM_OK);
    assert_true(is_voted_for(1, 5));
    one_advance(&one, 400);
    assert_int_equal(send(one_renew(1, 5)), HF_QUORUM_FORCED);
    assert_int_equal(send(one_commit(1, 5)), HF_QUORUM_FORCED);
    assert_int_equal(one.reply.report.vote_left_ms, ONE_LEASE_MS - 400);
    one_advance(&one, ONE_LEASE_MS - 400);
    assert_false(one_report(&one).has_vote);
}

static void a_vote_that_is_forced_now_is_passed_on(void **state)
{
    (void)state;
    assert_int_equal(send(one_fast(1, 5)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_wait(2, 6)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_force(5, true)), HF_QUORUM_OK);
    (void)one_take_push(&one, 2, HF_QUORUM_VOTE);
    assert_int_equal(one_report(&one).state, HF_REPORT_NONE);
    assert_int_equal(one_report(&one).ended_count, 1);
    assert_int_equal(send(one_renew(1, 5)), HF_QUORUM_ENDED);
    assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_ENDED);
    assert_int_equal(one.reply.end, HF_QUORUM_END_BROKEN);
}

static void a_force_of_an_unknown_key_is_missing(void **state)
{
    (void)state;
    assert_int_equal(send(one_force(5, true)), HF_QUORUM_MISSING);
    assert_null(hf_master_find(&one.master, hf_key_of("k")));
}

/* ---- Reads and summaries ------------------------------------------------*/

static void a_read_reports_and_changes_nothing(void **state)
{
    (void)state;
    assert_int_equal(send(one_read()), HF_QUORUM_REPORT);
    assert_int_equal(one.reply.report.state, HF_REPORT_NONE);
    assert_null(hf_master_find(&one.master, hf_key_of("k")));
    hold(1, 5);
    assert_int_equal(send(one_read()), HF_QUORUM_REPORT);
    assert_int_equal(one.reply.report.token, 5);
    assert_true(is_value(one.reply.report.data.value, "1"));
    assert_int_equal(one.reply.highest, 5);
}

static void the_summary_counts_leases_votes_and_waiters(void **state)
{
    struct hf_quorum_request other = one_ask(4, 7);
    struct hf_master_summary summary;

    (void)state;
    hold(1, 5);
    assert_int_equal(send(one_wait(2, 6)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_wait(3, 7)), HF_QUORUM_BUSY);
    other.key = hf_key_of("other");
    assert_int_equal(send(other), HF_QUORUM_VOTE);
    hf_master_summarize(&one.master, &summary);
    assert_int_equal(summary.held, 1);
    assert_int_equal(summary.votes, 1);
    assert_int_equal(summary.waiters, 2);
    assert_int_equal(summary.records, 2);
}

/* ---- Restarts and marks -------------------------------------------------*/

/* LK-25 */
static void a_restarted_master_is_quiet(void **state)
{
    struct hf_master_opts opts = one_master_opts();

    (void)state;
    one_master_fini(&one);
    opts.mark = 2000;
    opts.floor = 1000;
    opts.quiet_until = 5000000 + ONE_LEASE_MAX_MS;
    one_master_init(&one, &opts);
    assert_int_equal(send(one_ask(1, 1001)), HF_QUORUM_QUIET);
    assert_int_equal(one.reply.quiet_ms, ONE_LEASE_MAX_MS);
    assert_int_equal(one.reply.highest, 1000);
    assert_int_equal(send(one_prepare(1, 1001)), HF_QUORUM_QUIET);
    assert_int_equal(send(one_commit(1, 1001)), HF_QUORUM_QUIET);
    assert_int_equal(send(one_renew(1, 5)), HF_QUORUM_QUIET);
    assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_QUIET);
    assert_int_equal(send(one_read()), HF_QUORUM_QUIET);
    assert_int_equal(send(one_force(5, true)), HF_QUORUM_QUIET);
    one_advance(&one, ONE_LEASE_MAX_MS - 1);
    assert_int_equal(send(one_ask(1, 1001)), HF_QUORUM_QUIET);
    assert_int_equal(one.reply.quiet_ms, 1);
    one_advance(&one, 1);
    assert_int_equal(send(one_ask(1, 1000)), HF_QUORUM_LOW);
    assert_int_equal(send(one_commit(1, 1000)), HF_QUORUM_LOW);
    assert_int_equal(send(one_prepare(1, 1000)), HF_QUORUM_LOW);
    assert_int_equal(send(one_ask(1, 1001)), HF_QUORUM_VOTE);
}

/* No number above the durable mark is promised. */
static void numbers_above_the_mark_are_refused(void **state)
{
    struct hf_master_opts opts = one_master_opts();

    (void)state;
    one_master_fini(&one);
    opts.mark = 0;
    one_master_init(&one, &opts);
    assert_int_equal(send(one_ask(1, 1)), HF_QUORUM_REFUSED);
    assert_int_equal(one.reply.err, HF_EUNAVAIL);
    assert_true(hf_master_wanted_mark(&one.master) == 1 + HF_QUORUM_MARK_STEP);
    assert_null(hf_master_find(&one.master, hf_key_of("k")));
    hf_master_set_mark(&one.master, 10);
    hf_master_set_mark(&one.master, 5);
    assert_int_equal(send(one_ask(1, 10)), HF_QUORUM_VOTE);
    assert_int_equal(send(one_prepare(2, 11)), HF_QUORUM_REFUSED);
    assert_int_equal(send(one_commit(1, 11)), HF_QUORUM_REFUSED);
    assert_int_equal(send(one_end(2, 11, 0)), HF_QUORUM_REFUSED);
    assert_int_equal(one.reply.err, HF_EUNAVAIL);
    assert_int_equal(one_report(&one).promised, 10);
    assert_true(hf_master_wanted_mark(&one.master) == 11 + HF_QUORUM_MARK_STEP);
    hf_master_set_mark(&one.master, 11 + HF_QUORUM_MARK_STEP);
    assert_true(hf_master_wanted_mark(&one.master) == 0);
    assert_int_equal(send(one_prepare(2, 11)), HF_QUORUM_PROMISE);
}

static void a_mark_is_raised_before_it_is_reached(void **state)
{
    (void)state;
    assert_true(hf_master_wanted_mark(&one.master) == 0);
    assert_int_equal(send(one_ask(1, HF_QUORUM_MARK_STEP / 2)), HF_QUORUM_VOTE);
    assert_true(hf_master_wanted_mark(&one.master) ==
                HF_QUORUM_MARK_STEP / 2 + HF_QUORUM_MARK_STEP);
}

static void an_absurd_number_is_refused(void **state)
{
    struct hf_quorum_request ask = one_ask(1, 5);

    (void)state;
    assert_int_equal(send(one_ask(1, HF_QUORUM_JUMP_MAX + 1)),
                     HF_QUORUM_REFUSED);
    assert_int_equal(one.reply.err, HF_EINVAL);
    assert_true(hf_master_wanted_mark(&one.master) == 0);
    assert_int_equal(send(one_ask(1, HF_QUORUM_JUMP_MAX)), HF_QUORUM_REFUSED);
    assert_int_equal(one.reply.err, HF_EUNAVAIL);
    ask.lease_ms = ONE_LEASE_MAX_MS + 1;
    assert_int_equal(send(ask), HF_QUORUM_REFUSED);
    assert_int_equal(one.reply.err, HF_EINVAL);
    ask.lease_ms = ONE_LEASE_MAX_MS;
    assert_int_equal(send(ask), HF_QUORUM_VOTE);
}

/* Clients that lie can use up numbers, but these never wrap around. */
static void the_numbers_of_a_master_do_not_overflow(void **state)
{
    struct hf_master_opts opts = one_master_opts();

    (void)state;
    one_master_fini(&one);
    opts.mark = HF_QUORUM_NUMBER_MAX + 1;
    opts.floor = HF_QUORUM_NUMBER_MAX - 1;
    one_master_init(&one, &opts);
    assert_int_equal(send(one_ask(1, HF_QUORUM_NUMBER_MAX + 1)),
                     HF_QUORUM_REFUSED);
    assert_int_equal(one.reply.err, HF_EINVAL);
    assert_int_equal(send(one_ask(1, HF_QUORUM_NUMBER_MAX)), HF_QUORUM_VOTE);
    assert_true(hf_master_wanted_mark(&one.master) > HF_QUORUM_NUMBER_MAX);
}

/* ---- Limits -------------------------------------------------------------*/

/* What a dropped record had promised remains promised. */
static void an_idle_record_is_dropped_and_raises_the_floor(void **state)
{
    (void)state;
    assert_int_equal(send(one_prepare(1, 7)), HF_QUORUM_PROMISE);
    one_advance(&one, HF_QUORUM_IDLE_MS - 1);
    assert_non_null(hf_master_find(&one.master, hf_key_of("k")));
    one_advance(&one, 1);
    assert_null(hf_master_find(&one.master, hf_key_of("k")));
    assert_int_equal(one_report(&one).promised, 7);
    assert_int_equal(send(one_commit(1, 7)), HF_QUORUM_LOW);
    assert_int_equal(send(one_ask(2, 7)), HF_QUORUM_LOW);
    assert_int_equal(send(one_ask(2, 8)), HF_QUORUM_VOTE);
    one_advance(&one, ONE_LEASE_MS);
    one_advance(&one, HF_QUORUM_IDLE_MS);
    assert_int_equal(one.master.records.count, 0);
    assert_int_equal(one.master.bytes + one.master.bids.bytes, 0);
}

static void a_record_with_a_lease_or_a_waiter_is_kept(void **state)
{
    struct hf_quorum_request commit = one_commit(1, 5);

    (void)state;
    commit.lease_ms = ONE_LEASE_MAX_MS;
    assert_int_equal(send(commit), HF_QUORUM_OK);
    one_advance(&one, 2L * HF_QUORUM_IDLE_MS);
    assert_true(is_held_by(1, 5));
    assert_int_equal(send(one_wait(2, 6)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_wait(3, 7)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_prepare(4, 9)), HF_QUORUM_PROMISE);
    assert_int_equal(send(one_end(1, 5, 5)), HF_QUORUM_ENDED);
    (void)one_take_push(&one, 2, HF_QUORUM_LOW);
    one_advance(&one, 2L * HF_QUORUM_IDLE_MS);
    one_advance(&one, 2L * HF_QUORUM_IDLE_MS);
    assert_int_equal(one_report(&one).waiters, 2);
    hf_master_disconnect(&one.master, one.now, 2);
    hf_master_disconnect(&one.master, one.now, 3);
    one_advance(&one, HF_QUORUM_GRACE_MS);
    assert_int_equal(one_report(&one).waiters, 0);
    one_advance(&one, HF_QUORUM_IDLE_MS);
    assert_int_equal(one.master.records.count, 0);
}

static void the_queue_of_a_key_is_limited(void **state)
{
    struct hf_master_opts opts = one_master_opts();

    (void)state;
    one_master_fini(&one);
    opts.bytes_max = 1 << 28;
    one_master_init(&one, &opts);
    hold(1, 5);
    for (unsigned i = 0; i < HF_WAITERS_MAX; i++)
        assert_int_equal(send(one_wait(10 + i, 10 + i)), HF_QUORUM_BUSY);
    assert_int_equal(one.reply.position, HF_WAITERS_MAX);
    assert_int_equal(send(one_wait(2, 100000)), HF_QUORUM_REFUSED);
    assert_int_equal(one.reply.err, HF_ELIMIT);
    assert_int_equal(send(one_ask(3, 100000)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_wait(10, 10)), HF_QUORUM_BUSY);
    assert_int_equal(send(one_end(10, 10, 0)), HF_QUORUM_ENDED);
    assert_int_equal(send(one_wait(2, 100000)), HF_QUORUM_BUSY);
    hf_master_disconnect(&one.master, one.now, 10);
    one_advance(&one, HF_QUORUM_GRACE_MS);
}

static struct hf_quorum_request ask_for_key(unsigned number)
{
    static char name[16];
    struct hf_quorum_request ask = one_ask(1, 5);

    (void)snprintf(name, sizeof(name), "%u", number);
    ask.key = hf_key_of(name);
    return ask;
}

/* A master that is full refuses what needs memory, and recovers. */
static void the_memory_of_a_master_is_limited(void **state)
{
    struct hf_master_opts opts = one_master_opts();
    struct hf_quorum_request prepare = one_prepare(1, 6);
    struct hf_quorum_request large = one_commit(1, 6);
    static char value[20000];
    unsigned count = 0;

    (void)state;
    one_master_fini(&one);
    opts.bytes_max = sizeof(value);
    one_master_init(&one, &opts);
    while (send(ask_for_key(count)) == HF_QUORUM_VOTE)
        count++;
    assert_int_equal(one.reply.kind, HF_QUORUM_REFUSED);
    assert_int_equal(one.reply.err, HF_ELIMIT);
    assert_true(count > 10);
    assert_true(one.master.bytes + one.master.bids.bytes <= opts.bytes_max);
    prepare.key = (struct hf_key){value, HF_KEY_MAX};
    assert_int_equal(send(prepare), HF_QUORUM_REFUSED);
    assert_int_equal(send(one_read()), HF_QUORUM_REPORT);
    one_advance(&one, ONE_LEASE_MS);
    one_advance(&one, HF_QUORUM_IDLE_MS);
    large.data.value = (struct hf_bytes){value, sizeof(value)};
    assert_int_equal(send(large), HF_QUORUM_REFUSED);
    assert_int_equal(one.reply.err, HF_ELIMIT);
    large.data.value.size = sizeof(value) / 2;
    assert_int_equal(send(large), HF_QUORUM_OK);
}

/* The bids of a claim for many keys are found without a search. */
static void one_claim_may_ask_for_many_keys(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(send(ask_for_key(i)), HF_QUORUM_VOTE);
    for (unsigned i = 0; i < 1000; i++) {
        struct hf_quorum_request ask = ask_for_key(i);
        struct hf_claim_id id = one_id(1);
        struct hf_bid *bid = hf_bids_find(
            &one.master.bids, hf_master_find(&one.master, ask.key), &id);

        assert_non_null(bid);
        assert_null(hf_map_find_next(&bid->by_id));
    }
}

static void the_records_of_a_master_are_limited(void **state)
{
    size_t count;

    (void)state;
    hold(1, 5);
    count = one.master.records.count;
    one.master.records.count = HF_HOLDS_MAX;
    assert_int_equal(send(ask_for_key(1)), HF_QUORUM_REFUSED);
    assert_int_equal(one.reply.err, HF_ELIMIT);
    one.master.records.count = count;
    assert_int_equal(send(ask_for_key(1)), HF_QUORUM_VOTE);
}

/* ---- Memory -------------------------------------------------------------*/

/* What a request may change, as far as clients can see it. */
struct view {
    struct hf_report report;
    struct hf_master_summary summary;
    size_t bytes, bid_bytes;
};

static struct view view_of(void)
{
    struct view view = {.report = one_report(&one)};

    hf_master_summarize(&one.master, &view.summary);
    view.bytes = one.master.bytes;
    view.bid_bytes = one.master.bids.bytes;
    return view;
}

/* Let each allocation of the request fail in turn: nothing has changed then. */
static void check_out_of_memory(struct hf_quorum_request request,
                                enum hf_quorum_reply_kind kind)
{
    enum hf_quorum_reply_kind got = HF_QUORUM_REFUSED;

    for (unsigned nth = 1; got == HF_QUORUM_REFUSED; nth++) {
        struct view before = view_of(), after;

        hf_alloc_fail(nth, 1);
        got = send(request);
        if (!hf_alloc_failed() || got != HF_QUORUM_REFUSED)
            continue;
        assert_int_equal(one.reply.err, HF_ENOMEM);
        after = view_of();
        assert_memory_equal(&before, &after, sizeof(before));
        assert_int_equal(one.pushed, 0);
    }
    assert_int_equal(got, kind);
}

static void a_request_without_memory_changes_nothing(void **state)
{
    struct hf_quorum_request elsewhere = one_wait(3, 8);

    (void)state;
    check_out_of_memory(one_ask(6, 4), HF_QUORUM_VOTE);
    assert_int_equal(send(one_end(6, 4, 0)), HF_QUORUM_ENDED);
    hold(1, 5);
    check_out_of_memory(one_wait(2, 7), HF_QUORUM_BUSY);
    hf_master_disconnect(&one.master, one.now, 2);
    elsewhere.nonce = one_nonce(2);
    elsewhere.number = 9;
    check_out_of_memory(elsewhere, HF_QUORUM_BUSY);
    check_out_of_memory(one_repair(1, 12, 5), HF_QUORUM_OK);
    check_out_of_memory(one_prepare(4, 13), HF_QUORUM_PROMISE);
    check_out_of_memory(one_commit(4, 13), HF_QUORUM_OK);
    check_out_of_memory(one_end(4, 13, 13), HF_QUORUM_ENDED);
    (void)one_take_push(&one, 2, HF_QUORUM_LOW);
    assert_int_equal(send(one_end(2, 9, 0)), HF_QUORUM_ENDED);
    check_out_of_memory(one_ask(5, 14), HF_QUORUM_VOTE);
    check_out_of_memory(one_renew(5, 14), HF_QUORUM_OK);
    check_out_of_memory(one_force(14, true), HF_QUORUM_OK);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, start_master, stop_master)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(the_first_ask_gets_the_vote),
        CASE(a_repeated_ask_gets_the_same_vote),
        CASE(an_ask_of_the_holder_with_its_token_gets_the_vote),
        CASE(a_key_with_a_vote_or_a_lease_is_busy),
        CASE(an_ask_needs_a_number_above_the_promise),
        CASE(a_claim_moves_its_vote_to_a_higher_number),
        CASE(waiters_are_queued_by_ticket),
        CASE(a_ticket_below_those_that_were_seen_is_too_low),
        CASE(a_waiter_with_a_new_ticket_changes_its_position),
        CASE(a_repeated_ask_of_a_waiter_keeps_its_position),
        CASE(an_expired_lease_is_passed_to_the_first_waiter),
        CASE(an_expired_vote_is_passed_to_the_first_waiter),
        CASE(an_expired_vote_leaves_its_promise),
        CASE(a_waiter_with_a_low_number_is_asked_for_a_higher_one),
        CASE(a_waiter_that_does_not_ask_again_is_passed_over),
        CASE(a_waiter_without_a_connection_is_passed_over),
        CASE(a_waiter_that_reconnects_keeps_its_position),
        CASE(a_vote_stays_without_a_connection),
        CASE(a_claim_with_the_vote_that_reconnects_is_not_forgotten),
        CASE(the_first_waiter_that_returns_gets_the_vote),
        CASE(a_late_ask_changes_nothing),
        CASE(an_ask_with_an_old_serial_gets_no_vote),
        CASE(a_promise_reports_the_lease_with_its_data),
        CASE(a_promise_shows_the_data_of_an_own_expired_lease),
        CASE(a_promise_leaves_the_vote_and_reports_it),
        CASE(a_commit_after_the_vote_makes_a_lease),
        CASE(a_commit_below_the_promise_is_too_low),
        CASE(a_repeated_commit_moves_nothing),
        CASE(a_commit_displaces_the_vote_of_another_claim),
        CASE(a_displaced_claim_that_does_not_wait_is_forgotten),
        CASE(a_repair_never_shortens_a_lease),
        CASE(an_update_keeps_the_deadline),
        CASE(a_renewal_extends_the_lease_and_never_shortens_it),
        CASE(a_renewal_of_a_lease_ignores_promises),
        CASE(a_renewal_makes_a_lease_of_a_vote),
        CASE(a_promise_to_another_claim_voids_the_renewal_of_a_vote),
        CASE(a_renewal_creates_nothing),
        CASE(an_end_releases_the_lease),
        CASE(an_end_of_a_vote_leaves_no_lease),
        CASE(an_end_leaves_a_trace_where_the_lease_never_came),
        CASE(an_end_of_another_claim_changes_no_lease),
        CASE(an_end_displaces_votes_below_its_ballot),
        CASE(an_end_with_an_equal_number_closes_no_promise),
        CASE(an_ended_claim_does_not_return),
        CASE(an_end_closes_the_promise_of_its_claim),
        CASE(a_repeated_end_finds_the_same_again),
        CASE(an_end_takes_the_claim_out_of_the_queue),
        CASE(the_list_of_ended_claims_has_the_last_ones),
        CASE(a_forced_lease_ends_at_its_deadline),
        CASE(a_lease_that_is_forced_now_is_passed_on),
        CASE(a_forced_lock_can_be_updated),
        CASE(a_claim_asks_again_after_its_vote_was_forced),
        CASE(a_forced_vote_ends_at_its_deadline),
        CASE(a_vote_that_is_forced_now_is_passed_on),
        CASE(a_force_of_an_unknown_key_is_missing),
        CASE(a_read_reports_and_changes_nothing),
        CASE(the_summary_counts_leases_votes_and_waiters),
        CASE(a_restarted_master_is_quiet),
        CASE(numbers_above_the_mark_are_refused),
        CASE(a_mark_is_raised_before_it_is_reached),
        CASE(an_absurd_number_is_refused),
        CASE(the_numbers_of_a_master_do_not_overflow),
        CASE(an_idle_record_is_dropped_and_raises_the_floor),
        CASE(a_record_with_a_lease_or_a_waiter_is_kept),
        CASE(the_queue_of_a_key_is_limited),
        CASE(the_memory_of_a_master_is_limited),
        CASE(one_claim_may_ask_for_many_keys),
        CASE(the_records_of_a_master_are_limited),
        CASE(a_request_without_memory_changes_nothing),
    };

    return hf_test_main("quorum-master", cases, HF_TEST_COUNT(cases), 0);
}
