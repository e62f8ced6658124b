/* Whatever a node sends, the client of raft: must keep working. */
#include "lib/alloc.h"
#include "raft_client/script.h"

static const struct hf_result granted = {.token = 41};

/* Returns the last LOCK that was not taken and whose connection is open, or
 * NULL. CANCELs of earlier claims may be sent again at any time. */
static const struct script_request *find_lock(void)
{
    for (unsigned i = script.request_count; i > script.taken; i--) {
        const struct script_request *request = &script.requests[i - 1];

        if (request->mux.verb == HF_VERB_DO &&
            script.streams[request->stream].stream &&
            request->command.kind == HF_COMMAND_LOCK)
            return request;
    }
    return NULL;
}

/* Expect that the client still gets the lock, from the same node or from
 * another. */
static void expect_that_it_works(struct hf_future *future,
                                 struct hf_lock **lock)
{
    for (unsigned i = 0; i < SCRIPT_NODES; i++) {
        script.nodes[i].refuses = false;
        script.nodes[i].hello = NULL;
    }
    for (unsigned i = 0; i < 100 && !find_lock(); i++)
        script_run(100);
    assert_non_null(find_lock());
    script_result(find_lock(), &granted, HF_MUX_AGE_UNKNOWN);
    script.taken = script.request_count;
    assert_int_equal(script_wait(future), HF_OK);
    hf_lock_free(*lock);
}

static const char *const messages[] = {
    "\r\n",
    "x\r\n",
    "+OK\r\n",
    "-ERR\r\n",
    ":1\r\n",
    "$-1\r\n",
    "*-1\r\n",
    "*0\r\n",
    "*1\r\n:1\r\n",
    "*100000000\r\n",
    "*2\r\n$100000000\r\n",
    "*2\r\n:-1\r\n+OK\r\n",
    "*2\r\n:0\r\n$5\r\nNOISE\r\n",
    "*2\r\n:0\r\n$5\r\nGRANT\r\n",
    "*6\r\n:0\r\n$5\r\nGRANT\r\n$2\r\nxx\r\n:1\r\n:1\r\n:1\r\n",
    "*6\r\n:0\r\n$5\r\nGRANT\r\n$16\r\n0123456789abcdef\r\n:1\r\n:1\r\n:-7\r\n",
    ("*6\r\n:0\r\n$5\r\nGRANT\r\n$16\r\n0123456789abcdef\r\n:1\r\n:1\r\n"
     ":9223372036854775807\r\n"),
    "*4\r\n:0\r\n$5\r\nEVENT\r\n:1\r\n$1\r\nx\r\n",
    "*4\r\n:0\r\n$6\r\nLEADER\r\n:9\r\n$3\r\n:::\r\n",
    "*4\r\n:0\r\n$6\r\nLEADER\r\n:9\r\n$0\r\n\r\n",
    "*2\r\n:9223372036854775807\r\n+OK\r\n",
    "*2\r\n:1\r\n*2\r\n*1\r\n:1\r\n:1\r\n",
};

static void a_message_out_of_place_does_no_harm(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(messages); i++) {
        struct hf_lock *lock;
        struct hf_future *future = script_lock("a", 0, &lock);
        unsigned stream = script_take(HF_VERB_DO)->stream;

        script_bytes(stream, messages[i], strlen(messages[i]));
        if (script.streams[stream].stream)
            script_run(10);
        /* If the client has kept the connection, answer the same request. */
        if (script.streams[stream].stream)
            script.taken--;
        expect_that_it_works(future, &lock);
    }
}

static void a_push_of_a_later_version_is_ignored(void **state)
{
    static const char push[] = "*3\r\n:0\r\n$5\r\nNOISE\r\n:1\r\n";
    unsigned stream = script_stream();

    (void)state;
    script_bytes(stream, push, sizeof(push) - 1);
    script_run(10);
    assert_int_equal(script_stream(), stream);
}

static void a_strange_answer_to_hello_is_refused(void **state)
{
    static const char *const hellos[] = {
        "-ERR unknown command 'HELLO'\r\n",
        "-DENIED no more\r\n",
        "*0\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "*8\r\n:2\r\n$2\r\nc1\r\n:1\r\n:1\r\n$0\r\n\r\n:1\r\n:1\r\n:1\r\n",
        "+PONG\r\n",
    };

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(hellos); i++) {
        struct hf_lock *lock;
        struct hf_future *future;
        unsigned attaches = script.attaches;

        for (unsigned node = 0; node < SCRIPT_NODES; node++)
            script.nodes[node].hello = hellos[i];
        script.streams[script_stream()].is_lost = true;
        script_bytes(script_stream(), "", 0);
        script_run(1000);
        assert_int_equal(script.attaches, attaches);
        for (unsigned node = 0; node < SCRIPT_NODES; node++)
            script.nodes[node].hello = NULL;
        script_run(3000);
        future = script_lock("a", 0, &lock);
        expect_that_it_works(future, &lock);
    }
}

/* A result that cannot be decoded counts as lost: the command is repeated. */
static void a_malformed_result_is_repeated_elsewhere(void **state)
{
    static const struct hf_mux_reply wrong = {.result = {"xyz", 3}};
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 0, &lock);
    struct script_request first = *script_take(HF_VERB_DO);
    const struct script_request *second;

    (void)state;
    script_reply(&first, &wrong);
    second = script_take(HF_VERB_DO);
    assert_int_equal(second->command.sequence, first.command.sequence);
    assert_int_not_equal(second->stream, first.stream);
    script_result(second, &granted, HF_MUX_AGE_UNKNOWN);
    assert_int_equal(script_wait(future), HF_OK);
    hf_lock_free(lock);
}

static void an_answer_may_arrive_in_pieces(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 0, &lock);
    struct script_request request = *script_take(HF_VERB_DO);
    struct hf_buf result = {0}, reply = {0};
    struct hf_mux_reply mux = {.id = request.mux.id, .age_ms = -1};

    (void)state;
    hf_command_encode_result(&granted, &result);
    mux.result = (struct hf_bytes){result.data, result.size};
    hf_mux_reply_encode(&mux, HF_VERB_DO, &reply);
    for (size_t i = 0; i < reply.size; i++) {
        enum hf_err err;

        assert_false(hf_future_done(future, &err));
        script_bytes(request.stream, reply.data + i, 1);
        script_run(0);
    }
    assert_int_equal(script_wait(future), HF_OK);
    hf_lock_free(lock);
    hf_buf_fini(&result);
    hf_buf_fini(&reply);
}

static void random_bytes_do_no_harm(void **state)
{
    struct hf_random random;

    (void)state;
    hf_random_init(&random, 5);
    for (unsigned round = 0; round < 40; round++) {
        struct hf_lock *lock;
        struct hf_future *future = script_lock("a", 0, &lock);
        unsigned stream = script_take(HF_VERB_DO)->stream;
        uint8_t bytes[64];
        uint32_t size = 1 + hf_random_below(&random, sizeof(bytes) - 2);

        assert_int_equal(hf_random_bytes(&random, bytes, sizeof(bytes)), HF_OK);
        bytes[0] = (uint8_t) "*:+-$"[hf_random_below(&random, 5)];
        bytes[size] = '\n';
        bytes[size - 1] = '\r';
        script_bytes(stream, bytes, size + 1);
        script_run(10);
        script.streams[stream].is_lost = true; /* end a wait for more bytes */
        script_bytes(stream, "", 0);
        expect_that_it_works(future, &lock);
    }
}

/* ---- Memory -------------------------------------------------------------*/

/* Wait for a lock and lose the connection meanwhile. Allocation number `nth`
 * fails. Returns the result of the claim. The nodes run in this process, so the
 * failure may also lose a reply. */
static enum hf_err wait_over_a_lost_connection(unsigned long nth)
{
    static const struct hf_result queued = {.err = HF_EBUSY, .position = 1};
    struct hf_lock *lock = NULL;
    struct hf_future *future = script_lock("a", 60000, &lock);
    struct hf_mux_push push = {.kind = HF_MUX_PUSH_GRANT, .token = 41};
    enum hf_err err = HF_OK;

    hf_alloc_fail(nth, 1);
    for (unsigned i = 0; i < 200 && !hf_future_done(future, &err); i++) {
        script_run(100);
        if (i == 1)
            script.streams[script_stream()].is_lost = true;
        while (script.taken < script.request_count) {
            const struct script_request *request =
                &script.requests[script.taken++];

            if (request->mux.verb != HF_VERB_DO)
                continue; /* leave a LOOKUP unanswered */
            push.nonce = request->command.nonce;
            script_result(request,
                          request->command.kind == HF_COMMAND_LOCK ? &queued
                                                                   : &granted,
                          HF_MUX_AGE_UNKNOWN);
        }
        if (i == 5)
            script_push(script_stream(), &push);
    }
    (void)hf_alloc_failed();
    hf_future_cancel(future);
    err = script_wait(future);
    if (!err)
        hf_lock_free(lock);
    return err;
}

static void running_out_of_memory_delays_a_claim(void **state)
{
    unsigned long calls = hf_alloc_calls();

    (void)state;
    assert_int_equal(wait_over_a_lost_connection(1000000), HF_OK);
    calls = hf_alloc_calls() - calls;
    for (unsigned long nth = 1; nth < calls; nth++) {
        enum hf_err err = wait_over_a_lost_connection(nth);

        if (err != HF_OK && err != HF_ENOMEM && err != HF_ECANCELED &&
            err != HF_EINDOUBT)
            fail_msg("allocation %lu: %s", nth, hf_err_name(err));
        (void)script_tear_down(NULL);
        (void)script_set_up_open(NULL);
    }
}

#define OPEN_CASE(name)                                                        \
    cmocka_unit_test_setup_teardown(name, script_set_up_open, script_tear_down)

/* ---- Pushes -------------------------------------------------------------*/

/* The reply to the renewal decides, so a false report does no harm. */
static void a_lock_that_may_be_broken_is_renewed_at_once(void **state)
{
    static const struct hf_result held = {.token = 42};
    static const struct hf_result lost = {.err = HF_ENOTHELD};
    const struct hf_mux_push push = {.kind = HF_MUX_PUSH_RECHECK, .token = 42};
    const struct script_request *renewal;
    struct hf_future *future;
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    hf_time pushed;

    (void)state;
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 10000;
    opts.renew = true;
    assert_int_equal(hf_acquire_start(script.client, hf_key_of("a"), &opts,
                                      &lock, NULL, NULL, &future),
                     HF_OK);
    script_result(script_take(HF_VERB_DO), &held, HF_MUX_AGE_UNKNOWN);
    assert_int_equal(script_wait(future), HF_OK);
    script_expect_nothing();
    pushed = script.now;
    script_push(script_stream(), &push);
    renewal = script_take(HF_VERB_DO);
    assert_int_equal(renewal->command.kind, HF_COMMAND_RENEW);
    assert_int_equal(renewal->at, pushed);
    script_result(renewal, &lost, HF_MUX_AGE_UNKNOWN);
    script_run(1);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    hf_lock_free(lock);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        OPEN_CASE(a_message_out_of_place_does_no_harm),
        OPEN_CASE(a_push_of_a_later_version_is_ignored),
        OPEN_CASE(a_strange_answer_to_hello_is_refused),
        OPEN_CASE(a_malformed_result_is_repeated_elsewhere),
        OPEN_CASE(a_lock_that_may_be_broken_is_renewed_at_once),
        OPEN_CASE(an_answer_may_arrive_in_pieces),
        OPEN_CASE(random_bytes_do_no_harm),
        OPEN_CASE(running_out_of_memory_delays_a_claim),
    };

    return hf_test_main("raft_hostile", cases, HF_TEST_COUNT(cases), 0);
}
