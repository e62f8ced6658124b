#include "core/lease.h"

#include "base/random.h"
#include "lib/alloc.h"
#include "lib/runner.h"

static void add_lease(struct hf_leases *leases, struct hf_lease *lease,
                      hf_time deadline)
{
    assert_int_equal(hf_leases_reserve(leases), HF_OK);
    hf_leases_set(leases, lease, deadline);
}

static void lease_expires_on_time_and_not_before(void **state)
{
    struct hf_leases leases = {0};
    struct hf_lease a = {0}, b = {0};

    (void)state;
    assert_null(hf_leases_take(&leases, HF_NEVER));
    assert_true(hf_leases_next_deadline(&leases) == HF_NEVER);
    add_lease(&leases, &a, 200);
    add_lease(&leases, &b, 100);
    assert_true(hf_leases_next_deadline(&leases) == 100);
    assert_null(hf_leases_take(&leases, 99));
    assert_true(hf_leases_take(&leases, 100) == &b);
    assert_null(hf_leases_take(&leases, 199));
    hf_leases_drop(&leases, &b);
    assert_null(hf_leases_take(&leases, 199));
    assert_true(hf_leases_take(&leases, 1000) == &a);
    hf_leases_fini(&leases);
}

static void lease_never_gets_shorter(void **state)
{
    struct hf_leases leases = {0};
    struct hf_lease lease = {0};

    (void)state;
    assert_true(hf_leases_deadline(&leases, &lease) == HF_NEVER);
    add_lease(&leases, &lease, 100);
    hf_leases_set(&leases, &lease, 50);
    assert_true(hf_leases_deadline(&leases, &lease) == 100);
    hf_leases_set(&leases, &lease, 150);
    assert_true(hf_leases_deadline(&leases, &lease) == 150);
    assert_null(hf_leases_take(&leases, 149));
    hf_leases_fini(&leases);
}

static void dropped_lease_never_expires(void **state)
{
    struct hf_leases leases = {0};
    struct hf_lease lease = {0};

    (void)state;
    hf_leases_drop(&leases, &lease);
    add_lease(&leases, &lease, 100);
    hf_leases_drop(&leases, &lease);
    hf_leases_drop(&leases, &lease);
    assert_null(hf_leases_take(&leases, HF_NEVER));
    hf_leases_fini(&leases);
}

/* A lease is taken when its EXPIRE is sent. */
static void taken_lease_is_not_due_until_it_is_extended(void **state)
{
    struct hf_leases leases = {0};
    struct hf_lease lease = {0};

    (void)state;
    add_lease(&leases, &lease, 100);
    assert_true(hf_leases_take(&leases, 100) == &lease);
    assert_null(hf_leases_take(&leases, HF_NEVER));
    assert_true(hf_leases_next_deadline(&leases) == HF_NEVER);
    assert_true(hf_leases_deadline(&leases, &lease) <= 100);
    hf_leases_set(&leases, &lease, 150);
    assert_true(hf_leases_deadline(&leases, &lease) == 150);
    assert_null(hf_leases_take(&leases, 149));
    assert_true(hf_leases_take(&leases, 150) == &lease);
    hf_leases_fini(&leases);
}

static void deadline_at_the_end_of_time_is_not_a_taken_lease(void **state)
{
    struct hf_leases leases = {0};
    struct hf_lease lease = {0};

    (void)state;
    add_lease(&leases, &lease, HF_NEVER);
    hf_leases_retry(&leases);
    assert_null(hf_leases_take(&leases, 100));
    assert_int_equal(leases.taken, 0);
    hf_leases_fini(&leases);
}

/* ---- A naive twin -------------------------------------------------------*/

#define LEASES 50

struct naive {
    hf_time deadline; /* HF_NEVER: no lease */
    bool taken;
};

static hf_time earliest(const struct naive *naive)
{
    hf_time first = HF_NEVER;

    for (size_t i = 0; i < LEASES; i++) {
        if (!naive[i].taken && naive[i].deadline < first)
            first = naive[i].deadline;
    }
    return first;
}

static void extend_both(struct hf_leases *leases, struct hf_lease *lease,
                        struct naive *naive, hf_time deadline)
{
    add_lease(leases, lease, deadline);
    if (naive->taken || naive->deadline == HF_NEVER ||
        naive->deadline < deadline)
        naive->deadline = deadline;
    naive->taken = false;
}

static void take_from_both(struct hf_leases *leases, const struct hf_lease *all,
                           struct naive *naive, hf_time now)
{
    const struct hf_lease *lease = hf_leases_take(leases, now);
    hf_time first = earliest(naive);

    if (first > now || first == HF_NEVER) {
        assert_null(lease);
        return;
    }
    assert_non_null(lease);
    assert_true(naive[lease - all].deadline == first);
    assert_false(naive[lease - all].taken);
    naive[lease - all].taken = true;
}

/* hf_leases_retry() gives taken leases the heap key 0, so that is their
 * deadline in the twin. */
static void retry_both(struct hf_leases *leases, struct naive *naive)
{
    hf_leases_retry(leases);
    for (size_t i = 0; i < LEASES; i++) {
        if (naive[i].taken)
            naive[i] = (struct naive){.deadline = 0};
    }
}

static void leases_agree_with_a_naive_twin(void **state)
{
    struct hf_lease all[LEASES] = {0};
    struct naive naive[LEASES];
    struct hf_leases leases = {0};
    struct hf_random random;

    (void)state;
    hf_random_init(&random, 1);
    for (size_t i = 0; i < LEASES; i++)
        naive[i] = (struct naive){.deadline = HF_NEVER};
    for (hf_time now = 1; now < 100000; now++) {
        unsigned at = hf_random_below(&random, LEASES);
        unsigned choice = hf_random_below(&random, 100);

        if (choice < 40) {
            extend_both(&leases, &all[at], &naive[at],
                        now + 1 + hf_random_below(&random, 100));
        } else if (choice < 50) {
            hf_leases_drop(&leases, &all[at]);
            naive[at] = (struct naive){.deadline = HF_NEVER};
        } else if (choice < 99) {
            take_from_both(&leases, all, naive, now);
        } else {
            retry_both(&leases, naive);
        }
        assert_true(hf_leases_next_deadline(&leases) == earliest(naive));
    }
    hf_leases_fini(&leases);
}

static void drop_keeps_the_reserved_room(void **state)
{
    static struct hf_lease many[1000];
    struct hf_lease extra = {0};
    struct hf_leases leases = {0};

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(many); i++)
        add_lease(&leases, &many[i], (hf_time)i);
    assert_int_equal(hf_leases_reserve(&leases), HF_OK);
    for (size_t i = 0; i < HF_TEST_COUNT(many); i++)
        hf_leases_drop(&leases, &many[i]);
    hf_alloc_fail(1, 1000000);
    hf_leases_set(&leases, &extra, 1);
    assert_true(hf_leases_take(&leases, 1) == &extra);
    assert_false(hf_alloc_failed());
    hf_leases_fini(&leases);
}

/* MJ-11 */
static void memory_shrinks_with_the_leases(void **state)
{
    static struct hf_lease many[10000];
    struct hf_leases leases = {0};
    size_t capacity;

    (void)state;
    add_lease(&leases, &many[0], 0);
    capacity = leases.heap.capacity;
    for (size_t i = 1; i < HF_TEST_COUNT(many); i++)
        add_lease(&leases, &many[i], (hf_time)i);
    for (size_t i = 1; i < HF_TEST_COUNT(many); i++)
        hf_leases_drop(&leases, &many[i]);
    assert_int_equal(leases.heap.capacity, capacity);
    hf_leases_fini(&leases);
}

static void failed_reserve_is_reported(void **state)
{
    struct hf_leases leases = {0};

    (void)state;
    hf_alloc_fail(1, 1);
    assert_int_equal(hf_leases_reserve(&leases), HF_ENOMEM);
    hf_leases_fini(&leases);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(lease_expires_on_time_and_not_before),
        cmocka_unit_test(lease_never_gets_shorter),
        cmocka_unit_test(dropped_lease_never_expires),
        cmocka_unit_test(taken_lease_is_not_due_until_it_is_extended),
        cmocka_unit_test(deadline_at_the_end_of_time_is_not_a_taken_lease),
        cmocka_unit_test(leases_agree_with_a_naive_twin),
        cmocka_unit_test(drop_keeps_the_reserved_room),
        cmocka_unit_test(memory_shrinks_with_the_leases),
        cmocka_unit_test(failed_reserve_is_reported),
    };

    return hf_test_main("lease", cases, HF_TEST_COUNT(cases), 0);
}
