/* Commands of raft: are applied once, whatever happens to connections. */
#include "raft_client/script.h"

static const struct hf_result granted = {.token = 41};
static const struct hf_result queued = {.err = HF_EBUSY, .position = 1};

static void a_lock_is_one_command_of_the_session(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 0, &lock);
    const struct script_request *request = script_take(HF_VERB_DO);

    (void)state;
    assert_int_equal(request->command.kind, HF_COMMAND_LOCK);
    assert_int_equal(request->command.session, 7);
    assert_in_range(request->mux.remaining_ms, 1, 10000);
    script_result(request, &granted, HF_MUX_AGE_UNKNOWN);
    assert_int_equal(script_wait(future), HF_OK);
    assert_int_equal(hf_lock_token(lock), 41);
    assert_true(hf_lock_valid_for(lock, 0));
    script_expect_nothing();
    hf_lock_free(lock);
}

static void commands_of_one_turn_are_one_write(void **state)
{
    enum {
        COUNT = 20
    };
    struct hf_lock *locks[COUNT];
    struct hf_future *futures[COUNT];
    unsigned stream = script_stream();
    unsigned writes = script.streams[stream].writes;

    (void)state;
    script.client->loop.calling = true; /* as if inside a callback */
    script.client->loop.callback_thread = pthread_self();
    for (unsigned i = 0; i < COUNT; i++)
        futures[i] = script_lock("a", 0, &locks[i]);
    script.client->loop.calling = false;
    for (unsigned i = 0; i < COUNT; i++)
        script_result(script_take(HF_VERB_DO), &granted, HF_MUX_AGE_UNKNOWN);
    assert_int_equal(script.streams[stream].writes, writes + 1);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(script_wait(futures[i]), HF_OK);
        hf_lock_free(locks[i]);
    }
}

static void unanswered_commands_are_sent_again_in_order(void **state)
{
    struct hf_lock *locks[4];
    struct hf_future *futures[4];
    struct script_request first[4];
    struct hf_nonce secret = script.secret;

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        futures[i] = script_lock("a", 0, &locks[i]);
        first[i] = *script_take(HF_VERB_DO);
    }
    script_result(&first[1], &granted, HF_MUX_AGE_UNKNOWN);
    assert_int_equal(script_wait(futures[1]), HF_OK);
    script_kill(0);
    for (unsigned i = 0; i < 4; i++) {
        const struct script_request *again;

        if (i == 1)
            continue; /* it was answered, and is not repeated */
        again = script_take(HF_VERB_DO);
        assert_int_not_equal(again->stream, first[i].stream);
        assert_int_equal(again->command.session, 7);
        assert_int_equal(again->command.sequence, first[i].command.sequence);
        assert_memory_equal(&again->command.nonce, &first[i].command.nonce,
                            sizeof(again->command.nonce));
        script_result(again, &granted, HF_MUX_AGE_UNKNOWN);
    }
    assert_int_equal(script.opens, 1);
    assert_int_equal(script.attaches, 1);
    assert_memory_equal(&script.secret, &secret, sizeof(secret));
    for (unsigned i = 0; i < 4; i++) {
        if (i != 1)
            assert_int_equal(script_wait(futures[i]), HF_OK);
        hf_lock_free(locks[i]);
    }
}

/* The lost copy may have been executed, although nodes have refused later
 * copies. */
static void a_refused_copy_after_a_lost_one_is_in_doubt(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 0, &lock);

    (void)state;
    (void)script_take(HF_VERB_DO);
    script_kill(0);
    script_error(script_take(HF_VERB_DO), HF_ELIMIT, "too many");
    script_error(script_take(HF_VERB_DO), HF_ELIMIT, "too many");
    /* The claim is canceled, because the lost copy may hold the key. */
    assert_int_equal(script_take(HF_VERB_DO)->command.kind, HF_COMMAND_CANCEL);
    assert_int_equal(script_wait(future), HF_EINDOUBT);
    assert_int_equal(script_take(HF_VERB_DO)->command.kind, HF_COMMAND_CANCEL);
}

static void a_refused_copy_that_is_canceled_was_not_executed(void **state)
{
    const struct hf_result canceled = {.token = 0};
    struct script_request cancel;
    struct hf_error error;
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 0, &lock);

    (void)state;
    (void)script_take(HF_VERB_DO);
    script_kill(0);
    script_error(script_take(HF_VERB_DO), HF_ELIMIT, "too many");
    script_error(script_take(HF_VERB_DO), HF_ELIMIT, "too many");
    cancel = *script_take(HF_VERB_DO);
    assert_int_equal(cancel.command.kind, HF_COMMAND_CANCEL);
    script_result(&cancel, &canceled, HF_MUX_AGE_UNKNOWN);
    script_run(10);
    hf_future_error(future, &error);
    assert_non_null(strstr(error.text, "too many"));
    assert_int_equal(script_wait(future), HF_ELIMIT);
    script_expect_nothing();
}

static void a_refused_command_was_not_executed(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 0, &lock);
    struct hf_error error;

    (void)state;
    script_error(script_take(HF_VERB_DO), HF_ELIMIT, "too many waiters");
    script_run(10);
    hf_future_error(future, &error);
    assert_int_equal(error.code, HF_ELIMIT);
    assert_string_equal(error.text, "127.0.0.1:7001: too many waiters");
    assert_int_equal(script_wait(future), HF_ELIMIT);
    script_expect_nothing();
}

/* ---- The session is gone ------------------------------------------------*/

static void a_command_is_never_sent_in_two_sessions(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 0, &lock);
    struct script_request first = *script_take(HF_VERB_DO);
    struct hf_nonce secret = script.secret;

    (void)state;
    script.gone = true;
    script_kill(0);
    script_run(60000);
    assert_int_equal(script.attaches, 1);
    assert_int_equal(script.opens, 2);
    assert_memory_not_equal(&script.secret, &secret, sizeof(secret));
    while (script.taken < script.request_count) {
        const struct script_request *request = &script.requests[script.taken++];

        if (request->mux.verb == HF_VERB_DO) {
            assert_int_equal(request->command.session, 8);
            assert_true(request->command.sequence > first.command.sequence);
        }
    }
    hf_future_cancel(future);
    (void)script_wait(future);
}

static void a_lost_session_is_resolved_by_a_lookup(void **state)
{
    static const struct hf_mux_reply unknown = {.state = HF_CLAIM_UNKNOWN};
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 60000, &lock);
    struct script_request first = *script_take(HF_VERB_DO), second;
    struct script_request lookup;

    (void)state;
    script.gone = true;
    script_kill(0);
    lookup = *script_take(HF_VERB_LOOKUP);
    assert_true(lookup.mux.linearizable);
    assert_memory_equal(&lookup.mux.secret, &first.command.nonce,
                        sizeof(lookup.mux.secret));
    script_reply(&lookup, &unknown);
    assert_int_equal(script_take(HF_VERB_DO)->command.kind, HF_COMMAND_CANCEL);
    second = *script_take(HF_VERB_DO);
    assert_int_equal(second.command.session, 8);
    assert_memory_not_equal(&second.command.nonce, &first.command.nonce,
                            sizeof(second.command.nonce));
    script_result(&second, &granted, HF_MUX_AGE_UNKNOWN);
    assert_int_equal(script_wait(future), HF_OK);
    hf_lock_free(lock);
}

/* The client moves to the leader, and learns there that its session is gone.
 * The connection that it still has cannot carry commands then. */
static void a_session_that_is_gone_at_the_leader_is_gone(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future;
    const struct script_request *request;
    const struct hf_mux_push leader = {
        .kind = HF_MUX_PUSH_LEADER,
        .leader = 2,
        .address = hf_bytes_of("127.0.0.1:7002"),
    };

    (void)state;
    script.gone = true;
    script.nodes[1].leader = 2;
    script.nodes[1].stalls_open = true;
    script_push(script_stream(), &leader);
    script_run(2500);
    assert_int_equal(script.attaches, 1);
    assert_int_equal(script.opens, 2);
    future = script_lock("a", 0, &lock);
    script_run(200);
    script_expect_nothing();
    script.nodes[1].stalls_open = false;
    request = script_take(HF_VERB_DO);
    assert_int_equal(request->command.session, 8);
    assert_int_equal(request->command.kind, HF_COMMAND_LOCK);
    script_result(request, &granted, HF_MUX_AGE_UNKNOWN);
    assert_int_equal(script_wait(future), HF_OK);
    hf_lock_free(lock);
}

static void a_closed_session_is_noticed_by_a_result(void **state)
{
    static const struct hf_result unknown_session = {.err = HF_EINDOUBT};
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 0, &lock);
    struct script_request first = *script_take(HF_VERB_DO);

    (void)state;
    script.session = 8;
    script_result(&first, &unknown_session, HF_MUX_AGE_UNKNOWN);
    script_run(100);
    assert_int_equal(script.attaches, 0);
    assert_int_equal(script.opens, 2);
    hf_future_cancel(future);
    (void)script_wait(future);
}

static void a_command_that_was_not_sent_uses_the_next_session(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future;
    const struct script_request *request;

    (void)state;
    for (unsigned i = 0; i < SCRIPT_NODES; i++)
        script.nodes[i].stalled = true;
    script_kill(0);
    script_run(100); /* connected to another node, but not attached */
    future = script_lock("a", 0, &lock);
    script_run(100);
    script_expect_nothing();
    script.gone = true;
    for (unsigned i = 0; i < SCRIPT_NODES; i++)
        script.nodes[i].stalled = false;
    request = script_take(HF_VERB_DO);
    assert_int_equal(request->command.session, 8);
    script_result(request, &granted, HF_MUX_AGE_UNKNOWN);
    assert_int_equal(script_wait(future), HF_OK);
    hf_lock_free(lock);
}

/* The client submits the command again after every node has failed, and then
 * the session turns out to be gone. */
static void a_command_that_was_submitted_again_is_not_new(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 0, &lock);
    struct script_request first = *script_take(HF_VERB_DO);

    (void)state;
    script_kill(1);
    script_kill(2);
    script_kill(0);
    script_run(300); /* every node has failed; the client repeats the command */
    script.gone = true;
    for (unsigned i = 0; i < SCRIPT_NODES; i++) {
        script.nodes[i].refuses = false;
        script.nodes[i].stalled = true;
    }
    script_run(1200);
    for (unsigned i = 0; i < SCRIPT_NODES; i++)
        script.nodes[i].stalled = false;
    script_run(60000);
    assert_int_equal(script.opens, 2);
    while (script.taken < script.request_count) {
        const struct script_request *request = &script.requests[script.taken++];

        if (request->mux.verb == HF_VERB_DO && request->command.session == 8)
            assert_true(request->command.sequence > first.command.sequence);
    }
    hf_future_cancel(future);
    (void)script_wait(future);
}

/* ---- Canceling ----------------------------------------------------------*/

static void a_command_without_a_reply_is_in_doubt(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 0, &lock);
    struct script_request late = *script_take(HF_VERB_DO);

    (void)state;
    assert_int_equal(script_wait(future), HF_EINDOUBT);
    script_result(&late, &granted, HF_MUX_AGE_UNKNOWN); /* is ignored */
    assert_int_equal(script_take(HF_VERB_DO)->command.kind, HF_COMMAND_CANCEL);
}

static void a_command_that_was_not_sent_had_no_effect(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future;
    struct hf_error error;

    (void)state;
    for (unsigned i = 0; i < SCRIPT_NODES; i++)
        script.nodes[i].stalled = true;
    script_kill(0);
    script_run(100);
    future = script_lock("a", 0, &lock);
    script_run(20000);
    hf_future_error(future, &error);
    assert_non_null(strstr(error.text, "127.0.0.1:700"));
    assert_int_equal(script_wait(future), HF_EUNAVAIL);
    assert_int_equal(script.request_count, script.taken);
}

/* ---- Grants after a wait ------------------------------------------------*/

static void queue_lock(struct hf_lock **lock, struct hf_future **future,
                       struct script_request *request)
{
    *future = script_lock("a", 60000, lock);
    *request = *script_take(HF_VERB_DO);
    script_result(request, &queued, HF_MUX_AGE_UNKNOWN);
    script_run(10);
}

static void push_grant(const struct script_request *request, int64_t age_ms)
{
    const struct hf_mux_push push = {
        .kind = HF_MUX_PUSH_GRANT,
        .nonce = request->command.nonce,
        .token = 42,
        .age_ms = age_ms,
    };

    script_push(script_stream(), &push);
}

static void a_grant_with_an_age_is_used_at_once(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future;
    struct script_request request;

    (void)state;
    queue_lock(&lock, &future, &request);
    script_run(900);
    push_grant(&request, script.now - request.at);
    assert_int_equal(script_wait(future), HF_OK);
    assert_int_equal(hf_lock_token(lock), 42);
    assert_int_equal(hf_lock_remaining_ms(lock), 10000);
    script_expect_nothing();
    hf_lock_free(lock);
}

static void a_grant_without_an_age_is_renewed_first(void **state)
{
    static const struct hf_result renewed = {.token = 42, .generation = 1};
    struct hf_lock *lock;
    struct hf_future *future;
    struct script_request request;
    const struct script_request *renewal;

    (void)state;
    queue_lock(&lock, &future, &request);
    script_run(900);
    push_grant(&request, HF_MUX_AGE_UNKNOWN);
    renewal = script_take(HF_VERB_DO);
    assert_int_equal(renewal->command.kind, HF_COMMAND_RENEW);
    script_result(renewal, &renewed, HF_MUX_AGE_UNKNOWN);
    assert_int_equal(script_wait(future), HF_OK);
    hf_lock_free(lock);
}

/* The leader applied the first copy of the LOCK, and counts the age from then
 * on. If the client counted from the second copy, the lease would seem to start
 * too late. */
static void a_grant_counts_from_the_first_copy_of_its_lock(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 60000, &lock);
    struct script_request first = *script_take(HF_VERB_DO), second;

    (void)state;
    script_run(400);
    script_run(400);
    script_kill(0);
    second = *script_take(HF_VERB_DO);
    script_result(&second, &queued, HF_MUX_AGE_UNKNOWN);
    script_run(10);
    /* Counted from the first copy, the lease started 1000 ms before the push.
     * Less than the ttl is left, so the client renews. */
    script_run(200);
    push_grant(&second, 10);
    assert_true(second.at - first.at >= 800);
    assert_int_equal(script_take(HF_VERB_DO)->command.kind, HF_COMMAND_RENEW);
    hf_future_cancel(future);
    (void)script_wait(future);
}

/* The same, if the client itself sends the LOCK again: no node could say what
 * became of the first copy. */
static void a_grant_counts_from_the_first_attempt_of_its_lock(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 60000, &lock);
    struct script_request first = *script_take(HF_VERB_DO), second;

    (void)state;
    script_run(800);
    script_error(&first, HF_EINDOUBT, "the leader has changed");
    second = *script_take(HF_VERB_DO);
    assert_int_equal(second.command.kind, HF_COMMAND_LOCK);
    assert_int_equal(second.command.sequence, first.command.sequence);
    script_result(&second, &queued, HF_MUX_AGE_UNKNOWN);
    script_run(200);
    push_grant(&second, 10);
    assert_int_equal(script_take(HF_VERB_DO)->command.kind, HF_COMMAND_RENEW);
    hf_future_cancel(future);
    (void)script_wait(future);
}

/* The same, if no node can be reached for a while. */
static void a_grant_counts_from_before_all_nodes_were_lost(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 60000, &lock);
    struct script_request first = *script_take(HF_VERB_DO), second;

    (void)state;
    for (unsigned i = SCRIPT_NODES; i-- > 0;)
        script_kill(i);
    script_run(800);
    for (unsigned i = 0; i < SCRIPT_NODES; i++)
        script.nodes[i].refuses = false;
    second = *script_take(HF_VERB_DO);
    assert_int_equal(second.command.sequence, first.command.sequence);
    script_result(&second, &queued, HF_MUX_AGE_UNKNOWN);
    script_run(200);
    push_grant(&second, 10);
    assert_int_equal(script_take(HF_VERB_DO)->command.kind, HF_COMMAND_RENEW);
    hf_future_cancel(future);
    (void)script_wait(future);
}

static void a_grant_may_precede_the_answer_to_its_lock(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 60000, &lock);
    struct script_request request = *script_take(HF_VERB_DO);

    (void)state;
    push_grant(&request, 0);
    assert_int_equal(script_take(HF_VERB_DO)->command.kind, HF_COMMAND_RENEW);
    hf_future_cancel(future);
    (void)script_wait(future);
}

static void a_repeated_lock_is_answered_with_the_age_of_its_grant(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 60000, &lock);
    struct script_request second;

    (void)state;
    (void)script_take(HF_VERB_DO);
    script_run(300);
    script_kill(0);
    second = *script_take(HF_VERB_DO);
    script_result(&second, &granted, 300);
    assert_int_equal(script_wait(future), HF_OK);
    assert_int_equal(hf_lock_token(lock), 41);
    hf_lock_free(lock);
}

/* ---- Lookups ------------------------------------------------------------*/

static void reply_to_lookup(const struct script_request *request,
                            enum hf_claim_state claim)
{
    const struct hf_mux_reply reply = {
        .state = claim,
        .token = claim == HF_CLAIM_HELD ? 42 : 0,
        .position = claim == HF_CLAIM_QUEUED,
        .index = 3,
    };

    script_reply(request, &reply);
}

static void a_waiter_is_checked_by_lookups(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future;
    struct script_request lock_request, lookup;

    (void)state;
    queue_lock(&lock, &future, &lock_request);
    lookup = *script_take(HF_VERB_LOOKUP);
    assert_true(lookup.at - lock_request.at <= 7000);
    assert_false(lookup.mux.linearizable);
    assert_memory_equal(&lookup.mux.secret, &lock_request.command.nonce,
                        sizeof(lookup.mux.secret));
    reply_to_lookup(&lookup, HF_CLAIM_QUEUED);
    lookup = *script_take(HF_VERB_LOOKUP);
    reply_to_lookup(&lookup, HF_CLAIM_HELD);
    assert_int_equal(script_take(HF_VERB_DO)->command.kind, HF_COMMAND_RENEW);
    hf_future_cancel(future);
    (void)script_wait(future);
}

static void an_unknown_claim_is_confirmed(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future;
    struct script_request lock_request, lookup;

    (void)state;
    queue_lock(&lock, &future, &lock_request);
    reply_to_lookup(script_take(HF_VERB_LOOKUP), HF_CLAIM_UNKNOWN);
    lookup = *script_take(HF_VERB_LOOKUP);
    assert_true(lookup.mux.linearizable);
    reply_to_lookup(&lookup, HF_CLAIM_QUEUED);
    script_run(100);
    script_expect_nothing();
    hf_future_cancel(future);
    (void)script_wait(future);
}

/* Nothing is awaited for a claim that has ended: an idle client sends few
 * PINGs. */
static void an_unknown_claim_is_forgotten(void **state)
{
    const struct hf_raft *raft = script.client->self;
    struct hf_lock *lock;
    struct hf_future *future;
    struct script_request lock_request, lookup;

    (void)state;
    queue_lock(&lock, &future, &lock_request);
    reply_to_lookup(script_take(HF_VERB_LOOKUP), HF_CLAIM_UNKNOWN);
    lookup = *script_take(HF_VERB_LOOKUP);
    assert_int_equal(raft->claims.count, 1);
    script.now = lock_request.at + 60000;
    reply_to_lookup(&lookup, HF_CLAIM_UNKNOWN);
    assert_int_equal(script_wait(future), HF_ETIMEDOUT);
    assert_int_equal(raft->claims.count, 0);
}

/* The grant of the waiter may have been pushed to the lost connection. */
static void a_waiter_is_checked_after_a_lost_connection(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future;
    struct script_request lock_request;

    (void)state;
    queue_lock(&lock, &future, &lock_request);
    script_kill(0);
    script_run(10);
    (void)script_take(HF_VERB_LOOKUP);
    assert_true(script.now - lock_request.at <= 100);
    hf_future_cancel(future);
    (void)script_wait(future);
}

#define OPEN_CASE(name)                                                        \
    cmocka_unit_test_setup_teardown(name, script_set_up_open, script_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        OPEN_CASE(a_lock_is_one_command_of_the_session),
        OPEN_CASE(commands_of_one_turn_are_one_write),
        OPEN_CASE(unanswered_commands_are_sent_again_in_order),
        OPEN_CASE(a_refused_copy_after_a_lost_one_is_in_doubt),
        OPEN_CASE(a_refused_copy_that_is_canceled_was_not_executed),
        OPEN_CASE(a_refused_command_was_not_executed),
        OPEN_CASE(a_command_is_never_sent_in_two_sessions),
        OPEN_CASE(a_lost_session_is_resolved_by_a_lookup),
        OPEN_CASE(a_session_that_is_gone_at_the_leader_is_gone),
        OPEN_CASE(a_closed_session_is_noticed_by_a_result),
        OPEN_CASE(a_command_that_was_not_sent_uses_the_next_session),
        OPEN_CASE(a_command_that_was_submitted_again_is_not_new),
        OPEN_CASE(a_command_without_a_reply_is_in_doubt),
        OPEN_CASE(a_command_that_was_not_sent_had_no_effect),
        OPEN_CASE(a_grant_with_an_age_is_used_at_once),
        OPEN_CASE(a_grant_without_an_age_is_renewed_first),
        OPEN_CASE(a_grant_counts_from_the_first_copy_of_its_lock),
        OPEN_CASE(a_grant_counts_from_the_first_attempt_of_its_lock),
        OPEN_CASE(a_grant_counts_from_before_all_nodes_were_lost),
        OPEN_CASE(a_grant_may_precede_the_answer_to_its_lock),
        OPEN_CASE(a_repeated_lock_is_answered_with_the_age_of_its_grant),
        OPEN_CASE(a_waiter_is_checked_by_lookups),
        OPEN_CASE(an_unknown_claim_is_confirmed),
        OPEN_CASE(an_unknown_claim_is_forgotten),
        OPEN_CASE(a_waiter_is_checked_after_a_lost_connection),
    };

    return hf_test_main("raft_requests", cases, HF_TEST_COUNT(cases), 0);
}
