/* test_mux.c - the messages of MUX mode. */
#include "lib/expect.h"
#include "lib/runner.h"
#include "wire/mux.h"

static const struct hf_nonce secret = {"0123456789abcde"};

/* A message and its reader. The strings of the message point into the buffer
 * that parse() was called with. */
struct parsed {
    struct hf_resp_reader reader;
    struct hf_resp_message message;
};

static void parse(struct parsed *parsed, bool requests,
                  const struct hf_buf *buf)
{
    hf_resp_reader_init(&parsed->reader, requests, HF_PROTOCOL_LIMITS);
    expect_ok(hf_resp_reader_feed(&parsed->reader, buf->data, buf->size));
    assert_int_equal(hf_resp_reader_next(&parsed->reader, &parsed->message),
                     HF_RESP_MESSAGE);
    assert_false(hf_resp_reader_has_part(&parsed->reader));
}

static void write_words(struct hf_buf *buf, const char *const *words,
                        size_t count)
{
    buf->size = 0;
    hf_resp_write_array(buf, count);
    for (size_t i = 0; i < count; i++)
        hf_resp_write_text(buf, words[i]);
}

/* ---- Requests -----------------------------------------------------------*/

static struct hf_mux_request recode_request(struct hf_mux_request request,
                                            struct hf_buf *buf)
{
    struct hf_mux_request decoded;
    struct parsed parsed;
    const char *cause;

    buf->size = 0;
    hf_mux_request_encode(&request, buf);
    parse(&parsed, true, buf);
    expect_ok(hf_mux_request_decode(&decoded, &parsed.message, &cause));
    assert_true(decoded.id == request.id);
    assert_int_equal(decoded.verb, request.verb);
    hf_resp_reader_fini(&parsed.reader);
    return decoded;
}

static void requests_keep_their_members(void **state)
{
    struct hf_mux_request request = {.id = HF_MUX_ID_MAX,
                                     .linearizable = true,
                                     .exact = true,
                                     .remaining_ms = 1234,
                                     .session = UINT64_MAX,
                                     .watch = 3,
                                     .from = 4,
                                     .secret = secret,
                                     .key = {"key", 3},
                                     .label = {"label", 5},
                                     .command = {"comm\0and", 8}};
    struct hf_buf buf = {0};
    struct hf_mux_request got;

    (void)state;
    request.verb = HF_VERB_OPEN;
    got = recode_request(request, &buf);
    assert_true(hf_nonce_equal(&got.secret, &secret));
    assert_true(hf_bytes_equal(got.label, request.label));
    request.verb = HF_VERB_ATTACH;
    got = recode_request(request, &buf);
    assert_true(got.session == UINT64_MAX);
    assert_true(hf_nonce_equal(&got.secret, &secret));
    request.verb = HF_VERB_DO;
    got = recode_request(request, &buf);
    assert_int_equal(got.remaining_ms, 1234);
    assert_true(hf_bytes_equal(got.command, request.command));
    request.verb = HF_VERB_LOOKUP;
    got = recode_request(request, &buf);
    assert_true(got.linearizable && hf_key_equal(got.key, request.key));
    assert_true(hf_nonce_equal(&got.secret, &secret));
    request.verb = HF_VERB_READ;
    got = recode_request(request, &buf);
    assert_true(got.linearizable && hf_key_equal(got.key, request.key));
    request.verb = HF_VERB_LIST;
    got = recode_request(request, &buf);
    assert_true(got.linearizable && hf_key_equal(got.key, request.key));
    request.verb = HF_VERB_WATCH;
    got = recode_request(request, &buf);
    assert_true(got.watch == 3 && got.from == 4 && got.exact);
    assert_true(hf_key_equal(got.key, request.key));
    request.verb = HF_VERB_UNWATCH;
    got = recode_request(request, &buf);
    assert_true(got.watch == 3);
    request.verb = HF_VERB_QUORUM;
    got = recode_request(request, &buf);
    assert_true(hf_bytes_equal(got.command, request.command));
    request.verb = HF_VERB_PING;
    (void)recode_request(request, &buf);
    request.verb = HF_VERB_STATUS;
    (void)recode_request(request, &buf);
    request.verb = HF_VERB_DETACH;
    (void)recode_request(request, &buf);
    hf_buf_fini(&buf);
}

static void expect_rejected(const char *const *words, size_t count, uint64_t id,
                            const char *wanted)
{
    struct hf_mux_request request;
    struct parsed parsed;
    struct hf_buf buf = {0};
    const char *cause;

    write_words(&buf, words, count);
    parse(&parsed, true, &buf);
    expect_err(hf_mux_request_decode(&request, &parsed.message, &cause),
               HF_EPROTO);
    assert_true(request.id == id);
    assert_string_equal(cause, wanted);
    hf_resp_reader_fini(&parsed.reader);
    hf_buf_fini(&buf);
}

#define REJECT(id, cause, ...)                                                 \
    expect_rejected((const char *const[]){__VA_ARGS__},                        \
                    HF_TEST_COUNT(((const char *const[]){__VA_ARGS__})), id,   \
                    cause)

static void malformed_requests_are_rejected(void **state)
{
    static const char id_cause[] =
        "a request begins with an id from 1 to 2^63 - 1";
    static const char argument_cause[] = "an argument is malformed or too long";
    char long_key[HF_KEY_MAX + 2] = {0};
    char long_label[HF_LABEL_MAX + 2] = {0};

    (void)state;
    memset(long_key, 'k', HF_KEY_MAX + 1);
    memset(long_label, 'k', HF_LABEL_MAX + 1);
    REJECT(0, id_cause, "PING");
    REJECT(0, id_cause, "0", "PING");
    REJECT(0, id_cause, "9223372036854775808", "PING");
    REJECT(5, "unknown command", "5");
    REJECT(5, "unknown command", "5", "EXPIRE");
    REJECT(5, "unknown command", "5", "LOCK", "a", "5");
    REJECT(5, "wrong number of arguments", "5", "PING", "a");
    REJECT(5, "wrong number of arguments", "5", "DO", "1");
    REJECT(5, argument_cause, "5", "DO", "4294967296", "");
    REJECT(5, argument_cause, "5", "OPEN", "0123456789", "");
    REJECT(5, argument_cause, "5", "OPEN", "0123456789abcdef", long_label);
    REJECT(5, argument_cause, "5", "READ", "", "0");
    REJECT(5, argument_cause, "5", "READ", "key", "2");
    REJECT(5, argument_cause, "5", "READ", long_key, "0");
    REJECT(5, argument_cause, "5", "WATCH", "1", long_key, "0", "0");
    REJECT(5, argument_cause, "5", "WATCH", "1", "", "x", "0");
}

/* ---- The handshake ------------------------------------------------------*/

/* The reply of a version that did not name its mode yet. */
static void the_handshake_may_have_fewer_words(void **state)
{
    static const char *const words[] = {"1", "00ff", "2", "0",
                                        "",  "1",    "9", "9"};
    struct hf_mux_hello got = {.mode = {"x", 1}, .members = {"x", 1}};
    struct parsed parsed;
    struct hf_bytes text;
    struct hf_buf buf = {0};

    (void)state;
    write_words(&buf, words, HF_TEST_COUNT(words));
    parse(&parsed, false, &buf);
    expect_ok(hf_mux_hello_decode(&got, &parsed.message, &text));
    assert_true(got.node == 2);
    assert_int_equal(got.mode.size, 0);
    assert_int_equal(got.members.size, 0);
    hf_resp_reader_fini(&parsed.reader);
    hf_buf_fini(&buf);
}

static void members_are_read_one_by_one(void **state)
{
    struct hf_bytes rest;
    struct hf_mux_member member;
    uint64_t set;

    (void)state;
    assert_true(hf_mux_members_set(
        hf_bytes_of("7 master 1 127.0.0.1:70 replica 2 [::1]:71"), &set,
        &rest));
    assert_true(set == 7);
    assert_true(hf_mux_members_next(&rest, &member));
    assert_true(member.is_master && member.id == 1);
    assert_true(hf_bytes_equal(member.address, hf_bytes_of("127.0.0.1:70")));
    assert_true(hf_mux_members_next(&rest, &member));
    assert_true(!member.is_master && member.id == 2);
    assert_true(hf_bytes_equal(member.address, hf_bytes_of("[::1]:71")));
    assert_false(hf_mux_members_next(&rest, &member));
    assert_int_equal(rest.size, 0);
}

static void malformed_members_are_not_read(void **state)
{
    static const char *const wrong[] = {
        "1 x",          "1 master",     "1 master ",
        "1 master 0 a", "1 master 1",   "1 master 1 ",
        "1 slave 1 a",  "1 master x a", "1 master 1  a",
    };
    struct hf_bytes rest;
    struct hf_mux_member member;
    uint64_t set;

    (void)state;
    assert_false(hf_mux_members_set(hf_bytes_of(""), &set, &rest));
    assert_false(hf_mux_members_set(hf_bytes_of("x master"), &set, &rest));
    assert_false(hf_mux_members_set(hf_bytes_of("-1"), &set, &rest));
    for (size_t i = 0; i < HF_TEST_COUNT(wrong); i++) {
        assert_true(hf_mux_members_set(hf_bytes_of(wrong[i]), &set, &rest));
        if (hf_mux_members_next(&rest, &member))
            fail_msg("'%s' was accepted", wrong[i]);
        assert_true(rest.size > 0);
    }
}

static void the_handshake_names_the_leader(void **state)
{
    const struct hf_mux_hello hello = {
        .version = 1,
        .cluster = {"00ff", 4},
        .node = 2,
        .leader = 3,
        .address = {"127.0.0.1:7000", 14},
        .table_version = 4,
        .requests_max = 1024,
        .frame_max = 5,
        .mode = {"quorum", 6},
        .members = {"1 master 2 a:1", 14},
        .highest = 77,
    };
    struct hf_mux_hello got;
    struct parsed parsed;
    struct hf_bytes text;
    struct hf_buf buf = {0};

    (void)state;
    hf_mux_hello_encode(&hello, &buf);
    parse(&parsed, false, &buf);
    expect_ok(hf_mux_hello_decode(&got, &parsed.message, &text));
    assert_true(got.version == 1 && got.node == 2 && got.leader == 3);
    assert_true(hf_bytes_equal(got.cluster, hello.cluster));
    assert_true(hf_bytes_equal(got.address, hello.address));
    assert_true(got.table_version == 4 && got.requests_max == 1024);
    assert_true(got.frame_max == 5);
    assert_true(hf_bytes_equal(got.mode, hello.mode));
    assert_true(hf_bytes_equal(got.members, hello.members));
    assert_int_equal(got.highest, 77);
    hf_resp_reader_fini(&parsed.reader);
    buf.size = 0;
    hf_code_write(&buf, HF_ELIMIT, "too many connections");
    parse(&parsed, false, &buf);
    expect_err(hf_mux_hello_decode(&got, &parsed.message, &text), HF_ELIMIT);
    assert_true(hf_bytes_equal(text, hf_bytes_of("too many connections")));
    hf_resp_reader_fini(&parsed.reader);
    buf.size = 0;
    hf_resp_write_simple(&buf, "OK");
    parse(&parsed, false, &buf);
    expect_err(hf_mux_hello_decode(&got, &parsed.message, &text), HF_EPROTO);
    hf_resp_reader_fini(&parsed.reader);
    hf_buf_fini(&buf);
}

/* ---- Replies ------------------------------------------------------------*/

static void recode_reply(const struct hf_mux_reply *reply, enum hf_verb verb,
                         struct hf_mux_reply *got, struct hf_buf *buf)
{
    struct parsed parsed;
    uint64_t id;

    buf->size = 0;
    hf_mux_reply_encode(reply, verb, buf);
    parse(&parsed, false, buf);
    expect_ok(hf_mux_reply_id(&parsed.message, &id));
    assert_true(id == reply->id);
    expect_ok(hf_mux_reply_decode(got, verb, &parsed.message));
    assert_true(got->id == reply->id);
    expect_err(got->err, reply->err);
    hf_resp_reader_fini(&parsed.reader);
}

static void replies_keep_their_members(void **state)
{
    struct hf_mux_reply reply = {
        .id = 7,
        .index = 8,
        .session = 9,
        .age_ms = 10,
        .result = {"res\0ult", 7},
        .state = HF_CLAIM_QUEUED,
        .token = 11,
        .generation = 12,
        .position = 13,
    };
    struct hf_buf buf = {0};
    struct hf_mux_reply got;

    (void)state;
    recode_reply(&reply, HF_VERB_OPEN, &got, &buf);
    assert_true(got.session == 9);
    recode_reply(&reply, HF_VERB_DO, &got, &buf);
    assert_true(hf_bytes_equal(got.result, reply.result));
    assert_true(got.age_ms == 10 && got.index == 8);
    recode_reply(&reply, HF_VERB_LOOKUP, &got, &buf);
    assert_int_equal(got.state, HF_CLAIM_QUEUED);
    assert_true(got.token == 11 && got.generation == 12);
    assert_true(got.position == 13 && got.index == 8);
    recode_reply(&reply, HF_VERB_WATCH, &got, &buf);
    assert_true(got.index == 8);
    recode_reply(&reply, HF_VERB_STATUS, &got, &buf);
    assert_true(hf_bytes_equal(got.result, reply.result));
    recode_reply(&reply, HF_VERB_ATTACH, &got, &buf);
    recode_reply(&reply, HF_VERB_PING, &got, &buf);
    reply.err = HF_EINDOUBT;
    reply.text = hf_bytes_of("the session is gone");
    recode_reply(&reply, HF_VERB_READ, &got, &buf);
    assert_true(hf_bytes_equal(got.text, reply.text));
    assert_false(got.no_space || got.session_gone);
    reply.err = HF_ELIMIT;
    reply.no_space = true;
    recode_reply(&reply, HF_VERB_DO, &got, &buf);
    assert_true(got.no_space && !got.session_gone);
    assert_true(hf_bytes_equal(got.text, reply.text));
    reply.err = HF_ESTATE;
    reply.no_space = false;
    reply.session_gone = true;
    recode_reply(&reply, HF_VERB_ATTACH, &got, &buf);
    assert_true(got.session_gone && !got.no_space);
    assert_true(hf_bytes_equal(got.text, reply.text));
    reply.session_gone = false; /* the code STATE is not GONE */
    recode_reply(&reply, HF_VERB_ATTACH, &got, &buf);
    assert_false(got.session_gone);
    hf_buf_fini(&buf);
}

static void lists_have_pages(void **state)
{
    const struct hf_mux_reply reply = {.id = 1, .index = 2, .more = true};
    struct hf_buf buf = {0};
    struct hf_mux_reply got;
    struct parsed parsed;

    (void)state;
    hf_mux_reply_encode_infos(&reply, HF_VERB_LIST, 2, &buf);
    hf_resp_write_text(&buf, "one");
    hf_resp_write_text(&buf, "two");
    parse(&parsed, false, &buf);
    expect_ok(hf_mux_reply_decode(&got, HF_VERB_LIST, &parsed.message));
    assert_true(got.more && got.index == 2);
    assert_int_equal(got.info_count, 2);
    assert_memory_equal(got.infos[1].data, "two", 3);
    hf_resp_reader_fini(&parsed.reader);
    buf.size = 0;
    hf_mux_reply_encode_infos(&reply, HF_VERB_READ, 1, &buf);
    hf_resp_write_text(&buf, "one");
    parse(&parsed, false, &buf);
    expect_ok(hf_mux_reply_decode(&got, HF_VERB_READ, &parsed.message));
    assert_int_equal(got.info_count, 1);
    hf_resp_reader_fini(&parsed.reader);
    hf_buf_fini(&buf);
}

static void malformed_replies_are_rejected(void **state)
{
    static const char *const bad[] = {
        "+OK\r\n",
        "*1\r\n:1\r\n",
        "*2\r\n:-1\r\n+OK\r\n",
        "*2\r\n+x\r\n+OK\r\n",
        "*2\r\n:1\r\n*1\r\n+OK\r\n",
        "*3\r\n:1\r\n+OK\r\n+OK\r\n",
        "*4\r\n:1\r\n$1\r\nr\r\n:-2\r\n:1\r\n",
        "*6\r\n:1\r\n+lost\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
        "*3\r\n:1\r\n:1\r\n:2\r\n",
        "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
    };
    static const enum hf_verb verbs[] = {HF_VERB_PING,   HF_VERB_DO,
                                         HF_VERB_LOOKUP, HF_VERB_READ,
                                         HF_VERB_LIST,   HF_VERB_OPEN};

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(bad); i++) {
        struct hf_buf buf = {0};
        struct hf_mux_reply reply;
        struct hf_mux_push push;
        struct parsed parsed;

        hf_buf_raw(&buf, bad[i], strlen(bad[i]));
        parse(&parsed, false, &buf);
        for (size_t j = 0; j < HF_TEST_COUNT(verbs); j++)
            expect_err(hf_mux_reply_decode(&reply, verbs[j], &parsed.message),
                       HF_EPROTO);
        expect_err(hf_mux_push_decode(&push, &parsed.message), HF_EPROTO);
        hf_resp_reader_fini(&parsed.reader);
        hf_buf_fini(&buf);
    }
}

/* ---- Pushes -------------------------------------------------------------*/

static void recode_push(const struct hf_mux_push *push, struct hf_mux_push *got,
                        struct hf_buf *buf)
{
    struct parsed parsed;
    uint64_t id = 1;

    buf->size = 0;
    hf_mux_push_encode(push, buf);
    parse(&parsed, false, buf);
    expect_ok(hf_mux_reply_id(&parsed.message, &id));
    assert_true(id == 0);
    expect_ok(hf_mux_push_decode(got, &parsed.message));
    assert_int_equal(got->kind, push->kind);
    hf_resp_reader_fini(&parsed.reader);
}

static void pushes_keep_their_members(void **state)
{
    struct hf_mux_push push = {
        .nonce = secret,
        .token = 1,
        .generation = 2,
        .age_ms = HF_MUX_AGE_UNKNOWN,
        .watch = 3,
        .event = {"event", 5},
        .leader = 4,
        .address = {"host:1", 6},
        .claim = {"0123456789abcdef", HF_MUX_CLAIM_SIZE},
        .reply = {"re\0ply", 6},
    };
    struct hf_buf buf = {0};
    struct hf_mux_push got;

    (void)state;
    push.kind = HF_MUX_PUSH_GRANT;
    recode_push(&push, &got, &buf);
    assert_true(hf_nonce_equal(&got.nonce, &secret));
    assert_true(got.token == 1 && got.generation == 2 && got.age_ms == -1);
    push.kind = HF_MUX_PUSH_EVENT;
    recode_push(&push, &got, &buf);
    assert_true(got.watch == 3 && hf_bytes_equal(got.event, push.event));
    push.kind = HF_MUX_PUSH_LEADER;
    recode_push(&push, &got, &buf);
    assert_true(got.leader == 4 && hf_bytes_equal(got.address, push.address));
    push.kind = HF_MUX_PUSH_FULL;
    recode_push(&push, &got, &buf);
    push.kind = HF_MUX_PUSH_RECHECK;
    recode_push(&push, &got, &buf);
    assert_true(got.token == 1);
    push.kind = HF_MUX_PUSH_VOTE;
    recode_push(&push, &got, &buf);
    assert_true(hf_bytes_equal(got.claim, push.claim));
    assert_true(hf_bytes_equal(got.reply, push.reply));
    hf_buf_fini(&buf);
}

/* A client ignores unknown pushes, which a later version may send. */
static void an_unknown_push_differs_from_a_malformed_one(void **state)
{
    static const struct {
        const char *bytes;
        enum hf_err err;
    } pushes[] = {
        {"*3\r\n:0\r\n+LATER\r\n:1\r\n", HF_EUNSUPPORTED},
        {"*2\r\n:0\r\n+FULLER\r\n", HF_EUNSUPPORTED},
        {"*3\r\n:0\r\n+FULL\r\n:1\r\n", HF_EPROTO},
        {"*3\r\n:0\r\n+RECHECK\r\n+x\r\n", HF_EPROTO},
        {"*2\r\n:0\r\n:1\r\n", HF_EPROTO},
        {"*1\r\n:0\r\n", HF_EPROTO},
    };

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(pushes); i++) {
        struct hf_buf buf = {0};
        struct hf_mux_push push;
        struct parsed parsed;

        hf_buf_raw(&buf, pushes[i].bytes, strlen(pushes[i].bytes));
        parse(&parsed, false, &buf);
        expect_err(hf_mux_push_decode(&push, &parsed.message), pushes[i].err);
        hf_resp_reader_fini(&parsed.reader);
        hf_buf_fini(&buf);
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(requests_keep_their_members),
        cmocka_unit_test(malformed_requests_are_rejected),
        cmocka_unit_test(the_handshake_names_the_leader),
        cmocka_unit_test(the_handshake_may_have_fewer_words),
        cmocka_unit_test(members_are_read_one_by_one),
        cmocka_unit_test(malformed_members_are_not_read),
        cmocka_unit_test(replies_keep_their_members),
        cmocka_unit_test(lists_have_pages),
        cmocka_unit_test(malformed_replies_are_rejected),
        cmocka_unit_test(pushes_keep_their_members),
        cmocka_unit_test(an_unknown_push_differs_from_a_malformed_one),
    };

    return hf_test_main("mux", cases, HF_TEST_COUNT(cases), 0);
}
