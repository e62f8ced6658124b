#include "node/redial.h"

#include "lib/runner.h"

#define DRAWS 200 /* random pauses that are compared */

static struct hf_random chance;

static int set_up(void **state)
{
    (void)state;
    hf_random_init(&chance, 1);
    return 0;
}

/* Expect the next pause to be drawn from `ms / 2` to `ms`, and count it. All of
 * the pauses that could be drawn now are tested. */
static void expect_pause(struct hf_redial *redial, uint32_t ms)
{
    uint32_t least = UINT32_MAX, most = 0;

    for (unsigned i = 0; i < DRAWS; i++) {
        struct hf_redial copy = *redial;
        uint32_t pause = hf_redial_pause(&copy, &chance);

        least = pause < least ? pause : least;
        most = pause > most ? pause : most;
    }
    assert_in_range(least, ms / 2, ms / 2 + ms / 8);
    assert_in_range(most, ms - ms / 8, ms);
    (void)hf_redial_pause(redial, &chance);
}

/* ---- Attempts that fail -------------------------------------------------*/

static void the_first_attempt_is_made_at_once(void **state)
{
    struct hf_redial redial = {0};

    (void)state;
    expect_pause(&redial, 0);
}

static void pauses_double_up_to_half_a_second(void **state)
{
    static const uint32_t pauses[] = {0, 40, 80, 160, 320, 500, 500, 500};
    struct hf_redial redial = {0};

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(pauses); i++) {
        expect_pause(&redial, pauses[i]);
        hf_redial_on_failure(&redial);
    }
    for (unsigned i = 0; i < 1000000; i++)
        (void)hf_redial_pause(&redial, &chance);
    expect_pause(&redial, 500);
}

/* ---- Connections that end -----------------------------------------------*/

/* It accepts the connection, and closes it when it has read the HELLO. */
static void a_peer_that_refuses_is_not_flooded(void **state)
{
    static const uint32_t pauses[] = {0, 40, 80, 160, 320, 500, 500};
    struct hf_redial redial = {0};

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(pauses); i++) {
        expect_pause(&redial, pauses[i]);
        hf_redial_on_end(&redial, 999, false);
    }
}

static void a_connection_that_has_lasted_is_made_again_at_once(void **state)
{
    struct hf_redial redial = {0};

    (void)state;
    for (unsigned i = 0; i < 10; i++)
        (void)hf_redial_pause(&redial, &chance);
    hf_redial_on_end(&redial, 1000, false);
    expect_pause(&redial, 0);
    expect_pause(&redial, 40);
}

/* ---- Peers that do not read ---------------------------------------------*/

/* A stopped process: its kernel accepts connections. That each has lasted for
 * more than a second does not matter. */
static void pauses_after_overflows_double_up_to_four_seconds(void **state)
{
    static const uint32_t pauses[] = {500, 1000, 2000, 4000, 4000, 4000};
    struct hf_redial redial = {0};

    (void)state;
    expect_pause(&redial, 0);
    for (size_t i = 0; i < HF_TEST_COUNT(pauses); i++) {
        hf_redial_on_end(&redial, 9999, true);
        expect_pause(&redial, pauses[i]);
    }
    for (unsigned i = 0; i < 1000000; i++)
        hf_redial_on_end(&redial, 0, true);
    expect_pause(&redial, 4000);
}

static void overflow_twice(struct hf_redial *redial)
{
    *redial = (struct hf_redial){0};
    for (unsigned i = 0; i < 2; i++) {
        (void)hf_redial_pause(redial, &chance);
        hf_redial_on_end(redial, 0, true);
    }
}

/* A connection that ends otherwise, or an attempt that fails, shows that the
 * process is not stopped any more. */
static void only_overflows_in_a_row_make_pauses_longer(void **state)
{
    struct hf_redial redial;

    (void)state;
    overflow_twice(&redial);
    expect_pause(&redial, 1000);
    hf_redial_on_failure(&redial);
    expect_pause(&redial, 160);
    overflow_twice(&redial);
    (void)hf_redial_pause(&redial, &chance);
    hf_redial_on_end(&redial, 1000, false);
    expect_pause(&redial, 0);
}

static void a_peer_that_has_read_for_long_gets_the_shortest_pause(void **state)
{
    struct hf_redial redial;

    (void)state;
    overflow_twice(&redial);
    hf_redial_on_end(&redial, 10000, true);
    expect_pause(&redial, 500);
}

#define CASE(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(the_first_attempt_is_made_at_once),
        CASE(pauses_double_up_to_half_a_second),
        CASE(a_peer_that_refuses_is_not_flooded),
        CASE(a_connection_that_has_lasted_is_made_again_at_once),
        CASE(pauses_after_overflows_double_up_to_four_seconds),
        CASE(only_overflows_in_a_row_make_pauses_longer),
        CASE(a_peer_that_has_read_for_long_gets_the_shortest_pause),
    };

    return hf_test_main("redial", cases, HF_TEST_COUNT(cases), 0);
}
