#include "core/table.h"

#include <stdio.h>

#include "base/limits.h"
#include "core/snapshot.h"
#include "lib/alloc.h"
#include "lib/commands.h"
#include "lib/death.h"
#include "lib/runner.h"
#include "lib/twin.h"

/* A table with three sessions: alice, bob and carol. */
enum {
    ALICE = 1,
    BOB,
    CAROL,
    PEOPLE = 3,
};

struct fixture {
    struct hf_table table;
    struct hf_twin_events events; /* events of the last command */
    uint64_t sequences[PEOPLE + 1];
};

static void on_event(void *arg, const struct hf_table_event *event)
{
    hf_twin_events_add(arg, event);
}

static struct hf_result apply(struct fixture *f, struct hf_command command)
{
    struct hf_result result;
    const char *wrong;

    f->events.count = 0;
    assert_int_equal(hf_table_apply(&f->table, &command, &result), HF_OK);
    wrong = hf_table_check(&f->table);
    if (wrong)
        fail_msg("%s", wrong);
    return result;
}

/* Apply `command` with the next sequence number of its session, with all
 * earlier commands settled. */
static struct hf_result apply_next(struct fixture *f, struct hf_command command)
{
    command.sequence = ++f->sequences[command.session];
    command.done = command.sequence;
    return apply(f, command);
}

static int setup(void **state)
{
    static struct fixture fixture;
    static const char *const labels[] = {"alice", "bob", "carol"};
    static const struct hf_seed seed = {"a secret of 16 b"};
    struct fixture *f = &fixture;

    hf_table_init(&f->table, &seed, on_event, &f->events);
    for (uint64_t i = 1; i <= PEOPLE; i++) {
        if (apply(f, hf_test_open(labels[i - 1])).session != i)
            return -1;
    }
    *state = f;
    return 0;
}

/* Free whatever a case has left in the table, so that only leaks of the table
 * itself are reported. */
static int teardown(void **state)
{
    struct fixture *f = *state;

    hf_table_fini(&f->table);
    hf_twin_events_fini(&f->events);
    return 0;
}

static uint64_t lock(struct fixture *f, uint64_t session, const char *key,
                     unsigned nonce)
{
    struct hf_result result = apply_next(f, hf_test_lock(session, key, nonce));

    assert_int_equal(result.err, HF_OK);
    assert_true(result.token > 0);
    return result.token;
}

static void wait_for(struct fixture *f, uint64_t session, const char *key,
                     unsigned nonce, uint32_t position)
{
    struct hf_result result = apply_next(f, hf_test_lock(session, key, nonce));

    assert_int_equal(result.err, HF_EBUSY);
    assert_int_equal(result.position, position);
    assert_int_equal(result.token, 0);
}

static struct hf_hold *hold_of(const struct fixture *f, const char *key)
{
    return hf_table_find(&f->table, hf_key_of(key));
}

static void assert_holder(const struct fixture *f, const char *key,
                          uint64_t session, unsigned nonce)
{
    struct hf_nonce expected = hf_test_nonce(nonce);
    const struct hf_hold *hold = hold_of(f, key);

    assert_non_null(hold);
    assert_true(hold->session->id == session);
    assert_true(hf_nonce_equal(&hold->nonce, &expected));
}

static void assert_event(const struct fixture *f, size_t i,
                         enum hf_event_kind kind, uint64_t session)
{
    assert_true(i < f->events.count);
    assert_int_equal(f->events.list[i].kind, kind);
    assert_true(f->events.list[i].session == session);
}

/* ---- Holding ------------------------------------------------------------*/

/* Conformance rows GO-01, GO-11 and MS-01. */
static void free_key_is_granted_at_once(void **state)
{
    struct fixture *f = *state;
    uint64_t first = lock(f, ALICE, "k", 1);

    assert_holder(f, "k", ALICE, 1);
    assert_int_equal(f->events.count, 1);
    assert_event(f, 0, HF_EVENT_GRANTED, ALICE);
    assert_false(f->events.list[0].waited);
    assert_false(f->events.list[0].ends);
    assert_int_equal(f->events.list[0].lease_ms, 1000);
    assert_true(lock(f, BOB, "l", 2) > first);
}

/* Conformance rows GO-05, GO-07, GO-12, MS-02, MM-05 and LK-03. */
static void held_key_is_refused_without_waiting(void **state)
{
    struct fixture *f = *state;
    struct hf_command command = hf_test_lock(BOB, "k", 2);
    struct hf_result result;

    lock(f, ALICE, "k", 1);
    command.queue = false;
    result = apply_next(f, command);
    assert_int_equal(result.err, HF_EBUSY);
    assert_int_equal(result.position, 0);
    assert_int_equal(f->events.count, 0);
    assert_int_equal(hold_of(f, "k")->waiters, 0);
    command.session = ALICE;
    assert_int_equal(apply_next(f, command).err, HF_EBUSY);
}

/* Conformance rows GO-02, MM-08 and MS-10. */
static void unlock_leaves_no_state(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);

    assert_int_equal(apply_next(f, hf_test_unlock(ALICE, "k", 1, token)).err,
                     HF_OK);
    assert_event(f, 0, HF_EVENT_RELEASED, ALICE);
    assert_true(f->events.list[0].ends);
    assert_true(f->events.list[0].token == token);
    assert_null(hold_of(f, "k"));
    lock(f, BOB, "k", 2);
}

/* Conformance rows GO-09, GO-10, MJ-04, MM-09 and MS-10. */
static void only_the_holder_can_unlock(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);

    assert_int_equal(apply_next(f, hf_test_unlock(ALICE, "k", 2, token)).err,
                     HF_ENOTOWNER);
    assert_int_equal(
        apply_next(f, hf_test_unlock(ALICE, "k", 1, token + 1)).err,
        HF_ENOTOWNER);
    assert_int_equal(
        apply_next(f, hf_test_unlock(ALICE, "k", 1, token - 1)).err,
        HF_ENOTOWNER);
    assert_int_equal(f->events.count, 0);
    assert_holder(f, "k", ALICE, 1);
    assert_int_equal(apply_next(f, hf_test_unlock(ALICE, "k", 1, token)).err,
                     HF_OK);
    assert_int_equal(apply_next(f, hf_test_unlock(ALICE, "k", 1, token)).err,
                     HF_ENOTHELD);
}

static void late_unlock_never_releases_the_next_holder(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);

    apply_next(f, hf_test_expire("k", token, 0));
    lock(f, BOB, "k", 2);
    assert_int_equal(apply_next(f, hf_test_unlock(ALICE, "k", 1, token)).err,
                     HF_ENOTOWNER);
    assert_holder(f, "k", BOB, 2);
}

/* MS-03, MS-04 */
static void tokens_increase_over_release_expiry_and_force(void **state)
{
    struct fixture *f = *state;
    uint64_t last = 0;

    for (unsigned i = 0; i < 30; i++) {
        uint64_t token = lock(f, ALICE, i % 2 ? "k" : "l", i);
        const char *key = i % 2 ? "k" : "l";

        assert_true(token > last);
        last = token;
        if (i % 3 == 0)
            apply_next(f, hf_test_unlock(ALICE, key, i, token));
        else if (i % 3 == 1)
            apply_next(f, hf_test_expire(key, token, 0));
        else
            apply_next(f, hf_test_force(BOB, key, token, true));
        assert_null(hold_of(f, key));
    }
}

/* LK-27 */
static void keys_may_contain_any_byte(void **state)
{
    struct fixture *f = *state;
    static uint8_t longest[HF_KEY_MAX];
    static const struct hf_key keys[] = {
        {"a", 1},
        {"a\0", 2},
        {"ab", 2},
        {"\0", 1},
        {"_", 1},
        {"not_found", 9},
        {"*", 1},
        {longest, HF_KEY_MAX},
        {longest, HF_KEY_MAX - 1},
    };

    for (unsigned i = 0; i < HF_TEST_COUNT(keys); i++) {
        struct hf_command command = hf_test_lock(ALICE, "", i);

        command.key = keys[i];
        assert_int_equal(apply_next(f, command).err, HF_OK);
    }
    assert_int_equal(f->table.holds.count, HF_TEST_COUNT(keys));
}

static void hold_keeps_a_copy_of_value_and_note(void **state)
{
    struct fixture *f = *state;
    struct hf_command command = hf_test_lock(ALICE, "k", 1);
    static uint8_t value[HF_VALUE_MAX];

    command.value = (struct hf_bytes){value, sizeof(value)};
    command.note = hf_bytes_of("why");
    value[0] = 1;
    apply_next(f, command);
    value[0] = 2; /* must not change the table's copy */
    assert_int_equal(hf_hold_value(hold_of(f, "k")).size, HF_VALUE_MAX);
    assert_int_equal(*(const uint8_t *)hf_hold_value(hold_of(f, "k")).data, 1);
    assert_true(
        hf_bytes_equal(hf_hold_note(hold_of(f, "k")), hf_bytes_of("why")));
    lock(f, ALICE, "l", 2);
    assert_int_equal(hf_hold_value(hold_of(f, "l")).size, 0);
    assert_int_equal(hf_hold_note(hold_of(f, "l")).size, 0);
}

/* The test gives two keys, then two nonces, the same hash, because real
 * collisions are too rare. One key is a prefix of the other. */
static void hash_collisions_are_resolved(void **state)
{
    struct fixture *f = *state;
    struct hf_map_link *link;
    struct hf_nonce nonce = hf_test_nonce(4);

    lock(f, ALICE, "k", 1);
    link = &hold_of(f, "k")->link;
    hf_map_remove(&f->table.holds, link);
    hf_map_insert(&f->table.holds, link, hf_siphash(&f->table.seed, "kk", 2));
    assert_null(hold_of(f, "kk"));

    link = hf_map_next(&f->table.holds, NULL);
    hf_map_remove(&f->table.holds, link);
    hf_map_insert(&f->table.holds, link, hf_siphash(&f->table.seed, "k", 1));
    wait_for(f, BOB, "k", 3, 1);
    link = hf_map_next(&f->table.waiting, NULL);
    hf_map_remove(&f->table.waiting, link);
    hf_map_insert(&f->table.waiting, link,
                  hf_siphash(&f->table.seed, nonce.bytes, sizeof(nonce)));
    assert_null(hf_table_find_waiter(&f->table, hold_of(f, "k"), &nonce));
}

/* ---- Repeated LOCKs of one nonce ----------------------------------------*/

static void repeated_lock_of_the_holder_returns_its_grant(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);
    struct hf_result result;

    apply_next(f, hf_test_renew(ALICE, "k", 1, token, 1000));
    result = apply_next(f, hf_test_lock(ALICE, "k", 1));
    assert_int_equal(result.err, HF_OK);
    assert_true(result.token == token);
    assert_int_equal(result.generation, 1);
    assert_int_equal(f->events.count, 0);
}

static void repeated_lock_of_a_waiter_keeps_its_position(void **state)
{
    struct fixture *f = *state;

    lock(f, ALICE, "k", 1);
    wait_for(f, BOB, "k", 2, 1);
    wait_for(f, CAROL, "k", 3, 2);
    wait_for(f, BOB, "k", 2, 1);
    wait_for(f, CAROL, "k", 3, 2);
    assert_int_equal(f->events.count, 0);
    assert_int_equal(hold_of(f, "k")->waiters, 2);
}

/* A client that has lost its first session repeats the LOCK in a new one;
 * closing the first session must not withdraw the waiter. */
static void waiter_moves_to_the_session_of_its_last_lock(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);
    struct hf_command command = hf_test_lock(CAROL, "k", 2);
    struct hf_result result;

    wait_for(f, BOB, "k", 2, 1);
    command.sequence = ++f->sequences[CAROL];
    assert_int_equal(apply(f, command).position, 1);
    apply(f, hf_test_close(BOB));
    assert_int_equal(hold_of(f, "k")->waiters, 1);
    apply_next(f, hf_test_unlock(ALICE, "k", 1, token));
    assert_holder(f, "k", CAROL, 2);
    assert_event(f, 1, HF_EVENT_GRANTED, CAROL);
    result = apply(f, command);
    assert_int_equal(result.err, HF_OK);
    assert_true(result.token == hold_of(f, "k")->token);
}

/* ---- Waiting ------------------------------------------------------------*/

/* GO-06, MN-01 */
static void release_grants_the_first_waiter(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);

    wait_for(f, BOB, "k", 2, 1);
    assert_event(f, 0, HF_EVENT_QUEUED, BOB);
    wait_for(f, CAROL, "k", 3, 2);
    wait_for(f, ALICE, "k", 4, 3);
    apply_next(f, hf_test_unlock(ALICE, "k", 1, token));
    assert_holder(f, "k", BOB, 2);
    apply_next(f, hf_test_unlock(BOB, "k", 2, hold_of(f, "k")->token));
    assert_holder(f, "k", CAROL, 3);
    apply_next(f, hf_test_unlock(CAROL, "k", 3, hold_of(f, "k")->token));
    assert_holder(f, "k", ALICE, 4);
    apply_next(f, hf_test_unlock(ALICE, "k", 4, hold_of(f, "k")->token));
    assert_null(hold_of(f, "k"));
}

/* Check that the command `end` ends a grant, with an event of `kind`, and
 * grants the key to the waiter in the same step. */
static void check_hand_over(struct fixture *f, struct hf_command end,
                            enum hf_event_kind kind)
{
    uint64_t token = lock(f, ALICE, "k", 1);
    struct hf_command waiting = hf_test_lock(BOB, "k", 2);
    const struct hf_hold *hold;

    waiting.lease_ms = 777;
    waiting.value = hf_bytes_of("bob's");
    waiting.note = hf_bytes_of("note");
    apply_next(f, waiting);
    end.token = token;
    assert_int_equal(apply_next(f, end).err, HF_OK);
    assert_int_equal(f->events.count, 2);
    assert_event(f, 0, kind, ALICE);
    assert_true(f->events.list[0].ends);
    assert_true(f->events.list[0].token == token);
    assert_event(f, 1, HF_EVENT_GRANTED, BOB);
    assert_true(f->events.list[1].waited);
    assert_int_equal(f->events.list[1].lease_ms, 777);
    assert_true(f->events.list[1].index == f->events.list[0].index + 1);
    hold = hold_of(f, "k");
    assert_holder(f, "k", BOB, 2);
    assert_true(hold->token > token);
    assert_int_equal(hold->generation, 0);
    assert_int_equal(hold->lease_ms, 777);
    assert_false(hold->forced);
    assert_true(hf_bytes_equal(hf_hold_value(hold), hf_bytes_of("bob's")));
    assert_true(hf_bytes_equal(hf_hold_note(hold), hf_bytes_of("note")));
    apply_next(f, hf_test_unlock(BOB, "k", 2, hold->token));
    assert_null(hold_of(f, "k"));
}

static void every_ended_grant_passes_the_key_on(void **state)
{
    struct fixture *f = *state;

    check_hand_over(f, hf_test_unlock(ALICE, "k", 1, 0), HF_EVENT_RELEASED);
    check_hand_over(f, hf_test_expire("k", 0, 0), HF_EVENT_EXPIRED);
    check_hand_over(f, hf_test_cancel(ALICE, "k", 1), HF_EVENT_RELEASED);
    check_hand_over(f, hf_test_force(CAROL, "k", 0, true), HF_EVENT_FORCED);
}

/* The value, the lease and the forced flag of the old holder do not pass to the
 * next holder. */
static void next_holder_inherits_nothing(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);

    apply_next(f, hf_test_update(ALICE, "k", 1, token, "alice's"));
    apply_next(f, hf_test_renew(ALICE, "k", 1, token, 5000));
    apply_next(f, hf_test_force(CAROL, "k", token, false));
    wait_for(f, BOB, "k", 2, 1);
    apply_next(f, hf_test_expire("k", token, 1));
    token = hold_of(f, "k")->token;
    assert_int_equal(hf_hold_value(hold_of(f, "k")).size, 0);
    assert_int_equal(hold_of(f, "k")->lease_ms, 1000);
    assert_int_equal(
        apply_next(f, hf_test_renew(BOB, "k", 2, token, 1000)).generation, 1);
}

/* GO-17 */
static void canceled_waiter_leaves_the_queue(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);
    struct hf_result result;

    wait_for(f, BOB, "k", 2, 1);
    wait_for(f, CAROL, "k", 3, 2);
    result = apply_next(f, hf_test_cancel(BOB, "k", 2));
    assert_int_equal(result.err, HF_OK);
    assert_int_equal(result.token, 0);
    assert_int_equal(f->events.count, 1);
    assert_event(f, 0, HF_EVENT_WITHDRAWN, BOB);
    assert_int_equal(apply_next(f, hf_test_cancel(BOB, "k", 2)).err,
                     HF_ENOTHELD);
    apply_next(f, hf_test_unlock(ALICE, "k", 1, token));
    assert_holder(f, "k", CAROL, 3);
}

static void cancel_of_a_holder_returns_its_token(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);
    struct hf_result result = apply_next(f, hf_test_cancel(ALICE, "k", 1));

    assert_int_equal(result.err, HF_OK);
    assert_true(result.token == token);
    assert_null(hold_of(f, "k"));
    assert_int_equal(apply_next(f, hf_test_cancel(ALICE, "k", 1)).err,
                     HF_ENOTHELD);
    lock(f, BOB, "k", 2);
    assert_int_equal(apply_next(f, hf_test_cancel(ALICE, "k", 1)).err,
                     HF_ENOTHELD);
    assert_holder(f, "k", BOB, 2);
}

static void position_is_never_too_small(void **state)
{
    struct fixture *f = *state;

    lock(f, ALICE, "k", 1);
    for (unsigned i = 0; i < 10; i++)
        wait_for(f, BOB, "k", 10 + i, i + 1);
    for (unsigned i = 2; i < 8; i++)
        apply_next(f, hf_test_cancel(BOB, "k", 10 + i));
    assert_int_equal(apply_next(f, hf_test_lock(BOB, "k", 10)).position, 1);
    assert_int_equal(apply_next(f, hf_test_lock(BOB, "k", 11)).position, 2);
    assert_in_range(apply_next(f, hf_test_lock(BOB, "k", 18)).position, 3, 4);
    assert_int_equal(apply_next(f, hf_test_lock(BOB, "k", 19)).position, 4);
    wait_for(f, BOB, "k", 20, 5);
    apply_next(f, hf_test_cancel(BOB, "k", 10));
    assert_int_equal(apply_next(f, hf_test_lock(BOB, "k", 11)).position, 1);
}

static void one_nonce_may_wait_for_two_keys(void **state)
{
    struct fixture *f = *state;

    lock(f, ALICE, "k", 1);
    lock(f, ALICE, "l", 1);
    wait_for(f, BOB, "k", 2, 1);
    wait_for(f, BOB, "l", 2, 1);
    apply_next(f, hf_test_cancel(BOB, "k", 2));
    assert_int_equal(hold_of(f, "k")->waiters, 0);
    assert_int_equal(hold_of(f, "l")->waiters, 1);
}

/* ---- Leases -------------------------------------------------------------*/

/* GO-08 */
static void expired_lease_frees_the_key(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);

    assert_int_equal(apply_next(f, hf_test_expire("k", token, 0)).err, HF_OK);
    assert_event(f, 0, HF_EVENT_EXPIRED, ALICE);
    assert_null(hold_of(f, "k"));
    assert_int_equal(apply_next(f, hf_test_expire("k", token, 0)).err,
                     HF_ENOTHELD);
}

static void renewal_before_an_expiry_wins(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);

    assert_int_equal(
        apply_next(f, hf_test_renew(ALICE, "k", 1, token, 50)).generation, 1);
    assert_event(f, 0, HF_EVENT_RENEWED, ALICE);
    assert_int_equal(f->events.list[0].lease_ms, 50);
    assert_int_equal(apply_next(f, hf_test_expire("k", token, 0)).err,
                     HF_ENOTOWNER);
    assert_holder(f, "k", ALICE, 1);
    assert_int_equal(apply_next(f, hf_test_expire("k", token, 1)).err, HF_OK);
}

static void expiry_of_an_earlier_grant_has_no_effect(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);

    wait_for(f, BOB, "k", 2, 1);
    apply_next(f, hf_test_unlock(ALICE, "k", 1, token));
    assert_int_equal(apply_next(f, hf_test_expire("k", token, 0)).err,
                     HF_ENOTOWNER);
    assert_holder(f, "k", BOB, 2);
}

/* LK-10 */
static void only_the_holder_renews_and_no_lease_shrinks(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);

    assert_int_equal(apply_next(f, hf_test_renew(BOB, "k", 2, token, 9000)).err,
                     HF_ENOTOWNER);
    assert_int_equal(
        apply_next(f, hf_test_renew(BOB, "k", 1, token + 1, 9000)).err,
        HF_ENOTOWNER);
    assert_int_equal(apply_next(f, hf_test_renew(BOB, "l", 1, token, 9000)).err,
                     HF_ENOTHELD);
    assert_null(hold_of(f, "l"));
    assert_int_equal(hold_of(f, "k")->lease_ms, 1000);
    assert_int_equal(hold_of(f, "k")->generation, 0);
    apply_next(f, hf_test_renew(ALICE, "k", 1, token, 3000));
    assert_int_equal(hold_of(f, "k")->lease_ms, 3000);
    apply_next(f, hf_test_renew(ALICE, "k", 1, token, 2000));
    assert_int_equal(hold_of(f, "k")->lease_ms, 3000);
}

/* LK-04 */
static void update_compares_and_sets(void **state)
{
    struct fixture *f = *state;
    struct hf_command command = hf_test_lock(ALICE, "k", 1);
    uint64_t token;

    command.note = hf_bytes_of("note");
    token = apply_next(f, command).token;
    apply_next(f, hf_test_update(ALICE, "k", 1, token, "one"));
    assert_event(f, 0, HF_EVENT_UPDATED, ALICE);
    command = hf_test_update(ALICE, "k", 1, token, "two");
    command.has_expected = true;
    command.expected = hf_bytes_of("zero");
    assert_int_equal(apply_next(f, command).err, HF_EMISMATCH);
    assert_int_equal(f->events.count, 0);
    assert_true(
        hf_bytes_equal(hf_hold_value(hold_of(f, "k")), hf_bytes_of("one")));
    command.expected = hf_bytes_of("one");
    assert_int_equal(apply_next(f, command).err, HF_OK);
    assert_true(
        hf_bytes_equal(hf_hold_value(hold_of(f, "k")), hf_bytes_of("two")));
    assert_true(
        hf_bytes_equal(hf_hold_note(hold_of(f, "k")), hf_bytes_of("note")));
    assert_int_equal(hold_of(f, "k")->lease_ms, 1000);
    apply_next(f, hf_test_update(ALICE, "k", 1, token, ""));
    assert_int_equal(hf_hold_value(hold_of(f, "k")).size, 0);
    assert_int_equal(
        apply_next(f, hf_test_update(ALICE, "k", 2, token, "x")).err,
        HF_ENOTOWNER);
    assert_int_equal(
        apply_next(f, hf_test_update(ALICE, "l", 1, token, "x")).err,
        HF_ENOTHELD);
}

/* MS-08 */
static void forced_lock_cannot_be_renewed(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);

    assert_int_equal(
        apply_next(f, hf_test_force(BOB, "k", token + 1, false)).err,
        HF_ENOTOWNER);
    assert_int_equal(apply_next(f, hf_test_force(BOB, "l", token, false)).err,
                     HF_ENOTHELD);
    assert_int_equal(apply_next(f, hf_test_force(BOB, "k", token, false)).err,
                     HF_OK);
    assert_event(f, 0, HF_EVENT_FORCED, ALICE);
    assert_false(f->events.list[0].ends);
    assert_int_equal(apply_next(f, hf_test_force(BOB, "k", token, false)).err,
                     HF_OK);
    assert_int_equal(f->events.count, 0);
    assert_int_equal(
        apply_next(f, hf_test_renew(ALICE, "k", 1, token, 1000)).err,
        HF_EFORCED);
    assert_holder(f, "k", ALICE, 1);
    assert_int_equal(apply_next(f, hf_test_expire("k", token, 0)).err, HF_OK);
    assert_null(hold_of(f, "k"));
}

/* ---- Sessions -----------------------------------------------------------*/

static void command_of_an_unknown_session_is_in_doubt(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(apply(f, hf_test_lock(0, "k", 1)).err, HF_EINDOUBT);
    assert_int_equal(apply(f, hf_test_lock(99, "k", 1)).err, HF_EINDOUBT);
    assert_int_equal(apply(f, hf_test_close(99)).err, HF_EINDOUBT);
    lock(f, ALICE, "k", 1);
    apply(f, hf_test_close(ALICE));
    assert_int_equal(apply_next(f, hf_test_lock(ALICE, "l", 2)).err,
                     HF_EINDOUBT);
    assert_int_equal(apply(f, hf_test_close(ALICE)).err, HF_EINDOUBT);
    assert_null(hold_of(f, "l"));
}

static void waiters_of_a_closed_session_are_withdrawn(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);

    lock(f, ALICE, "l", 2);
    wait_for(f, BOB, "l", 5, 1);
    wait_for(f, BOB, "k", 6, 1);
    wait_for(f, CAROL, "k", 7, 2);
    assert_int_equal(apply(f, hf_test_close(BOB)).err, HF_OK);
    assert_int_equal(f->events.count, 2);
    assert_event(f, 0, HF_EVENT_WITHDRAWN, BOB);
    assert_memory_equal(f->events.list[0].key, "l", 1);
    assert_memory_equal(f->events.list[1].key, "k", 1);
    assert_null(hf_table_find_session(&f->table, BOB));
    apply_next(f, hf_test_unlock(ALICE, "k", 1, token));
    assert_holder(f, "k", CAROL, 7);
}

static void closed_session_keeps_its_locks_until_they_expire(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);

    wait_for(f, BOB, "k", 2, 1);
    apply(f, hf_test_close(ALICE));
    assert_int_equal(f->events.count, 0);
    assert_holder(f, "k", ALICE, 1);
    assert_string_equal(hold_of(f, "k")->session->label, "alice");
    assert_int_equal(apply(f, hf_test_expire("k", token, 0)).err, HF_OK);
    assert_event(f, 0, HF_EVENT_EXPIRED, ALICE);
    assert_holder(f, "k", BOB, 2);
    assert_null(hf_table_find_session(&f->table, ALICE));
}

/* A client can renew and release with nonce and token in another session. */
static void claim_outlives_its_session(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);

    apply(f, hf_test_close(ALICE));
    assert_int_equal(apply_next(f, hf_test_renew(BOB, "k", 1, token, 1000)).err,
                     HF_OK);
    assert_int_equal(apply_next(f, hf_test_unlock(BOB, "k", 1, token)).err,
                     HF_OK);
    assert_null(hold_of(f, "k"));
}

/* G2-07 */
static void repeated_command_is_applied_once(void **state)
{
    struct fixture *f = *state;
    struct hf_command locking = hf_test_lock(ALICE, "k", 1);
    struct hf_command unlocking;
    uint64_t token;

    locking.sequence = 1;
    token = apply(f, locking).token;
    assert_true(apply(f, locking).token == token);
    assert_int_equal(f->events.count, 0);
    unlocking = hf_test_unlock(ALICE, "k", 1, token);
    unlocking.sequence = 2;
    assert_int_equal(apply(f, unlocking).err, HF_OK);
    assert_int_equal(apply(f, unlocking).err, HF_OK);
    assert_int_equal(f->events.count, 0);

    /* A late copy of the LOCK gets the kept result, not a new grant. */
    assert_true(apply(f, locking).token == token);
    assert_null(hold_of(f, "k"));
    assert_int_equal(f->events.count, 0);
}

static void repeated_renewal_counts_once(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);
    struct hf_command command = hf_test_renew(ALICE, "k", 1, token, 1000);

    command.sequence = 2;
    assert_int_equal(apply(f, command).generation, 1);
    assert_int_equal(apply(f, command).generation, 1);
    assert_int_equal(hold_of(f, "k")->generation, 1);
}

/* LK-24 */
static void late_lock_after_its_unlock_is_refused(void **state)
{
    struct fixture *f = *state;
    struct hf_command locking = hf_test_lock(ALICE, "k", 1);

    locking.sequence = 1;
    f->sequences[ALICE] = 1;
    apply_next(f, hf_test_unlock(ALICE, "k", 1, apply(f, locking).token));
    assert_int_equal(apply(f, locking).err, HF_ECANCELED);
    assert_null(hold_of(f, "k"));
}

static void lock_after_its_cancel_is_refused(void **state)
{
    struct fixture *f = *state;
    struct hf_command locking = hf_test_lock(ALICE, "k", 1);
    struct hf_command canceling = hf_test_cancel(ALICE, "k", 1);

    locking.sequence = 1;
    locking.done = 1;
    canceling.sequence = 2;
    canceling.done = 1;
    assert_int_equal(apply(f, canceling).err, HF_ENOTHELD);
    assert_int_equal(apply(f, locking).err, HF_ECANCELED);
    assert_null(hold_of(f, "k"));
}

/* A client repeats the LOCK in case the push of the grant was lost. */
static void repeated_lock_of_a_waiter_returns_its_grant(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);
    struct hf_command waiting = hf_test_lock(BOB, "k", 2);
    struct hf_result result;

    waiting.sequence = 1;
    assert_int_equal(apply(f, waiting).position, 1);
    assert_int_equal(apply(f, waiting).position, 1);
    apply_next(f, hf_test_unlock(ALICE, "k", 1, token));
    result = apply(f, waiting);
    assert_int_equal(result.err, HF_OK);
    assert_true(result.token == token + 1);
    assert_int_equal(result.position, 0);
}

/* The client has settled the LOCK, so its result is not kept any more, and the
 * grant must not overwrite the result of another command. */
static void grant_of_a_settled_lock_overwrites_no_result(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);

    wait_for(f, BOB, "k", 2, 1);
    lock(f, BOB, "l", 3);
    apply_next(f, hf_test_unlock(ALICE, "k", 1, token));
    assert_holder(f, "k", BOB, 2);
}

/* A driver that takes the waiters of all GRANTED events. */
struct taker {
    struct hf_dlist taken;
    unsigned others; /* grants without a wait */
};

static void take_waiter(void *arg, const struct hf_table_event *event)
{
    struct taker *taker = arg;
    struct hf_table_waiter *waiter = hf_table_take_waiter(event);

    if (!waiter) {
        taker->others += event->kind == HF_EVENT_GRANTED;
        return;
    }
    assert_int_equal(event->kind, HF_EVENT_GRANTED);
    assert_null(hf_table_take_waiter(event));
    hf_dlist_push_back(&taker->taken, &waiter->in_queue);
}

static void expect_taken(struct taker *taker, unsigned nonce, uint64_t token)
{
    struct hf_nonce expected = hf_test_nonce(nonce);
    struct hf_dlist *link = hf_dlist_take(&taker->taken);
    struct hf_table_waiter *waiter;

    assert_non_null(link);
    waiter = HF_CONTAINER(link, struct hf_table_waiter, in_queue);
    assert_true(hf_nonce_equal(&waiter->nonce, &expected));
    assert_true(waiter->token == token);
    hf_table_waiter_free(waiter);
}

/* The waiter belongs to the driver: it outlives its grant, its session and the
 * table. Taking it allocates nothing. */
static void granted_waiters_are_given_to_the_driver(void **state)
{
    struct fixture *f = *state;
    struct taker taker = {.others = 0};
    struct hf_command unlock = hf_test_unlock(ALICE, "l", 2, 0);
    struct hf_result result;
    uint64_t k, l;

    hf_dlist_init(&taker.taken);
    f->table.event = take_waiter;
    f->table.arg = &taker;
    k = lock(f, ALICE, "k", 1);
    l = lock(f, ALICE, "l", 2);
    wait_for(f, BOB, "k", 3, 1);
    wait_for(f, BOB, "l", 4, 1);
    assert_int_equal(taker.others, 2);
    assert_null(hf_dlist_first(&taker.taken));
    unlock.token = l;
    unlock.sequence = unlock.done = ++f->sequences[ALICE];
    hf_alloc_fail(1, 1000);
    assert_int_equal(hf_table_apply(&f->table, &unlock, &result), HF_OK);
    assert_false(hf_alloc_failed());
    apply_next(f, hf_test_unlock(ALICE, "k", 1, k));
    apply_next(f, hf_test_unlock(BOB, "l", 4, l + 1));
    apply(f, hf_test_close(BOB));
    hf_table_fini(&f->table);
    expect_taken(&taker, 4, l + 1);
    expect_taken(&taker, 3, l + 2);
    assert_null(hf_dlist_first(&taker.taken));
    hf_table_init(&f->table, &f->table.seed, on_event, &f->events);
}

static void waiter_that_nobody_takes_is_freed(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);
    long blocks = hf_alloc_blocks();

    wait_for(f, BOB, "k", 2, 1);
    apply_next(f, hf_test_unlock(ALICE, "k", 1, token));
    assert_true(hf_alloc_blocks() <= blocks + 1); /* bob's kept results */
}

/* Whether a driver takes the grants or not makes no difference to the table. */
static void taken_waiters_leave_no_trace(void **state)
{
    struct fixture *f = *state;
    struct taker taker = {.others = 0};
    struct hf_command alice = hf_test_open("alice"), bob = hf_test_open("bob");
    struct hf_buf snapshots[2] = {{0}};

    hf_dlist_init(&taker.taken);
    for (int i = 0; i < 2; i++) {
        struct fixture g = {.sequences = {0}};

        hf_table_init(&g.table, &f->table.seed, i ? take_waiter : on_event,
                      i ? (void *)&taker : (void *)&g.events);
        apply(&g, alice);
        apply(&g, bob);
        lock(&g, ALICE, "k", 1);
        wait_for(&g, BOB, "k", 2, 1);
        apply_next(&g, hf_test_unlock(ALICE, "k", 1, 1));
        hf_snapshot_encode(&g.table, &snapshots[i]);
        hf_table_fini(&g.table);
        hf_twin_events_fini(&g.events);
    }
    expect_taken(&taker, 2, 2);
    assert_int_equal(snapshots[0].size, snapshots[1].size);
    assert_memory_equal(snapshots[0].data, snapshots[1].data,
                        snapshots[0].size);
    hf_buf_fini(&snapshots[0]);
    hf_buf_fini(&snapshots[1]);
}

static void event_indexes_increase_by_one(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);

    assert_true(f->events.list[0].index == 1);
    wait_for(f, BOB, "k", 2, 1);
    assert_true(f->events.list[0].index == 2);
    wait_for(f, CAROL, "k", 3, 2);
    assert_true(f->events.list[0].index == 3);
    apply_next(f, hf_test_unlock(ALICE, "k", 2, token));
    apply_next(f, hf_test_unlock(ALICE, "k", 1, token));
    assert_true(f->events.list[0].index == 4);
    assert_true(f->events.list[1].index == 5);
    assert_true(f->table.index == 5);
}

/* ---- Versions -----------------------------------------------------------*/

static struct hf_command raise_version(uint8_t version)
{
    return (struct hf_command){
        .kind = HF_COMMAND_VERSION,
        .version = version,
    };
}

/* The table pretends to be at a later version than this build knows. */
static void version_is_never_lowered(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(f->table.version, HF_VERSION_FIRST);
    assert_int_equal(apply(f, raise_version(HF_VERSION_NEWEST)).err, HF_OK);
    assert_int_equal(f->table.version, HF_VERSION_NEWEST);
    assert_int_equal(f->events.count, 0);
    f->table.version = HF_VERSION_NEWEST + 1;
    assert_int_equal(apply(f, raise_version(HF_VERSION_NEWEST)).err, HF_OK);
    assert_int_equal(f->table.version, HF_VERSION_NEWEST + 1);
}

static void snapshot_has_the_version_of_its_table(void **state)
{
    struct fixture *f = *state;
    struct hf_buf buf = {0};
    struct hf_table table;

    f->table.version = HF_VERSION_NEWEST;
    hf_snapshot_encode(&f->table, &buf);
    hf_table_init(&table, &f->table.seed, on_event, NULL);
    table.version = 0;
    assert_int_equal(hf_snapshot_decode(&table, buf.data, buf.size), HF_OK);
    assert_int_equal(table.version, HF_VERSION_NEWEST);
    hf_table_fini(&table);
    hf_buf_fini(&buf);
}

/* ---- Looking up a claim -------------------------------------------------*/

static void expect_lookup(const struct fixture *f, const char *key,
                          unsigned nonce, struct hf_lookup expected)
{
    struct hf_nonce bytes = hf_test_nonce(nonce);
    struct hf_lookup lookup =
        hf_table_lookup(&f->table, hf_key_of(key), &bytes);

    assert_int_equal(lookup.state, expected.state);
    assert_int_equal(lookup.position, expected.position);
    assert_int_equal(lookup.generation, expected.generation);
    assert_true(lookup.token == expected.token);
}

static void expect_unknown(const struct fixture *f, const char *key,
                           unsigned nonce)
{
    expect_lookup(f, key, nonce,
                  (struct hf_lookup){.state = HF_LOOKUP_UNKNOWN});
}

static void lookup_returns_the_state_of_a_claim(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);

    wait_for(f, BOB, "k", 2, 1);
    wait_for(f, CAROL, "k", 3, 2);
    expect_lookup(f, "k", 1, (struct hf_lookup){HF_LOOKUP_HELD, 0, 0, token});
    expect_lookup(f, "k", 2, (struct hf_lookup){HF_LOOKUP_QUEUED, 1, 0, 0});
    expect_lookup(f, "k", 3, (struct hf_lookup){HF_LOOKUP_QUEUED, 2, 0, 0});
    apply_next(f, hf_test_renew(ALICE, "k", 1, token, 1000));
    expect_lookup(f, "k", 1, (struct hf_lookup){HF_LOOKUP_HELD, 0, 1, token});
    apply_next(f, hf_test_unlock(ALICE, "k", 1, token));
    expect_unknown(f, "k", 1);
    expect_lookup(f, "k", 2,
                  (struct hf_lookup){HF_LOOKUP_HELD, 0, 0, token + 1});
    apply_next(f, hf_test_cancel(CAROL, "k", 3));
    expect_unknown(f, "k", 3);
    apply_next(f, hf_test_expire("k", token + 1, 0));
    expect_unknown(f, "k", 2);
}

/* A free key, a key that another claim holds, and a nonce that waits for
 * another key look alike. */
static void lookup_reveals_nothing_without_the_nonce(void **state)
{
    struct fixture *f = *state;

    lock(f, ALICE, "k", 1);
    lock(f, ALICE, "l", 1);
    wait_for(f, BOB, "l", 2, 1);
    expect_unknown(f, "free", 1);
    expect_unknown(f, "k", 3);
    expect_unknown(f, "k", 2);
    expect_unknown(f, "l", 3);
}

/* ---- Limits -------------------------------------------------------------*/

static enum hf_err try_apply(struct fixture *f, struct hf_command command,
                             struct hf_result *result)
{
    command.sequence = ++f->sequences[command.session];
    command.done = command.sequence;
    f->events.count = 0;
    return hf_table_apply(&f->table, &command, result);
}

static void queue_has_a_limit(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);
    struct hf_result result;

    for (unsigned i = 0; i < HF_WAITERS_MAX; i++) {
        assert_int_equal(try_apply(f, hf_test_lock(BOB, "k", 10 + i), &result),
                         HF_OK);
        assert_int_equal(result.position, i + 1);
    }
    try_apply(f, hf_test_lock(BOB, "k", 2), &result);
    assert_int_equal(result.err, HF_ELIMIT);
    try_apply(f, hf_test_lock(BOB, "k", 10 + HF_WAITERS_MAX - 1), &result);
    assert_int_equal(result.position, HF_WAITERS_MAX);
    try_apply(f, hf_test_unlock(ALICE, "k", 1, token), &result);
    try_apply(f, hf_test_lock(BOB, "k", 2), &result);
    assert_int_equal(result.err, HF_EBUSY);
    assert_int_equal(result.position, HF_WAITERS_MAX);
}

static uint32_t session_waiters(struct fixture *f, uint64_t session)
{
    return hf_table_find_session(&f->table, session)->waiters;
}

/* A waiter is counted until it is granted, canceled, or taken over by another
 * session. The test sets the count to the limit, instead of adding waiters. */
static void waiters_of_a_session_have_a_limit(void **state)
{
    struct fixture *f = *state;
    uint64_t token = lock(f, ALICE, "k", 1);
    struct hf_result result;

    for (unsigned i = 0; i < 3; i++)
        try_apply(f, hf_test_lock(BOB, "k", 10 + i), &result);
    assert_int_equal(session_waiters(f, BOB), 3);
    try_apply(f, hf_test_lock(ALICE, "k", 12), &result);
    assert_int_equal(session_waiters(f, ALICE), 1);
    assert_int_equal(session_waiters(f, BOB), 2);
    hf_table_find_session(&f->table, BOB)->waiters = HF_SESSION_WAITERS_MAX;
    try_apply(f, hf_test_lock(BOB, "k", 13), &result);
    assert_int_equal(result.err, HF_ELIMIT);
    assert_int_equal(f->events.count, 0);
    hf_table_find_session(&f->table, BOB)->waiters = 2;
    try_apply(f, hf_test_cancel(BOB, "k", 11), &result);
    assert_int_equal(session_waiters(f, BOB), 1);
    try_apply(f, hf_test_unlock(ALICE, "k", 1, token), &result);
    assert_int_equal(session_waiters(f, BOB), 0);
}

/* The test sets the count of holds to the limit, instead of adding millions. */
static void table_has_a_limit(void **state)
{
    struct fixture *f = *state;
    size_t count = f->table.holds.count;
    struct hf_result result;

    f->table.holds.count = HF_HOLDS_MAX;
    assert_int_equal(try_apply(f, hf_test_lock(ALICE, "k", 1), &result), HF_OK);
    assert_int_equal(result.err, HF_ELIMIT);
    assert_int_equal(f->events.count, 0);
    f->table.holds.count = count;
    lock(f, ALICE, "k", 1);
}

static void sessions_have_a_limit(void **state)
{
    struct fixture *f = *state;
    struct hf_command open = hf_test_open("one more");
    struct hf_result result;

    while (f->table.sessions.count < HF_SESSIONS_MAX) {
        open = hf_test_open("one more");
        assert_int_equal(hf_table_apply(&f->table, &open, &result), HF_OK);
        assert_int_equal(result.err, HF_OK);
    }
    open = hf_test_open("too many");
    assert_int_equal(hf_table_apply(&f->table, &open, &result), HF_OK);
    assert_int_equal(result.err, HF_ELIMIT);
    assert_int_equal(result.session, 0);
    apply(f, hf_test_close(ALICE));
    assert_true(apply(f, open).session == HF_SESSIONS_MAX + 1);
}

/* ---- Secrets, and commands that race with a CLOSE -----------------------*/

/* The answer to an OPEN was lost, so the client sends it again. */
static void repeated_open_returns_the_same_session(void **state)
{
    struct fixture *f = *state;
    struct hf_command open = hf_test_open("dave");
    uint64_t session = apply(f, open).session;
    size_t count = f->table.sessions.count;

    assert_int_equal(apply(f, open).session, session);
    open.note = hf_bytes_of("another label");
    assert_int_equal(apply(f, open).session, session);
    assert_int_equal(f->table.sessions.count, count);
    assert_string_equal(hf_table_find_session(&f->table, session)->label,
                        "dave");
    assert_int_equal(hf_table_find_secret(&f->table, &open.nonce)->id, session);
    open.nonce.bytes[15] ^= 1;
    assert_null(hf_table_find_secret(&f->table, &open.nonce));
    assert_int_equal(apply(f, open).session, session + 1);
}

static void repeated_open_succeeds_at_the_limit(void **state)
{
    struct fixture *f = *state;
    struct hf_command open = hf_test_open("dave");
    uint64_t session = apply(f, open).session;
    size_t count = f->table.sessions.count;
    struct hf_result result;

    f->table.sessions.count = HF_SESSIONS_MAX;
    assert_int_equal(hf_table_apply(&f->table, &open, &result), HF_OK);
    f->table.sessions.count = count;
    assert_int_equal(result.err, HF_OK);
    assert_int_equal(result.session, session);
}

/* An OPEN with the secret of a closed session opens a new session, even while
 * the closed one still holds keys. */
static void secret_of_a_closed_session_is_forgotten(void **state)
{
    struct fixture *f = *state;
    struct hf_command open = hf_test_open("dave");
    struct hf_command command = hf_test_lock(0, "k", 1);

    command.session = apply(f, open).session;
    command.sequence = 1;
    assert_int_equal(apply(f, command).err, HF_OK);
    apply(f, hf_test_close(command.session));
    assert_true(hf_table_find_session(&f->table, command.session)->ended);
    assert_null(hf_table_find_secret(&f->table, &open.nonce));
    assert_int_equal(apply(f, open).session, command.session + 1);
}

/* The driver closes a session that seems to be dead, but a command arrives
 * first: the client is alive, and keeps its position in the queue. */
static void close_is_void_after_a_later_command(void **state)
{
    struct fixture *f = *state;
    struct hf_command close = hf_test_close(BOB);

    lock(f, ALICE, "k", 1);
    wait_for(f, BOB, "k", 2, 1);
    close.sequence = f->sequences[BOB];
    wait_for(f, BOB, "k", 3, 2);
    assert_int_equal(apply(f, close).err, HF_ENOTOWNER);
    assert_int_equal(f->events.count, 0);
    assert_int_equal(hold_of(f, "k")->waiters, 2);
    close.sequence = f->sequences[BOB];
    assert_int_equal(apply(f, close).err, HF_OK);
    assert_int_equal(hold_of(f, "k")->waiters, 0);
    assert_int_equal(apply(f, close).err, HF_EINDOUBT);
}

#define IDLE 1000

/* An idle session: it has sent commands, has received their results, and holds
 * and awaits nothing. Its label has the maximal length. */
static void idle_session_costs_less_than_a_kibibyte(void **state)
{
    struct fixture *f = *state;
    static char label[HF_NOTE_MAX];
    struct hf_result result;
    long bytes = hf_alloc_bytes();

    memset(label, 'x', sizeof(label));
    for (unsigned i = 0; i < IDLE; i++) {
        struct hf_command command = hf_test_open("");

        command.note = (struct hf_bytes){label, sizeof(label)};
        assert_int_equal(hf_table_apply(&f->table, &command, &result), HF_OK);
        command = hf_test_cancel(result.session, "k", 1);
        for (command.sequence = 1; command.sequence <= 200; command.sequence++)
            assert_int_equal(hf_table_apply(&f->table, &command, &result),
                             HF_OK);
        command.done = command.sequence;
        assert_int_equal(hf_table_apply(&f->table, &command, &result), HF_OK);
    }
    assert_true(hf_alloc_bytes() - bytes < 1024L * IDLE);
    print_message("# %ld bytes for an idle session\n",
                  (hf_alloc_bytes() - bytes) / IDLE);
}

static void window_has_a_limit(void **state)
{
    struct fixture *f = *state;
    struct hf_command command = hf_test_cancel(ALICE, "k", 1);

    command.done = 1;
    command.sequence = HF_WINDOW_MAX;
    assert_int_equal(apply(f, command).err, HF_ENOTHELD);
    command.sequence = HF_WINDOW_MAX + 1;
    assert_int_equal(apply(f, command).err, HF_ELIMIT);
    command.done = 2;
    assert_int_equal(apply(f, command).err, HF_ENOTHELD);
}

static void apply_invalid_command(void *arg)
{
    struct hf_command command = {.kind = HF_COMMAND_LOCK};
    struct hf_result result;

    (void)hf_table_apply(arg, &command, &result);
}

static void invalid_command_aborts(void **state)
{
    struct fixture *f = *state;

    assert_true(hf_test_dies(apply_invalid_command, &f->table));
}

/* ---- Memory -------------------------------------------------------------*/

enum {
    MANY = 1000000,
};

static struct hf_result lock_number(struct fixture *f, unsigned number)
{
    struct hf_command command = hf_test_lock(ALICE, "", number);
    struct hf_result result;
    char key[16];

    command.key.size = (size_t)snprintf(key, sizeof(key), "key-%u", number);
    command.key.data = key;
    assert_int_equal(try_apply(f, command, &result), HF_OK);
    assert_int_equal(result.err, HF_OK);
    return result;
}

static void unlock_number(struct fixture *f, unsigned number, uint64_t token)
{
    struct hf_command command = hf_test_unlock(ALICE, "", number, token);
    struct hf_result result;
    char key[16];

    command.key.size = (size_t)snprintf(key, sizeof(key), "key-%u", number);
    command.key.data = key;
    assert_int_equal(try_apply(f, command, &result), HF_OK);
    assert_int_equal(result.err, HF_OK);
}

/* MJ-11 */
static void million_keys_in_turn_leave_no_memory(void **state)
{
    struct fixture *f = *state;
    long bytes;

    unlock_number(f, 0, lock_number(f, 0).token);
    bytes = hf_alloc_bytes();
    for (unsigned i = 0; i < MANY; i++)
        unlock_number(f, i, lock_number(f, i).token);
    assert_int_equal(hf_alloc_bytes(), bytes);
}

/* MJ-11, GO-27 */
static void million_keys_at_once_leave_no_memory(void **state)
{
    struct fixture *f = *state;
    uint64_t first = lock_number(f, 0).token;
    long bytes;

    unlock_number(f, 0, first);
    bytes = hf_alloc_bytes();
    for (unsigned i = 0; i < MANY; i++)
        assert_true(lock_number(f, i).token == first + 1 + i);
    assert_int_equal(f->table.holds.count, MANY);
    for (unsigned i = 0; i < MANY; i++)
        unlock_number(f, i, first + 1 + i);
    assert_int_equal(hf_alloc_bytes(), bytes);
}

/* LK-22 */
static void withdrawn_waiters_leave_no_memory(void **state)
{
    struct fixture *f = *state;
    struct hf_result result;
    long bytes = 0;

    lock(f, ALICE, "k", 1);
    for (unsigned i = 0; i < 100000; i++) {
        try_apply(f, hf_test_lock(BOB, "k", 10 + i), &result);
        assert_int_equal(result.position, 1);
        try_apply(f, hf_test_cancel(BOB, "k", 10 + i), &result);
        assert_int_equal(result.err, HF_OK);
        if (i == 0)
            bytes = hf_alloc_bytes();
    }
    assert_int_equal(hf_alloc_bytes(), bytes);
}

/* Apply `command` while its n-th allocation fails. Returns true if an
 * allocation failed. */
static bool apply_failing(struct fixture *f, const struct hf_command *command,
                          unsigned long nth, enum hf_err *err,
                          struct hf_result *result)
{
    hf_alloc_fail(nth, 1);
    *err = hf_table_apply(&f->table, command, result);
    return hf_alloc_failed();
}

/* Apply a command with its first allocation failing, then its second, and so
 * on, until it succeeds. Adds the number of failures to `*refusals`. A map
 * works even if it cannot grow, so the command may succeed although an
 * allocation fails. */
static struct hf_result apply_with_failures(struct fixture *f,
                                            struct hf_command command,
                                            unsigned *refusals)
{
    struct hf_result result = {.err = HF_ESYSTEM};
    enum hf_err err = HF_ENOMEM;

    for (unsigned long nth = 1; err; nth++) {
        struct hf_buf before = {0};
        struct hf_buf after = {0};
        long blocks;
        bool failed;

        hf_snapshot_encode(&f->table, &before);
        blocks = hf_alloc_blocks();
        failed = apply_failing(f, &command, nth, &err, &result);
        if (err) {
            assert_int_equal(err, HF_ENOMEM);
            assert_true(failed);
            assert_int_equal(result.err, HF_ESYSTEM);
            /* The session may have allocated room for results, so one more
             * block is allowed. */
            assert_in_range(hf_alloc_blocks() - blocks, 0, 1);
            hf_snapshot_encode(&f->table, &after);
            assert_int_equal(before.size, after.size);
            assert_memory_equal(before.data, after.data, before.size);
            assert_null(hf_table_check(&f->table));
            (*refusals)++;
        }
        hf_buf_fini(&before);
        hf_buf_fini(&after);
    }
    return result;
}

/* Ignore events, because recording them would allocate memory. */
static void no_event(void *arg, const struct hf_table_event *event)
{
    (void)arg;
    (void)event;
}

static void failed_allocation_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct hf_command script[64];
    unsigned refusals = 0;
    size_t count = 0;
    long blocks = hf_alloc_blocks();

    hf_table_fini(&f->table);
    f->sequences[ALICE] = f->sequences[BOB] = 0;
    hf_table_init(&f->table, &f->table.seed, no_event, NULL);
    script[count++] = hf_test_open("alice");
    script[count++] = hf_test_open("bob");
    for (unsigned i = 0; i < 10; i++) {
        const char *key = i % 2 ? "k" : "l";

        script[count] = hf_test_lock(1 + i % 2, key, i);
        script[count].value = hf_bytes_of("value");
        script[count++].note = hf_bytes_of("note");
        script[count++] = hf_test_lock(2 - i % 2, key, 100 + i);
    }
    script[count++] = hf_test_update(ALICE, "l", 0, 1, "another");
    script[count++] = hf_test_renew(ALICE, "l", 0, 1, 2000);
    script[count++] = hf_test_force(BOB, "l", 1, false);
    script[count++] = hf_test_expire("l", 1, 1);
    script[count++] = hf_test_cancel(BOB, "k", 101);
    script[count++] = hf_test_unlock(BOB, "k", 1, 2);
    script[count++] = hf_test_close(BOB);
    script[count++] = hf_test_close(ALICE);
    for (size_t i = 0; i < count; i++) {
        uint64_t session = script[i].session;
        struct hf_result result;

        script[i].sequence = ++f->sequences[session];
        if (i % 3 == 0 && script[i].sequence > 6)
            script[i].done = script[i].sequence - 5;
        result = apply_with_failures(f, script[i], &refusals);
        assert_true(result.err == HF_OK || result.err == HF_EBUSY);
    }
    assert_true(refusals > 30);
    hf_table_fini(&f->table);
    assert_true(hf_alloc_blocks() <= blocks);
    hf_table_init(&f->table, &f->table.seed, no_event, NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(free_key_is_granted_at_once),
        CASE(held_key_is_refused_without_waiting),
        CASE(unlock_leaves_no_state),
        CASE(only_the_holder_can_unlock),
        CASE(late_unlock_never_releases_the_next_holder),
        CASE(tokens_increase_over_release_expiry_and_force),
        CASE(keys_may_contain_any_byte),
        CASE(hold_keeps_a_copy_of_value_and_note),
        CASE(hash_collisions_are_resolved),
        CASE(repeated_lock_of_the_holder_returns_its_grant),
        CASE(repeated_lock_of_a_waiter_keeps_its_position),
        CASE(waiter_moves_to_the_session_of_its_last_lock),
        CASE(release_grants_the_first_waiter),
        CASE(every_ended_grant_passes_the_key_on),
        CASE(next_holder_inherits_nothing),
        CASE(canceled_waiter_leaves_the_queue),
        CASE(cancel_of_a_holder_returns_its_token),
        CASE(position_is_never_too_small),
        CASE(one_nonce_may_wait_for_two_keys),
        CASE(expired_lease_frees_the_key),
        CASE(renewal_before_an_expiry_wins),
        CASE(expiry_of_an_earlier_grant_has_no_effect),
        CASE(only_the_holder_renews_and_no_lease_shrinks),
        CASE(update_compares_and_sets),
        CASE(forced_lock_cannot_be_renewed),
        CASE(command_of_an_unknown_session_is_in_doubt),
        CASE(waiters_of_a_closed_session_are_withdrawn),
        CASE(closed_session_keeps_its_locks_until_they_expire),
        CASE(claim_outlives_its_session),
        CASE(repeated_command_is_applied_once),
        CASE(repeated_renewal_counts_once),
        CASE(late_lock_after_its_unlock_is_refused),
        CASE(lock_after_its_cancel_is_refused),
        CASE(repeated_lock_of_a_waiter_returns_its_grant),
        CASE(grant_of_a_settled_lock_overwrites_no_result),
        CASE(granted_waiters_are_given_to_the_driver),
        CASE(waiter_that_nobody_takes_is_freed),
        CASE(taken_waiters_leave_no_trace),
        CASE(event_indexes_increase_by_one),
        CASE(version_is_never_lowered),
        CASE(snapshot_has_the_version_of_its_table),
        CASE(lookup_returns_the_state_of_a_claim),
        CASE(lookup_reveals_nothing_without_the_nonce),
        CASE(queue_has_a_limit),
        CASE(waiters_of_a_session_have_a_limit),
        CASE(table_has_a_limit),
        CASE(sessions_have_a_limit),
        CASE(repeated_open_returns_the_same_session),
        CASE(repeated_open_succeeds_at_the_limit),
        CASE(secret_of_a_closed_session_is_forgotten),
        CASE(close_is_void_after_a_later_command),
        CASE(idle_session_costs_less_than_a_kibibyte),
        CASE(window_has_a_limit),
        CASE(invalid_command_aborts),
        CASE(million_keys_in_turn_leave_no_memory),
        CASE(million_keys_at_once_leave_no_memory),
        CASE(withdrawn_waiters_leave_no_memory),
        CASE(failed_allocation_changes_nothing),
    };

    return hf_test_main("table", cases, HF_TEST_COUNT(cases), 0);
}
