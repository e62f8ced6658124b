#include "core/store.h"

#include "core/snapshot.h"
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
    (void)hf_store_run(&f->store, now, &command, &result);
    return result;
}

static void set_up(struct fixture *f)
{
    static const struct hf_seed seed;

    *f = (struct fixture){0};
    assert_int_equal(hf_store_init(&f->store, &seed, 0, on_event, f), HF_OK);
    assert_int_equal(run_command(f, 0, hf_test_open("alice")).session, 1);
    assert_int_equal(run_command(f, 0, hf_test_open("bob")).session, 2);
}

/* Run the EXPIRE commands that are due at `now`. Returns their number. */
static unsigned run_expiries(struct fixture *f, hf_time now)
{
    struct hf_command command;
    unsigned count = 0;

    while (hf_store_take_due(&f->store, now, &command, 1) > 0) {
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
    assert_int_equal(hf_store_enable_history(&f.store, HF_HISTORY_BYTES),
                     HF_OK);
    assert_int_equal(hf_store_enable_history(&f.store, HF_HISTORY_BYTES),
                     HF_OK);
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

/* ---- Leases whose EXPIREs are under way ----------------------------------*/

#define MANY 5

/* Session 1 holds "0" to "4", whose leases are due at 1000 to 1004. */
static void lock_many(struct fixture *f, uint64_t tokens[MANY])
{
    static const char *const keys[MANY] = {"0", "1", "2", "3", "4"};

    for (unsigned i = 0; i < MANY; i++)
        tokens[i] = run_command(f, i, hf_test_lock(1, keys[i], i)).token;
}

static void due_leases_are_taken_once_and_in_order(void **state)
{
    struct hf_command expires[MANY];
    uint64_t tokens[MANY];
    struct fixture f;

    (void)state;
    set_up(&f);
    lock_many(&f, tokens);
    assert_int_equal(hf_store_take_due(&f.store, 999, expires, MANY), 0);
    hf_alloc_fail(1, 1000);
    assert_int_equal(hf_store_take_due(&f.store, 1003, expires, 3), 3);
    for (unsigned i = 0; i < 3; i++)
        assert_true(expires[i].token == tokens[i]);
    assert_int_equal(hf_store_take_due(&f.store, 1003, expires, 3), 1);
    assert_true(expires[0].token == tokens[3]);
    assert_int_equal(hf_store_take_due(&f.store, 1003, expires, 3), 0);
    assert_int_equal(hf_store_next_deadline(&f.store), 1004);
    assert_false(hf_alloc_failed());
    hf_store_fini(&f.store);
}

/* A RENEW is applied before the EXPIRE, which is void. The lease is due again
 * at its new deadline. */
static void renewed_lease_is_due_again(void **state)
{
    struct hf_command expire, again;
    struct fixture f;
    uint64_t token;

    (void)state;
    set_up(&f);
    token = run_command(&f, 0, hf_test_lock(1, "k", 1)).token;
    assert_int_equal(hf_store_take_due(&f.store, 1000, &expire, 1), 1);
    run_command(&f, 1010, hf_test_renew(1, "k", 1, token, 20));
    assert_int_equal(run_command(&f, 1020, expire).err, HF_ENOTOWNER);
    assert_int_equal(hf_store_next_deadline(&f.store), 1030);
    assert_int_equal(hf_store_take_due(&f.store, 1029, &again, 1), 0);
    assert_int_equal(hf_store_take_due(&f.store, 1030, &again, 1), 1);
    assert_int_equal(again.generation, 1);
    assert_int_equal(run_command(&f, 1040, again).err, HF_OK);
    assert_null(hf_table_find(&f.store.table, hf_key_of("k")));
    hf_store_fini(&f.store);
}

static void next_holder_has_a_lease_of_its_own(void **state)
{
    struct hf_command expire;
    struct fixture f;

    (void)state;
    set_up(&f);
    run_command(&f, 0, hf_test_lock(1, "k", 1));
    run_command(&f, 0, hf_test_lock(2, "k", 2));
    assert_int_equal(hf_store_take_due(&f.store, 1000, &expire, 1), 1);
    assert_int_equal(run_command(&f, 1500, expire).err, HF_OK);
    assert_int_equal(hf_store_next_deadline(&f.store), 2500);
    assert_int_equal(run_command(&f, 1500, expire).err, HF_ENOTOWNER);
    assert_int_equal(run_expiries(&f, 2499), 0);
    assert_int_equal(run_expiries(&f, 2500), 1);
    hf_store_fini(&f.store);
}

/* Of five leases that were taken, one is released, one is renewed and one
 * expires. The others are due again. */
static void lost_expiries_are_sent_again(void **state)
{
    struct hf_command expires[MANY];
    uint64_t tokens[MANY];
    struct fixture f;

    (void)state;
    set_up(&f);
    lock_many(&f, tokens);
    assert_int_equal(hf_store_take_due(&f.store, 2000, expires, MANY), MANY);
    run_command(&f, 2000, hf_test_unlock(1, "1", 1, tokens[1]));
    run_command(&f, 2000, hf_test_renew(1, "2", 2, tokens[2], 50));
    assert_int_equal(run_command(&f, 2000, expires[3]).err, HF_OK);
    hf_store_retry_due(&f.store);
    assert_int_equal(hf_store_take_due(&f.store, 2000, expires, MANY), 2);
    assert_true(expires[0].token + expires[1].token == tokens[0] + tokens[4]);
    assert_int_equal(hf_store_take_due(&f.store, 2049, expires, MANY), 0);
    assert_int_equal(hf_store_take_due(&f.store, 2050, expires, MANY), 1);
    assert_true(expires[0].token == tokens[2]);
    hf_store_fini(&f.store);
}

/* ---- Restoring ----------------------------------------------------------*/

static struct hf_buf encode(const struct fixture *f)
{
    struct hf_buf buf = {0};

    hf_snapshot_encode(&f->store.table, &buf);
    assert_false(buf.failed);
    return buf;
}

static const struct hf_hold *hold_of(const struct fixture *f, const char *key)
{
    return hf_table_find(&f->store.table, hf_key_of(key));
}

/* "k" is renewed, first for 5000 ms and then for a shorter time; "l" has a
 * waiter. */
static struct hf_buf make_snapshot(struct fixture *f)
{
    uint64_t token = run_command(f, 0, hf_test_lock(1, "k", 1)).token;

    run_command(f, 10, hf_test_renew(1, "k", 1, token, 5000));
    run_command(f, 20, hf_test_renew(1, "k", 1, token, 100));
    run_command(f, 30, hf_test_lock(1, "l", 2));
    run_command(f, 40, hf_test_lock(2, "l", 3));
    return encode(f);
}

/* A restore removes what the store contained before, with the leases. */
static void restored_leases_start_again_in_full(void **state)
{
    struct fixture f, other;
    struct hf_buf buf;

    (void)state;
    set_up(&f);
    set_up(&other);
    buf = make_snapshot(&f);
    run_command(&other, 0, hf_test_lock(1, "other", 9));
    assert_int_equal(
        hf_store_restore(&other.store, 1000000, buf.data, buf.size), HF_OK);
    assert_null(hold_of(&other, "other"));
    assert_int_equal(hf_store_deadline(&other.store, hold_of(&other, "k")),
                     1005000);
    assert_int_equal(hf_store_deadline(&other.store, hold_of(&other, "l")),
                     1001000);
    assert_int_equal(hold_of(&other, "k")->since, 1000000);
    assert_int_equal(run_expiries(&other, 1000999), 0);
    assert_int_equal(run_expiries(&other, 1001000), 1);
    assert_int_equal(hf_store_deadline(&other.store, hold_of(&other, "l")),
                     1002000);
    assert_int_equal(run_expiries(&other, 1004999), 1);
    assert_int_equal(run_expiries(&other, 1005000), 1);
    hf_buf_fini(&buf);
    hf_store_fini(&f.store);
    hf_store_fini(&other.store);
}

static void expect_event(const struct fixture *f,
                         struct hf_history_cursor *cursor,
                         enum hf_event_kind kind, uint64_t index)
{
    struct hf_event event;

    assert_true(hf_history_read(&f->store.history, cursor, &event));
    assert_int_equal(event.kind, kind);
    assert_int_equal(event.index, index);
}

/* A reader that has read to the end misses nothing, even if the store restores
 * an older state and repeats events; a slow reader gets DROPPED. */
static void history_continues_after_the_snapshot(void **state)
{
    struct fixture f;
    struct hf_history_cursor slow, quick;
    struct hf_event event;
    struct hf_buf buf;

    (void)state;
    set_up(&f);
    assert_int_equal(hf_store_enable_history(&f.store, HF_HISTORY_BYTES),
                     HF_OK);
    slow = quick = hf_history_seek(&f.store.history, 1);
    buf = make_snapshot(&f);
    run_command(&f, 50, hf_test_lock(2, "m", 4));
    for (uint64_t i = 1; i <= 6; i++)
        assert_true(hf_history_read(&f.store.history, &quick, &event));
    assert_int_equal(hf_store_restore(&f.store, 50, buf.data, buf.size), HF_OK);
    f.sequences[2]--;
    run_command(&f, 50, hf_test_lock(2, "m", 4));
    assert_false(hf_history_read(&f.store.history, &quick, &event));
    run_command(&f, 60, hf_test_lock(1, "n", 5));
    expect_event(&f, &quick, HF_EVENT_GRANTED, 7);
    expect_event(&f, &slow, HF_EVENT_DROPPED, 6);
    expect_event(&f, &slow, HF_EVENT_GRANTED, 6);
    expect_event(&f, &slow, HF_EVENT_GRANTED, 7);
    hf_buf_fini(&buf);
    hf_store_fini(&f.store);
}

static void expect_empty(struct fixture *f)
{
    assert_int_equal(f->store.table.sessions.count, 0);
    assert_int_equal(f->store.table.holds.count, 0);
    assert_true(hf_store_next_deadline(&f->store) == HF_NEVER);
    *f->sequences = 0;
    assert_int_equal(run_command(f, 0, hf_test_open("new")).session, 1);
}

static void failed_restore_leaves_an_empty_store(void **state)
{
    struct fixture f, other;
    enum hf_err err = HF_ENOMEM;
    unsigned failures = 0;
    struct hf_buf buf;

    (void)state;
    set_up(&f);
    set_up(&other);
    buf = make_snapshot(&f);
    for (unsigned long nth = 1; err; nth++) {
        hf_alloc_fail(nth, 1);
        err = hf_store_restore(&other.store, 0, buf.data, buf.size);
        if (!hf_alloc_failed() || !err)
            continue;
        assert_int_equal(err, HF_ENOMEM);
        expect_empty(&other);
        failures++;
    }
    assert_true(failures > 8);
    assert_int_equal(hf_store_restore(&other.store, 0, buf.data, buf.size - 1),
                     HF_EPROTO);
    expect_empty(&other);
    hf_buf_fini(&buf);
    hf_store_fini(&f.store);
    hf_store_fini(&other.store);
}

static void history_is_kept_from_the_start(void **state)
{
    static const struct hf_seed seed;
    struct fixture f = {0};
    struct hf_history_cursor cursor;
    struct hf_command open = hf_test_open("alice");
    struct hf_result result;

    (void)state;
    hf_alloc_fail(1, 1);
    assert_int_equal(hf_store_init(&f.store, &seed, 1 << 20, on_event, &f),
                     HF_ENOMEM);
    assert_true(hf_alloc_failed());
    hf_store_fini(&f.store);
    assert_int_equal(hf_store_init(&f.store, &seed, 1 << 20, on_event, &f),
                     HF_OK);
    (void)hf_store_run(&f.store, 0, &open, &result);
    run_command(&f, 0, hf_test_lock(1, "k", 1));
    assert_int_equal(f.store.history.size, 1 << 20);
    cursor = hf_history_seek(&f.store.history, 1);
    expect_event(&f, &cursor, HF_EVENT_GRANTED, 1);
    hf_store_fini(&f.store);
}

/* ---- Out of memory ------------------------------------------------------*/

/* What a command may change. */
struct state {
    struct hf_buf snapshot;
    struct hf_history history;
    hf_time next_deadline;
    size_t taken;
    unsigned events;
};

static struct state save_state(const struct fixture *f)
{
    return (struct state){
        .snapshot = encode(f),
        .history = f->store.history,
        .next_deadline = hf_store_next_deadline(&f->store),
        .taken = f->store.leases.taken,
        .events = f->events,
    };
}

static void expect_state(const struct fixture *f, const struct state *before)
{
    struct state now = save_state(f);

    assert_int_equal(now.snapshot.size, before->snapshot.size);
    assert_memory_equal(now.snapshot.data, before->snapshot.data,
                        now.snapshot.size);
    assert_memory_equal(&now.history, &before->history, sizeof(now.history));
    assert_true(now.next_deadline == before->next_deadline);
    assert_int_equal(now.taken, before->taken);
    assert_int_equal(now.events, before->events);
    hf_buf_fini(&now.snapshot);
}

/* Run a command with its first allocation failing, then its second, and so on,
 * until it succeeds. Returns how often it failed. */
static unsigned run_with_failures(struct fixture *f, hf_time now,
                                  const struct hf_command *command)
{
    struct state before = save_state(f);
    enum hf_err err = HF_ENOMEM;
    unsigned failures = 0;

    for (unsigned long nth = 1; err; nth++) {
        struct hf_result result = {.err = HF_ESYSTEM};
        bool failed;

        hf_alloc_fail(nth, 1);
        err = hf_store_run(&f->store, now, command, &result);
        failed = hf_alloc_failed();
        if (err) {
            assert_true(err == HF_ENOMEM && failed);
            assert_int_equal(result.err, HF_ENOMEM);
            assert_null(f->store.touched);
            expect_state(f, &before);
            failures++;
        } else {
            assert_true(result.err != HF_ENOMEM);
        }
    }
    hf_buf_fini(&before.snapshot);
    return failures;
}

static struct hf_command with_data(struct hf_command command)
{
    command.value = hf_bytes_of("value");
    command.note = hf_bytes_of("note");
    return command;
}

/* Every command of a session may need memory for its result, as the RENEW below
 * does, and some need more. The commands of the driver, except
 * OPEN, need none: a replica must never fail to expire a lease. */
static void command_without_memory_changes_nothing(void **state)
{
    const struct {
        struct hf_command command;
        bool fails;
    } script[] = {
        {hf_test_open("carol"), true},
        {with_data(hf_test_lock(1, "k", 1)), true},
        {with_data(hf_test_lock(2, "k", 2)), true},
        {hf_test_lock(1, "l", 3), true},
        {hf_test_lock(2, "l", 4), true},
        {hf_test_update(1, "k", 1, 1, "new"), true},
        {hf_test_renew(1, "k", 1, 1, 2000), true},
        {hf_test_unlock(1, "k", 1, 1), false},
        {hf_test_force(1, "l", 2, true), false},
        {hf_test_cancel(2, "l", 4), false},
        {hf_test_expire("k", 3, 0), false},
        {{.kind = HF_COMMAND_VERSION, .version = HF_VERSION_NEWEST}, false},
        {hf_test_close(2), false},
    };
    struct fixture f;

    (void)state;
    set_up(&f);
    assert_int_equal(hf_store_enable_history(&f.store, HF_HISTORY_MIN), HF_OK);
    for (size_t i = 0; i < HF_TEST_COUNT(script); i++) {
        struct hf_command command = script[i].command;
        unsigned failures;

        if (hf_command_is_kept(command.kind))
            command.sequence = ++f.sequences[command.session];
        failures = run_with_failures(&f, (hf_time)i, &command);
        if ((failures > 0) != script[i].fails)
            fail_msg("command %zu fails %u times", i, failures);
    }
    assert_int_equal(f.store.table.holds.count, 0);
    hf_store_fini(&f.store);
}

static void history_without_memory_is_reported(void **state)
{
    struct fixture f;

    (void)state;
    set_up(&f);
    hf_alloc_fail(1, 1);
    assert_int_equal(hf_store_enable_history(&f.store, HF_HISTORY_BYTES),
                     HF_ENOMEM);
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
        cmocka_unit_test(due_leases_are_taken_once_and_in_order),
        cmocka_unit_test(renewed_lease_is_due_again),
        cmocka_unit_test(next_holder_has_a_lease_of_its_own),
        cmocka_unit_test(lost_expiries_are_sent_again),
        cmocka_unit_test(restored_leases_start_again_in_full),
        cmocka_unit_test(history_continues_after_the_snapshot),
        cmocka_unit_test(failed_restore_leaves_an_empty_store),
        cmocka_unit_test(history_is_kept_from_the_start),
        cmocka_unit_test(command_without_memory_changes_nothing),
        cmocka_unit_test(history_without_memory_is_reported),
    };

    return hf_test_main("store", cases, HF_TEST_COUNT(cases), 0);
}
