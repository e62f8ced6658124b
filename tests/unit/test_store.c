#include "core/store.h"

#include "lib/alloc.h"
#include "lib/commands.h"
#include "lib/runner.h"

/* A store with two sessions, 1 and 2. */
struct fixture {
    struct hf_store store;
    unsigned events; /* events reported to the driver */
    uint64_t sequences[3];
};

static void on_event(void *arg, const struct hf_table_event *event)
{
    struct fixture *f = arg;

    (void)event;
    f->events++;
}

static struct hf_result run_command(struct fixture *f, hf_time now,
                                    struct hf_command command)
{
    struct hf_result result;

    command.sequence = ++f->sequences[command.session];
    hf_store_run(&f->store, now, &command, &result);
    return result;
}

static void set_up(struct fixture *f)
{
    static const struct hf_seed seed;

    *f = (struct fixture){0};
    hf_store_init(&f->store, &seed, on_event, f);
    assert_int_equal(run_command(f, 0, hf_test_open("alice")).session, 1);
    assert_int_equal(run_command(f, 0, hf_test_open("bob")).session, 2);
}

/* Run the EXPIRE commands that are due at `now`. Returns their number. */
static unsigned run_expiries(struct fixture *f, hf_time now)
{
    struct hf_command command;
    unsigned count = 0;

    while (hf_store_find_due(&f->store, now, &command)) {
        assert_int_equal(run_command(f, now, command).err, HF_OK);
        count++;
    }
    return count;
}

/* GO-08, LK-11 */
static void lease_starts_at_the_grant_and_never_expires_early(void **state)
{
    struct fixture f;

    (void)state;
    set_up(&f);
    assert_true(hf_store_next_deadline(&f.store) == HF_NEVER);
    assert_int_equal(run_command(&f, 100, hf_test_lock(1, "k", 1)).err, HF_OK);
    assert_int_equal(hf_store_next_deadline(&f.store), 1100);
    assert_int_equal(run_expiries(&f, 1099), 0);
    assert_int_equal(run_expiries(&f, 1100), 1);
    assert_null(hf_table_find(&f.store.table, hf_key_of("k")));
    hf_store_fini(&f.store);
}

/* MN-03 */
static void lease_of_a_waiter_starts_when_it_is_granted(void **state)
{
    struct fixture f;
    struct hf_hold *hold;

    (void)state;
    set_up(&f);
    assert_int_equal(run_command(&f, 0, hf_test_lock(1, "k", 1)).err, HF_OK);
    assert_int_equal(run_command(&f, 10, hf_test_lock(2, "k", 2)).position, 1);
    assert_ptr_equal(f.store.touched,
                     hf_table_find(&f.store.table, hf_key_of("k")));
    assert_int_equal(run_expiries(&f, 1000), 1);
    hold = hf_table_find(&f.store.table, hf_key_of("k"));
    assert_int_equal(hold->since, 1000);
    assert_int_equal(hf_store_deadline(&f.store, hold), 2000);
    hf_store_fini(&f.store);
}

static void renewal_never_shortens_a_lease(void **state)
{
    struct fixture f;
    struct hf_hold *hold;
    uint64_t token;

    (void)state;
    set_up(&f);
    token = run_command(&f, 0, hf_test_lock(1, "k", 1)).token;
    hold = hf_table_find(&f.store.table, hf_key_of("k"));
    run_command(&f, 500, hf_test_renew(1, "k", 1, token, 2000));
    assert_int_equal(hf_store_deadline(&f.store, hold), 2500);
    run_command(&f, 600, hf_test_renew(1, "k", 1, token, 100));
    assert_int_equal(hf_store_deadline(&f.store, hold), 2500);
    assert_int_equal(hold->since, 0);
    hf_store_fini(&f.store);
}

static void ended_grant_has_no_lease(void **state)
{
    struct fixture f;
    uint64_t token;

    (void)state;
    set_up(&f);
    token = run_command(&f, 0, hf_test_lock(1, "k", 1)).token;
    assert_int_equal(run_command(&f, 1, hf_test_unlock(1, "k", 1, token)).err,
                     HF_OK);
    assert_null(f.store.touched);
    assert_true(hf_store_next_deadline(&f.store) == HF_NEVER);
    assert_int_equal(run_expiries(&f, HF_NEVER), 0);
    hf_store_fini(&f.store);
}

static void history_starts_when_it_is_enabled(void **state)
{
    struct fixture f;
    struct hf_history_cursor cursor;
    struct hf_event event;
    uint64_t token;

    (void)state;
    set_up(&f);
    token = run_command(&f, 0, hf_test_lock(1, "k", 1)).token;
    assert_int_equal(hf_store_enable_history(&f.store), HF_OK);
    assert_int_equal(hf_store_enable_history(&f.store), HF_OK);
    cursor = hf_history_seek(&f.store.history, f.store.table.index + 1);
    run_command(&f, 0, hf_test_lock(2, "k", 2));
    run_command(&f, 0, hf_test_unlock(1, "k", 1, token));
    assert_true(hf_history_read(&f.store.history, &cursor, &event));
    assert_int_equal(event.kind, HF_EVENT_QUEUED);
    assert_int_equal(event.token, 0); /* a waiter has no token */
    assert_string_equal(event.owner, "bob");
    assert_true(hf_history_read(&f.store.history, &cursor, &event));
    assert_int_equal(event.kind, HF_EVENT_RELEASED);
    assert_int_equal(event.token, token);
    assert_false(event.freed);
    assert_true(hf_history_read(&f.store.history, &cursor, &event));
    assert_int_equal(event.kind, HF_EVENT_GRANTED);
    run_command(&f, 0, hf_test_lock(1, "k", 3));
    run_command(&f, 0, hf_test_close(1));
    assert_true(hf_history_read(&f.store.history, &cursor, &event));
    assert_true(hf_history_read(&f.store.history, &cursor, &event));
    assert_int_equal(event.kind, HF_EVENT_WITHDRAWN);
    assert_int_equal(event.token, 0);
    assert_int_equal(f.events, f.store.table.index);
    hf_store_fini(&f.store);
}

static void command_without_memory_changes_nothing(void **state)
{
    struct fixture f;
    struct hf_result result;
    unsigned failed = 0;

    (void)state;
    set_up(&f);
    for (;;) {
        f.sequences[1] = 0;
        hf_alloc_fail(failed + 1, 1);
        result = run_command(&f, 0, hf_test_lock(1, "k", 1));
        if (!hf_alloc_failed())
            break;
        failed++;
        assert_int_equal(result.err, HF_ENOMEM);
        assert_null(hf_table_find(&f.store.table, hf_key_of("k")));
        assert_true(hf_store_next_deadline(&f.store) == HF_NEVER);
    }
    assert_int_equal(result.err, HF_OK);
    assert_true(failed >= 2);
    hf_alloc_fail(1, 1);
    assert_int_equal(hf_store_enable_history(&f.store), HF_ENOMEM);
    assert_true(hf_alloc_failed());
    hf_store_fini(&f.store);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(lease_starts_at_the_grant_and_never_expires_early),
        cmocka_unit_test(lease_of_a_waiter_starts_when_it_is_granted),
        cmocka_unit_test(renewal_never_shortens_a_lease),
        cmocka_unit_test(ended_grant_has_no_lease),
        cmocka_unit_test(history_starts_when_it_is_enabled),
        cmocka_unit_test(command_without_memory_changes_nothing),
    };

    return hf_test_main("store", cases, HF_TEST_COUNT(cases), 0);
}
