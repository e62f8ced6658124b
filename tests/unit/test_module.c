#include "strategy/module.h"

#include <string.h>

#include "lib/runner.h"

/* MODULES is the directory of this program and its modules. */
#define SOUND MODULES "/module_sound.so"
#define STRANGE MODULES "/module_strange.so"

static const struct hf_strategy *found;
static struct hf_error error;

static void assert_refused(const char *file, const char *scheme,
                           const char *words)
{
    found = NULL;
    assert_int_equal(hf_module_find(file, scheme, &found, &error),
                     HF_EUNSUPPORTED);
    assert_int_equal(error.code, HF_EUNSUPPORTED);
    assert_null(found);
    assert_non_null(strstr(error.text, scheme));
    assert_non_null(strstr(error.text, words));
}

static void strategy_is_found_by_its_scheme(void **state)
{
    const struct hf_strategy *again = NULL;

    (void)state;
    assert_int_equal(hf_module_find(SOUND, "odd", &found, &error), HF_OK);
    assert_string_equal(found->scheme, "odd");
    assert_int_equal(hf_module_find(SOUND, "odd", &again, NULL), HF_OK);
    assert_ptr_equal(again, found);
}

static void unknown_scheme_is_rejected(void **state)
{
    (void)state;
    assert_refused(SOUND, "even", SOUND);
}

static void missing_module_is_named(void **state)
{
    (void)state;
    assert_refused("libholdfast-nothing.so.0", "odd",
                   "libholdfast-nothing.so.0");
    assert_refused("/nowhere/at/all.so", "odd", "/nowhere/at/all.so");
}

static void corrupt_module_is_named(void **state)
{
    (void)state;
    assert_refused("/proc/self/status", "odd", "/proc/self/status");
}

static void library_without_a_module_is_rejected(void **state)
{
    (void)state;
    assert_refused("libc.so.6", "odd", "libc.so.6");
}

/* struct hf_strategy may change with every release, so a module of another
 * release could crash. */
static void module_of_another_release_is_rejected(void **state)
{
    (void)state;
    assert_refused(STRANGE, "odd", "release");
    assert_non_null(strstr(error.text, HF_VERSION));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(strategy_is_found_by_its_scheme),
        cmocka_unit_test(unknown_scheme_is_rejected),
        cmocka_unit_test(missing_module_is_named),
        cmocka_unit_test(corrupt_module_is_named),
        cmocka_unit_test(library_without_a_module_is_rejected),
        cmocka_unit_test(module_of_another_release_is_rejected),
    };

    return hf_test_main("module", cases, HF_TEST_COUNT(cases), 0);
}
