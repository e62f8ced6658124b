#include "core/quorum/message.h"

#include "base/random.h"
#include "lib/runner.h"

static uint8_t block[HF_VALUE_MAX + 1];

static uint64_t draw_u64(struct hf_random *random)
{
    uint64_t x = 0;

    assert_int_equal(hf_random_bytes(random, &x, sizeof(x)), HF_OK);
    return x;
}

static bool draw_bool(struct hf_random *random)
{
    return hf_random_below(random, 2) == 1;
}

/* A number from 1 to `max`. */
static uint64_t draw_number(struct hf_random *random, uint64_t max)
{
    return 1 + draw_u64(random) % max;
}

static struct hf_bytes draw_bytes(struct hf_random *random, uint32_t max)
{
    uint32_t size = hf_random_below(random, 4) ? max / 50 : max;

    size = hf_random_below(random, size + 1);
    return (struct hf_bytes){block, size};
}

static struct hf_claim_data draw_data(struct hf_random *random)
{
    return (struct hf_claim_data){
        .value = draw_bytes(random, HF_VALUE_MAX),
        .note = draw_bytes(random, HF_NOTE_MAX),
        .owner = draw_bytes(random, HF_LABEL_MAX),
    };
}

static void fill_id(struct hf_random *random, struct hf_claim_id *id)
{
    assert_int_equal(hf_random_bytes(random, id, sizeof(*id)), HF_OK);
}

/* ---- Requests -----------------------------------------------------------*/

/* Return a random valid request of `kind`. */
static struct hf_quorum_request draw_request(struct hf_random *random,
                                             enum hf_quorum_request_kind kind)
{
    uint64_t number = draw_number(random, UINT64_MAX / 2);
    struct hf_quorum_request request = {
        .kind = kind,
        .key = {block, 1 + hf_random_below(random, HF_KEY_MAX)},
        .number = number,
        .token = draw_number(random, number),
        .ballot = draw_number(random, number) - 1,
        .ticket = draw_number(random, number),
        .serial = 1 + hf_random_below(random, UINT32_MAX),
        .lease_ms = 1 + hf_random_below(random, HF_LEASE_MAX_MS),
        .fast = draw_bool(random),
        .queue = draw_bool(random),
        .is_queued = draw_bool(random),
        .keeps_deadline = draw_bool(random),
        .now = draw_bool(random),
    };

    assert_int_equal(
        hf_random_bytes(random, &request.nonce, sizeof(request.nonce)), HF_OK);
    if (kind == HF_QUORUM_ASK || kind == HF_QUORUM_COMMIT)
        request.data = draw_data(random);
    return request;
}

static void assert_same_data(const struct hf_claim_data *a,
                             const struct hf_claim_data *b)
{
    assert_true(hf_bytes_equal(a->value, b->value));
    assert_true(hf_bytes_equal(a->note, b->note));
    assert_true(hf_bytes_equal(a->owner, b->owner));
}

static void assert_same_request(const struct hf_quorum_request *a,
                                const struct hf_quorum_request *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_true(hf_key_equal(a->key, b->key));
    assert_true(hf_nonce_equal(&a->nonce, &b->nonce));
    assert_true(a->number == b->number);
    assert_true(a->token == b->token);
    assert_true(a->ballot == b->ballot);
    assert_true(a->ticket == b->ticket);
    assert_int_equal(a->serial, b->serial);
    assert_int_equal(a->lease_ms, b->lease_ms);
    assert_int_equal(a->fast, b->fast);
    assert_int_equal(a->queue, b->queue);
    assert_int_equal(a->is_queued, b->is_queued);
    assert_int_equal(a->keeps_deadline, b->keeps_deadline);
    assert_int_equal(a->now, b->now);
    assert_same_data(&a->data, &b->data);
}

static enum hf_err decode_request(const struct hf_buf *buf,
                                  struct hf_quorum_request *request)
{
    return hf_message_decode_request(request,
                                     (struct hf_bytes){buf->data, buf->size});
}

static void check_request(const struct hf_quorum_request *request)
{
    struct hf_buf first = {0}, second = {0};
    struct hf_quorum_request decoded;

    hf_message_encode_request(request, &first);
    assert_int_equal(decode_request(&first, &decoded), HF_OK);
    assert_same_request(request, &decoded);
    hf_message_encode_request(&decoded, &second);
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.data, second.data, first.size);
    hf_buf_fini(&first);
    hf_buf_fini(&second);
}

static void requests_survive_a_round_trip(void **state)
{
    struct hf_random random;

    (void)state;
    hf_random_init(&random, 1);
    assert_int_equal(hf_random_bytes(&random, block, sizeof(block)), HF_OK);
    for (int i = 0; i < 200; i++) {
        for (int kind = 1; kind < HF_QUORUM_REQUEST_KINDS; kind++) {
            struct hf_quorum_request request =
                draw_request(&random, (enum hf_quorum_request_kind)kind);

            check_request(&request);
        }
    }
}

/* A small request of `kind` in which all members are set. */
static struct hf_quorum_request small_request(int kind)
{
    struct hf_quorum_request request = {
        .kind = (enum hf_quorum_request_kind)kind,
        .key = hf_key_of("key"),
        .nonce = {{7}},
        .number = 9,
        .token = 6,
        .ballot = 5,
        .ticket = 4,
        .serial = 3,
        .lease_ms = 1000,
        .fast = true,
    };

    if (kind == HF_QUORUM_ASK || kind == HF_QUORUM_COMMIT)
        request.data = (struct hf_claim_data){
            hf_bytes_of("value"), hf_bytes_of("note"), hf_bytes_of("owner")};
    return request;
}

static void encode_small_request(int kind, struct hf_buf *buf)
{
    struct hf_quorum_request request = small_request(kind);

    hf_message_encode_request(&request, buf);
}

/* ---- Replies ------------------------------------------------------------*/

static void draw_lease(struct hf_random *random, struct hf_report *report)
{
    report->ballot = draw_u64(random);
    report->token = draw_u64(random);
    fill_id(random, &report->holder);
    report->held_ms = (uint32_t)draw_u64(random);
    report->left_ms = (uint32_t)draw_u64(random);
}

static void draw_vote(struct hf_random *random, struct hf_report *report)
{
    report->has_vote = true;
    report->vote_is_fast = draw_bool(random);
    report->vote_number = draw_u64(random);
    fill_id(random, &report->voter);
    report->vote_age_ms = (uint32_t)draw_u64(random);
    report->vote_left_ms = (uint32_t)draw_u64(random);
}

static struct hf_quorum_reply draw_reply(struct hf_random *random,
                                         enum hf_quorum_reply_kind kind)
{
    static const enum hf_err errors[] = {HF_OK, HF_ELIMIT, HF_ENOMEM, HF_EINVAL,
                                         HF_EUNAVAIL};
    struct hf_quorum_reply reply = {
        .kind = kind,
        .err = errors[hf_random_below(random, HF_TEST_COUNT(errors))],
        .number = draw_u64(random),
        .highest = draw_u64(random),
        .serial = (uint32_t)draw_u64(random),
        .anchor = (uint32_t)draw_u64(random),
        .age_ms = (uint32_t)draw_u64(random),
        .position = (uint32_t)draw_u64(random),
        .quiet_ms = (uint32_t)draw_u64(random),
        .end = hf_random_below(random, HF_QUORUM_END_KINDS),
        .report = {.promised = draw_u64(random),
                   .state = hf_random_below(random, HF_REPORT_STATES),
                   .forced = draw_bool(random),
                   .waiters = (uint32_t)draw_u64(random),
                   .ended_count = (uint8_t)hf_random_below(
                       random, HF_REPORT_ENDED_MAX + 1),
                   .data = draw_data(random)},
    };

    if (reply.report.state != HF_REPORT_NONE)
        draw_lease(random, &reply.report);
    if (draw_bool(random))
        draw_vote(random, &reply.report);
    for (unsigned i = 0; i < reply.report.ended_count; i++)
        fill_id(random, &reply.report.ended[i]);
    return reply;
}

static void assert_same_report(const struct hf_report *a,
                               const struct hf_report *b)
{
    assert_true(a->promised == b->promised);
    assert_int_equal(a->state, b->state);
    assert_true(a->ballot == b->ballot);
    assert_true(a->token == b->token);
    assert_true(hf_claim_id_equal(&a->holder, &b->holder));
    assert_int_equal(a->held_ms, b->held_ms);
    assert_int_equal(a->left_ms, b->left_ms);
    assert_int_equal(a->forced, b->forced);
    assert_int_equal(a->has_vote, b->has_vote);
    assert_int_equal(a->vote_is_fast, b->vote_is_fast);
    assert_true(a->vote_number == b->vote_number);
    assert_true(hf_claim_id_equal(&a->voter, &b->voter));
    assert_int_equal(a->vote_age_ms, b->vote_age_ms);
    assert_int_equal(a->vote_left_ms, b->vote_left_ms);
    assert_int_equal(a->waiters, b->waiters);
    assert_int_equal(a->ended_count, b->ended_count);
    assert_memory_equal(a->ended, b->ended, sizeof(a->ended));
    assert_same_data(&a->data, &b->data);
}

static void assert_same_reply(const struct hf_quorum_reply *a,
                              const struct hf_quorum_reply *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->err, b->err);
    assert_true(a->number == b->number);
    assert_true(a->highest == b->highest);
    assert_int_equal(a->serial, b->serial);
    assert_int_equal(a->anchor, b->anchor);
    assert_int_equal(a->age_ms, b->age_ms);
    assert_int_equal(a->position, b->position);
    assert_int_equal(a->quiet_ms, b->quiet_ms);
    assert_int_equal(a->end, b->end);
    assert_same_report(&a->report, &b->report);
}

static enum hf_err decode_reply(const struct hf_buf *buf,
                                struct hf_quorum_reply *reply)
{
    return hf_message_decode_reply(reply,
                                   (struct hf_bytes){buf->data, buf->size});
}

static void check_reply(const struct hf_quorum_reply *reply)
{
    struct hf_buf first = {0}, second = {0};
    struct hf_quorum_reply decoded;

    hf_message_encode_reply(reply, &first);
    assert_int_equal(decode_reply(&first, &decoded), HF_OK);
    assert_same_reply(reply, &decoded);
    hf_message_encode_reply(&decoded, &second);
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.data, second.data, first.size);
    hf_buf_fini(&first);
    hf_buf_fini(&second);
}

static void replies_survive_a_round_trip(void **state)
{
    struct hf_random random;

    (void)state;
    hf_random_init(&random, 2);
    assert_int_equal(hf_random_bytes(&random, block, sizeof(block)), HF_OK);
    for (int i = 0; i < 200; i++) {
        for (int kind = 1; kind < HF_QUORUM_REPLY_KINDS; kind++) {
            struct hf_quorum_reply reply =
                draw_reply(&random, (enum hf_quorum_reply_kind)kind);

            check_reply(&reply);
        }
    }
}

/* A small reply of `kind` in which all members are set. */
static void encode_small_reply(int kind, struct hf_buf *buf)
{
    struct hf_quorum_reply reply = {
        .kind = (enum hf_quorum_reply_kind)kind,
        .err = HF_ELIMIT,
        .number = 9,
        .highest = 10,
        .serial = 3,
        .end = HF_QUORUM_END_REPEATED,
        .report = {.promised = 9,
                   .state = HF_REPORT_HELD,
                   .ballot = 8,
                   .token = 7,
                   .holder = {{1}},
                   .has_vote = true,
                   .vote_is_fast = true,
                   .vote_number = 6,
                   .voter = {{2}},
                   .ended_count = 2,
                   .ended = {{{3}}, {{4}}},
                   .data = {hf_bytes_of("value"), hf_bytes_of("note"),
                            hf_bytes_of("owner")}},
    };

    hf_message_encode_reply(&reply, buf);
}

/* ---- Malformed bytes ----------------------------------------------------*/

static void truncated_messages_are_rejected(void **state)
{
    struct hf_quorum_request request = {.token = 77};
    struct hf_quorum_reply reply = {.number = 77};
    struct hf_buf buf = {0};

    (void)state;
    for (int kind = 1; kind < HF_QUORUM_REQUEST_KINDS; kind++) {
        buf.size = 0;
        encode_small_request(kind, &buf);
        for (size_t size = 0; size < buf.size; size++)
            assert_int_equal(hf_message_decode_request(
                                 &request, (struct hf_bytes){buf.data, size}),
                             HF_EPROTO);
        hf_buf_u8(&buf, 0);
        assert_int_equal(decode_request(&buf, &request), HF_EPROTO);
    }
    for (int kind = 1; kind < HF_QUORUM_REPLY_KINDS; kind++) {
        buf.size = 0;
        encode_small_reply(kind, &buf);
        for (size_t size = 0; size < buf.size; size++)
            assert_int_equal(hf_message_decode_reply(
                                 &reply, (struct hf_bytes){buf.data, size}),
                             HF_EPROTO);
        hf_buf_u8(&buf, 0);
        assert_int_equal(decode_reply(&buf, &reply), HF_EPROTO);
    }
    assert_int_equal(request.token, 77); /* written only on success */
    assert_int_equal(reply.number, 77);
    hf_buf_fini(&buf);
}

/* Bytes that are accepted encode to themselves again. */
static void check_corrupt(const struct hf_buf *buf)
{
    struct hf_quorum_request request;
    struct hf_quorum_reply reply;
    struct hf_buf again = {0};

    if (decode_request(buf, &request) == HF_OK) {
        hf_message_encode_request(&request, &again);
        assert_int_equal(again.size, buf->size);
        assert_memory_equal(again.data, buf->data, buf->size);
    }
    again.size = 0;
    if (decode_reply(buf, &reply) == HF_OK) {
        hf_message_encode_reply(&reply, &again);
        assert_int_equal(again.size, buf->size);
        assert_memory_equal(again.data, buf->data, buf->size);
    }
    hf_buf_fini(&again);
}

static void corrupt_every_byte(struct hf_buf *buf)
{
    for (size_t i = 0; i < buf->size; i++) {
        for (int flip = 1; flip < 256; flip++) {
            buf->data[i] ^= (uint8_t)flip;
            check_corrupt(buf);
            buf->data[i] ^= (uint8_t)flip;
        }
    }
}

static void corrupt_messages_are_rejected_or_valid(void **state)
{
    struct hf_buf buf = {0};

    (void)state;
    for (int kind = 1; kind < HF_QUORUM_REQUEST_KINDS; kind++) {
        buf.size = 0;
        encode_small_request(kind, &buf);
        corrupt_every_byte(&buf);
    }
    buf.size = 0;
    encode_small_reply(HF_QUORUM_VOTE, &buf);
    corrupt_every_byte(&buf);
    hf_buf_fini(&buf);
}

static void random_bytes_are_rejected_or_valid(void **state)
{
    struct hf_random random;
    uint8_t bytes[300];

    (void)state;
    hf_random_init(&random, 3);
    for (int i = 0; i < 20000; i++) {
        struct hf_buf buf = {.data = bytes};

        buf.size = hf_random_below(&random, sizeof(bytes) + 1);
        assert_int_equal(hf_random_bytes(&random, bytes, sizeof(bytes)), HF_OK);
        bytes[0] = 1; /* the format */
        bytes[1] = (uint8_t)hf_random_below(&random, 14);
        check_corrupt(&buf);
    }
}

/* ---- Impossible requests ------------------------------------------------*/

static enum hf_err recode(const struct hf_quorum_request *request)
{
    struct hf_quorum_request decoded;
    struct hf_buf buf = {0};
    enum hf_err err;

    hf_message_encode_request(request, &buf);
    err = decode_request(&buf, &decoded);
    hf_buf_fini(&buf);
    return err;
}

static void requests_without_a_key_are_rejected(void **state)
{
    (void)state;
    for (int kind = 1; kind < HF_QUORUM_REQUEST_KINDS; kind++) {
        struct hf_quorum_request request = small_request(kind);

        assert_int_equal(recode(&request), HF_OK);
        request.key.size = 0;
        assert_int_equal(recode(&request), HF_EPROTO);
        request = small_request(kind);
        request.lease_ms = HF_LEASE_MAX_MS + 1;
        assert_int_equal(recode(&request), HF_EPROTO);
    }
}

/* Change one number of a valid request of `kind`. */
#define assert_rejected(request_kind, member, number_or_span)                  \
    do {                                                                       \
        struct hf_quorum_request request_ = small_request(request_kind);       \
                                                                               \
        request_.member = (number_or_span);                                    \
        assert_int_equal(recode(&request_), HF_EPROTO);                        \
    } while (0)

static void impossible_numbers_are_rejected(void **state)
{
    (void)state;
    assert_rejected(HF_QUORUM_ASK, number, 0);
    assert_rejected(HF_QUORUM_ASK, ticket, 0);
    assert_rejected(HF_QUORUM_ASK, ticket, 10);
    assert_rejected(HF_QUORUM_ASK, lease_ms, 0);
    assert_rejected(HF_QUORUM_ASK, serial, 0);
    assert_rejected(HF_QUORUM_PREPARE, number, 0);
    assert_rejected(HF_QUORUM_COMMIT, token, 0);
    assert_rejected(HF_QUORUM_COMMIT, token, 10);
    assert_rejected(HF_QUORUM_COMMIT, lease_ms, 0);
    assert_rejected(HF_QUORUM_RENEW, token, 0);
    assert_rejected(HF_QUORUM_RENEW, lease_ms, 0);
    assert_rejected(HF_QUORUM_END, ballot, 10);
    assert_rejected(HF_QUORUM_FORCE, token, 0);
}

static void replies_with_other_errors_are_rejected(void **state)
{
    struct hf_quorum_reply reply = {.kind = HF_QUORUM_REFUSED};
    struct hf_buf buf = {0};

    (void)state;
    for (int err = 0; err >= HF_EDENIED; err--) {
        bool is_refusal = err == HF_OK || err == HF_EINVAL ||
                          err == HF_ENOMEM || err == HF_EUNAVAIL ||
                          err == HF_ELIMIT;

        reply.err = (enum hf_err)err;
        buf.size = 0;
        hf_message_encode_reply(&reply, &buf);
        assert_int_equal(decode_reply(&buf, &reply),
                         is_refusal ? HF_OK : HF_EPROTO);
    }
    hf_buf_fini(&buf);
}

/* ---- Ids ----------------------------------------------------------------*/

static void an_id_does_not_contain_the_nonce(void **state)
{
    struct hf_nonce one = {{1}}, two = {{2}};
    struct hf_claim_id a = hf_claim_id_of(&one), b = hf_claim_id_of(&two);
    struct hf_claim_id again = hf_claim_id_of(&one);

    (void)state;
    assert_true(hf_claim_id_equal(&a, &again));
    assert_false(hf_claim_id_equal(&a, &b));
    assert_memory_not_equal(&a, &one, sizeof(a));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(requests_survive_a_round_trip),
        cmocka_unit_test(replies_survive_a_round_trip),
        cmocka_unit_test(truncated_messages_are_rejected),
        cmocka_unit_test(corrupt_messages_are_rejected_or_valid),
        cmocka_unit_test(random_bytes_are_rejected_or_valid),
        cmocka_unit_test(requests_without_a_key_are_rejected),
        cmocka_unit_test(impossible_numbers_are_rejected),
        cmocka_unit_test(replies_with_other_errors_are_rejected),
        cmocka_unit_test(an_id_does_not_contain_the_nonce),
    };

    return hf_test_main("quorum-message", cases, HF_TEST_COUNT(cases), 0);
}
