#include "base/time.h"

#include <time.h>

#include "lib/runner.h"

/* If the clocks are simulated, the machine has been suspended for SUSPENDED_MS,
 * and this thread is preempted for PAUSE_MS before each of the next `pauses`
 * reads of a clock. */
#define SUSPENDED_MS 5000
#define PAUSE_MS 130

static struct {
    bool simulated;
    int pauses;
    int64_t awake_ms;
} clocks;

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    int64_t ms = 0;

    if (!clocks.simulated)
        return __real_clock_gettime(clock, now);
    if (clocks.pauses > 0) {
        clocks.pauses--;
        clocks.awake_ms += PAUSE_MS;
    }
    ms = clocks.awake_ms + (clock == CLOCK_BOOTTIME ? SUSPENDED_MS : 0);
    *now =
        (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    return 0;
}

static hf_time suspended_with_pauses(int pauses)
{
    hf_time suspended = 0;

    clocks.simulated = true;
    clocks.pauses = pauses;
    suspended = hf_time_suspended();
    clocks.simulated = false;
    return suspended;
}

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

static void the_earlier_instant_is_the_minimum(void **state)
{
    (void)state;
    assert_true(hf_time_min(3, 4) == 3);
    assert_true(hf_time_min(4, 3) == 3);
    assert_true(hf_time_min(HF_NEVER, 3) == 3);
    assert_true(hf_time_min(HF_NEVER, HF_NEVER) == HF_NEVER);
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

static void pauses_do_not_lengthen_the_suspension(void **state)
{
    (void)state;
    for (int pauses = 0; pauses < 100; pauses++)
        assert_true(suspended_with_pauses(pauses) <= SUSPENDED_MS);
    assert_true(suspended_with_pauses(0) == SUSPENDED_MS);
    assert_true(suspended_with_pauses(2) == SUSPENDED_MS);
    assert_true(suspended_with_pauses(4) == SUSPENDED_MS);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(sum_saturates_at_never),
        cmocka_unit_test(time_left_is_never_negative),
        cmocka_unit_test(time_left_saturates),
        cmocka_unit_test(the_earlier_instant_is_the_minimum),
        cmocka_unit_test(clock_is_monotonic_boot_time),
        cmocka_unit_test(pauses_do_not_lengthen_the_suspension),
    };

    return hf_test_main("time", cases, HF_TEST_COUNT(cases), 0);
}
