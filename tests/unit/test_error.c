#include "base/error.h"

#include "lib/runner.h"

static void every_code_has_a_name_and_a_text(void **state)
{
    (void)state;
#define CHECK(name, value, words)                                              \
    assert_string_equal(hf_err_name(HF_##name), "HF_" #name);                  \
    assert_string_equal(hf_err_text(HF_##name), words);                        \
    assert_true(hf_err_is_known(HF_##name));
    HF_ERRORS(CHECK)
#undef CHECK
    assert_string_equal(hf_err_name(HF_OK), "HF_OK");
    assert_string_equal(hf_err_name(HF_EBUSY), "HF_EBUSY");
    assert_string_equal(hf_err_text(HF_EBUSY), "held by another claim");
}

static void unknown_code_has_a_name_and_a_text(void **state)
{
    (void)state;
    assert_string_equal(hf_err_name((enum hf_err)INT32_MIN), "HF_E?");
    assert_false(hf_err_is_known((enum hf_err)INT32_MIN));
    assert_false(hf_err_is_known((enum hf_err)1));
    assert_true(hf_err_is_known(HF_OK));
    assert_string_equal(hf_err_text((enum hf_err)1), "no such error");
}

static void error_set_returns_the_code(void **state)
{
    struct hf_error error;

    (void)state;
    assert_int_equal(hf_error_set(&error, HF_EINVAL, "ttl: %d", 0), HF_EINVAL);
    assert_int_equal(error.code, HF_EINVAL);
    assert_string_equal(error.text, "ttl: 0");
    assert_int_equal(hf_error_set_code(&error, HF_ENOMEM), HF_ENOMEM);
    assert_string_equal(error.text, hf_err_text(HF_ENOMEM));
    assert_int_equal(hf_error_set(NULL, HF_EBUSY, "x"), HF_EBUSY);
}

static void long_text_is_truncated(void **state)
{
    struct hf_error error;

    (void)state;
    (void)hf_error_set(&error, HF_EINVAL, "%1000d", 1);
    assert_int_equal(strlen(error.text), sizeof(error.text) - 1);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(every_code_has_a_name_and_a_text),
        cmocka_unit_test(unknown_code_has_a_name_and_a_text),
        cmocka_unit_test(error_set_returns_the_code),
        cmocka_unit_test(long_text_is_truncated),
    };

    return hf_test_main("error", cases, HF_TEST_COUNT(cases), 0);
}
