/* The arithmetic of client/drift.h. */
#include "base/limits.h"
#include "client/drift.h"
#include "lib/runner.h"

/* Return the least time that can pass on the local clock while a server counts
 * `span`. */
static uint64_t shortened(uint64_t span)
{
    return span * 98 / 100;
}

static void the_requested_lease_is_longer_than_the_ttl(void **state)
{
    (void)state;
    assert_int_equal(hf_drift_lease_ms(1), 51);
    assert_int_equal(hf_drift_lease_ms(16), 67);
    assert_int_equal(hf_drift_lease_ms(10000), 10675);
    assert_int_equal(hf_drift_lease_ms(HF_TTL_MAX_MS), HF_LEASE_MAX_MS);
}

static void a_quick_answer_gives_the_whole_ttl(void **state)
{
    (void)state;
    for (uint32_t ttl = 1; ttl < 100000; ttl = ttl * 3 / 2 + 1) {
        assert_int_equal(hf_drift_valid_until(5000, 5000, ttl), 5000 + ttl);
        assert_int_equal(hf_drift_valid_until(5000, 5040, ttl), 5040 + ttl);
    }
}

static void a_slow_answer_gives_the_rest_of_the_lease(void **state)
{
    (void)state;
    /* A ttl of 10000 ms has a lease of 10675 ms, and 10675 * 0.98 = 10461.5. */
    assert_int_equal(hf_drift_valid_until(1000, 2000, 10000), 1000 + 10461);
    assert_int_equal(hf_drift_valid_until(1000, 1461, 10000), 1461 + 10000);
    assert_int_equal(hf_drift_valid_until(1000, 1462, 10000), 1000 + 10461);
    assert_int_equal(hf_drift_valid_until(1000, 99999, 10000), 1000 + 10461);
}

static void validity_is_rounded_down(void **state)
{
    (void)state;
    for (uint32_t ttl = 1; ttl < 3000; ttl++) {
        uint64_t lease = hf_drift_lease_ms(ttl);
        hf_time end = hf_drift_valid_until(0, 1000000, ttl);

        assert_true(end <= (hf_time)shortened(lease));
        assert_true(end >= (hf_time)shortened(lease) - 1);
    }
}

static void without_an_anchor_the_base_is_the_first_send(void **state)
{
    struct hf_anchor none = {.known = false, .sent = 99, .age_ms = 7};

    (void)state;
    assert_int_equal(hf_drift_lease_base(&none, 1234), 1234);
}

static void the_base_of_an_anchor_is_its_message_plus_its_age(void **state)
{
    struct hf_anchor now = {.known = true, .sent = 5000};
    struct hf_anchor old = {.known = true, .sent = 5000, .age_ms = 1000};

    (void)state;
    assert_int_equal(hf_drift_lease_base(&now, 1), 5000);
    assert_int_equal(hf_drift_lease_base(&old, 1), 5980);
    for (uint32_t age = 0; age < 5000; age++) {
        old.age_ms = age;
        assert_true(hf_drift_lease_base(&old, 1) <=
                    5000 + (hf_time)shortened(age));
        assert_true(hf_drift_lease_base(&old, 1) >=
                    5000 + (hf_time)shortened(age) - 1);
    }
}

static void a_lease_is_expired_when_it_is_on_the_slowest_clock(void **state)
{
    (void)state;
    for (uint32_t ttl = 1; ttl < 3000; ttl++)
        assert_true(hf_drift_expired_by(100, ttl) >
                    100 + (hf_time)hf_drift_lease_ms(ttl) * 102 / 100);
}

static void the_longest_lease_does_not_overflow(void **state)
{
    struct hf_anchor anchor = {true, HF_NEVER - 10, UINT32_MAX};

    (void)state;
    assert_int_equal(hf_drift_lease_base(&anchor, 1), HF_NEVER);
    assert_int_equal(
        hf_drift_valid_until(HF_NEVER - 10, HF_NEVER - 10, HF_TTL_MAX_MS),
        HF_NEVER);
    assert_int_equal(hf_drift_expired_by(HF_NEVER - 10, HF_TTL_MAX_MS),
                     HF_NEVER);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(the_requested_lease_is_longer_than_the_ttl),
        cmocka_unit_test(a_quick_answer_gives_the_whole_ttl),
        cmocka_unit_test(a_slow_answer_gives_the_rest_of_the_lease),
        cmocka_unit_test(validity_is_rounded_down),
        cmocka_unit_test(without_an_anchor_the_base_is_the_first_send),
        cmocka_unit_test(the_base_of_an_anchor_is_its_message_plus_its_age),
        cmocka_unit_test(a_lease_is_expired_when_it_is_on_the_slowest_clock),
        cmocka_unit_test(the_longest_lease_does_not_overflow),
    };

    return hf_test_main("drift", cases, HF_TEST_COUNT(cases), 0);
}
