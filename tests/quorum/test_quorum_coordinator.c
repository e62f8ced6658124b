/* The coordinator of a claim, with scripted replies; see one_claim.h. */
#include "lib/alloc.h"
#include "lib/runner.h"
#include "quorum/one_claim.h"

static struct one_claim one;

static int start_three(void **state)
{
    (void)state;
    one_claim_init(&one, 3);
    return 0;
}

static int start_five(void **state)
{
    (void)state;
    one_claim_init(&one, 5);
    return 0;
}

static int stop_claim(void **state)
{
    (void)state;
    one_claim_fini(&one);
    return 0;
}

static const struct hf_quorum_request *take_request(
    enum hf_quorum_request_kind kind)
{
    return one_claim_take_request(&one, kind);
}

static struct hf_coordinator_event take_event(
    enum hf_coordinator_event_kind kind)
{
    return one_claim_take_event(&one, kind);
}

static void reply(unsigned master, enum hf_quorum_reply_kind kind)
{
    one_claim_reply_kind(&one, master, kind);
}

static void promise(unsigned master, struct hf_report report)
{
    one_claim_report(&one, master, HF_QUORUM_PROMISE, report);
}

static struct hf_report nothing(void)
{
    return (struct hf_report){0};
}

static struct hf_report mine(const char *value)
{
    return one_claim_held(1, 1, 1, value);
}

static struct hf_report others(uint64_t token)
{
    return one_claim_held(2, token, token, "other");
}

static bool is_value(struct hf_bytes value, const char *text)
{
    return hf_bytes_equal(value, hf_bytes_of(text));
}

/* ---- Grants -------------------------------------------------------------*/

/* LK-01, LK-02: one round trip. */
static void a_fast_quorum_of_votes_is_a_grant(void **state)
{
    const struct hf_quorum_request *ask;
    struct hf_coordinator_event event;

    (void)state;
    one_claim_lock(&one, true);
    ask = take_request(HF_QUORUM_ASK);
    assert_int_equal(ask->number, 1);
    assert_int_equal(ask->ticket, 1);
    assert_int_equal(ask->lease_ms, CLAIM_LEASE_MS);
    assert_true(ask->fast && ask->queue && !ask->is_queued);
    assert_true(is_value(ask->data.value, "first"));
    one.now += 3;
    one_claim_vote(&one, 0);
    one_claim_vote(&one, 1);
    one_claim_vote(&one, 1); /* counts once */
    one_claim_expect_no_event(&one);
    one_claim_vote(&one, 2);
    event = take_event(HF_COORDINATOR_GRANTED);
    assert_int_equal(event.token, 1);
    assert_int_equal(event.needed, 2);
    assert_int_equal(event.votes, 3);
    assert_int_equal(event.commits, 3);
    assert_true(event.sent == one.now - 3);
    assert_int_equal(event.age_ms, 0);
    one_claim_expect_silence(&one);
    assert_true(hf_coordinator_deadline(one.c) == HF_NEVER);
}

static void four_of_five_votes_are_a_grant(void **state)
{
    (void)state;
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    for (unsigned i = 0; i < 3; i++)
        one_claim_vote(&one, i);
    one_claim_expect_no_event(&one);
    one_claim_vote(&one, 4);
    assert_int_equal(take_event(HF_COORDINATOR_GRANTED).votes, 4);
}

/* A master that does not reply is waited for a moment, then a majority commits:
 * two round trips. */
static void a_majority_commits_after_a_moment(void **state)
{
    const struct hf_quorum_request *commit;
    struct hf_coordinator_event event;

    (void)state;
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_vote(&one, 0);
    one_claim_vote(&one, 1);
    one_claim_advance(&one, CLAIM_PATIENCE_MS - 1);
    one_claim_expect_silence(&one);
    one_claim_advance(&one, 1);
    commit = take_request(HF_QUORUM_COMMIT);
    assert_int_equal(commit->number, 1);
    assert_int_equal(commit->token, 1);
    assert_int_equal(commit->lease_ms, CLAIM_LEASE_MS);
    assert_false(commit->keeps_deadline);
    assert_true(is_value(commit->data.value, "first"));
    one.now += 4;
    reply(0, HF_QUORUM_OK);
    one_claim_expect_no_event(&one);
    reply(1, HF_QUORUM_OK);
    event = take_event(HF_COORDINATOR_GRANTED);
    assert_int_equal(event.commits, 2);
    assert_true(event.sent == one.now - 4);
    assert_int_equal(event.age_ms, 0);
}

/* LK-06 */
static void a_majority_commits_at_once_if_a_master_is_down(void **state)
{
    (void)state;
    one.common.usable = 3;
    one_claim_lock(&one, true);
    assert_false(take_request(HF_QUORUM_ASK)->fast);
    one_claim_vote(&one, 0);
    one_claim_vote(&one, 1);
    (void)take_request(HF_QUORUM_COMMIT);
    reply(1, HF_QUORUM_OK);
    reply(0, HF_QUORUM_OK);
    assert_int_equal(take_event(HF_COORDINATOR_GRANTED).needed, 2);
}

/* An earlier ASK with this number asked for slow votes. */
static void slow_votes_are_not_a_grant(void **state)
{
    (void)state;
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_vote(&one, 0);
    one_claim_vote(&one, 1);
    one_claim_report(&one, 2, HF_QUORUM_VOTE, one_claim_voted(1, 1, false));
    one_claim_expect_no_event(&one);
    (void)take_request(HF_QUORUM_COMMIT);
}

/* LK-07 */
static void a_minority_of_votes_is_nothing(void **state)
{
    (void)state;
    one.common.usable = 1;
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_vote(&one, 0);
    one_claim_expect_silence(&one);
    for (int i = 0; i < 5; i++) {
        one_claim_wait(&one);
        one_claim_expect_no_event(&one);
        assert_int_equal(one.c->state, HF_COORDINATOR_ASK);
        one_claim_vote(&one, 0);
    }
}

/* LK-24 */
static void late_replies_do_nothing(void **state)
{
    struct hf_quorum_reply late = {.kind = HF_QUORUM_VOTE, .number = 1};

    (void)state;
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    late.serial = one.c->serial;
    one_claim_low(&one, 0, 6);
    one_claim_low(&one, 1, 5);
    one_claim_low(&one, 2, 4);
    assert_int_equal(take_request(HF_QUORUM_ASK)->number, 7);
    for (unsigned i = 0; i < 3; i++)
        one_claim_reply(&one, i, late);
    one_claim_expect_no_event(&one);
    one_claim_expect_silence(&one);
    one_claim_vote(&one, 0);
    one_claim_vote(&one, 1);
    one_claim_wait(&one);
    (void)take_request(HF_QUORUM_COMMIT);
    late = (struct hf_quorum_reply){.kind = HF_QUORUM_OK, .number = 7};
    late.serial = one.c->serial - 1;
    for (unsigned i = 0; i < 3; i++)
        one_claim_reply(&one, i, late);
    one_claim_expect_no_event(&one);
}

/* ---- Low numbers --------------------------------------------------------*/

static void a_low_number_is_raised_above_all_known_ones(void **state)
{
    const struct hf_quorum_request *ask;

    (void)state;
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_low(&one, 0, 8);
    one_claim_vote(&one, 1);
    one_claim_expect_silence(&one);
    one_claim_low(&one, 2, 6);
    ask = take_request(HF_QUORUM_ASK);
    assert_int_equal(ask->number, 9);
    assert_int_equal(ask->ticket, 9);
    for (unsigned i = 0; i < 3; i++)
        one_claim_vote(&one, i);
    assert_int_equal(take_event(HF_COORDINATOR_GRANTED).token, 9);
}

/* A claim of the same client has seen a higher number. */
static void a_claim_begins_above_the_highest_known_number(void **state)
{
    (void)state;
    one.common.highest = 41;
    one_claim_lock(&one, false);
    assert_int_equal(take_request(HF_QUORUM_ASK)->number, 42);
}

/* ---- Splits -------------------------------------------------------------*/

/* The masters have split their votes: this claim has one, and `rivals`, up to
 * two claims with the number 1, have the others. */
static void split_votes(const unsigned rivals[2], bool queue)
{
    one_claim_lock(&one, queue);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_vote(&one, 0);
    for (unsigned i = 0; i < 2; i++)
        one_claim_busy(&one, 1 + i, queue ? 1 : 0,
                       one_claim_voted(rivals[i], 1, true));
}

/* The first claim from `from` on whose id is greater, or is less, than that of
 * the claim under test. */
static unsigned rival(bool is_greater, unsigned from)
{
    struct hf_claim_id own = one_claim_id(1);

    for (unsigned i = from;; i++) {
        struct hf_claim_id other = one_claim_id(i);

        if ((memcmp(&other, &own, sizeof(own)) > 0) == is_greater)
            return i;
    }
}

/* LK-09 */
static void the_winner_of_a_split_goes_on_at_once(void **state)
{
    unsigned lesser = rival(false, 2), least = rival(false, lesser + 1);

    (void)state;
    split_votes((unsigned[]){lesser, least}, true);
    assert_int_equal(take_request(HF_QUORUM_PREPARE)->number, 2);
    promise(0, one_claim_voted(1, 1, true));
    promise(1, one_claim_voted(lesser, 1, true));
    assert_int_equal(take_request(HF_QUORUM_COMMIT)->token, 2);
    reply(0, HF_QUORUM_OK);
    reply(2, HF_QUORUM_OK);
    assert_int_equal(take_event(HF_COORDINATOR_GRANTED).token, 2);
}

static void the_loser_of_a_split_waits(void **state)
{
    (void)state;
    split_votes((unsigned[]){rival(true, 2), rival(false, 2)}, true);
    assert_int_equal(take_event(HF_COORDINATOR_QUEUED).position, 1);
    one_claim_expect_silence(&one);
    assert_int_equal(one.c->state, HF_COORDINATOR_WAIT);
}

/* A claim that does not wait is busy when another one has won the race. */
static void a_claim_with_fewer_votes_loses(void **state)
{
    unsigned lesser = rival(false, 2);

    (void)state;
    split_votes((unsigned[]){lesser, lesser}, false);
    one_claim_expect_no_event(&one);
    one_claim_wait(&one);
    (void)take_request(HF_QUORUM_ASK);
    for (unsigned i = 0; i < 3; i++)
        one_claim_busy(&one, i, 0, others(7));
    (void)take_event(HF_COORDINATOR_BUSY);
    assert_int_equal(take_request(HF_QUORUM_END)->ballot, 0);
}

/* ... or if nobody wins it for a while. */
static void a_race_without_a_winner_ends(void **state)
{
    unsigned lesser = rival(false, 2), races = 0;

    (void)state;
    split_votes((unsigned[]){lesser, lesser}, false);
    for (; one.c->state == HF_COORDINATOR_WAIT && races < 100; races++) {
        one_claim_wait(&one);
        (void)take_request(HF_QUORUM_ASK);
        one_claim_vote(&one, 0);
        one_claim_busy(&one, 1, 0, one_claim_voted(lesser, 1, true));
        one_claim_busy(&one, 2, 0, one_claim_voted(lesser, 1, true));
    }
    assert_true(races < 100);
    (void)take_event(HF_COORDINATOR_BUSY);
}

/* With five masters, two claims of two votes each; the higher number wins. */
static void the_higher_number_wins_a_split(void **state)
{
    (void)state;
    one.common.highest = 6;
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_vote(&one, 0);
    one_claim_vote(&one, 1);
    one_claim_busy(&one, 2, 1, one_claim_voted(2, 6, true));
    one_claim_busy(&one, 3, 1, one_claim_voted(2, 6, true));
    one_claim_busy(&one, 4, 1, one_claim_voted(3, 9, true));
    (void)take_request(HF_QUORUM_PREPARE);
}

/* ---- Busy keys ----------------------------------------------------------*/

static void a_try_of_a_held_key_is_busy(void **state)
{
    const struct hf_quorum_request *end;

    (void)state;
    one_claim_lock(&one, false);
    assert_false(take_request(HF_QUORUM_ASK)->queue);
    one_claim_busy(&one, 0, 0, others(5));
    one_claim_expect_no_event(&one);
    one_claim_busy(&one, 1, 0, others(5));
    (void)take_event(HF_COORDINATOR_BUSY);
    end = take_request(HF_QUORUM_END);
    assert_int_equal(end->number, 1);
    assert_int_equal(end->ballot, 0);
    for (unsigned i = 0; i < 3; i++)
        one_claim_ended(&one, i, HF_QUORUM_END_NOTHING);
    one_claim_expect_no_event(&one);
    assert_int_equal(one.c->state, HF_COORDINATOR_DONE);
}

/* Lock a held key; a majority queues the claim. */
static void start_waiting(void)
{
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_busy(&one, 0, 2, others(5));
    one_claim_busy(&one, 1, 3, others(5));
    assert_int_equal(take_event(HF_COORDINATOR_QUEUED).position, 3);
    assert_int_equal(one.c->state, HF_COORDINATOR_WAIT);
    one_claim_busy(&one, 2, 2, others(5));
    one_claim_expect_no_event(&one);
}

static void a_waiter_asks_again_and_keeps_its_ticket(void **state)
{
    const struct hf_quorum_request *ask;
    hf_time asked = one.now;

    (void)state;
    start_waiting();
    one_claim_wait(&one);
    assert_true(one.now >= asked + 250 && one.now <= asked + 500);
    ask = take_request(HF_QUORUM_ASK);
    assert_int_equal(ask->number, 1);
    assert_int_equal(ask->ticket, 1);
    assert_true(ask->is_queued);
    one_claim_busy(&one, 0, 1, others(5));
    one_claim_busy(&one, 1, 1, others(5));
    one_claim_expect_no_event(&one); /* QUEUED is reported once */
    assert_int_equal(one.c->state, HF_COORDINATOR_WAIT);
    one_claim_low(&one, 2, 70);
    ask = take_request(HF_QUORUM_ASK);
    assert_int_equal(ask->number, 71);
    assert_int_equal(ask->ticket, 1);
}

static void pushed_votes_are_a_grant(void **state)
{
    struct hf_coordinator_event event;
    uint32_t serial;
    hf_time asked;

    (void)state;
    asked = one.now;
    start_waiting();
    serial = one.c->serial;
    one.now += 200;
    one_claim_push(&one, 0, serial, 190);
    one_claim_push(&one, 1, serial, 180);
    one_claim_expect_no_event(&one);
    one_claim_push(&one, 2, serial, 195);
    event = take_event(HF_COORDINATOR_GRANTED);
    assert_true(event.sent == asked); /* the earliest of the three counts */
    assert_int_equal(event.age_ms, 180);
    one_claim_expect_silence(&one);
}

static void a_majority_of_pushed_votes_commits_after_a_moment(void **state)
{
    (void)state;
    start_waiting();
    one_claim_advance(&one, 100);
    one_claim_push(&one, 0, one.c->serial, 100);
    one_claim_push(&one, 2, one.c->serial, 100);
    one_claim_expect_silence(&one);
    one_claim_advance(&one, CLAIM_PATIENCE_MS);
    (void)take_request(HF_QUORUM_COMMIT);
    reply(0, HF_QUORUM_OK);
    reply(2, HF_QUORUM_OK);
    assert_true(take_event(HF_COORDINATOR_GRANTED).sent == one.now);
}

static void a_pushed_low_asks_with_a_higher_number(void **state)
{
    const struct hf_quorum_request *ask;

    (void)state;
    start_waiting();
    one.now += 100;
    hf_coordinator_receive(one.c, one.now, 1,
                           &(struct hf_quorum_reply){.kind = HF_QUORUM_LOW,
                                                     .number = 1,
                                                     .highest = 30});
    ask = take_request(HF_QUORUM_ASK);
    assert_int_equal(ask->number, 31);
    assert_int_equal(ask->ticket, 1);
    one_claim_push(&one, 0, 1, 0); /* of the new number */
    one_claim_expect_no_event(&one);
}

/* Each vote names the ASK that it followed. */
static void the_earliest_anchor_of_the_votes_counts(void **state)
{
    struct hf_coordinator_event event;
    hf_time first = one.now;
    uint32_t serial;

    (void)state;
    start_waiting();
    serial = one.c->serial;
    one_claim_wait(&one);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_push(&one, 0, one.c->serial, 7);
    one_claim_push(&one, 1, one.c->serial, 9);
    one_claim_push(&one, 2, serial, 100); /* the last ASK was late there */
    event = take_event(HF_COORDINATOR_GRANTED);
    assert_true(event.sent == first);
    assert_int_equal(event.age_ms, 100);
}

/* The base of a lease is never later than its start: an ASK that is not known
 * any more counts from the first one with this number. */
static void an_unknown_anchor_is_the_first_ask_of_the_number(void **state)
{
    struct hf_coordinator_event event;
    hf_time first = one.now;
    uint32_t serial;

    (void)state;
    start_waiting();
    one.c->lease_ms = 60000; /* a vote from the first ASK is not old */
    serial = one.c->serial;
    for (int i = 0; i < HF_COORDINATOR_ANCHORS; i++) {
        one_claim_wait(&one);
        (void)take_request(HF_QUORUM_ASK);
        for (unsigned j = 0; j < 3; j++)
            one_claim_busy(&one, j, 1, others(5));
    }
    one_claim_push(&one, 0, one.c->serial, 50);
    one_claim_push(&one, 1, one.c->serial, 50);
    one_claim_push(&one, 2, serial, 50);
    event = take_event(HF_COORDINATOR_GRANTED);
    assert_true(event.sent == first);
    assert_int_equal(event.age_ms, 0);
}

static void a_vote_without_an_anchor_counts_from_the_first_ask(void **state)
{
    struct hf_coordinator_event event;
    hf_time first = one.now;

    (void)state;
    start_waiting();
    one_claim_wait(&one);
    (void)take_request(HF_QUORUM_ASK);
    for (unsigned i = 0; i < 3; i++)
        one_claim_push(&one, i, 0, 77);
    event = take_event(HF_COORDINATOR_GRANTED);
    assert_true(event.sent == first);
    assert_int_equal(event.age_ms, 0);
}

/* A vote from long ago, and two that are new: the lease of the first one ends
 * long before the others, or has ended. */
static void a_grant_by_an_old_vote_is_committed_first(void **state)
{
    struct hf_coordinator_event event;

    (void)state;
    start_waiting();
    one_claim_push(&one, 0, one.c->serial, 0);
    one_claim_advance(&one, CLAIM_PATIENCE_MS);
    for (int i = 0; i < 3; i++) {
        (void)take_request(HF_QUORUM_ASK);
        one_claim_busy(&one, 1, 1, others(5));
        one_claim_busy(&one, 2, 1, others(5));
        one_claim_wait(&one);
        while (one.sent_to == 0)
            one_claim_wait(&one);
    }
    (void)take_request(HF_QUORUM_ASK);
    one_claim_push(&one, 0, 1, 0);
    one_claim_push(&one, 1, one.c->serial, 0);
    one_claim_push(&one, 2, one.c->serial, 0);
    one_claim_expect_no_event(&one);
    assert_int_equal(take_request(HF_QUORUM_COMMIT)->token, 1);
    one.now += 5;
    reply(1, HF_QUORUM_OK);
    reply(2, HF_QUORUM_OK);
    event = take_event(HF_COORDINATOR_GRANTED);
    assert_int_equal(event.token, 1);
    assert_true(event.sent == one.now - 5);
}

/* LK-23: a claim that had votes has died between its phases. */
static void a_stuck_vote_is_passed_over(void **state)
{
    struct hf_report stuck = one_claim_voted(2, 1, false);

    (void)state;
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    for (unsigned i = 0; i < 3; i++)
        one_claim_busy(&one, i, 1, stuck);
    (void)take_event(HF_COORDINATOR_QUEUED);
    one_claim_expect_silence(&one);
    one_claim_wait(&one);
    (void)take_request(HF_QUORUM_ASK);
    stuck.vote_age_ms = 250;
    stuck.waiters = 2; /* the key was free before, so this is no handover */
    for (unsigned i = 0; i < 3; i++)
        one_claim_busy(&one, i, 2, stuck);
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, stuck);
    promise(2, stuck);
    (void)take_request(HF_QUORUM_COMMIT);
}

/* The old vote is that of a claim that waits. The key is being handed over to
 * another one, which has got its votes a moment ago. */
static void an_old_vote_next_to_a_young_one_is_not_stuck(void **state)
{
    struct hf_report old = one_claim_voted(2, 1, false);
    struct hf_report young = one_claim_voted(3, 2, false);

    (void)state;
    old.vote_age_ms = 3000;
    young.vote_age_ms = 30;
    one_claim_lock(&one, true);
    for (int i = 0; i < 2; i++) {
        (void)take_request(HF_QUORUM_ASK);
        one_claim_busy(&one, 0, 1, old);
        one_claim_busy(&one, 1, 1, young);
        one_claim_busy(&one, 2, 1, young);
        assert_int_equal(one.c->state, HF_COORDINATOR_WAIT);
        one_claim_wait(&one);
    }
    (void)take_request(HF_QUORUM_ASK);
    young.vote_age_ms = 250;
    one_claim_busy(&one, 0, 1, old);
    one_claim_busy(&one, 1, 1, young);
    one_claim_busy(&one, 2, 1, young);
    (void)take_request(HF_QUORUM_PREPARE);
}

/* The holder has just ended. The masters are about to give their votes to the
 * first claim of their queues; the old vote is that of another claim that
 * waits. */
static void a_key_that_is_handed_over_is_not_taken(void **state)
{
    struct hf_report old = one_claim_voted(2, 1, true);
    struct hf_report released = {.state = HF_REPORT_RELEASED,
                                 .ballot = 5,
                                 .token = 5,
                                 .holder = one_claim_id(3),
                                 .waiters = 3};

    (void)state;
    start_waiting();
    one_claim_wait(&one);
    (void)take_request(HF_QUORUM_ASK);
    old.vote_age_ms = 3000;
    old.waiters = 2;
    one_claim_busy(&one, 0, 2, old);
    one_claim_busy(&one, 1, 3, released);
    one_claim_busy(&one, 2, 3, released);
    assert_int_equal(one.c->state, HF_COORDINATOR_WAIT);
    one_claim_wait(&one);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_vote(&one, 0); /* the old vote is its own */
    one_claim_busy(&one, 1, 2, released);
    one_claim_busy(&one, 2, 2, released);
    assert_int_equal(one.c->state, HF_COORDINATOR_WAIT);
    one_claim_expect_silence(&one);
}

/* Another claim died with the votes of two masters. The third one shows that
 * these are no grant. */
static void the_last_reply_may_show_that_the_key_is_free(void **state)
{
    struct hf_report dead = one_claim_voted(2, 1, true);

    (void)state;
    dead.vote_age_ms = 300;
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_busy(&one, 0, 1, dead);
    one_claim_busy(&one, 1, 1, dead);
    one_claim_expect_no_event(&one);
    one_claim_vote(&one, 2);
    (void)take_request(HF_QUORUM_PREPARE);
}

/* The claim is first in the queue of a master where the key is free, but its
 * number is too low there. The other masters have voted for other claims. */
static void a_low_number_at_a_free_master_is_raised(void **state)
{
    (void)state;
    start_waiting();
    one_claim_wait(&one);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_busy(&one, 0, 1, one_claim_voted(2, 9, false));
    one_claim_busy(&one, 1, 1, one_claim_voted(3, 9, false));
    one_claim_low(&one, 2, 9);
    assert_int_equal(take_request(HF_QUORUM_ASK)->number, 10);
}

/* A vote in a late reply to the ASK is no news: the claim goes on waiting. */
static void a_late_vote_is_not_a_pushed_one(void **state)
{
    (void)state;
    start_waiting();
    one_claim_wait(&one);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_busy(&one, 0, 1, others(5));
    one_claim_busy(&one, 1, 1, others(5));
    assert_int_equal(one.c->state, HF_COORDINATOR_WAIT);
    one_claim_vote(&one, 2);
    assert_int_equal(one.c->state, HF_COORDINATOR_WAIT);
    one_claim_expect_silence(&one);
}

/* Each of three waiters has got the vote of one master. */
static void a_pushed_vote_of_a_minority_asks_the_others(void **state)
{
    (void)state;
    start_waiting();
    one_claim_push(&one, 1, one.c->serial, 0);
    one_claim_advance(&one, CLAIM_PATIENCE_MS);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_expect_no_event(&one);
}

/* Fast votes of a majority may be a grant, if the third master is silent. */
static void votes_that_may_be_a_grant_are_waited_for(void **state)
{
    struct hf_report granted = one_claim_voted(2, 1, true);

    (void)state;
    granted.vote_age_ms = 10000;
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_busy(&one, 0, 1, granted);
    one_claim_busy(&one, 1, 1, granted);
    one_claim_advance(&one, CLAIM_PATIENCE_MS);
    (void)take_event(HF_COORDINATOR_QUEUED);
    one_claim_wait(&one);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_busy(&one, 0, 1, granted);
    one_claim_busy(&one, 1, 1, granted);
    one_claim_disconnect(&one, 2);
    assert_int_equal(one.c->state, HF_COORDINATOR_WAIT);
    one_claim_expect_silence(&one);
}

/* ---- PREPARE and COMMIT -------------------------------------------------*/

/* A claim that has tried to take over from a stuck one. */
static void start_prepare(bool queue)
{
    struct hf_report stuck = one_claim_voted(2, 1, false);

    stuck.vote_age_ms = 250;
    one_claim_lock(&one, queue);
    (void)take_request(HF_QUORUM_ASK);
    for (unsigned i = 0; i < one.common.quorum.masters; i++)
        one_claim_busy(&one, i, 0, stuck);
    (void)take_request(HF_QUORUM_PREPARE);
}

/* The masters are far away. */
static void a_prepare_is_not_retried_before_it_can_be_answered(void **state)
{
    (void)state;
    one.common.patience_ms = 400;
    start_prepare(true);
    one_claim_advance(&one, 399);
    one_claim_expect_silence(&one);
    promise(0, nothing());
    promise(1, nothing());
    (void)take_request(HF_QUORUM_COMMIT);
    one_claim_advance(&one, 399);
    one_claim_expect_silence(&one);
}

static void a_holder_that_a_promise_shows_is_waited_for(void **state)
{
    (void)state;
    start_prepare(true);
    promise(0, others(5));
    promise(1, nothing());
    one_claim_expect_silence(&one);
    promise(2, others(5));
    one_claim_expect_silence(&one);
    assert_int_equal(one.c->state, HF_COORDINATOR_WAIT);
    one_claim_wait(&one);
    (void)take_request(HF_QUORUM_ASK);
}

static void a_try_is_busy_if_a_promise_shows_a_holder(void **state)
{
    (void)state;
    start_prepare(false);
    promise(0, others(5));
    promise(1, others(5));
    one_claim_advance(&one, CLAIM_PATIENCE_MS);
    (void)take_event(HF_COORDINATOR_BUSY);
    (void)take_request(HF_QUORUM_END);
}

/* With five masters, votes above a holder are undecided. */
static void a_try_is_busy_if_the_promises_decide_nothing(void **state)
{
    (void)state;
    start_prepare(false);
    promise(0, others(1));
    promise(1, one_claim_voted(3, 4, true));
    promise(2, one_claim_voted(3, 4, true));
    one_claim_expect_no_event(&one);
    one_claim_advance(&one, CLAIM_PATIENCE_MS);
    (void)take_event(HF_COORDINATOR_BUSY);
}

/* Only promises count: a master that refuses the number reports, too. */
static void a_majority_of_promises_is_needed(void **state)
{
    uint64_t number;

    (void)state;
    start_prepare(true);
    number = one.c->number;
    promise(0, nothing());
    one_claim_low(&one, 1, 50);
    one_claim_low(&one, 2, 50);
    one_claim_expect_silence(&one);
    one_claim_wait(&one);
    while (one.sent_to == 0)
        one_claim_wait(&one);
    assert_true(take_request(HF_QUORUM_ASK)->number == 51);
    assert_true(number < 51);
}

static void a_commit_that_fails_is_prepared_again(void **state)
{
    struct hf_coordinator_event event;

    (void)state;
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_vote(&one, 0);
    one_claim_vote(&one, 1);
    one_claim_wait(&one);
    (void)take_request(HF_QUORUM_COMMIT);
    reply(0, HF_QUORUM_OK);
    one_claim_low(&one, 1, 9);
    one_claim_low(&one, 2, 9);
    one_claim_expect_no_event(&one);
    one_claim_wait(&one);
    assert_int_equal(take_request(HF_QUORUM_PREPARE)->number, 10);
    promise(0, mine("first"));
    promise(1, nothing());
    /* Its own lease, which was never a grant, is no obstacle. */
    assert_int_equal(take_request(HF_QUORUM_COMMIT)->token, 10);
    reply(1, HF_QUORUM_OK);
    reply(2, HF_QUORUM_OK);
    event = take_event(HF_COORDINATOR_GRANTED);
    assert_int_equal(event.token, 10);
    assert_true(event.sent == one.now);
}

/* Its COMMIT has reached one master, which is busy with it, and another claim
 * was faster at the others. */
static void a_claim_is_not_blocked_by_its_own_commit(void **state)
{
    struct hf_report own = one_claim_held(1, 1, 1, "first");

    (void)state;
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_vote(&one, 0);
    one_claim_vote(&one, 1);
    one_claim_wait(&one);
    (void)take_request(HF_QUORUM_COMMIT);
    one_claim_wait(&one);
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, own);
    promise(1, others(9));
    promise(2, others(9));
    assert_int_equal(one.c->state, HF_COORDINATOR_WAIT);
    while (one.sent_to == 0)
        one_claim_wait(&one);
    one_claim_disconnect(&one, 2);
    one.sent_to = 3;
    (void)take_request(HF_QUORUM_ASK);
    one_claim_busy(&one, 0, 0, own);
    one_claim_vote(&one, 1);
    (void)take_request(HF_QUORUM_PREPARE);
}

/* ---- Refusals -----------------------------------------------------------*/

static void a_limit_of_a_majority_is_reported(void **state)
{
    (void)state;
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_refuse(&one, 0, HF_ELIMIT);
    one_claim_vote(&one, 1);
    one_claim_expect_no_event(&one);
    one_claim_refuse(&one, 2, HF_ELIMIT);
    assert_int_equal(take_event(HF_COORDINATOR_REFUSED).err, HF_ELIMIT);
    (void)take_request(HF_QUORUM_END);
}

/* Another process has ended the claim, or an operator has broken its votes. */
static void a_claim_that_was_ended_elsewhere_is_refused(void **state)
{
    (void)state;
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_busy(&one, 0, 1, others(5));
    one_claim_ended(&one, 1, HF_QUORUM_END_NOTHING);
    one_claim_ended(&one, 2, HF_QUORUM_END_NOTHING);
    assert_int_equal(take_event(HF_COORDINATOR_REFUSED).err, HF_ECANCELED);
    (void)take_request(HF_QUORUM_END);
}

/* The masters make a higher mark durable. */
static void a_claim_asks_again_after_the_mark_was_raised(void **state)
{
    (void)state;
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    for (unsigned i = 0; i < 3; i++)
        one_claim_refuse(&one, i, HF_EUNAVAIL);
    one_claim_expect_no_event(&one);
    while (one.sent_to == 0)
        one_claim_wait(&one);
    assert_int_equal(take_request(HF_QUORUM_ASK)->number, 1);
    one_claim_expect_no_event(&one);
}

static void an_absurd_number_of_a_master_is_ignored(void **state)
{
    (void)state;
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_low(&one, 0, UINT64_MAX);
    one_claim_low(&one, 1, 7);
    one_claim_low(&one, 2, 7);
    assert_int_equal(take_request(HF_QUORUM_ASK)->number, 8);
}

/* ---- Connections --------------------------------------------------------*/

static void a_master_that_connects_gets_the_request(void **state)
{
    uint32_t serial;

    (void)state;
    one.common.usable = 3;
    one_claim_lock(&one, true);
    serial = take_request(HF_QUORUM_ASK)->serial;
    one_claim_vote(&one, 0);
    one_claim_connect(&one, 2);
    assert_int_equal(one.sent_to, 4);
    assert_true(one.sent[2].serial > serial);
    one.sent_to = 0;
    one_claim_vote(&one, 2);
    one_claim_vote(&one, 1);
    (void)take_request(HF_QUORUM_COMMIT); /* these votes are slow */
    reply(0, HF_QUORUM_OK);
    /* A master that has restarted has lost what it acknowledged. */
    one_claim_disconnect(&one, 0);
    one_claim_connect(&one, 0);
    assert_int_equal(one.sent[0].kind, HF_QUORUM_COMMIT);
    reply(1, HF_QUORUM_OK);
    one_claim_expect_no_event(&one);
    reply(0, HF_QUORUM_OK);
    (void)take_event(HF_COORDINATOR_GRANTED);
}

static void a_lost_connection_ends_the_wait_for_its_reply(void **state)
{
    (void)state;
    one_claim_lock(&one, true);
    (void)take_request(HF_QUORUM_ASK);
    one_claim_vote(&one, 0);
    one_claim_vote(&one, 1);
    one_claim_expect_silence(&one);
    one_claim_disconnect(&one, 2);
    (void)take_request(HF_QUORUM_COMMIT);
}

static void an_idle_claim_sends_nothing_to_a_new_master(void **state)
{
    (void)state;
    one_claim_connect(&one, 0);
    one_claim_expect_silence(&one);
    one_claim_hold(&one);
    one_claim_connect(&one, 0);
    one_claim_expect_silence(&one);
}

/* ---- RENEW --------------------------------------------------------------*/

static void start_renew(void)
{
    const struct hf_quorum_request *renew;

    hf_coordinator_renew(one.c, one.now, CLAIM_LEASE_MS);
    renew = take_request(HF_QUORUM_RENEW);
    assert_int_equal(renew->token, one.c->token);
    assert_int_equal(renew->number, 0);
    assert_int_equal(renew->lease_ms, CLAIM_LEASE_MS);
}

static void start_update(const char *expected, const char *value)
{
    struct hf_bytes old = hf_bytes_of(expected ? expected : "");

    assert_int_equal(hf_coordinator_update(one.c, one.now,
                                           expected ? &old : NULL,
                                           hf_bytes_of(value)),
                     HF_OK);
}

static void a_majority_renews(void **state)
{
    struct hf_coordinator_event event;

    (void)state;
    one_claim_hold(&one);
    one.now += 300;
    start_renew();
    one.now += 5;
    reply(0, HF_QUORUM_OK);
    one_claim_expect_no_event(&one);
    reply(2, HF_QUORUM_OK);
    event = take_event(HF_COORDINATOR_RENEWED);
    assert_true(event.sent == one.now - 5);
    assert_int_equal(event.age_ms, 0);
    assert_int_equal(event.needed, 2);
    assert_int_equal(event.commits, 2);
    reply(1, HF_QUORUM_OK);
    one_claim_expect_no_event(&one);
    assert_int_equal(one.c->state, HF_COORDINATOR_HOLD);
}

/* A renewal that begins again counts from its last send. */
static void a_renewal_starts_again(void **state)
{
    struct hf_quorum_reply late = {.kind = HF_QUORUM_OK};

    (void)state;
    one_claim_hold(&one);
    start_renew();
    late.serial = one.c->serial;
    one.now += 100;
    start_renew();
    for (unsigned i = 0; i < 3; i++)
        one_claim_reply(&one, i, late);
    one_claim_expect_no_event(&one);
    reply(0, HF_QUORUM_OK);
    reply(1, HF_QUORUM_OK);
    assert_true(take_event(HF_COORDINATOR_RENEWED).sent == one.now);
}

/* One master lacks the lease: it gets it, in the background. */
static void a_missing_lease_is_repaired(void **state)
{
    const struct hf_quorum_request *commit;

    (void)state;
    one_claim_hold(&one);
    start_renew();
    reply(0, HF_QUORUM_OK);
    reply(1, HF_QUORUM_MISSING);
    reply(2, HF_QUORUM_OK);
    (void)take_event(HF_COORDINATOR_RENEWED);
    assert_int_equal(take_request(HF_QUORUM_PREPARE)->number, 2);
    promise(0, mine("shown"));
    promise(1, nothing());
    commit = take_request(HF_QUORUM_COMMIT);
    assert_int_equal(commit->number, 2);
    assert_int_equal(commit->token, 1);
    assert_int_equal(commit->lease_ms, CLAIM_LEASE_MS);
    assert_false(commit->keeps_deadline);
    assert_true(is_value(commit->data.value, "shown"));
    assert_true(is_value(commit->data.note, "note"));
    assert_true(is_value(commit->data.owner, "owner"));
    reply(0, HF_QUORUM_OK);
    reply(1, HF_QUORUM_OK);
    one_claim_expect_no_event(&one);
    assert_int_equal(one.c->state, HF_COORDINATOR_HOLD);
}

/* A majority lacks the lease: it is renewed by the repair. */
static void a_renewal_may_need_a_repair(void **state)
{
    (void)state;
    one_claim_hold(&one);
    start_renew();
    reply(0, HF_QUORUM_OK);
    reply(1, HF_QUORUM_MISSING);
    one_claim_expect_silence(&one);
    reply(2, HF_QUORUM_MISSING);
    one_claim_expect_no_event(&one);
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, mine("first"));
    promise(1, nothing());
    assert_int_equal(take_request(HF_QUORUM_COMMIT)->token, 1);
    one.now += 3;
    reply(0, HF_QUORUM_OK);
    reply(1, HF_QUORUM_OK);
    assert_true(take_event(HF_COORDINATOR_RENEWED).sent == one.now - 3);
}

static void reply_renewed(unsigned master, uint64_t ballot)
{
    one_claim_report(&one, master, HF_QUORUM_OK,
                     one_claim_held(1, one.c->token, ballot, "value"));
}

/* An update has missed a master: its copy is renewed, and does not count. */
static void a_renewal_counts_the_highest_ballot_only(void **state)
{
    (void)state;
    one_claim_hold(&one);
    start_update("first", "second");
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, mine("first"));
    promise(1, mine("first"));
    (void)take_request(HF_QUORUM_COMMIT);
    reply(0, HF_QUORUM_OK);
    reply(1, HF_QUORUM_OK);
    (void)take_event(HF_COORDINATOR_UPDATED);
    start_renew();
    reply_renewed(0, 2);
    reply_renewed(2, 1);
    one_claim_expect_no_event(&one);
    one_claim_disconnect(&one, 1);
    (void)take_request(HF_QUORUM_PREPARE); /* repair at once */
    promise(0, one_claim_held(1, 1, 2, "second"));
    promise(2, mine("first"));
    assert_true(is_value(take_request(HF_QUORUM_COMMIT)->data.value, "second"));
    reply(0, HF_QUORUM_OK);
    reply(2, HF_QUORUM_OK);
    (void)take_event(HF_COORDINATOR_RENEWED);
    one_claim_connect(&one, 1);
    start_renew();
    reply_renewed(0, 3);
    reply_renewed(1, 2);
    one_claim_expect_no_event(&one);
    reply_renewed(2, 3);
    assert_int_equal(take_event(HF_COORDINATOR_RENEWED).commits, 2);
    (void)take_request(HF_QUORUM_PREPARE); /* repair in the background */
}

/* Another process has updated the value. */
static void an_adopted_claim_learns_its_ballot_from_renewals(void **state)
{
    (void)state;
    hf_coordinator_adopt(one.c, 4);
    start_renew();
    reply_renewed(0, 4);
    reply_renewed(1, 9);
    one_claim_expect_no_event(&one);
    reply_renewed(2, 9);
    (void)take_event(HF_COORDINATOR_RENEWED);
    assert_int_equal(take_request(HF_QUORUM_PREPARE)->number, 10);
    hf_coordinator_end(one.c, one.now);
    assert_int_equal(take_request(HF_QUORUM_END)->ballot, 9);
}

static void a_claim_that_nobody_shows_is_lost(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct hf_report other = i == 0   ? nothing()
                                 : i == 1 ? others(5)
                                          : one_claim_held(1, 9, 9, "other");

        one_claim_fini(&one);
        one_claim_init(&one, 3);
        one_claim_hold(&one);
        start_renew();
        for (unsigned j = 0; j < 3; j++)
            reply(j, HF_QUORUM_MISSING);
        (void)take_request(HF_QUORUM_PREPARE);
        promise(0, other);
        promise(1, other);
        (void)take_event(HF_COORDINATOR_LOST);
        assert_true(hf_coordinator_deadline(one.c) == HF_NEVER);
        hf_coordinator_end(one.c, one.now); /* it is still useful */
        (void)take_request(HF_QUORUM_END);
    }
}

static void a_claim_that_has_ended_is_lost(void **state)
{
    (void)state;
    one_claim_hold(&one);
    start_renew();
    reply(0, HF_QUORUM_OK);
    one_claim_ended(&one, 1, HF_QUORUM_END_NOTHING);
    one_claim_expect_no_event(&one);
    one_claim_ended(&one, 2, HF_QUORUM_END_NOTHING);
    (void)take_event(HF_COORDINATOR_LOST);
}

static void a_forced_lock_is_not_renewed(void **state)
{
    (void)state;
    one_claim_hold(&one);
    start_renew();
    reply(0, HF_QUORUM_FORCED);
    one_claim_expect_no_event(&one);
    reply(1, HF_QUORUM_FORCED);
    (void)take_event(HF_COORDINATOR_FORCED);
    one_claim_expect_silence(&one);
}

/* UPDATE-2: an update that waits for the renewal goes on. */
static void a_forced_lock_is_updated_all_the_same(void **state)
{
    (void)state;
    one_claim_hold(&one);
    start_renew();
    start_update("first", "second");
    reply(0, HF_QUORUM_FORCED);
    reply(1, HF_QUORUM_FORCED);
    (void)take_event(HF_COORDINATOR_FORCED);
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, mine("first"));
    promise(1, mine("first"));
    (void)take_request(HF_QUORUM_COMMIT);
    reply(0, HF_QUORUM_OK);
    reply(1, HF_QUORUM_OK);
    (void)take_event(HF_COORDINATOR_UPDATED);
}

static void a_forced_lock_is_not_extended_by_a_repair(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        one_claim_fini(&one);
        one_claim_init(&one, 3);
        one_claim_hold(&one);
        start_renew();
        reply(0, HF_QUORUM_OK);
        reply(1, i == 0 ? HF_QUORUM_MISSING : HF_QUORUM_OK);
        reply(2, HF_QUORUM_MISSING);
        if (i == 1)
            (void)take_event(HF_COORDINATOR_RENEWED);
        (void)take_request(HF_QUORUM_PREPARE);
        promise(0, mine("first"));
        promise(1, mine("first"));
        (void)take_request(HF_QUORUM_COMMIT);
        reply(0, HF_QUORUM_FORCED);
        reply(1, HF_QUORUM_FORCED);
        if (i == 0)
            (void)take_event(HF_COORDINATOR_FORCED);
        one_claim_expect_no_event(&one);
        assert_int_equal(one.c->state, HF_COORDINATOR_HOLD);
    }
}

static void a_renewal_with_a_lease_that_is_too_long_is_refused(void **state)
{
    (void)state;
    one_claim_hold(&one);
    start_renew();
    one_claim_refuse(&one, 0, HF_EINVAL);
    one_claim_expect_no_event(&one);
    one_claim_refuse(&one, 2, HF_EINVAL);
    assert_int_equal(take_event(HF_COORDINATOR_REFUSED).err, HF_EINVAL);
    one_claim_expect_silence(&one);
    start_renew();
}

/* LK-07: too few masters decide nothing. */
static void a_renewal_without_a_majority_waits(void **state)
{
    (void)state;
    one_claim_hold(&one);
    one_claim_disconnect(&one, 1);
    one_claim_disconnect(&one, 2);
    hf_coordinator_renew(one.c, one.now, CLAIM_LEASE_MS);
    (void)take_request(HF_QUORUM_RENEW);
    reply(0, HF_QUORUM_OK);
    one_claim_expect_no_event(&one);
    one_claim_connect(&one, 1);
    one.sent_to = 0;
    reply(1, HF_QUORUM_OK);
    (void)take_event(HF_COORDINATOR_RENEWED);
}

/* ---- UPDATE -------------------------------------------------------------*/

/* LK-04 */
static void an_update_replaces_the_expected_value(void **state)
{
    const struct hf_quorum_request *commit;

    (void)state;
    one_claim_hold(&one);
    start_update("first", "second");
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, mine("first"));
    one_claim_expect_silence(&one);
    promise(1, one_claim_voted(1, 1, true));
    commit = take_request(HF_QUORUM_COMMIT);
    assert_int_equal(commit->number, 2);
    assert_int_equal(commit->token, 1);
    assert_true(commit->keeps_deadline);
    assert_int_equal(commit->lease_ms, 500); /* the longest that is left */
    assert_true(is_value(commit->data.value, "second"));
    assert_true(is_value(commit->data.note, "note"));
    assert_true(is_value(commit->data.owner, "owner"));
    reply(0, HF_QUORUM_OK);
    one_claim_expect_no_event(&one);
    reply(1, HF_QUORUM_OK);
    (void)take_event(HF_COORDINATOR_UPDATED);
    assert_int_equal(one.c->state, HF_COORDINATOR_HOLD);
}

static void an_update_of_another_value_is_a_mismatch(void **state)
{
    (void)state;
    one_claim_hold(&one);
    start_update("other", "second");
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, mine("first"));
    promise(1, mine("first"));
    (void)take_event(HF_COORDINATOR_MISMATCH);
    one_claim_expect_silence(&one);
    start_update(NULL, "third");
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, mine("first"));
    promise(1, mine("first"));
    (void)take_request(HF_QUORUM_COMMIT);
}

/* The value of the highest ballot is the current one. */
static void an_update_compares_the_newest_value(void **state)
{
    (void)state;
    one_claim_hold(&one);
    start_update("newer", "newest");
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, one_claim_held(1, 1, 7, "newer"));
    promise(1, mine("first"));
    assert_true(is_value(take_request(HF_QUORUM_COMMIT)->data.value, "newest"));
}

/* A majority has accepted the newer value. The copy of the first of them has
 * expired, because it has missed renewals, and the other one is silent. */
static void an_expired_copy_shows_the_newest_value(void **state)
{
    struct hf_report expired = one_claim_held(1, 1, 7, "newer");

    (void)state;
    expired.state = HF_REPORT_EXPIRED;
    expired.has_vote = true; /* of another claim, whose data is not shown */
    expired.vote_number = 8;
    expired.voter = one_claim_id(2);
    one_claim_hold(&one);
    start_update("first", "second");
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, expired);
    promise(1, mine("first"));
    (void)take_event(HF_COORDINATOR_MISMATCH);
    start_renew();
    reply(0, HF_QUORUM_MISSING);
    reply(2, HF_QUORUM_MISSING);
    (void)take_request(HF_QUORUM_PREPARE);
    promise(1, mine("first"));
    promise(0, expired);
    assert_true(is_value(take_request(HF_QUORUM_COMMIT)->data.value, "newer"));
}

/* The COMMIT has reached one master, and no reply has arrived. */
static void a_lost_reply_is_no_mismatch(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        one_claim_fini(&one);
        one_claim_init(&one, 3);
        one_claim_hold(&one);
        start_update("first", "second");
        (void)take_request(HF_QUORUM_PREPARE);
        promise(0, mine("first"));
        promise(1, mine("first"));
        (void)take_request(HF_QUORUM_COMMIT);
        one_claim_wait(&one);
        (void)take_request(HF_QUORUM_PREPARE);
        promise(0, i == 0 ? one_claim_held(1, 1, 2, "second") : mine("first"));
        promise(2, mine("first"));
        one_claim_expect_no_event(&one);
        assert_true(
            is_value(take_request(HF_QUORUM_COMMIT)->data.value, "second"));
        reply(0, HF_QUORUM_OK);
        reply(1, HF_QUORUM_OK);
        (void)take_event(HF_COORDINATOR_UPDATED);
    }
}

/* Another process with the nonce has changed the value meanwhile. */
static void the_value_of_another_update_is_a_mismatch(void **state)
{
    (void)state;
    one_claim_hold(&one);
    start_update("first", "second");
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, mine("first"));
    promise(1, mine("first"));
    (void)take_request(HF_QUORUM_COMMIT);
    one_claim_low(&one, 0, 5);
    one_claim_low(&one, 1, 5);
    one_claim_wait(&one);
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, one_claim_held(1, 1, 5, "theirs"));
    promise(1, one_claim_held(1, 1, 5, "theirs"));
    (void)take_event(HF_COORDINATOR_MISMATCH);
}

static void an_update_of_a_lost_claim_is_lost(void **state)
{
    (void)state;
    one_claim_hold(&one);
    start_update("first", "second");
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, others(5));
    promise(1, others(5));
    (void)take_event(HF_COORDINATOR_LOST);
}

static void an_abandoned_update_reports_nothing(void **state)
{
    (void)state;
    one_claim_hold(&one);
    start_update("first", "second");
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, mine("first"));
    promise(1, mine("first"));
    (void)take_request(HF_QUORUM_COMMIT);
    hf_coordinator_abandon_update(one.c);
    one_claim_wait(&one);
    one_claim_expect_no_event(&one);
    one_claim_expect_silence(&one);
    assert_int_equal(one.c->state, HF_COORDINATOR_HOLD);
}

/* A renewal is urgent; the update follows. */
static void an_update_waits_for_a_renewal(void **state)
{
    (void)state;
    one_claim_hold(&one);
    start_renew();
    start_update("first", "second");
    one_claim_expect_silence(&one);
    for (unsigned i = 0; i < 3; i++)
        reply(i, HF_QUORUM_OK);
    (void)take_event(HF_COORDINATOR_RENEWED);
    (void)take_request(HF_QUORUM_PREPARE);
    start_renew(); /* begins at once, because no COMMIT was sent */
    for (unsigned i = 0; i < 3; i++)
        reply(i, HF_QUORUM_OK);
    (void)take_event(HF_COORDINATOR_RENEWED);
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, mine("first"));
    promise(1, mine("first"));
    (void)take_request(HF_QUORUM_COMMIT);
    hf_coordinator_renew(one.c, one.now, CLAIM_LEASE_MS);
    one_claim_expect_silence(&one);
    reply(0, HF_QUORUM_OK);
    reply(1, HF_QUORUM_OK);
    (void)take_event(HF_COORDINATOR_UPDATED);
    assert_int_equal(take_request(HF_QUORUM_RENEW)->lease_ms, CLAIM_LEASE_MS);
}

/* The lease that an update gives to masters without one is not that of the next
 * renewal, which would count as longer than the masters keep it. */
static void a_renewal_after_an_update_has_its_own_lease(void **state)
{
    (void)state;
    one_claim_hold(&one);
    start_update("first", "second");
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, mine("first"));
    promise(1, mine("first"));
    (void)take_request(HF_QUORUM_COMMIT);
    hf_coordinator_renew(one.c, one.now, CLAIM_LEASE_MS);
    one_claim_expect_silence(&one);
    one_claim_wait(&one); /* the COMMIT has failed: renew first */
    assert_int_equal(take_request(HF_QUORUM_RENEW)->lease_ms, CLAIM_LEASE_MS);
    for (unsigned i = 0; i < 3; i++)
        reply(i, HF_QUORUM_OK);
    (void)take_event(HF_COORDINATOR_RENEWED);
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, mine("first"));
    promise(1, mine("first"));
    assert_int_equal(take_request(HF_QUORUM_COMMIT)->lease_ms, 500);
    hf_coordinator_renew(one.c, one.now, CLAIM_LEASE_MS);
    reply(0, HF_QUORUM_OK);
    reply(1, HF_QUORUM_OK);
    (void)take_event(HF_COORDINATOR_UPDATED);
    assert_int_equal(take_request(HF_QUORUM_RENEW)->lease_ms, CLAIM_LEASE_MS);
}

/* Its COMMIT may still succeed, but that is not the new update. */
static void an_update_after_an_abandoned_one_is_its_own(void **state)
{
    (void)state;
    one_claim_hold(&one);
    start_update("first", "second");
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, mine("first"));
    promise(1, mine("first"));
    assert_int_equal(take_request(HF_QUORUM_COMMIT)->number, 2);
    hf_coordinator_abandon_update(one.c);
    start_update(NULL, "third");
    for (unsigned i = 0; i < 3; i++)
        one_claim_reply(&one, i,
                        (struct hf_quorum_reply){.kind = HF_QUORUM_OK,
                                                 .number = 2,
                                                 .serial = one.c->serial - 1});
    one_claim_expect_no_event(&one);
    assert_int_equal(take_request(HF_QUORUM_PREPARE)->number, 3);
    promise(0, one_claim_held(1, 1, 2, "second"));
    promise(1, mine("first"));
    assert_true(is_value(take_request(HF_QUORUM_COMMIT)->data.value, "third"));
}

/* ---- END ----------------------------------------------------------------*/

static void an_end_names_the_highest_number_and_ballot(void **state)
{
    const struct hf_quorum_request *end;

    (void)state;
    one_claim_hold(&one);
    start_update("first", "second");
    (void)take_request(HF_QUORUM_PREPARE);
    promise(0, mine("first"));
    promise(1, mine("first"));
    (void)take_request(HF_QUORUM_COMMIT);
    one_claim_wait(&one);
    (void)take_request(HF_QUORUM_PREPARE);
    hf_coordinator_end(one.c, one.now);
    end = take_request(HF_QUORUM_END);
    assert_int_equal(end->number, 3);
    assert_int_equal(end->ballot, 2);
    one_claim_ended(&one, 0, HF_QUORUM_END_RELEASED);
    one_claim_expect_no_event(&one);
    one_claim_ended(&one, 1, HF_QUORUM_END_RELEASED);
    assert_true(take_event(HF_COORDINATOR_ENDED).was_held);
    assert_int_equal(one.c->state, HF_COORDINATOR_END);
    one_claim_ended(&one, 2, HF_QUORUM_END_RELEASED);
    one_claim_expect_no_event(&one);
    assert_int_equal(one.c->state, HF_COORDINATOR_DONE);
}

/* End a claim that is held; the masters reply in this order. `awaits_third`:
 * the first two replies do not decide. */
static struct hf_coordinator_event end_finds(enum hf_quorum_end first,
                                             enum hf_quorum_end second,
                                             enum hf_quorum_end third,
                                             bool awaits_third)
{
    struct hf_coordinator_event event;

    one_claim_fini(&one);
    one_claim_init(&one, 3);
    one_claim_hold(&one);
    hf_coordinator_end(one.c, one.now);
    (void)take_request(HF_QUORUM_END);
    one_claim_ended(&one, 0, first);
    one_claim_ended(&one, 1, second);
    if (awaits_third)
        one_claim_expect_no_event(&one);
    else
        event = take_event(HF_COORDINATOR_ENDED);
    one_claim_ended(&one, 2, third);
    if (awaits_third)
        event = take_event(HF_COORDINATOR_ENDED);
    assert_int_equal(one.c->state, HF_COORDINATOR_DONE);
    return event;
}

static void an_end_reports_whether_the_claim_was_held(void **state)
{
    enum hf_quorum_end none = HF_QUORUM_END_NOTHING;
    enum hf_quorum_end released = HF_QUORUM_END_RELEASED;
    enum hf_quorum_end repeated = HF_QUORUM_END_REPEATED;

    (void)state;
    assert_true(end_finds(released, released, released, false).was_held);
    assert_true(end_finds(released, repeated, released, false).was_held);
    assert_true(end_finds(repeated, repeated, repeated, false).was_held);
    assert_true(end_finds(none, released, released, true).was_held);
    assert_false(end_finds(none, released, none, true).was_held);
    assert_false(end_finds(none, none, released, false).was_held);
    assert_false(end_finds(none, none, none, false).was_held);
}

/* Another claim may get the key where the END arrives late. But an operator may
 * have broken the lock, too. */
static void an_end_reports_whether_a_master_released_the_claim(void **state)
{
    enum hf_quorum_end none = HF_QUORUM_END_NOTHING;
    enum hf_quorum_end broken = HF_QUORUM_END_BROKEN;
    enum hf_quorum_end released = HF_QUORUM_END_RELEASED;

    (void)state;
    assert_true(end_finds(released, none, none, true).was_released);
    assert_true(end_finds(none, released, none, true).was_released);
    assert_false(end_finds(none, none, none, false).was_released);
    assert_false(end_finds(released, broken, none, true).was_released);
    assert_false(end_finds(broken, released, broken, true).was_released);
}

static void an_end_does_not_wait_long_for_a_silent_master(void **state)
{
    (void)state;
    one_claim_hold(&one);
    hf_coordinator_end(one.c, one.now);
    (void)take_request(HF_QUORUM_END);
    one_claim_ended(&one, 0, HF_QUORUM_END_RELEASED);
    one_claim_ended(&one, 1, HF_QUORUM_END_NOTHING);
    one_claim_expect_no_event(&one);
    one_claim_wait(&one);
    assert_true(take_event(HF_COORDINATOR_ENDED).was_held);
}

/* Another process has repaired or updated the lease since. */
static void an_adopted_claim_ends_at_its_highest_ballot(void **state)
{
    struct hf_quorum_reply shown = {
        .kind = HF_QUORUM_ENDED,
        .end = HF_QUORUM_END_RELEASED,
        .report = {.state = HF_REPORT_RELEASED,
                   .ballot = 9,
                   .token = 4,
                   .holder = one_claim_id(1)},
    };
    const struct hf_quorum_request *end;

    (void)state;
    hf_coordinator_adopt(one.c, 4);
    hf_coordinator_end(one.c, one.now);
    end = take_request(HF_QUORUM_END);
    assert_int_equal(end->number, 4);
    assert_int_equal(end->ballot, 4);
    one_claim_ended(&one, 0, HF_QUORUM_END_NOTHING);
    one_claim_reply(&one, 1, shown);
    one_claim_expect_no_event(&one);
    end = take_request(HF_QUORUM_END);
    assert_int_equal(end->number, 9);
    assert_int_equal(end->ballot, 9);
    shown.end = HF_QUORUM_END_REPEATED;
    one_claim_reply(&one, 1, shown);
    one_claim_reply(&one, 2, shown);
    assert_true(take_event(HF_COORDINATOR_ENDED).was_held);
}

static void an_adopted_claim_renews_and_updates(void **state)
{
    (void)state;
    hf_coordinator_adopt(one.c, 4);
    start_renew();
    for (unsigned i = 0; i < 3; i++)
        reply(i, HF_QUORUM_OK);
    (void)take_event(HF_COORDINATOR_RENEWED);
    start_update(NULL, "second");
    assert_int_equal(take_request(HF_QUORUM_PREPARE)->number, 5);
    promise(0, one_claim_held(1, 4, 4, "first"));
    promise(1, one_claim_held(1, 4, 4, "first"));
    assert_int_equal(take_request(HF_QUORUM_COMMIT)->token, 4);
}

static void an_end_reaches_a_master_that_connects_later(void **state)
{
    (void)state;
    one_claim_hold(&one);
    one_claim_disconnect(&one, 1);
    one_claim_disconnect(&one, 2);
    hf_coordinator_end(one.c, one.now);
    (void)take_request(HF_QUORUM_END);
    one_claim_ended(&one, 0, HF_QUORUM_END_RELEASED);
    one_claim_expect_no_event(&one);
    one_claim_connect(&one, 2);
    one_claim_ended(&one, 2, HF_QUORUM_END_RELEASED);
    (void)take_event(HF_COORDINATOR_ENDED);
    hf_coordinator_end(one.c, one.now); /* it has ended */
    one_claim_expect_no_event(&one);
}

/* The master raises its mark, or has no memory for the record. */
static void an_end_that_is_refused_is_repeated(void **state)
{
    (void)state;
    one_claim_hold(&one);
    hf_coordinator_end(one.c, one.now);
    (void)take_request(HF_QUORUM_END);
    one_claim_ended(&one, 0, HF_QUORUM_END_RELEASED);
    one_claim_refuse(&one, 1, HF_EUNAVAIL);
    one_claim_refuse(&one, 2, HF_ELIMIT);
    one_claim_expect_no_event(&one);
    one_claim_wait(&one);
    assert_int_equal(one.sent_to, 6);
    one_claim_ended(&one, 1, HF_QUORUM_END_REPEATED);
    assert_true(take_event(HF_COORDINATOR_ENDED).was_held);
    one_claim_refuse(&one, 2, HF_ELIMIT);
    assert_int_equal(one.c->state, HF_COORDINATOR_END);
    one_claim_wait(&one);
    one_claim_ended(&one, 2, HF_QUORUM_END_RELEASED);
    one_claim_expect_no_event(&one);
    assert_int_equal(one.c->state, HF_COORDINATOR_DONE);
    assert_true(hf_coordinator_deadline(one.c) == HF_NEVER);
}

static void a_claim_that_waits_can_be_withdrawn(void **state)
{
    (void)state;
    start_waiting();
    hf_coordinator_end(one.c, one.now);
    assert_int_equal(take_request(HF_QUORUM_END)->ballot, 0);
    one_claim_push(&one, 0, 1, 0); /* too late */
    one_claim_expect_no_event(&one);
    one_claim_ended(&one, 0, HF_QUORUM_END_RELEASED);
    one_claim_ended(&one, 1, HF_QUORUM_END_NOTHING);
    one_claim_ended(&one, 2, HF_QUORUM_END_NOTHING);
    (void)take_event(HF_COORDINATOR_ENDED);
}

/* ---- Memory -------------------------------------------------------------*/

static void memory_may_be_exhausted(void **state)
{
    static const struct hf_coordinator_ops ops;
    struct hf_nonce nonce = {{9}};
    struct hf_claim_data data = {.value = hf_bytes_of("value")};
    struct hf_bytes expected = hf_bytes_of("first");

    (void)state;
    for (unsigned nth = 1; nth <= 2; nth++) {
        long blocks = hf_alloc_blocks();

        hf_alloc_fail(nth, 1);
        assert_null(hf_coordinator_new(&one.common, &ops, NULL, hf_key_of("k"),
                                       &nonce, &data));
        assert_true(hf_alloc_failed());
        assert_true(hf_alloc_blocks() == blocks);
    }
    one_claim_hold(&one);
    for (unsigned nth = 1; nth <= 2; nth++) {
        hf_alloc_fail(nth, 1);
        assert_int_equal(hf_coordinator_update(one.c, one.now, &expected,
                                               hf_bytes_of("second")),
                         HF_ENOMEM);
        assert_true(hf_alloc_failed());
        one_claim_expect_silence(&one);
    }
    start_update("first", "second");
    (void)take_request(HF_QUORUM_PREPARE);
    hf_alloc_fail(1, 1);
    promise(0, mine("first")); /* as if it was lost */
    assert_true(hf_alloc_failed());
    promise(1, mine("first"));
    one_claim_expect_silence(&one);
    promise(2, mine("first"));
    (void)take_request(HF_QUORUM_COMMIT);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, start_three, stop_claim)
#define FIVE(name) cmocka_unit_test_setup_teardown(name, start_five, stop_claim)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_fast_quorum_of_votes_is_a_grant),
        FIVE(four_of_five_votes_are_a_grant),
        CASE(a_majority_commits_after_a_moment),
        CASE(a_majority_commits_at_once_if_a_master_is_down),
        CASE(slow_votes_are_not_a_grant),
        CASE(a_minority_of_votes_is_nothing),
        CASE(late_replies_do_nothing),
        CASE(a_low_number_is_raised_above_all_known_ones),
        CASE(a_claim_begins_above_the_highest_known_number),
        CASE(the_winner_of_a_split_goes_on_at_once),
        CASE(the_loser_of_a_split_waits),
        CASE(a_claim_with_fewer_votes_loses),
        CASE(a_race_without_a_winner_ends),
        FIVE(the_higher_number_wins_a_split),
        CASE(a_try_of_a_held_key_is_busy),
        CASE(a_waiter_asks_again_and_keeps_its_ticket),
        CASE(pushed_votes_are_a_grant),
        CASE(a_majority_of_pushed_votes_commits_after_a_moment),
        CASE(a_pushed_low_asks_with_a_higher_number),
        CASE(the_earliest_anchor_of_the_votes_counts),
        CASE(an_unknown_anchor_is_the_first_ask_of_the_number),
        CASE(a_vote_without_an_anchor_counts_from_the_first_ask),
        CASE(a_grant_by_an_old_vote_is_committed_first),
        CASE(a_stuck_vote_is_passed_over),
        CASE(an_old_vote_next_to_a_young_one_is_not_stuck),
        CASE(a_key_that_is_handed_over_is_not_taken),
        CASE(the_last_reply_may_show_that_the_key_is_free),
        CASE(a_low_number_at_a_free_master_is_raised),
        CASE(a_late_vote_is_not_a_pushed_one),
        CASE(a_pushed_vote_of_a_minority_asks_the_others),
        CASE(votes_that_may_be_a_grant_are_waited_for),
        CASE(a_prepare_is_not_retried_before_it_can_be_answered),
        CASE(a_holder_that_a_promise_shows_is_waited_for),
        CASE(a_try_is_busy_if_a_promise_shows_a_holder),
        FIVE(a_try_is_busy_if_the_promises_decide_nothing),
        CASE(a_majority_of_promises_is_needed),
        CASE(a_commit_that_fails_is_prepared_again),
        CASE(a_claim_is_not_blocked_by_its_own_commit),
        CASE(a_limit_of_a_majority_is_reported),
        CASE(a_claim_that_was_ended_elsewhere_is_refused),
        CASE(a_claim_asks_again_after_the_mark_was_raised),
        CASE(an_absurd_number_of_a_master_is_ignored),
        CASE(a_master_that_connects_gets_the_request),
        CASE(a_lost_connection_ends_the_wait_for_its_reply),
        CASE(an_idle_claim_sends_nothing_to_a_new_master),
        CASE(a_majority_renews),
        CASE(a_renewal_starts_again),
        CASE(a_missing_lease_is_repaired),
        CASE(a_renewal_may_need_a_repair),
        CASE(a_renewal_counts_the_highest_ballot_only),
        CASE(an_adopted_claim_learns_its_ballot_from_renewals),
        CASE(a_claim_that_nobody_shows_is_lost),
        CASE(a_claim_that_has_ended_is_lost),
        CASE(a_forced_lock_is_not_renewed),
        CASE(a_forced_lock_is_updated_all_the_same),
        CASE(a_forced_lock_is_not_extended_by_a_repair),
        CASE(a_renewal_with_a_lease_that_is_too_long_is_refused),
        CASE(a_renewal_without_a_majority_waits),
        CASE(an_update_replaces_the_expected_value),
        CASE(an_update_of_another_value_is_a_mismatch),
        CASE(an_update_compares_the_newest_value),
        CASE(an_expired_copy_shows_the_newest_value),
        CASE(a_lost_reply_is_no_mismatch),
        CASE(the_value_of_another_update_is_a_mismatch),
        CASE(an_update_of_a_lost_claim_is_lost),
        CASE(an_abandoned_update_reports_nothing),
        CASE(an_update_waits_for_a_renewal),
        CASE(a_renewal_after_an_update_has_its_own_lease),
        CASE(an_update_after_an_abandoned_one_is_its_own),
        CASE(an_end_names_the_highest_number_and_ballot),
        CASE(an_end_reports_whether_the_claim_was_held),
        CASE(an_end_reports_whether_a_master_released_the_claim),
        CASE(an_end_does_not_wait_long_for_a_silent_master),
        CASE(an_adopted_claim_ends_at_its_highest_ballot),
        CASE(an_adopted_claim_renews_and_updates),
        CASE(an_end_reaches_a_master_that_connects_later),
        CASE(an_end_that_is_refused_is_repeated),
        CASE(a_claim_that_waits_can_be_withdrawn),
        CASE(memory_may_be_exhausted),
    };

    return hf_test_main("quorum-coordinator", cases, HF_TEST_COUNT(cases), 0);
}
