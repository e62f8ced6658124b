#include "base/siphash.h"
#include "lib/runner.h"

/* The first 16 test vectors of the reference implementation (vectors.h): the
 * key is 00 01 ... 0f, and the input of vector n has the n bytes 00 01 ... The
 * sixteenth vector is also the test vector of the SipHash paper. */
static const uint64_t vectors[] = {
    UINT64_C(0x726fdb47dd0e0e31), UINT64_C(0x74f839c593dc67fd),
    UINT64_C(0x0d6c8009d9a94f5a), UINT64_C(0x85676696d7fb7e2d),
    UINT64_C(0xcf2794e0277187b7), UINT64_C(0x18765564cd99a68d),
    UINT64_C(0xcbc9466e58fee3ce), UINT64_C(0xab0200f58b01d137),
    UINT64_C(0x93f5f5799a932462), UINT64_C(0x9e0082df0ba9e4b0),
    UINT64_C(0x7a5dbbc594ddb9f3), UINT64_C(0xf4b32f46226bada7),
    UINT64_C(0x751e8fbc860ee5fb), UINT64_C(0x14ea5627c0843d90),
    UINT64_C(0xf723ca908e7af2ee), UINT64_C(0xa129ca6149be45e5),
};

static struct hf_seed counting_seed(void)
{
    struct hf_seed seed;

    for (size_t i = 0; i < sizeof(seed.bytes); i++)
        seed.bytes[i] = (uint8_t)i;
    return seed;
}

static void hash_matches_the_reference_vectors(void **state)
{
    struct hf_seed seed = counting_seed();
    uint8_t input[16];

    (void)state;
    for (size_t i = 0; i < sizeof(input); i++)
        input[i] = (uint8_t)i;
    for (size_t i = 0; i < HF_TEST_COUNT(vectors); i++)
        assert_true(hf_siphash(&seed, input, i) == vectors[i]);
}

static void empty_input_may_be_null(void **state)
{
    struct hf_seed seed = counting_seed();

    (void)state;
    assert_true(hf_siphash(&seed, NULL, 0) == vectors[0]);
}

static void hash_depends_on_the_seed(void **state)
{
    struct hf_seed seed = counting_seed();
    struct hf_seed other = counting_seed();

    (void)state;
    other.bytes[15] ^= 1;
    assert_true(hf_siphash(&seed, "key", 3) != hf_siphash(&other, "key", 3));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(hash_matches_the_reference_vectors),
        cmocka_unit_test(empty_input_may_be_null),
        cmocka_unit_test(hash_depends_on_the_seed),
    };

    return hf_test_main("siphash", cases, HF_TEST_COUNT(cases), 0);
}
