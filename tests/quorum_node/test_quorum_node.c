/* test_quorum_node.c - a node of a quorum: requests to its master, pushes,
 * marks and restarts. */
#include <stdlib.h>
#include <string.h>

#include "core/quorum/message.h"
#include "lib/alloc.h"
#include "lib/runner.h"
#include "quorum_node/one_node.h"

static struct one_node one;

static int set_up(void **state)
{
    (void)state;
    one_node_init(&one);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    one_node_fini(&one);
    return 0;
}

static void expect_text(const char *line, const char *part)
{
    char *text = one_node_text(&one, NODE_CLIENTS - 1, line);

    if (!strstr(text, part))
        fail_msg("%s: '%s' is not in %s", line, part, text);
    free(text);
}

/* ---- Requests -----------------------------------------------------------*/

static void hello_names_the_mode_and_the_members(void **state)
{
    struct hf_mux_hello hello;
    struct hf_bytes text;
    static const char members[] = "1 master 1 127.0.0.1:7001 master 2 "
                                  "127.0.0.1:7002 master 3 [::1]:7003";

    (void)state;
    (void)one_node_connect_mux(&one, 1);
    assert_int_equal(
        hf_mux_hello_decode(&hello, &one.clients[1].message, &text), HF_OK);
    assert_int_equal(hello.node, 2);
    assert_int_equal(hello.mode.size, 6);
    assert_memory_equal(hello.mode.data, "quorum", 6);
    assert_int_equal(hello.members.size, strlen(members));
    assert_memory_equal(hello.members.data, members, strlen(members));
}

static void a_message_is_answered_by_the_master(void **state)
{
    struct hf_quorum_reply answer;

    (void)state;
    (void)one_node_connect_mux(&one, 1);
    answer = one_node_ask(&one, 1, one_fast(1, 5));
    assert_int_equal(answer.kind, HF_QUORUM_VOTE);
    assert_int_equal(answer.report.vote_number, 5);
    answer = one_node_ask(&one, 1, one_commit(1, 5));
    assert_int_equal(answer.kind, HF_QUORUM_OK);
    answer = one_node_ask(&one, 1, one_read());
    assert_int_equal(answer.kind, HF_QUORUM_REPORT);
    assert_int_equal(answer.report.token, 5);
    assert_memory_equal(answer.report.data.value.data, "1", 1);
    answer = one_node_ask(&one, 1, one_end(1, 5, 5));
    assert_int_equal(answer.kind, HF_QUORUM_ENDED);
    assert_int_equal(answer.end, HF_QUORUM_END_RELEASED);
    expect_text("INFO", "\r\nmessages:4\r\n");
}

static void leases_expire_without_input(void **state)
{
    (void)state;
    (void)one_node_connect_mux(&one, 1);
    (void)one_node_ask(&one, 1, one_commit(1, 5));
    assert_true(hf_quorum_node_deadline(one.node) <= one.now + ONE_LEASE_MS);
    expect_text("STATUS", "\"held\":1,");
    one_node_advance(&one, ONE_LEASE_MS);
    expect_text("STATUS", "\"held\":0,");
}

static void malformed_messages_are_refused(void **state)
{
    static const char *const bad[] = {"", "x", "\1", "\1\1\0\0\0\0\0"};

    (void)state;
    (void)one_node_connect_mux(&one, 1);
    for (size_t i = 0; i < HF_TEST_COUNT(bad); i++) {
        struct hf_mux_reply reply = one_node_call(
            &one, 1,
            (struct hf_mux_request){.verb = HF_VERB_QUORUM,
                                    .command = {bad[i], strlen(bad[i])}});

        assert_int_equal(reply.err, HF_EPROTO);
    }
    assert_int_equal(one_node_ask(&one, 1, one_fast(1, 5)).kind,
                     HF_QUORUM_VOTE);
    assert_false(one.clients[1].is_closed);
    expect_text("INFO", "requests_invalid:4\r\n");
}

static void a_request_beyond_a_limit_is_refused(void **state)
{
    struct hf_quorum_request request = one_fast(1, 5);
    struct hf_quorum_reply answer;

    (void)state;
    (void)one_node_connect_mux(&one, 1);
    request.lease_ms = ONE_LEASE_MAX_MS + 1;
    answer = one_node_ask(&one, 1, request);
    assert_int_equal(answer.kind, HF_QUORUM_REFUSED);
    assert_int_equal(answer.err, HF_EINVAL);
    expect_text("INFO", "requests_invalid:1\r\n");
}

static void commands_of_raft_are_refused(void **state)
{
    static const char nonce[] = "00112233445566778899aabbccddeeff";
    static const char *const lines[] = {"LOCK k 1000", "FORCE k 5", "READ k"};
    struct hf_mux_request request = {
        .verb = HF_VERB_DO, .remaining_ms = 1, .command = {"x", 1}};

    (void)state;
    (void)nonce;
    for (size_t i = 0; i < HF_TEST_COUNT(lines); i++)
        expect_text(lines[i], "UNSUPPORTED ");
    (void)one_node_connect_mux(&one, 1);
    assert_int_equal(one_node_call(&one, 1, request).err, HF_EUNSUPPORTED);
    request =
        (struct hf_mux_request){.verb = HF_VERB_OPEN, .secret = one_nonce(1)};
    assert_int_equal(one_node_call(&one, 1, request).err, HF_EUNSUPPORTED);
    request = (struct hf_mux_request){
        .verb = HF_VERB_READ, .key = hf_key_of("k"), .linearizable = true};
    assert_int_equal(one_node_call(&one, 1, request).err, HF_EUNSUPPORTED);
    request.verb = HF_VERB_LIST;
    assert_int_equal(one_node_call(&one, 1, request).err, HF_EUNSUPPORTED);
}

/* ---- Pushes -------------------------------------------------------------*/

/* LK-20: the vote arrives with the END of the holder, in the same turn. */
static void a_vote_is_pushed_to_the_connection_of_the_claim(void **state)
{
    struct hf_quorum_reply push;

    (void)state;
    for (uint64_t conn = 1; conn <= 3; conn++)
        (void)one_node_connect_mux(&one, conn);
    (void)one_node_ask(&one, 1, one_fast(1, 5));
    assert_int_equal(one_node_ask(&one, 2, one_wait(2, 6)).position, 1);
    one_node_advance(&one, 10);
    (void)one_node_ask(&one, 1, one_end(1, 5, 5));
    assert_false(one_node_take(&one, 3));
    push = one_node_take_vote(&one, 2, 2);
    assert_int_equal(push.kind, HF_QUORUM_VOTE);
    assert_int_equal(push.number, 6);
    assert_int_equal(push.age_ms, 10);
    assert_false(one_node_take(&one, 2));
}

static void a_claim_follows_its_last_ask(void **state)
{
    struct hf_quorum_request again = one_wait(2, 6);

    (void)state;
    for (uint64_t conn = 1; conn <= 3; conn++)
        (void)one_node_connect_mux(&one, conn);
    (void)one_node_ask(&one, 1, one_fast(1, 5));
    (void)one_node_ask(&one, 2, one_wait(2, 6));
    again.serial = 9;
    (void)one_node_ask(&one, 3, again);
    one_node_close(&one, 2);
    one_node_advance(&one, 2 * HF_QUORUM_GRACE_MS - ONE_LEASE_MS - 1);
    (void)one_node_ask(&one, 1, one_end(1, 5, 5));
    assert_int_equal(one_node_take_vote(&one, 3, 2).kind, HF_QUORUM_VOTE);
}

static void claims_of_a_closed_connection_are_passed_over(void **state)
{
    (void)state;
    for (uint64_t conn = 1; conn <= 3; conn++)
        (void)one_node_connect_mux(&one, conn);
    (void)one_node_ask(&one, 1, one_fast(1, 5));
    (void)one_node_ask(&one, 2, one_wait(2, 6));
    (void)one_node_ask(&one, 3, one_wait(3, 7));
    one_node_close(&one, 2);
    (void)one_node_ask(&one, 1, one_end(1, 5, 5));
    assert_int_equal(one_node_take_vote(&one, 3, 3).kind, HF_QUORUM_VOTE);
}

/* A connection that is closed at the end of a turn lets another claim go on,
 * whose push must not wait for the next input. */
static void a_push_at_the_end_of_a_turn_is_sent(void **state)
{
    (void)state;
    for (uint64_t conn = 1; conn <= 3; conn++)
        (void)one_node_connect_mux(&one, conn);
    (void)one_node_ask(&one, 1, one_fast(1, 5));
    (void)one_node_ask(&one, 2, one_wait(2, 6));
    (void)one_node_ask(&one, 3, one_wait(3, 7));
    (void)one_node_ask(&one, 1, one_prepare(4, 10));
    (void)one_node_ask(&one, 1, one_end(1, 5, 5));
    assert_int_equal(one_node_take_vote(&one, 2, 2).kind, HF_QUORUM_LOW);
    assert_false(one_node_take(&one, 3));
    one_node_send(&one, 2, "?\r\n", 3); /* malformed: the node closes it */
    assert_true(one.clients[2].is_closed);
    assert_int_equal(one_node_take_vote(&one, 3, 3).kind, HF_QUORUM_LOW);
}

static void pushes_to_a_client_that_does_not_read_are_limited(void **state)
{
    unsigned claim = 10;

    (void)state;
    one_node_connect_mux(&one, 1);
    one_node_connect_mux(&one, 2)->is_deaf = true;
    while (!one.clients[2].is_closed && claim < 100000) {
        struct hf_quorum_request ask = one_wait(claim, claim);
        struct hf_buf buf = {0};
        struct hf_mux_request request = {.id = claim, .verb = HF_VERB_QUORUM};
        struct hf_buf frame = {0};

        ask.serial = 1;
        hf_message_encode_request(&ask, &buf);
        request.command = (struct hf_bytes){buf.data, buf.size};
        hf_mux_request_encode(&request, &frame);
        one_node_send(&one, 2, frame.data, frame.size);
        hf_buf_fini(&frame);
        hf_buf_fini(&buf);
        (void)one_node_ask(&one, 1, one_end(claim, claim, 0));
        one.now += 100;
        claim++;
    }
    assert_true(one.clients[2].unsent <= HF_CLIENT_OUTPUT_MAX);
    assert_int_equal(one_node_ask(&one, 1, one_read()).kind, HF_QUORUM_REPORT);
}

/* ---- Marks --------------------------------------------------------------*/

static void a_new_node_asks_for_its_first_mark(void **state)
{
    struct one_node fresh;

    (void)state;
    assert_int_equal(one_node_init_with(&fresh, 0, 0), HF_OK);
    assert_true(hf_quorum_node_wanted_mark(fresh.node) > 0);
    one_node_connect_mux(&fresh, 1);
    assert_int_equal(fresh.marks, 1);
    assert_int_equal(one_node_ask(&fresh, 1, one_fast(1, 5)).err, HF_EUNAVAIL);
    assert_int_equal(fresh.marks, 1);
    assert_int_equal(hf_quorum_node_wanted_mark(fresh.node), 0);
    one_node_end_mark(&fresh, true);
    assert_int_equal(one_node_ask(&fresh, 1, one_fast(1, 5)).kind,
                     HF_QUORUM_VOTE);
    one_node_fini(&fresh);
}

static void numbers_above_the_mark_wait_for_the_file(void **state)
{
    uint64_t above = HF_QUORUM_MARK_STEP + 1;
    struct hf_quorum_reply answer;

    (void)state;
    (void)one_node_connect_mux(&one, 1);
    answer = one_node_ask(&one, 1, one_fast(1, above));
    assert_int_equal(answer.kind, HF_QUORUM_REFUSED);
    assert_int_equal(answer.err, HF_EUNAVAIL);
    assert_int_equal(one.marks, 2);
    assert_true(one.mark > above);
    assert_int_equal(one_node_ask(&one, 1, one_fast(1, above)).kind,
                     HF_QUORUM_REFUSED);
    assert_int_equal(one.marks, 2);
    one_node_end_mark(&one, true);
    assert_int_equal(one_node_ask(&one, 1, one_fast(1, above)).kind,
                     HF_QUORUM_VOTE);
    assert_int_equal(one.marks, 2);
}

static void a_mark_that_failed_is_written_again_later(void **state)
{
    uint64_t above = HF_QUORUM_MARK_STEP + 1;
    hf_time pause = HF_QUORUM_MARK_RETRY_MS;

    (void)state;
    (void)one_node_connect_mux(&one, 1);
    (void)one_node_ask(&one, 1, one_fast(1, above));
    for (unsigned failures = 1; failures <= 10; failures++) {
        one_node_end_mark(&one, false);
        expect_text("STATUS", "\"mark_failed\":true");
        assert_int_equal(one_node_ask(&one, 1, one_fast(1, above)).err,
                         HF_EUNAVAIL);
        one_node_advance(&one, pause - 1);
        assert_int_equal(one.mark, 0);
        assert_true(hf_quorum_node_deadline(one.node) <= one.now + 1);
        one_node_advance(&one, 1);
        assert_int_equal(one.marks, 2 + failures);
        pause = pause * 2 < HF_QUORUM_MARK_RETRY_MAX_MS
                    ? pause * 2
                    : HF_QUORUM_MARK_RETRY_MAX_MS;
    }
    one_node_end_mark(&one, true);
    expect_text("STATUS", "\"mark_failed\":false");
    one.clients[1].id = 100; /* it asks again, with a higher serial */
    assert_int_equal(one_node_ask(&one, 1, one_fast(1, above)).kind,
                     HF_QUORUM_VOTE);
}

/* LK-25: a master that has forgotten its leases does not vote until they must
 * have expired. */
static void a_node_that_has_run_before_is_quiet(void **state)
{
    struct one_node again;
    uint64_t mark = 5 * HF_QUORUM_MARK_STEP;
    struct hf_quorum_node_status status;
    struct hf_quorum_reply answer;

    (void)state;
    assert_int_equal(one_node_init_with(&again, mark, 0), HF_OK);
    one_node_run(&again);
    one_node_end_mark(&again, true);
    one_node_connect_mux(&again, 1);
    hf_quorum_node_status(again.node, &status);
    assert_int_equal(status.quiet_ms, ONE_LEASE_MAX_MS);
    for (hf_time left = ONE_LEASE_MAX_MS; left > 0; left -= 20000) {
        answer = one_node_ask(&again, 1, one_fast(1, mark + 1));
        assert_int_equal(answer.kind, HF_QUORUM_QUIET);
        assert_int_equal(answer.quiet_ms, left);
        one_node_advance(&again, 20000);
    }
    answer = one_node_ask(&again, 1, one_fast(1, mark));
    assert_int_equal(answer.kind, HF_QUORUM_LOW);
    assert_true(answer.highest >= mark);
    answer = one_node_ask(&again, 1, one_fast(2, mark + 1));
    assert_int_equal(answer.kind, HF_QUORUM_VOTE);
    one_node_fini(&again);
}

static void the_end_of_the_quiet_time_is_a_deadline(void **state)
{
    struct one_node again;

    (void)state;
    assert_int_equal(one_node_init_with(&again, 7, 0), HF_OK);
    one_node_run(&again);
    assert_int_equal(hf_quorum_node_deadline(again.node),
                     again.now + ONE_LEASE_MAX_MS);
    one_node_fini(&again);
}

/* ---- Connections --------------------------------------------------------*/

static void connections_beyond_the_limit_are_refused(void **state)
{
    struct one_node small;

    (void)state;
    assert_int_equal(one_node_init_with(&small, 0, 2), HF_OK);
    for (uint64_t conn = 1; conn <= 3; conn++)
        (void)one_node_connect(&small, conn);
    assert_false(small.clients[2].is_closed);
    assert_true(small.clients[3].is_closed);
    assert_true(one_node_take(&small, 3));
    one_node_fini(&small);
}

static void debug_shows_a_key_without_nonces(void **state)
{
    char *text;

    (void)state;
    (void)one_node_connect_mux(&one, 1);
    (void)one_node_ask(&one, 1, one_commit(1, 5));
    (void)one_node_ask(&one, 1, one_wait(2, 6));
    (void)one_node_ask(&one, 1, one_end(3, 4, 0));
    text = one_node_text(&one, 2, "DEBUG k");
    assert_non_null(strstr(text, "\"state\":\"held\",\"ballot\":5"));
    assert_non_null(strstr(text, "\"queue\":[{\"claim\":"));
    assert_non_null(strstr(text, "\"ended\":[{\"claim\":"));
    assert_null(strstr(text, "01000000000000000000000000000000"));
    free(text);
    expect_text("DEBUG other", "{\"record\":false,");
    expect_text("STATUS", "\"held\":1,\"votes\":0,\"waiters\":1,");
}

/* ---- Failing allocations ------------------------------------------------*/

/* Send the bytes of a request over a connection whose replies are dropped. */
static void try_bytes(struct one_node *node, uint64_t conn,
                      const struct hf_buf *frame)
{
    hf_quorum_node_set_time(node->node, node->now);
    hf_quorum_node_on_client_data(node->node, conn, frame->data, frame->size);
    hf_quorum_node_turn(node->node, node->now);
    hf_quorum_node_turn(node->node, node->now);
}

static void add_frame(struct hf_buf *frame, uint64_t id,
                      struct hf_quorum_request request)
{
    struct hf_buf buf = {0};
    struct hf_mux_request mux = {.id = id, .verb = HF_VERB_QUORUM};

    request.serial = (uint32_t)id;
    hf_message_encode_request(&request, &buf);
    mux.command = (struct hf_bytes){buf.data, buf.size};
    hf_mux_request_encode(&mux, frame);
    hf_buf_fini(&buf);
}

/* Whatever allocation fails: nothing leaks, and another client is served. */
static void failing_allocations_do_no_harm(void **state)
{
    static const char lines[] = "LIST\r\nDEBUG k\r\nINFO\r\nREAD k LOCAL\r\n"
                                "WATCH k\r\n";
    struct hf_buf mux = {0};
    struct hf_buf plain = {0};
    bool has_failed = true;

    (void)state;
    add_frame(&mux, 1, one_fast(1, 5));
    add_frame(&mux, 2, one_wait(2, 6));
    add_frame(&mux, 3, one_commit(1, 5));
    add_frame(&mux, 4, one_end(1, 5, 5));
    hf_buf_raw(&plain, lines, strlen(lines));
    for (unsigned long nth = 1; has_failed; nth++) {
        struct one_node node;

        one_node_init(&node);
        (void)one_node_connect_mux(&node, 1);
        (void)one_node_connect(&node, 2);
        node.clients[1].drops = node.clients[2].drops = true;
        hf_alloc_fail(nth, 1);
        try_bytes(&node, 1, &mux);
        try_bytes(&node, 2, &plain);
        has_failed = hf_alloc_failed();
        (void)one_node_connect_mux(&node, 3);
        assert_int_equal(one_node_ask(&node, 3, one_read()).kind,
                         HF_QUORUM_REPORT);
        one_node_fini(&node);
        assert_true(nth < 1000);
    }
    hf_buf_fini(&mux);
    hf_buf_fini(&plain);
}

static void a_node_is_made_whole_or_not_at_all(void **state)
{
    long blocks = hf_alloc_blocks();
    enum hf_err err = HF_ENOMEM;

    (void)state;
    for (unsigned long nth = 1; err; nth++) {
        struct one_node node;

        hf_alloc_fail(nth, 1);
        err = one_node_init_with(&node, 0, 0);
        (void)hf_alloc_failed();
        if (!err)
            hf_quorum_node_free(node.node);
        assert_int_equal(hf_alloc_blocks(), blocks);
        assert_true(nth < 100);
    }
    hf_alloc_fail(0, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest cases[] = {
        CASE(hello_names_the_mode_and_the_members),
        CASE(a_message_is_answered_by_the_master),
        CASE(leases_expire_without_input),
        CASE(malformed_messages_are_refused),
        CASE(a_request_beyond_a_limit_is_refused),
        CASE(commands_of_raft_are_refused),
        CASE(a_vote_is_pushed_to_the_connection_of_the_claim),
        CASE(a_claim_follows_its_last_ask),
        CASE(claims_of_a_closed_connection_are_passed_over),
        CASE(a_push_at_the_end_of_a_turn_is_sent),
        CASE(pushes_to_a_client_that_does_not_read_are_limited),
        CASE(a_new_node_asks_for_its_first_mark),
        CASE(numbers_above_the_mark_wait_for_the_file),
        CASE(a_mark_that_failed_is_written_again_later),
        CASE(a_node_that_has_run_before_is_quiet),
        CASE(the_end_of_the_quiet_time_is_a_deadline),
        CASE(connections_beyond_the_limit_are_refused),
        CASE(debug_shows_a_key_without_nonces),
        cmocka_unit_test(failing_allocations_do_no_harm),
        cmocka_unit_test(a_node_is_made_whole_or_not_at_all),
    };

    return hf_test_main("quorum node", cases, HF_TEST_COUNT(cases), 0);
}
