/* Waiters in many processes: are they served as they came, and are those who
 * died in line passed over at once? */
#include <stdatomic.h>

#include "lib/child.h"
#include "lib/expect.h"
#include "lib/recorded.h"
#include "lib/recording.h"
#include "lib/site.h"

#define WAITERS 50

static struct {
    atomic_uint count;
    unsigned numbers[WAITERS];
    uint64_t tokens[WAITERS];
} * served;

static int set_up(void **state)
{
    served = hf_child_share(sizeof(*served));
    recorded_init(true);
    return hf_site_set_up(state);
}

static void be_served(void *arg)
{
    struct hf_lock_opts opts = hf_site_patient();
    struct hf_client *client = hf_site_open();
    struct hf_lock *lock;
    unsigned place;

    assert_int_equal(
        recorded_lock_in_line(client, hf_key_of("k"), &opts, &lock), HF_OK);
    place = atomic_fetch_add(&served->count, 1);
    served->numbers[place] = *(const unsigned *)arg;
    served->tokens[place] = hf_lock_token(lock);
    assert_int_equal(recorded_unlock(client, lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_PATIENCE_MS), HF_OK);
}

/* One after the other: each is seen in line before the next is started. */
static void line_up(struct hf_client *client, pid_t pids[WAITERS])
{
    for (unsigned i = 0; i < WAITERS; i++) {
        pids[i] = hf_child_start(be_served, &i);
        hf_site_await_waiters(client, "k", i + 1);
    }
}

static unsigned kill_some(const pid_t pids[WAITERS], bool (*dies)(unsigned i),
                          unsigned living[WAITERS])
{
    unsigned count = 0;

    for (unsigned i = 0; i < WAITERS; i++) {
        if (dies(i))
            hf_child_kill(pids[i]);
        else
            living[count++] = i;
    }
    return count;
}

/* Hold the key until all are in line and some of them dead; the others get it,
 * in the order in which they came. Nobody dead had it in between: each grant
 * takes the next token. */
static void serve(bool (*dies)(unsigned i))
{
    struct hf_lock_opts opts = hf_site_patient();
    struct hf_client *client = hf_site_open();
    unsigned living[WAITERS], count;
    pid_t pids[WAITERS];
    struct hf_lock *lock;

    assert_int_equal(
        recorded_lock_in_line(client, hf_key_of("k"), &opts, &lock), HF_OK);
    line_up(client, pids);
    count = kill_some(pids, dies, living);
    assert_int_equal(recorded_unlock(client, lock), HF_OK);
    for (unsigned i = 0; i < count; i++)
        hf_child_join(pids[living[i]]);
    assert_int_equal(served->count, count);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(served->numbers[i], living[i]);
        assert_int_equal(served->tokens[i], hf_lock_token(lock) + 1 + i);
    }
    assert_true(recording_grants() >= count + 1);
    assert_int_equal(recorded_check("case"), 0);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_PATIENCE_MS), HF_OK);
}

static bool none(unsigned i)
{
    (void)i;
    return false;
}

static bool every_third(unsigned i)
{
    return i % 3 == 2;
}

static bool all_but_the_last(unsigned i)
{
    return i < WAITERS - 1;
}

static void fifty_processes_are_served_as_they_came(void **state)
{
    (void)state;
    serve(none);
}

static void dead_among_fifty_are_passed_over_at_once(void **state)
{
    (void)state;
    serve(every_third);
}

static void last_of_a_dead_line_is_served_at_once(void **state)
{
    (void)state;
    serve(all_but_the_last);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, set_up, hf_site_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(fifty_processes_are_served_as_they_came),
        CASE(dead_among_fifty_are_passed_over_at_once),
        CASE(last_of_a_dead_line_is_served_at_once),
    };

    return hf_test_main("order", cases, HF_TEST_COUNT(cases), 0);
}
