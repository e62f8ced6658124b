#include "base/bytes.h"

#include "lib/runner.h"

static void keys_are_compared_with_their_size(void **state)
{
    struct hf_key a = {"a", 1};
    struct hf_key ab = {"ab", 2};
    struct hf_key a0 = {"a\0", 2};

    (void)state;
    assert_true(hf_key_equal(a, (struct hf_key){"a", 1}));
    assert_false(hf_key_equal(a, ab));
    assert_false(hf_key_equal(ab, a));
    assert_false(hf_key_equal(a, a0));
    assert_false(hf_key_equal(ab, a0));
}

/* LK-27 */
static void bytes_after_a_nul_are_compared(void **state)
{
    struct hf_bytes x = {"a\0x", 3};
    struct hf_bytes y = {"a\0y", 3};
    struct hf_bytes none = {NULL, 0};

    (void)state;
    assert_false(hf_bytes_equal(x, y));
    assert_true(hf_bytes_equal(x, (struct hf_bytes){"a\0x", 3}));
    assert_true(hf_bytes_equal(none, (struct hf_bytes){"", 0}));
    assert_false(hf_bytes_equal(none, x));
}

static void every_key_has_the_empty_prefix(void **state)
{
    struct hf_key key = {"nightly", 7};

    (void)state;
    assert_true(hf_key_has_prefix(key, (struct hf_key){NULL, 0}));
    assert_true(hf_key_has_prefix(key, hf_key_of("night")));
    assert_true(hf_key_has_prefix(key, key));
    assert_false(hf_key_has_prefix(key, hf_key_of("nightly1")));
    assert_false(hf_key_has_prefix(key, hf_key_of("x")));
}

static void prefix_sorts_before_longer_keys(void **state)
{
    (void)state;
    assert_true(hf_key_compare(hf_key_of("a"), hf_key_of("ab")) < 0);
    assert_true(hf_key_compare(hf_key_of("ab"), hf_key_of("a")) > 0);
    assert_true(hf_key_compare(hf_key_of("b"), hf_key_of("ab")) > 0);
    assert_true(hf_key_compare(hf_key_of("a"), hf_key_of("a")) == 0);
    assert_true(hf_key_compare(hf_key_of(""), hf_key_of("a")) < 0);
    assert_true(hf_key_compare(hf_key_of("\x7f"), hf_key_of("\xff")) < 0);
}

static void every_bit_of_a_nonce_is_compared(void **state)
{
    struct hf_nonce a = {{0}};

    (void)state;
    for (size_t bit = 0; bit < 8 * sizeof(a.bytes); bit++) {
        struct hf_nonce b = a;

        assert_true(hf_nonce_equal(&a, &b));
        b.bytes[bit / 8] = (uint8_t)(1 << (bit % 8));
        assert_false(hf_nonce_equal(&a, &b));
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(keys_are_compared_with_their_size),
        cmocka_unit_test(bytes_after_a_nul_are_compared),
        cmocka_unit_test(every_key_has_the_empty_prefix),
        cmocka_unit_test(prefix_sorts_before_longer_keys),
        cmocka_unit_test(every_bit_of_a_nonce_is_compared),
    };

    return hf_test_main("bytes", cases, HF_TEST_COUNT(cases), 0);
}
