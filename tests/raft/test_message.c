/* test_message.c - messages, members and frames as bytes. */
#include <stdlib.h>

#include "base/limits.h"
#include "base/random.h"
#include "lib/runner.h"
#include "raft/frames.h"
#include "raft/membership.h"
#include "raft/message.h"

/* ---- message.c ----------------------------------------------------------*/

static const struct hf_entry entries[] = {
    {3, HF_ENTRY_COMMAND, {"abc", 3}},
    {3, HF_ENTRY_COMMAND, {"", 0}},
    {4, HF_ENTRY_BARRIER, {NULL, 0}},
};

static const struct hf_message samples[] = {
    {.kind = HF_MESSAGE_HELLO},
    {.kind = HF_MESSAGE_APPEND, .term = 5, .append = {7, 3, 6, entries, 3}},
    {.kind = HF_MESSAGE_APPEND, .term = 5, .append = {0, 0, 0, NULL, 0}},
    {.kind = HF_MESSAGE_APPEND_RESULT,
     .term = 5,
     .version = 2,
     .append_result = {9, 8, 1, 515}},
    {.kind = HF_MESSAGE_VOTE,
     .term = 6,
     .version = 2,
     .vote = {10, 4, true, false}},
    {.kind = HF_MESSAGE_VOTE_RESULT,
     .term = 6,
     .version = 2,
     .vote_result = {true, false, 1, 2}},
    {.kind = HF_MESSAGE_TIMEOUT_NOW, .term = 6, .vote = {10, 4, false, false}},
    {.kind = HF_MESSAGE_ROUND, .term = 6, .round = 12},
    {.kind = HF_MESSAGE_ECHO, .term = 6, .round = 12},
    {.kind = HF_MESSAGE_LEADER_LOST, .term = 6, .vote = {10, 4, false, false}},
};

static enum hf_err decode(const struct hf_buf *buf, struct hf_message *message)
{
    struct hf_reader reader = {.data = buf->data, .size = buf->size};

    return hf_message_decode(&reader, message);
}

/* Encode, decode and encode again: equal bytes mean that the decoded message is
 * equal, too. */
static void every_kind_survives_encoding(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(samples); i++) {
        struct hf_buf first = {0};
        struct hf_buf second = {0};
        struct hf_message message;

        hf_message_encode(&first, &samples[i]);
        assert_int_equal(decode(&first, &message), HF_OK);
        assert_int_equal(message.kind, samples[i].kind);
        hf_message_encode(&second, &message);
        assert_int_equal(first.size, second.size);
        assert_memory_equal(first.data, second.data, first.size);
        hf_message_fini(&message);
        hf_buf_fini(&first);
        hf_buf_fini(&second);
    }
}

static void fields_survive_encoding(void **state)
{
    struct hf_buf buf = {0};
    struct hf_message message;

    (void)state;
    hf_message_encode(&buf, &samples[1]);
    assert_int_equal(decode(&buf, &message), HF_OK);
    assert_int_equal(message.append.prev_index, 7);
    assert_int_equal(message.append.commit, 6);
    assert_int_equal(message.append.count, 3);
    assert_int_equal(message.append.entries[2].term, 4);
    assert_int_equal(message.append.entries[2].kind, HF_ENTRY_BARRIER);
    assert_memory_equal(message.append.entries[0].data.data, "abc", 3);
    hf_message_fini(&message);
    hf_buf_fini(&buf);
    hf_message_encode(&buf, &samples[4]);
    assert_int_equal(decode(&buf, &message), HF_OK);
    assert_true(message.vote.pre_vote);
    assert_false(message.vote.disrupt);
    assert_int_equal(message.version, 2);
    hf_buf_fini(&buf);
}

static void truncated_and_extended_messages_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(samples); i++) {
        struct hf_buf buf = {0};
        struct hf_message message;
        size_t size;

        hf_message_encode(&buf, &samples[i]);
        hf_buf_u8(&buf, 0);
        assert_int_equal(decode(&buf, &message), HF_EPROTO);
        size = buf.size - 1;
        for (buf.size = 0; buf.size < size; buf.size++)
            assert_int_equal(decode(&buf, &message), HF_EPROTO);
        hf_buf_fini(&buf);
    }
}

/* The library only asserts these conditions, and its assertions are compiled
 * out, so decoding must check them. */
static void appends_that_contradict_themselves_are_refused(void **state)
{
    struct hf_entry strange[] = {{3, HF_ENTRY_COMMAND, {"a", 1}},
                                 {2, HF_ENTRY_COMMAND, {"b", 1}}};
    struct hf_message append = samples[1];
    struct hf_buf buf = {0};
    struct hf_message message;

    (void)state;
    append.append.entries = strange; /* terms decrease */
    append.append.count = 2;
    hf_message_encode(&buf, &append);
    assert_int_equal(decode(&buf, &message), HF_EPROTO);
    buf.size = 0;
    strange[1].term = 6; /* newer than the leader's term */
    hf_message_encode(&buf, &append);
    assert_int_equal(decode(&buf, &message), HF_EPROTO);
    buf.size = 0;
    strange[1] = (struct hf_entry){4, (enum hf_entry_kind)9, {"b", 1}};
    hf_message_encode(&buf, &append);
    assert_int_equal(decode(&buf, &message), HF_EPROTO);
    buf.size = 0;
    append.append.count = 0;
    append.append.prev_term = 0; /* although prev_index is not 0 */
    hf_message_encode(&buf, &append);
    assert_int_equal(decode(&buf, &message), HF_EPROTO);
    hf_buf_fini(&buf);
}

static void random_bytes_are_decoded_or_refused(void **state)
{
    struct hf_random random;

    (void)state;
    hf_random_init(&random, 5);
    for (unsigned i = 0; i < 200000; i++) {
        const struct hf_message *sample = &samples[i % HF_TEST_COUNT(samples)];
        struct hf_buf buf = {0};
        struct hf_message message;

        hf_message_encode(&buf, sample);
        for (unsigned j = 0; j < 3; j++)
            buf.data[hf_random_below(&random, (uint32_t)buf.size)] =
                (uint8_t)hf_random_below(&random, 256);
        if (decode(&buf, &message) == HF_OK)
            hf_message_fini(&message);
        hf_buf_fini(&buf);
    }
}

/* ---- membership.c -------------------------------------------------------*/

static void members_survive_encoding(void **state)
{
    struct hf_membership members = {{1, 2, 12345678901234567890u}, 3};
    struct hf_membership decoded;
    struct hf_buf buf = {0};

    (void)state;
    hf_membership_encode(&buf, &members);
    assert_int_equal(buf.size % 8, 0);
    assert_int_equal(
        hf_membership_decode((struct hf_bytes){buf.data, buf.size}, &decoded),
        HF_OK);
    assert_int_equal(decoded.count, 3);
    assert_true(hf_membership_has(&decoded, 12345678901234567890u));
    assert_false(hf_membership_has(&decoded, 3));
    hf_buf_fini(&buf);
}

static void other_bytes_are_not_members(void **state)
{
    struct hf_membership members = {{1, 2, 3}, 3};
    struct hf_membership decoded;
    struct hf_buf buf = {0};

    (void)state;
    hf_membership_encode(&buf, &members);
    for (size_t i = 0; i < buf.size; i++) {
        struct hf_bytes shorter = {buf.data, i};

        assert_int_equal(hf_membership_decode(shorter, &decoded), HF_EPROTO);
        buf.data[i] ^= 0x40;
        assert_int_equal(hf_membership_decode(
                             (struct hf_bytes){buf.data, buf.size}, &decoded),
                         HF_EPROTO);
        buf.data[i] ^= 0x40;
    }
    hf_buf_fini(&buf);
}

static void members_are_few_and_in_order(void **state)
{
    struct hf_membership none = {{0}, 0};
    struct hf_membership twice = {{2, 2}, 2};
    struct hf_membership zero = {{0, 1}, 2};

    (void)state;
    assert_false(hf_membership_is_valid(&none));
    assert_false(hf_membership_is_valid(&twice));
    assert_false(hf_membership_is_valid(&zero));
}

/* ---- frames.c -----------------------------------------------------------*/

/* Node 1 with incarnation 10 and node 2 with incarnation 20. */
struct pair {
    struct hf_frames at_one, at_two;
    uint64_t one, two; /* incarnations */
};

static struct hf_buf send_to_two(struct pair *pair)
{
    struct hf_buf buf = {0};

    hf_frames_begin(&pair->at_one, 1, pair->one, &buf);
    return buf;
}

static enum hf_frames_verdict arrive(struct hf_frames *frames,
                                     uint64_t incarnation,
                                     const struct hf_buf *buf)
{
    struct hf_reader reader = {.data = buf->data, .size = buf->size};

    assert_true(hf_frames_sender(&reader) > 0);
    return hf_frames_check(frames, incarnation, &reader);
}

/* Node 2 sends a HELLO, so that node 1 learns its incarnation. */
static void send_hello(struct pair *pair)
{
    struct hf_buf buf = {0};

    hf_frames_begin(&pair->at_two, 2, pair->two, &buf);
    assert_int_equal(arrive(&pair->at_one, pair->one, &buf), HF_FRAMES_ACCEPT);
    hf_buf_fini(&buf);
}

static struct pair connect_pair(void)
{
    struct pair pair = {.one = 10, .two = 20};
    struct hf_buf buf = send_to_two(&pair);

    assert_int_equal(arrive(&pair.at_two, pair.two, &buf), HF_FRAMES_ANNOUNCE);
    hf_buf_fini(&buf);
    send_hello(&pair);
    return pair;
}

static void frames_are_accepted_once_and_in_order(void **state)
{
    struct pair pair = connect_pair();
    struct hf_buf first = send_to_two(&pair);
    struct hf_buf second = send_to_two(&pair);
    struct hf_buf third = send_to_two(&pair);

    (void)state;
    assert_int_equal(arrive(&pair.at_two, 20, &first), HF_FRAMES_ACCEPT);
    assert_int_equal(arrive(&pair.at_two, 20, &first), HF_FRAMES_DROP);
    assert_int_equal(arrive(&pair.at_two, 20, &third), HF_FRAMES_ACCEPT);
    assert_int_equal(arrive(&pair.at_two, 20, &second), HF_FRAMES_DROP);
    hf_buf_fini(&first);
    hf_buf_fini(&second);
    hf_buf_fini(&third);
}

static void frames_of_an_earlier_incarnation_are_dropped(void **state)
{
    struct pair pair = connect_pair();
    struct hf_buf old = send_to_two(&pair);
    struct hf_buf new;

    (void)state;
    pair.one = 11; /* node 1 restarts */
    pair.at_one = (struct hf_frames){0};
    new = send_to_two(&pair);
    assert_int_equal(arrive(&pair.at_two, 20, &new), HF_FRAMES_ANNOUNCE);
    assert_int_equal(arrive(&pair.at_two, 20, &old), HF_FRAMES_DROP);
    hf_buf_fini(&new);
    send_hello(&pair);
    new = send_to_two(&pair);
    assert_int_equal(arrive(&pair.at_two, 20, &new), HF_FRAMES_ACCEPT);
    hf_buf_fini(&new);
    hf_buf_fini(&old);
}

static void frames_to_an_earlier_incarnation_are_dropped(void **state)
{
    struct pair pair = connect_pair();
    struct hf_buf old = send_to_two(&pair);

    (void)state;
    pair.two = 21; /* node 2 restarts */
    pair.at_two = (struct hf_frames){0};
    assert_int_equal(arrive(&pair.at_two, 21, &old), HF_FRAMES_ANNOUNCE);
    hf_buf_fini(&old);
    send_hello(&pair);
    old = send_to_two(&pair);
    assert_int_equal(arrive(&pair.at_two, 21, &old), HF_FRAMES_ACCEPT);
    hf_buf_fini(&old);
}

static void short_frames_are_dropped(void **state)
{
    struct pair pair = connect_pair();
    struct hf_buf buf = send_to_two(&pair);

    (void)state;
    for (buf.size = 8; buf.size < 32; buf.size++)
        assert_int_equal(arrive(&pair.at_two, 20, &buf), HF_FRAMES_DROP);
    hf_buf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(every_kind_survives_encoding),
        cmocka_unit_test(fields_survive_encoding),
        cmocka_unit_test(truncated_and_extended_messages_are_refused),
        cmocka_unit_test(appends_that_contradict_themselves_are_refused),
        cmocka_unit_test(random_bytes_are_decoded_or_refused),
        cmocka_unit_test(members_survive_encoding),
        cmocka_unit_test(other_bytes_are_not_members),
        cmocka_unit_test(members_are_few_and_in_order),
        cmocka_unit_test(frames_are_accepted_once_and_in_order),
        cmocka_unit_test(frames_of_an_earlier_incarnation_are_dropped),
        cmocka_unit_test(frames_to_an_earlier_incarnation_are_dropped),
        cmocka_unit_test(short_frames_are_dropped),
    };

    return hf_test_main("message", cases, HF_TEST_COUNT(cases), 0);
}
