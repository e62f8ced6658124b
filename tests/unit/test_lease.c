#include "core/lease.h"

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
    assert_null(hf_leases_due(&leases, HF_NEVER));
    assert_true(hf_leases_next_deadline(&leases) == HF_NEVER);
    add_lease(&leases, &a, 200);
    add_lease(&leases, &b, 100);
    assert_true(hf_leases_next_deadline(&leases) == 100);
    assert_null(hf_leases_due(&leases, 99));
    assert_true(hf_leases_due(&leases, 100) == &b);
    assert_true(hf_leases_due(&leases, 100) == &b);
    hf_leases_drop(&leases, &b);
    assert_null(hf_leases_due(&leases, 199));
    assert_true(hf_leases_due(&leases, 1000) == &a);
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
    assert_null(hf_leases_due(&leases, 149));
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
    assert_null(hf_leases_due(&leases, HF_NEVER));
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
    assert_true(hf_leases_due(&leases, 1) == &extra);
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
        cmocka_unit_test(drop_keeps_the_reserved_room),
        cmocka_unit_test(memory_shrinks_with_the_leases),
        cmocka_unit_test(failed_reserve_is_reported),
    };

    return hf_test_main("lease", cases, HF_TEST_COUNT(cases), 0);
}
