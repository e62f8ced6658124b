#include "strategy/watches.h"

#include "lib/runner.h"

struct watch {
    struct hf_watch_entry entry;
    unsigned payload;
};

static struct watch *add_watch(struct hf_watches *watches, uint64_t number,
                               const char *key, bool exact)
{
    const struct hf_request request = {
        .watch = number,
        .exact = exact,
        .command.key = hf_key_of(key),
    };
    struct watch *watch = hf_watches_add(watches, &request, sizeof(*watch));

    assert_non_null(watch);
    assert_int_equal(watch->payload, 0);
    return watch;
}

static void count_free(void *entry, void *arg)
{
    struct watch *watch = entry;

    assert_true(watch->entry.removed);
    ++*(unsigned *)arg;
}

static unsigned count_entries(const struct hf_watches *watches)
{
    const struct watch *watch = NULL;
    unsigned count = 0;

    while ((watch = hf_watches_next(watches, watch)))
        count++;
    return count;
}

static void a_watch_is_found_by_its_number(void **state)
{
    struct hf_watches watches;
    struct watch *watch;

    (void)state;
    hf_watches_init(&watches);
    assert_true(hf_watches_is_empty(&watches));
    assert_null(hf_watches_find(&watches, 7));
    (void)add_watch(&watches, 6, "a", false);
    watch = add_watch(&watches, 7, "b", true);
    assert_ptr_equal(hf_watches_find(&watches, 7), watch);
    assert_null(hf_watches_find(&watches, 8));
    assert_false(hf_watches_is_empty(&watches));
    hf_watches_fini(&watches, NULL, NULL);
    assert_true(hf_watches_is_empty(&watches));
}

static void a_watch_matches_its_key_or_all_with_its_prefix(void **state)
{
    struct hf_watches watches;
    const struct watch *exact, *prefix, *all;

    (void)state;
    hf_watches_init(&watches);
    exact = add_watch(&watches, 1, "ab", true);
    prefix = add_watch(&watches, 2, "ab", false);
    all = add_watch(&watches, 3, "", false);
    assert_true(hf_watches_match(&exact->entry, hf_key_of("ab")));
    assert_false(hf_watches_match(&exact->entry, hf_key_of("abc")));
    assert_false(hf_watches_match(&exact->entry, hf_key_of("a")));
    assert_true(hf_watches_match(&prefix->entry, hf_key_of("ab")));
    assert_true(hf_watches_match(&prefix->entry, hf_key_of("abc")));
    assert_false(hf_watches_match(&prefix->entry, hf_key_of("a")));
    assert_true(hf_watches_match(&all->entry, hf_key_of("a")));
    hf_watches_fini(&watches, NULL, NULL);
}

/* A callback may remove the watch that the iteration visits, and other
 * watches. */
static void watches_can_be_removed_during_iteration(void **state)
{
    struct hf_watches watches;
    struct watch *watch = NULL;
    unsigned visited = 0, freed = 0;

    (void)state;
    hf_watches_init(&watches);
    for (uint64_t i = 1; i <= 4; i++)
        (void)add_watch(&watches, i, "k", false);
    watches.busy = true;
    while ((watch = hf_watches_next(&watches, watch))) {
        visited++;
        if (watch->entry.number != 2)
            continue;
        hf_watches_remove(&watch->entry);
        hf_watches_remove(hf_watches_find(&watches, 3));
        assert_false(hf_watches_match(&watch->entry, hf_key_of("k")));
        hf_watches_sweep(&watches, count_free, &freed);
    }
    assert_int_equal(visited, 3);
    assert_int_equal(freed, 0);
    assert_null(hf_watches_find(&watches, 3));
    watches.busy = false;
    hf_watches_sweep(&watches, count_free, &freed);
    assert_int_equal(freed, 2);
    assert_int_equal(count_entries(&watches), 2);
    hf_watches_fini(&watches, count_free, &freed);
    assert_int_equal(freed, 4);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_watch_is_found_by_its_number),
        cmocka_unit_test(a_watch_matches_its_key_or_all_with_its_prefix),
        cmocka_unit_test(watches_can_be_removed_during_iteration),
    };

    return hf_test_main("watches", cases, HF_TEST_COUNT(cases), 0);
}
