#include "base/time.h"

#include <time.h>

#include "lib/runner.h"

static void sum_saturates_at_never(void **state)
{
    (void)state;
    assert_true(hf_time_add(0, 0) == 0);
    assert_true(hf_time_add(5, 10) == 15);
    assert_true(hf_time_add(HF_NEVER - 5, 4) == HF_NEVER - 1);
    assert_true(hf_time_add(HF_NEVER - 5, 5) == HF_NEVER);
    assert_true(hf_time_add(HF_NEVER - 5, 6) == HF_NEVER);
    assert_true(hf_time_add(HF_NEVER, 1) == HF_NEVER);
    assert_true(hf_time_add(0, UINT64_MAX) == HF_NEVER);
    assert_true(hf_time_add(1, UINT64_MAX) == HF_NEVER);
    assert_true(hf_time_add(HF_NEVER, UINT64_MAX) == HF_NEVER);
}

static void time_left_is_never_negative(void **state)
{
    (void)state;
    assert_int_equal(hf_time_left(10, 10), 0);
    assert_int_equal(hf_time_left(10, 11), 0);
    assert_int_equal(hf_time_left(0, HF_NEVER), 0);
    assert_int_equal(hf_time_left(10, 9), 1);
}

static void time_left_saturates(void **state)
{
    (void)state;
    assert_true(hf_time_left(UINT32_MAX, 0) == UINT32_MAX);
    assert_true(hf_time_left((hf_time)UINT32_MAX + 1, 0) == UINT32_MAX);
    assert_true(hf_time_left(HF_NEVER, 0) == UINT32_MAX);
    assert_true(hf_time_left(HF_NEVER, HF_NEVER - 3) == 3);
}

static void clock_is_monotonic_boot_time(void **state)
{
    struct timespec boot;
    hf_time last = hf_time_now();

    (void)state;
    assert_int_equal(clock_gettime(CLOCK_BOOTTIME, &boot), 0);
    assert_true(last <= (hf_time)boot.tv_sec * 1000 + boot.tv_nsec / 1000000);
    for (int i = 0; i < 1000; i++) {
        hf_time now = hf_time_now();

        assert_true(now >= last);
        last = now;
    }
    assert_true(last >= (hf_time)boot.tv_sec * 1000);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(sum_saturates_at_never),
        cmocka_unit_test(time_left_is_never_negative),
        cmocka_unit_test(time_left_saturates),
        cmocka_unit_test(clock_is_monotonic_boot_time),
    };

    return hf_test_main("time", cases, HF_TEST_COUNT(cases), 0);
}
