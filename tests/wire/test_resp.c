/* test_resp.c - the parser and the writer of the Redis protocol. */
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "lib/alloc.h"
#include "lib/expect.h"
#include "lib/runner.h"
#include "wire/resp.h"

#define LIMITS ((struct hf_resp_limits){.elements = 8, .bytes = 64})

/* Write a value as text: "(word)" for a bulk string, "(:1)" for an integer,
 * "(*2)" for an array of 2 elements. */
static void record_value(struct hf_buf *text, const struct hf_resp_value *value)
{
    static const char *const kinds[] = {"+", "-", ":", "", "null", "*"};
    char number[32];

    hf_buf_raw(text, "(", 1);
    hf_buf_raw(text, kinds[value->kind], strlen(kinds[value->kind]));
    if (value->kind == HF_RESP_INTEGER) {
        (void)snprintf(number, sizeof(number), "%lld",
                       (long long)value->integer);
        hf_buf_raw(text, number, strlen(number));
    } else if (value->kind == HF_RESP_ARRAY) {
        (void)snprintf(number, sizeof(number), "%u", value->size);
        hf_buf_raw(text, number, strlen(number));
    } else if (value->kind != HF_RESP_NULL) {
        hf_buf_raw(text, value->data, value->size);
    }
    hf_buf_raw(text, ")", 1);
}

static void record_message(struct hf_buf *text,
                           const struct hf_resp_message *message)
{
    if (message->is_inline)
        hf_buf_raw(text, "inline", 6);
    for (size_t i = 0; i < message->count; i++)
        record_value(text, &message->values[i]);
    hf_buf_raw(text, ";", 1);
}

/* Take all messages and record them in `text`. Returns the last status. */
static enum hf_resp_status take_messages(struct hf_resp_reader *reader,
                                         struct hf_buf *text)
{
    struct hf_resp_message message;
    enum hf_resp_status status;

    while ((status = hf_resp_reader_next(reader, &message)) == HF_RESP_MESSAGE)
        record_message(text, &message);
    return status;
}

/* Feed `input` in pieces of `step` bytes. Each piece has an allocation of its
 * own size, so that a sanitizer finds reads beyond it. Records the messages in
 * `text`, and returns the last status. */
static enum hf_resp_status feed_steps(struct hf_resp_reader *reader,
                                      const char *input, size_t size,
                                      size_t step, struct hf_buf *text)
{
    enum hf_resp_status status = HF_RESP_MORE;

    for (size_t i = 0; i < size && status == HF_RESP_MORE; i += step) {
        size_t piece = size - i < step ? size - i : step;
        char *copy = malloc(piece);

        assert_non_null(copy);
        memcpy(copy, input + i, piece);
        expect_ok(hf_resp_reader_feed(reader, copy, piece));
        status = take_messages(reader, text);
        expect_ok(hf_resp_reader_keep(reader));
        free(copy);
    }
    return status;
}

static void expect_text(struct hf_buf *text, const char *wanted)
{
    hf_buf_u8(text, 0);
    assert_string_equal((const char *)text->data, wanted);
    hf_buf_fini(text);
}

/* Expect that `input` is parsed as `wanted`, in pieces of any size. The reader
 * expects requests if `requests` is set, and replies otherwise. */
static void expect_messages(bool requests, const char *input,
                            const char *wanted)
{
    size_t size = strlen(input);

    for (size_t step = 1; step <= size; step++) {
        struct hf_resp_reader reader;
        struct hf_buf text = {0};

        hf_resp_reader_init(&reader, requests, LIMITS);
        assert_int_equal(feed_steps(&reader, input, size, step, &text),
                         HF_RESP_MORE);
        assert_false(hf_resp_reader_has_part(&reader));
        expect_text(&text, wanted);
        hf_resp_reader_fini(&reader);
    }
}

/* Expect that `input` is rejected with `err` and `cause`, in pieces of any
 * size. */
static void expect_broken(bool requests, const char *input, enum hf_err err,
                          const char *cause)
{
    size_t size = strlen(input);

    for (size_t step = 1; step <= size; step++) {
        struct hf_resp_reader reader;
        struct hf_resp_message message;
        struct hf_buf text = {0};

        hf_resp_reader_init(&reader, requests, LIMITS);
        assert_int_equal(feed_steps(&reader, input, size, step, &text),
                         HF_RESP_BROKEN);
        expect_err(reader.parser.err, err);
        assert_string_equal(reader.parser.cause, cause);
        assert_int_equal(hf_resp_reader_next(&reader, &message),
                         HF_RESP_BROKEN);
        hf_buf_fini(&text);
        hf_resp_reader_fini(&reader);
    }
}

/* ---- Requests -----------------------------------------------------------*/

static void requests_are_arrays_of_bulk_strings(void **state)
{
    (void)state;
    expect_messages(true, "*1\r\n$4\r\nPING\r\n", "(PING);");
    expect_messages(true, "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", "(ECHO)();");
    expect_messages(true, "*1\r\n$4\r\nPING\r\n*2\r\n$1\r\na\r\n$2\r\n\r\n\r\n",
                    "(PING);(a)(\r\n);");
}

static void requests_may_be_lines_of_words(void **state)
{
    (void)state;
    expect_messages(true, "PING\r\n", "inline(PING);");
    expect_messages(true, "  LOCK\ta  5 \nPING\n",
                    "inline(LOCK)(a)(5);inline(PING);");
    expect_messages(true, "PING\r\n*1\r\n$1\r\na\r\n", "inline(PING);(a);");
}

static void empty_requests_are_skipped(void **state)
{
    (void)state;
    expect_messages(true, "\r\n\n   \r\n*0\r\n*-1\r\nPING\r\n",
                    "inline(PING);");
}

static void malformed_requests_are_rejected(void **state)
{
    static const char *const bad[] = {"*1\r\n:1\r\n", "*1\r\n+a\r\n",
                                      "*1\r\n*1\r\n",
                                      "*2\r\n$1\r\na\r\nPING\r\n"};

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(bad); i++)
        expect_broken(true, bad[i], HF_EPROTO,
                      "a request must be an array of bulk strings");
    expect_broken(true, "*1\r\n$-1\r\n", HF_EPROTO,
                  "the length of a string is malformed");
    expect_broken(true, "*1\r\n$3\r\nabcd\r\n", HF_EPROTO,
                  "a string is longer than its length");
    expect_broken(true, "*1\n$1\r\na\r\n", HF_EPROTO,
                  "a line does not end with CR LF");
}

static void malformed_lengths_are_rejected(void **state)
{
    static const char *const bad[] = {"",    "-2", "+1", " 1", "1 ",
                                      "0x1", "01", "1e", "-0", "--1"};

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(bad); i++) {
        char input[32];

        (void)snprintf(input, sizeof(input), "*%s\r\n", bad[i]);
        expect_broken(true, input, HF_EPROTO,
                      "the length of an array is malformed");
        (void)snprintf(input, sizeof(input), "*1\r\n$%s\r\n", bad[i]);
        expect_broken(true, input, HF_EPROTO,
                      "the length of a string is malformed");
    }
}

/* ---- Limits -------------------------------------------------------------*/

static void an_announced_length_takes_no_memory(void **state)
{
    static const char *const huge[] = {"*100000000\r\n", "*4294967295\r\n",
                                       "*9\r\n"};
    static const char *const large[] = {
        "*1\r\n$100000000\r\n", "*1\r\n$4294967295\r\n", "*1\r\n$60\r\n"};
    long before = hf_alloc_bytes();

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(huge); i++) {
        struct hf_resp_reader reader;
        struct hf_resp_message message;

        hf_resp_reader_init(&reader, true, LIMITS);
        expect_ok(hf_resp_reader_feed(&reader, huge[i], strlen(huge[i])));
        assert_int_equal(hf_resp_reader_next(&reader, &message),
                         HF_RESP_BROKEN);
        assert_int_equal(hf_alloc_bytes(), before);
        hf_resp_reader_fini(&reader);
        expect_broken(true, huge[i], HF_ELIMIT,
                      "the array has too many elements");
        expect_broken(true, large[i], HF_ELIMIT, "the message is too large");
    }
    expect_broken(true, "*4294967296\r\n", HF_EPROTO,
                  "the length of an array is malformed");
    expect_broken(true, "*99999999999999999999999\r\n", HF_ELIMIT,
                  "a line is too long");
}

static void limits_are_reached_exactly(void **state)
{
    (void)state;
    expect_messages(true, "a b c d e f g h\r\n",
                    "inline(a)(b)(c)(d)(e)(f)(g)(h);");
    expect_broken(true, "a b c d e f g h i\r\n", HF_ELIMIT,
                  "the line has too many words");
    expect_messages(false, "*7\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
                    "(*7)(:1)(:1)(:1)(:1)(:1)(:1)(:1);");
    expect_broken(false, "*8\r\n", HF_ELIMIT,
                  "the array has too many elements");
    /* The limit is 64 bytes: 4 + 5 + 53 + 2. */
    expect_messages(true,
                    "*1\r\n$53\r\n"
                    "12345678901234567890123456789012345678901234567890123\r\n",
                    "(12345678901234567890123456789012345678901234567890123);");
    expect_broken(true, "*1\r\n$54\r\n", HF_ELIMIT, "the message is too large");
}

static void a_request_may_have_as_many_elements_as_the_limit(void **state)
{
    struct hf_buf buf = {0};

    (void)state;
    hf_resp_write_array(&buf, 8);
    for (int i = 0; i < 8; i++)
        hf_resp_write_bulk(&buf, "", 0);
    hf_buf_u8(&buf, 0);
    expect_messages(true, (const char *)buf.data, "()()()()()()()();");
    hf_buf_fini(&buf);
}

static void a_line_without_end_is_rejected(void **state)
{
    struct hf_resp_reader reader;
    struct hf_buf text = {0};
    char *line = malloc(HF_RESP_LINE_MAX);

    (void)state;
    assert_non_null(line);
    memset(line, 'a', HF_RESP_LINE_MAX);
    hf_resp_reader_init(&reader, true, LIMITS);
    assert_int_equal(
        feed_steps(&reader, line, HF_RESP_LINE_MAX - 1, 100, &text),
        HF_RESP_MORE);
    assert_int_equal(feed_steps(&reader, line, 1, 1, &text), HF_RESP_BROKEN);
    expect_err(reader.parser.err, HF_ELIMIT);
    hf_resp_reader_fini(&reader);
    free(line);
}

/* The limit is that of the whole message, so several strings can exceed it
 * together. */
static void strings_count_together(void **state)
{
    (void)state;
    expect_broken(true,
                  "*3\r\n$20\r\n12345678901234567890\r\n"
                  "$20\r\n12345678901234567890\r\n$20\r\n",
                  HF_ELIMIT, "the message is too large");
}

/* ---- Replies ------------------------------------------------------------*/

static void replies_are_any_values(void **state)
{
    (void)state;
    expect_messages(false, "+OK\r\n-BUSY held\r\n:-12\r\n$2\r\nab\r\n",
                    "(+OK);(-BUSY held);(:-12);(ab);");
    expect_messages(false, "$-1\r\n*-1\r\n*0\r\n+\r\n",
                    "(null);(null);(*0);(+);");
    expect_messages(false, ":9223372036854775807\r\n:0\r\n",
                    "(:9223372036854775807);(:0);");
}

static void arrays_are_nested_once(void **state)
{
    (void)state;
    expect_messages(false, "*3\r\n:1\r\n*2\r\n+a\r\n$-1\r\n:2\r\n:3\r\n",
                    "(*3)(:1)(*2)(+a)(null)(:2);(:3);");
    expect_messages(false, "*2\r\n*1\r\n:1\r\n*1\r\n:2\r\n:3\r\n",
                    "(*2)(*1)(:1)(*1)(:2);(:3);");
    expect_messages(false, "*1\r\n*1\r\n*0\r\n", "(*1)(*1)(*0);");
    expect_broken(false, "*1\r\n*1\r\n*1\r\n", HF_EPROTO,
                  "arrays are nested too deeply");
}

static void malformed_replies_are_rejected(void **state)
{
    static const char *const bad[] = {"", "-", "1a", "9223372036854775808",
                                      "+1"};

    (void)state;
    expect_broken(false, "PING\r\n", HF_EPROTO, "a value has an unknown type");
    expect_broken(false, "\r\n", HF_EPROTO, "a line does not end with CR LF");
    for (size_t i = 0; i < HF_TEST_COUNT(bad); i++) {
        char input[32];

        (void)snprintf(input, sizeof(input), ":%s\r\n", bad[i]);
        expect_broken(false, input, HF_EPROTO, "an integer is malformed");
    }
}

/* ---- Reader -------------------------------------------------------------*/

static void a_truncated_message_is_incomplete_at_every_byte(void **state)
{
    static const char input[] = "*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n";

    (void)state;
    for (size_t size = 1; size < sizeof(input) - 1; size++) {
        struct hf_resp_reader reader;
        struct hf_buf text = {0};

        hf_resp_reader_init(&reader, true, LIMITS);
        assert_int_equal(feed_steps(&reader, input, size, size, &text),
                         HF_RESP_MORE);
        assert_true(hf_resp_reader_has_part(&reader));
        assert_int_equal(text.size, 0);
        assert_int_equal(feed_steps(&reader, input + size,
                                    sizeof(input) - 1 - size, sizeof(input),
                                    &text),
                         HF_RESP_MORE);
        expect_text(&text, "(ECHO)(a\r\n);");
        hf_resp_reader_fini(&reader);
    }
}

static void messages_can_be_taken_later(void **state)
{
    char input[] = "a\nb\nc\nd";
    struct hf_resp_reader reader;
    struct hf_resp_message message;
    struct hf_buf text = {0};

    (void)state;
    hf_resp_reader_init(&reader, true, LIMITS);
    expect_ok(hf_resp_reader_feed(&reader, input, 7));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hf_resp_reader_next(&reader, &message),
                         HF_RESP_MESSAGE);
        record_message(&text, &message);
        expect_ok(hf_resp_reader_keep(&reader));
        memset(input, 'x', sizeof(input));
    }
    expect_ok(hf_resp_reader_feed(&reader, "\ne\n", 3));
    assert_int_equal(take_messages(&reader, &text), HF_RESP_MORE);
    expect_ok(hf_resp_reader_keep(&reader));
    expect_text(&text, "inline(a);inline(b);inline(c);inline(d);inline(e);");
    hf_resp_reader_fini(&reader);
}

static void an_idle_reader_keeps_little_memory(void **state)
{
    const struct hf_resp_limits limits = {1000, 200000};
    struct hf_resp_reader reader;
    struct hf_buf input = {0};
    struct hf_buf text = {0};
    long before = hf_alloc_bytes();

    (void)state;
    hf_resp_write_array(&input, 1000);
    for (int i = 0; i < 1000; i++)
        hf_resp_write_bulk(&input, "0123456789012345678901234567890123456789",
                           40);
    hf_resp_reader_init(&reader, true, limits);
    assert_int_equal(
        feed_steps(&reader, (const char *)input.data, input.size, 4096, &text),
        HF_RESP_MORE);
    hf_buf_fini(&input);
    hf_buf_fini(&text);
    assert_true(hf_alloc_bytes() - before <= 16384 + 1024);
    hf_resp_reader_fini(&reader);
    assert_int_equal(hf_alloc_bytes(), before);
}

static void running_out_of_memory_is_reported(void **state)
{
    static const char input[] = "*2\r\n$4\r\nECHO\r\n$1\r\na\r\n";

    (void)state;
    for (unsigned long nth = 1;; nth++) {
        struct hf_resp_reader reader;
        struct hf_resp_message message;
        enum hf_resp_status status = HF_RESP_MORE;
        long before = hf_alloc_blocks();
        enum hf_err err = HF_OK;
        bool failed;

        hf_resp_reader_init(&reader, true, LIMITS);
        hf_alloc_fail(nth, 1);
        for (size_t i = 0; i < sizeof(input) - 1 && !err; i++) {
            err = hf_resp_reader_feed(&reader, &input[i], 1);
            if (!err)
                status = hf_resp_reader_next(&reader, &message);
            if (status == HF_RESP_BROKEN)
                err = reader.parser.err;
            else if (!err)
                err = hf_resp_reader_keep(&reader);
        }
        failed = hf_alloc_failed();
        expect_err(err, failed ? HF_ENOMEM : HF_OK);
        hf_resp_reader_fini(&reader);
        assert_int_equal(hf_alloc_blocks(), before);
        if (!failed)
            break;
    }
}

/* ---- Values and writing -------------------------------------------------*/

static struct hf_resp_value bulk(const char *text)
{
    return (struct hf_resp_value){
        .kind = HF_RESP_BULK,
        .size = (uint32_t)strlen(text),
        .data = (const uint8_t *)text,
    };
}

static void numbers_are_decimal(void **state)
{
    static const char *const bad[] = {"",   "-1", "+1",
                                      "1 ", "01", "18446744073709551616"};
    struct hf_resp_value integer = {.kind = HF_RESP_INTEGER, .integer = 5};
    struct hf_resp_value value;
    uint64_t number = 7;

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(bad); i++) {
        value = bulk(bad[i]);
        assert_false(hf_resp_number(&value, UINT64_MAX, &number));
    }
    value = bulk("18446744073709551615");
    assert_false(hf_resp_number(&value, UINT64_MAX - 1, &number));
    assert_false(hf_resp_number(&integer, 4, &number));
    assert_true(number == 7);
    assert_true(hf_resp_number(&value, UINT64_MAX, &number));
    assert_true(number == UINT64_MAX);
    assert_true(hf_resp_number(&integer, 5, &number));
    assert_true(number == 5);
    integer.integer = -1;
    assert_false(hf_resp_number(&integer, UINT64_MAX, &number));
}

static void nonces_are_bytes_or_digits(void **state)
{
    struct hf_resp_value value = bulk("0123456789abcdef");
    struct hf_nonce nonce;

    (void)state;
    assert_true(hf_resp_nonce(&value, &nonce));
    assert_memory_equal(nonce.bytes, "0123456789abcdef", 16);
    value = bulk("000102030405060708090a0b0c0d0e0F");
    assert_true(hf_resp_nonce(&value, &nonce));
    assert_int_equal(nonce.bytes[15], 15);
    value = bulk("000102030405060708090a0b0c0d0e0g");
    assert_false(hf_resp_nonce(&value, &nonce));
    value = bulk("000102030405060708090a0b0c0d0e0");
    assert_false(hf_resp_nonce(&value, &nonce));
}

static void words_are_compared_without_case(void **state)
{
    struct hf_resp_value value = bulk("pInG");

    (void)state;
    assert_true(hf_resp_equals(&value, "PING"));
    assert_false(hf_resp_equals(&value, "PIN"));
    assert_false(hf_resp_equals(&value, "PONG"));
}

static void what_is_written_is_parsed(void **state)
{
    struct hf_buf buf = {0};

    (void)state;
    hf_resp_write_array(&buf, 5);
    hf_resp_write_integer(&buf, INT64_MAX);
    hf_resp_write_integer(&buf, -1);
    hf_resp_write_number(&buf, 10);
    hf_resp_write_null(&buf);
    hf_resp_write_error(&buf, "PROTO", "a\r\n\tb");
    hf_resp_write_simple(&buf, "OK");
    hf_resp_write_text(&buf, "text");
    hf_buf_u8(&buf, 0);
    expect_messages(
        false, (const char *)buf.data,
        "(*5)(:9223372036854775807)(:-1)(10)(null)(-PROTO a   b);(+OK);(text);");
    hf_buf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(requests_are_arrays_of_bulk_strings),
        cmocka_unit_test(requests_may_be_lines_of_words),
        cmocka_unit_test(empty_requests_are_skipped),
        cmocka_unit_test(malformed_requests_are_rejected),
        cmocka_unit_test(malformed_lengths_are_rejected),
        cmocka_unit_test(an_announced_length_takes_no_memory),
        cmocka_unit_test(limits_are_reached_exactly),
        cmocka_unit_test(a_request_may_have_as_many_elements_as_the_limit),
        cmocka_unit_test(a_line_without_end_is_rejected),
        cmocka_unit_test(strings_count_together),
        cmocka_unit_test(replies_are_any_values),
        cmocka_unit_test(arrays_are_nested_once),
        cmocka_unit_test(malformed_replies_are_rejected),
        cmocka_unit_test(a_truncated_message_is_incomplete_at_every_byte),
        cmocka_unit_test(messages_can_be_taken_later),
        cmocka_unit_test(an_idle_reader_keeps_little_memory),
        cmocka_unit_test(running_out_of_memory_is_reported),
        cmocka_unit_test(numbers_are_decimal),
        cmocka_unit_test(nonces_are_bytes_or_digits),
        cmocka_unit_test(words_are_compared_without_case),
        cmocka_unit_test(what_is_written_is_parsed),
    };

    return hf_test_main("resp", cases, HF_TEST_COUNT(cases), 0);
}
