#include "node/list_cursors.h"

#include <stdio.h>

#include "base/random.h"
#include "lib/commands.h"
#include "lib/runner.h"

#define KEYS 40

static struct hf_table table;
static struct hf_list_cursors cursors;
static uint64_t tokens[KEYS]; /* of the keys that are held; 0: free */
static uint64_t sequence;

static void on_event(void *arg, const struct hf_table_event *event)
{
    (void)arg;
    (void)event;
}

static uint64_t apply(struct hf_command command)
{
    struct hf_result result;

    command.sequence = command.done = ++sequence;
    assert_int_equal(hf_table_apply(&table, &command, &result), HF_OK);
    assert_int_equal(result.err, HF_OK);
    return result.token;
}

static void set_up_table(void)
{
    static const struct hf_seed seed = {"a secret"};
    struct hf_command open = hf_test_open("client");
    struct hf_result result;

    sequence = 0;
    hf_table_init(&table, &seed, on_event, NULL);
    assert_int_equal(hf_table_apply(&table, &open, &result), HF_OK);
}

/* Lock the key if it is free, and unlock it otherwise. */
static void flip_key(unsigned i)
{
    char key[8];

    (void)snprintf(key, sizeof(key), "%u", i);
    if (tokens[i] == 0) {
        tokens[i] = apply(hf_test_lock(1, key, 1 + i));
    } else {
        (void)apply(hf_test_unlock(1, key, 1 + i, tokens[i]));
        tokens[i] = 0;
    }
}

/* The token of the next key of the walk after `token`; 0: none. */
static uint64_t next_token(struct hf_table_walk *walk, uint64_t token)
{
    const struct hf_hold *hold;

    while ((hold = hf_table_walk_next(&table, walk))) {
        if (hold->token > token)
            return hold->token;
    }
    return 0;
}

/* List up to `count` keys after `token`, from the cursor that is kept for it,
 * and compare them with a walk from the start of the table. Keep the new one,
 * and return the last token. */
static uint64_t list_page(uint64_t token, unsigned count)
{
    struct hf_table_walk walk, scan;
    uint64_t last = token;

    hf_table_walk_begin(&table, &walk);
    hf_table_walk_begin(&table, &scan);
    hf_list_cursors_take(&cursors, &walk, token);
    for (unsigned i = 0; i < count; i++) {
        uint64_t expected = next_token(&scan, last);

        assert_true(next_token(&walk, last) == expected);
        if (expected == 0)
            break;
        last = expected;
    }
    hf_list_cursors_keep(&cursors, &table, &walk, last);
    hf_table_walk_end(&walk);
    hf_table_walk_end(&scan);
    return last;
}

static void a_page_continues_where_the_last_one_ended(void **state)
{
    struct hf_random random;
    uint64_t last[2 * HF_LIST_CURSORS] = {0};

    (void)state;
    hf_random_init(&random, 1);
    set_up_table();
    for (unsigned i = 0; i < 20000; i++) {
        unsigned list = hf_random_below(&random, 2 * HF_LIST_CURSORS);

        flip_key(hf_random_below(&random, KEYS));
        last[list] = list_page(hf_random_below(&random, 8) ? last[list] : 0,
                               1 + hf_random_below(&random, 4));
    }
    hf_list_cursors_clear(&cursors);
    hf_table_fini(&table);
}

static void a_cursor_is_used_without_visiting_earlier_keys(void **state)
{
    struct hf_table_walk walk;

    (void)state;
    set_up_table();
    memset(tokens, 0, sizeof(tokens));
    for (unsigned i = 0; i < KEYS; i++)
        flip_key(i);
    (void)list_page(0, 10);
    hf_table_walk_begin(&table, &walk);
    hf_list_cursors_take(&cursors, &walk, tokens[9]);
    assert_true(hf_table_walk_next(&table, &walk)->token == tokens[10]);
    hf_table_walk_end(&walk);
    hf_list_cursors_clear(&cursors);
    hf_table_fini(&table);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_page_continues_where_the_last_one_ended),
        cmocka_unit_test(a_cursor_is_used_without_visiting_earlier_keys),
    };

    return hf_test_main("list-cursors", cases, HF_TEST_COUNT(cases), 0);
}
