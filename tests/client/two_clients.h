/* two_clients.h - a fixture with two clients of one store, `a` and `b`, whose
 * clock and network the test controls (lib/world.h). */
#ifndef HF_TESTS_CLIENT_TWO_CLIENTS_H
#define HF_TESTS_CLIENT_TWO_CLIENTS_H

#include "lib/runner.h"
#include "lib/world.h"

static struct hf_world world;
static struct hf_client *a, *b;

static int set_up(void **state)
{
    (void)state;
    hf_world_init(&world, 7);
    a = hf_world_open(&world);
    b = hf_world_open(&world);
    return 0;
}

static inline int set_up_without_lookup(void **state)
{
    (void)state;
    hf_world_init(&world, 7);
    world.without_lookup = true;
    a = hf_world_open(&world);
    b = hf_world_open(&world);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    hf_world_fini(&world);
    return 0;
}

static inline struct hf_lock_opts options(uint32_t ttl_ms, uint32_t wait_ms)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = ttl_ms;
    opts.wait_ms = wait_ms;
    return opts;
}

#define CASE_WITHOUT_LOOKUP(name)                                              \
    cmocka_unit_test_setup_teardown(name, set_up_without_lookup, tear_down)
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
