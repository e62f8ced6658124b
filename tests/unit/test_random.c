#include "base/random.h"

#include <string.h>

#include "lib/runner.h"

static void equal_seeds_give_equal_streams(void **state)
{
    struct hf_random a, b, c;
    uint8_t x[3000], y[3000], z[3000];

    (void)state;
    hf_random_init(&a, 7);
    hf_random_init(&b, 7);
    hf_random_init(&c, 8);
    assert_int_equal(hf_random_bytes(&a, x, sizeof(x)), HF_OK);
    for (size_t i = 0; i < sizeof(y); i += 30)
        assert_int_equal(hf_random_bytes(&b, y + i, 30), HF_OK);
    assert_int_equal(hf_random_bytes(&c, z, sizeof(z)), HF_OK);
    assert_memory_equal(x, y, sizeof(x));
    assert_memory_not_equal(x, z, sizeof(x));
}

/* GO-01: nonces have 16 bytes, so a thousand of them are all different. */
static void nonces_never_repeat(void **state)
{
    struct hf_random random;
    uint8_t nonces[1000][16];

    (void)state;
    hf_random_init(&random, 0);
    for (size_t i = 0; i < 1000; i++) {
        assert_int_equal(hf_random_bytes(&random, nonces[i], 16), HF_OK);
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(nonces[i], nonces[j], 16);
    }
}

static void returned_bytes_are_wiped(void **state)
{
    struct hf_random random;
    uint8_t nonce[16];

    (void)state;
    hf_random_init(&random, 0);
    assert_int_equal(hf_random_bytes(&random, nonce, sizeof(nonce)), HF_OK);
    assert_null(
        memmem(random.block, sizeof(random.block), nonce, sizeof(nonce)));
}

static void numbers_below_a_bound_are_uniform(void **state)
{
    struct hf_random random;
    unsigned counts[10] = {0};

    (void)state;
    hf_random_init(&random, 1);
    for (int i = 0; i < 10000; i++) {
        uint32_t x = hf_random_below(&random, 10);

        assert_true(x < 10);
        counts[x]++;
    }
    for (int i = 0; i < 10; i++)
        assert_true(counts[i] > 800 && counts[i] < 1200);
    assert_int_equal(hf_random_below(&random, 1), 0);
    assert_int_equal(hf_random_below(&random, 0), 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(equal_seeds_give_equal_streams),
        cmocka_unit_test(nonces_never_repeat),
        cmocka_unit_test(returned_bytes_are_wiped),
        cmocka_unit_test(numbers_below_a_bound_are_uniform),
    };

    return hf_test_main("random", cases, HF_TEST_COUNT(cases), 0);
}
