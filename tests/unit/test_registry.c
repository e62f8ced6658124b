#include <string.h>

#include "lib/runner.h"
#include "strategy/strategy.h"

/* Check that the registry knows `scheme`. The module of its strategy may not be
 * loadable here, so an error about the module is accepted. */
static void assert_found(const char *scheme)
{
    const struct hf_strategy *found = NULL;
    struct hf_error error = {.code = HF_OK};
    enum hf_err err = hf_registry_find(scheme, &found, &error);

    assert_null(strstr(error.text, "no strategy"));
    if (err)
        assert_non_null(strstr(error.text, "module"));
    else
        assert_string_equal(found->scheme, scheme);
}

static void an_unknown_scheme_is_rejected_with_the_known_ones(void **state)
{
    const struct hf_strategy *found = NULL;
    struct hf_error error;
    unsigned count = 0;
    char *list;

    (void)state;
    assert_int_equal(hf_registry_find("telnet", &found, &error),
                     HF_EUNSUPPORTED);
    assert_null(found);
    assert_non_null(strstr(error.text, "'telnet:'"));
    list = strstr(error.text, "which has ");
    assert_non_null(list);
    list += strlen("which has ");
    for (char *scheme = strtok(list, ", "); scheme;
         scheme = strtok(NULL, ", "), count++)
        assert_found(scheme);
    assert_true(count >= 2); /* memory and file are in every build */
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(an_unknown_scheme_is_rejected_with_the_known_ones),
    };

    return hf_test_main("registry", cases, HF_TEST_COUNT(cases), 0);
}
