#include <string.h>

#include "lib/runner.h"
#include "strategy/strategy.h"

static struct hf_info make_info(const char *key, uint64_t token)
{
    struct hf_info from = {
        .key = hf_key_of(key), .token = token, .owner = "", .note = ""};
    struct hf_info info;

    assert_int_equal(hf_info_copy(&info, &from), HF_OK);
    return info;
}

static void assert_info(const struct hf_info *info, const char *key,
                        uint64_t token)
{
    assert_true(hf_key_equal(info->key, hf_key_of(key)));
    assert_int_equal(info->token, token);
}

static void infos_are_sorted_by_key(void **state)
{
    struct hf_info infos[] = {make_info("b", 1), make_info("ab", 2),
                              make_info("a", 3)};

    (void)state;
    hf_info_sort(infos, HF_TEST_COUNT(infos));
    assert_info(&infos[0], "a", 3);
    assert_info(&infos[1], "ab", 2);
    assert_info(&infos[2], "b", 1);
    for (size_t i = 0; i < HF_TEST_COUNT(infos); i++)
        hf_info_fini(&infos[i]);
    hf_info_sort(NULL, 0);
}

/* The infos that are dropped must be freed; otherwise a sanitizer reports a
 * leak. */
static void the_newest_grant_of_each_key_is_kept(void **state)
{
    struct hf_info infos[] = {make_info("b", 7), make_info("a", 5),
                              make_info("b", 9), make_info("b", 8),
                              make_info("a", 5)};

    (void)state;
    assert_int_equal(hf_info_sort_unique(infos, HF_TEST_COUNT(infos)), 2);
    assert_info(&infos[0], "a", 5);
    assert_info(&infos[1], "b", 9);
    hf_info_fini(&infos[0]);
    hf_info_fini(&infos[1]);
    assert_int_equal(hf_info_sort_unique(NULL, 0), 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(infos_are_sorted_by_key),
        cmocka_unit_test(the_newest_grant_of_each_key_is_kept),
    };

    return hf_test_main("info", cases, HF_TEST_COUNT(cases), 0);
}
