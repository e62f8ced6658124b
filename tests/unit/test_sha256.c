#include "base/sha256.h"

#include <string.h>

#include "base/hex.h"
#include "lib/runner.h"

/* Examples of FIPS 180-4 and of NIST's test vectors (SHA256ShortMsg). */
static const struct {
    const char *input;
    const char *hash;
} vectors[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
     "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
     "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
};

static void check_hash(const void *data, size_t size, const char *expected)
{
    uint8_t hash[HF_SHA256_SIZE];
    char text[2 * HF_SHA256_SIZE + 1];

    hf_sha256(hash, data, size);
    hf_hex_encode(text, hash, sizeof(hash));
    assert_string_equal(text, expected);
}

static void hash_matches_the_vectors_of_the_standard(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(vectors); i++)
        check_hash(vectors[i].input, strlen(vectors[i].input), vectors[i].hash);
    check_hash(NULL, 0, vectors[0].hash);
}

/* Inputs of 55, 56, 63, 64 and 65 bytes: the padding takes one block or two. */
static void padding_fits_every_length(void **state)
{
    static const struct {
        size_t size;
        const char *hash;
    } cases[] = {
        {55,
         "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
        {56,
         "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
        {63,
         "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
        {64,
         "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
        {65,
         "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"},
    };
    char input[65];

    (void)state;
    memset(input, 'a', sizeof(input));
    for (size_t i = 0; i < HF_TEST_COUNT(cases); i++)
        check_hash(input, cases[i].size, cases[i].hash);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(hash_matches_the_vectors_of_the_standard),
        cmocka_unit_test(padding_fits_every_length),
    };

    return hf_test_main("sha256", cases, HF_TEST_COUNT(cases), 0);
}
