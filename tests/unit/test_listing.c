/* LIST runs in steps; these tests change the table between two steps. */
#include "strategy/listing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/alloc.h"
#include "lib/commands.h"
#include "lib/runner.h"

enum {
    KEYS = 2000,
    STEPS = KEYS / HF_LISTING_HOLDS + 1,
};

/* A store, a host, and a hook that runs each time the store is entered. */
struct fixture {
    struct hf_in_process local;
    struct hf_host host;
    struct hf_host_ops host_ops;
    struct hf_in_process_ops local_ops;
    struct hf_store store;
    struct hf_request request;
    void (*between)(struct fixture *f, unsigned step); /* may be NULL */
    unsigned entered;
    bool inside;
    unsigned refuse_at; /* number of the enter call that fails; 0: none */
    uint64_t sequence;
    uint64_t tokens[KEYS];
    unsigned found[KEYS]; /* how many times each key is in the answer */
};

static const struct hf_seed seed;

static void no_event(void *arg, const struct hf_table_event *event)
{
    (void)arg;
    (void)event;
}

static const char *key_name(unsigned number)
{
    static char names[KEYS][12];

    (void)snprintf(names[number], sizeof(names[0]), "%04u", number);
    return names[number];
}

static struct hf_result run_command(struct fixture *f,
                                    struct hf_command command)
{
    struct hf_result result;

    command.sequence = ++f->sequence;
    command.done = f->sequence;
    (void)hf_store_run(&f->store, 0, &command, &result);
    return result;
}

static void lock_all_keys(struct fixture *f)
{
    run_command(f, hf_test_open("holder"));
    for (unsigned i = 0; i < KEYS; i++)
        f->tokens[i] = run_command(f, hf_test_lock(1, key_name(i), i)).token;
}

static hf_time get_now(struct hf_host *host)
{
    (void)host;
    return 0;
}

static enum hf_err enter_store(struct hf_in_process *local)
{
    struct fixture *f = HF_CONTAINER(local, struct fixture, local);

    assert_false(f->inside);
    f->entered++;
    if (f->entered == f->refuse_at)
        return HF_EBUSY;
    if (f->between)
        f->between(f, f->entered);
    f->inside = true;
    return HF_OK;
}

static void leave_store(struct hf_in_process *local)
{
    struct fixture *f = HF_CONTAINER(local, struct fixture, local);

    assert_true(f->inside);
    f->inside = false;
}

static int set_up(void **state)
{
    static struct fixture fixture;
    struct fixture *f = &fixture;

    *f = (struct fixture){
        .host_ops.now = get_now,
        .local_ops = {.enter = enter_store, .leave = leave_store}};
    f->host.ops = &f->host_ops;
    f->local.host = &f->host;
    f->local.ops = &f->local_ops;
    f->local.store = &f->store;
    f->request.kind = HF_REQUEST_LIST;
    (void)hf_store_init(&f->store, &seed, 0, no_event, NULL);
    lock_all_keys(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    if (!hf_dlist_is_empty(&f->store.table.walks))
        return -1;
    hf_answer_clear(&f->request.answer);
    hf_store_fini(&f->store);
    return 0;
}

static void list_keys(struct fixture *f)
{
    const struct hf_answer *answer = &f->request.answer;

    assert_int_equal(hf_listing_run(&f->local, &f->request), HF_OK);
    assert_int_equal(answer->result.err, HF_OK);
    assert_false(f->inside);
    memset(f->found, 0, sizeof(f->found));
    for (size_t i = 0; i < answer->count; i++) {
        char key[5] = "";

        memcpy(key, answer->infos[i].key.data, 4);
        f->found[strtoul(key, NULL, 10)]++;
    }
}

static void expect_each_once(const struct fixture *f, unsigned from)
{
    for (unsigned i = from; i < KEYS; i++)
        assert_int_equal(f->found[i], 1);
}

static void long_list_takes_several_steps(void **state)
{
    struct fixture *f = *state;
    const struct hf_info *info;

    list_keys(f);
    assert_int_equal(f->request.answer.count, KEYS);
    expect_each_once(f, 0);
    assert_true(f->entered >= STEPS);
    info = &f->request.answer.infos[7];
    assert_string_equal(info->owner, "holder");
    assert_string_equal(info->note, "");
    assert_true(info->held);
    assert_int_equal(info->token, 8);
    assert_int_equal(info->left_ms, 1000);
    assert_int_equal(info->index, f->store.table.index);
}

static void large_values_shorten_the_steps(void **state)
{
    struct fixture *f = *state;
    static char value[HF_VALUE_MAX + 1];

    memset(value, 'v', HF_VALUE_MAX);
    for (unsigned i = 0; i < 100; i++)
        run_command(f, hf_test_update(1, key_name(i), i, f->tokens[i], value));
    f->request.command.key = hf_key_of("00");
    list_keys(f);
    assert_int_equal(f->request.answer.count, 100);
    assert_int_equal(f->request.answer.infos[0].value.size, HF_VALUE_MAX);
    assert_true(f->entered >= 100);
}

/* Release the hold that the walk visits next. Each hold that was released in an
 * earlier step has moved the walk by one more hold. */
static void release_next_hold(struct fixture *f, unsigned step)
{
    unsigned next = (step - 1) * HF_LISTING_HOLDS + step - 2;

    if (step > 1 && next < KEYS) {
        run_command(f,
                    hf_test_unlock(1, key_name(next), next, f->tokens[next]));
        f->tokens[next] = 0;
    }
}

static void released_keys_do_not_hide_others(void **state)
{
    struct fixture *f = *state;

    f->between = release_next_hold;
    list_keys(f);
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(f->found[i], f->tokens[i] > 0 ? 1 : 0);
}

static void grant_some_to_waiters(struct fixture *f, unsigned step)
{
    unsigned first = (step - 1) * HF_LISTING_HOLDS;

    if (step == 1 || first + 10 > KEYS)
        return;
    for (unsigned i = first - 10; i < first + 10; i++) {
        run_command(f, hf_test_lock(1, key_name(i), KEYS + i));
        run_command(f, hf_test_unlock(1, key_name(i), i, f->tokens[i]));
    }
}

/* Some of the keys have been listed before they are granted to a waiter, others
 * have not. */
static void keys_granted_to_waiters_are_listed_once(void **state)
{
    struct fixture *f = *state;
    uint64_t index = f->store.table.index;

    f->between = grant_some_to_waiters;
    list_keys(f);
    assert_int_equal(f->request.answer.count, KEYS);
    expect_each_once(f, 0);
    for (size_t i = 0; i < KEYS; i++) {
        const struct hf_info *info = &f->request.answer.infos[i];

        assert_int_equal(info->token,
                         hf_table_find(&f->store.table, info->key)->token);
        assert_int_equal(info->index, index);
    }
}

/* Between two steps, grant more keys than a step visits. */
static void grant_keys_all_the_time(struct fixture *f, unsigned step)
{
    for (unsigned i = 0; i < 2 * HF_LISTING_HOLDS; i++) {
        unsigned number = (step * 2 * HF_LISTING_HOLDS + i) % KEYS;
        struct hf_hold *hold =
            hf_table_find(&f->store.table, hf_key_of(key_name(number)));

        run_command(f, hf_test_force(1, key_name(number), hold->token, true));
        run_command(f, hf_test_lock(1, key_name(number), number));
    }
}

static void list_ends_while_new_keys_arrive(void **state)
{
    struct fixture *f = *state;

    f->between = grant_keys_all_the_time;
    list_keys(f);
    assert_int_equal(f->request.answer.count, KEYS);
    expect_each_once(f, 0);
}

static void replace_store(struct fixture *f, unsigned step)
{
    if (step != 3)
        return;
    hf_store_fini(&f->store);
    (void)hf_store_init(&f->store, &seed, 0, no_event, NULL);
    f->sequence = 0;
    run_command(f, hf_test_open("holder"));
    for (unsigned i = 1000; i < KEYS; i++)
        run_command(f, hf_test_lock(1, key_name(i), i));
}

static void list_starts_over_in_a_new_store(void **state)
{
    struct fixture *f = *state;

    f->between = replace_store;
    list_keys(f);
    assert_int_equal(f->request.answer.count, KEYS - 1000);
    expect_each_once(f, 1000);
}

static void failure_to_enter_is_returned(void **state)
{
    struct fixture *f = *state;

    for (unsigned i = 1; i < STEPS; i++) {
        f->entered = 0;
        f->refuse_at = i;
        assert_int_equal(hf_listing_run(&f->local, &f->request), HF_EBUSY);
        assert_int_equal(f->request.answer.count, 0);
        assert_true(hf_dlist_is_empty(&f->store.table.walks));
    }
}

static void list_without_memory_is_empty(void **state)
{
    struct fixture *f = *state;

    for (unsigned i = 1; i < KEYS; i += i < 20 ? 1 : 101) {
        hf_alloc_fail(i, 1);
        assert_int_equal(hf_listing_run(&f->local, &f->request), HF_OK);
        assert_true(hf_alloc_failed());
        assert_int_equal(f->request.answer.result.err, HF_ENOMEM);
        assert_int_equal(f->request.answer.count, 0);
        assert_true(hf_dlist_is_empty(&f->store.table.walks));
        hf_answer_clear(&f->request.answer);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(long_list_takes_several_steps),
        CASE(large_values_shorten_the_steps),
        CASE(released_keys_do_not_hide_others),
        CASE(keys_granted_to_waiters_are_listed_once),
        CASE(list_ends_while_new_keys_arrive),
        CASE(list_starts_over_in_a_new_store),
        CASE(failure_to_enter_is_returned),
        CASE(list_without_memory_is_empty),
    };

    return hf_test_main("listing", cases, HF_TEST_COUNT(cases), 0);
}
