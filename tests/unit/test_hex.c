#include "base/hex.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/runner.h"

static void every_byte_survives_a_round_trip(void **state)
{
    uint8_t bytes[256], decoded[sizeof(bytes)];
    char text[2 * sizeof(bytes) + 1];

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    hf_hex_encode(text, bytes, sizeof(bytes));
    assert_int_equal(strlen(text), 2 * sizeof(bytes));
    assert_true(hf_hex_decode(decoded, sizeof(decoded), text));
    assert_memory_equal(decoded, bytes, sizeof(bytes));
}

static void the_high_digit_comes_first(void **state)
{
    char text[2 * 3 + 1];

    (void)state;
    hf_hex_encode(text, "\x01\xaf\x70", 3);
    assert_string_equal(text, "01af70");
    hf_hex_encode(text, "", 0);
    assert_string_equal(text, "");
}

static void only_hexadecimal_digits_have_a_value(void **state)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    int expected[256];

    (void)state;
    memset(expected, 0xff, sizeof(expected)); /* all -1 */
    for (size_t i = 0; i < strlen(digits); i++)
        expected[(uint8_t)digits[i]] = (int)(i % 16);
    for (int c = 0; c < 256; c++)
        assert_int_equal(hf_hex_digit((char)c), expected[c]);
}

/* Each text is a copy on the heap, so that a sanitizer reports a read beyond
 * its end. */
static void short_or_invalid_text_is_rejected(void **state)
{
    static const char *const refused[] = {"", "0", "01", "012", "x123", "012x"};
    uint8_t bytes[2];

    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        char *text = strdup(refused[i]);

        assert_false(hf_hex_decode(bytes, sizeof(bytes), text));
        free(text);
    }
    assert_true(hf_hex_decode(bytes, sizeof(bytes), "01fF, and more"));
    assert_memory_equal(bytes, "\x01\xff", 2);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(every_byte_survives_a_round_trip),
        cmocka_unit_test(the_high_digit_comes_first),
        cmocka_unit_test(only_hexadecimal_digits_have_a_value),
        cmocka_unit_test(short_or_invalid_text_is_rejected),
    };

    return hf_test_main("hex", cases, HF_TEST_COUNT(cases), 0);
}
