/* test_protocol.c - commands, errors, infos and events of the protocol. */
#include "lib/expect.h"
#include "lib/runner.h"
#include "wire/protocol.h"

static struct hf_resp_value word(enum hf_resp_kind kind, const char *text)
{
    return (struct hf_resp_value){
        .kind = kind,
        .size = (uint32_t)strlen(text),
        .data = (const uint8_t *)text,
    };
}

static void commands_are_found_by_name(void **state)
{
    struct hf_resp_value value;

    (void)state;
    for (unsigned verb = 0; verb < HF_VERB_COUNT; verb++) {
        value = word(HF_RESP_BULK, hf_verb_name((enum hf_verb)verb));
        assert_int_equal(hf_verb_find(&value), verb);
    }
    value = word(HF_RESP_BULK, "unlock");
    assert_int_equal(hf_verb_find(&value), HF_VERB_UNLOCK);
    value = word(HF_RESP_BULK, "EXPIRE");
    assert_int_equal(hf_verb_find(&value), HF_VERB_COUNT);
    value = word(HF_RESP_BULK, "CLOSE");
    assert_int_equal(hf_verb_find(&value), HF_VERB_COUNT);
}

static void errors_have_a_code_and_a_text(void **state)
{
    struct hf_resp_value value = word(HF_RESP_ERROR, "BUSY held by another");
    struct hf_bytes text;

    (void)state;
    assert_string_equal(hf_code_name(HF_EBUSY), "BUSY");
    expect_err(hf_code_read(&value, &text), HF_EBUSY);
    assert_true(hf_bytes_equal(text, hf_bytes_of("held by another")));
    value = word(HF_RESP_ERROR, "NOSPACE disk full");
    expect_err(hf_code_read(&value, &text), HF_ELIMIT);
    value = word(HF_RESP_ERROR, "GONE");
    expect_err(hf_code_read(&value, &text), HF_ESTATE);
    assert_int_equal(text.size, 0);
    assert_true(hf_code_is(&value, HF_CODE_GONE));
    value = word(HF_RESP_ERROR, "GONER than that");
    assert_false(hf_code_is(&value, HF_CODE_GONE));
    value = word(HF_RESP_BULK, "GONE");
    assert_false(hf_code_is(&value, HF_CODE_GONE));
    value = word(HF_RESP_ERROR, "ERR something else");
    expect_err(hf_code_read(&value, &text), HF_EPROTO);
    value = word(HF_RESP_BULK, "BUSY held");
    expect_err(hf_code_read(&value, &text), HF_EPROTO);
}

static void every_error_has_a_code(void **state)
{
    static const enum hf_err errs[] = {
#define ROW(name, value, text) HF_##name,
        HF_ERRORS(ROW)
#undef ROW
    };

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(errs); i++)
        expect_err(hf_code_find(hf_bytes_of(hf_code_name(errs[i]))), errs[i]);
}

static const struct hf_info sample_info = {
    .key = {"key", 3},
    .held = true,
    .forced = true,
    .token = 9,
    .held_ms = 10,
    .left_ms = 11,
    .waiters = 12,
    .value = {"va\0ue", 5},
    .owner = "owner",
    .note = "",
    .index = 13,
};

static void infos_are_encoded(void **state)
{
    struct hf_buf buf = {0};
    struct hf_info info;

    (void)state;
    hf_protocol_encode_info(&sample_info, &buf);
    expect_ok(
        hf_protocol_decode_info(&info, (struct hf_bytes){buf.data, buf.size}));
    assert_true(info.held && info.forced);
    assert_true(info.token == 9 && info.index == 13);
    assert_true(info.held_ms == 10 && info.left_ms == 11 && info.waiters == 12);
    assert_true(hf_key_equal(info.key, sample_info.key));
    assert_true(hf_bytes_equal(info.value, sample_info.value));
    assert_string_equal(info.owner, "owner");
    assert_string_equal(info.note, "");
    for (size_t size = 0; size < buf.size; size++)
        expect_err(
            hf_protocol_decode_info(&info, (struct hf_bytes){buf.data, size}),
            HF_EPROTO);
    hf_buf_u8(&buf, 0);
    expect_err(
        hf_protocol_decode_info(&info, (struct hf_bytes){buf.data, buf.size}),
        HF_EPROTO);
    hf_buf_fini(&buf);
}

static void events_are_encoded(void **state)
{
    const struct hf_event sample = {
        .kind = HF_EVENT_FORCED,
        .index = 5,
        .key = {"key", 3},
        .token = 6,
        .owner = "owner",
        .freed = true,
    };
    struct hf_buf buf = {0};
    struct hf_event event;

    (void)state;
    hf_protocol_encode_event(&sample, &buf);
    expect_ok(hf_protocol_decode_event(&event,
                                       (struct hf_bytes){buf.data, buf.size}));
    assert_int_equal(event.kind, HF_EVENT_FORCED);
    assert_true(event.index == 5 && event.token == 6 && event.freed);
    assert_true(hf_key_equal(event.key, sample.key));
    assert_string_equal(event.owner, "owner");
    for (size_t size = 0; size < buf.size; size++)
        expect_err(
            hf_protocol_decode_event(&event, (struct hf_bytes){buf.data, size}),
            HF_EPROTO);
    buf.data[0] |= 1; /* two kinds at once */
    expect_err(
        hf_protocol_decode_event(&event, (struct hf_bytes){buf.data, buf.size}),
        HF_EPROTO);
    hf_buf_fini(&buf);
}

/* The client uses owner and note as C strings, so their only NUL is the last
 * byte. */
static void strings_end_with_their_only_nul(void **state)
{
    struct hf_buf buf = {0};
    struct hf_event event = {
        .kind = HF_EVENT_GRANTED, .key = {"k", 1}, .owner = "ab"};

    (void)state;
    hf_protocol_encode_event(&event, &buf);
    buf.data[buf.size - 1] = 'c';
    expect_err(
        hf_protocol_decode_event(&event, (struct hf_bytes){buf.data, buf.size}),
        HF_EPROTO);
    buf.data[buf.size - 1] = 0;
    buf.data[buf.size - 2] = 0;
    expect_err(
        hf_protocol_decode_event(&event, (struct hf_bytes){buf.data, buf.size}),
        HF_EPROTO);
    hf_buf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(commands_are_found_by_name),
        cmocka_unit_test(errors_have_a_code_and_a_text),
        cmocka_unit_test(every_error_has_a_code),
        cmocka_unit_test(infos_are_encoded),
        cmocka_unit_test(events_are_encoded),
        cmocka_unit_test(strings_end_with_their_only_nul),
    };

    return hf_test_main("protocol", cases, HF_TEST_COUNT(cases), 0);
}
