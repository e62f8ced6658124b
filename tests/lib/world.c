#include "lib/world.h"

#include <stdio.h>

#include "lib/runner.h"

#define STILL_MAX 100000 /* more steps at one time are a busy loop */
#define HOUR_MS 3600000

/* `on_clock` stands for another thread that acts between the reading of the
 * clock and its use. */
static hf_time clock_of(void *arg)
{
    struct hf_world *world = arg;
    hf_time now = world->now;
    void (*on_clock)(struct hf_world * world) = world->on_clock;

    world->on_clock = NULL;
    if (on_clock)
        on_clock(world);
    return now;
}

static void on_stall(void *arg, uint32_t ms)
{
    hf_world_jump(arg, ms);
}

void hf_world_init(struct hf_world *world, uint64_t seed)
{
    static unsigned world_count;

    *world = (struct hf_world){.seed = seed, .now = HF_WORLD_START};
    (void)snprintf(world->url, sizeof(world->url), "memory:world-%u",
                   world_count++);
    hf_random_init(&world->random, seed * 2 + 1);
    world->net = (struct hf_faulty_net){
        .clock = clock_of,
        .arg = world,
        .seed = seed * 2 + 2,
        .shared_clock = true,
        .stall = on_stall,
    };
    hf_faulty_use(&world->net);
}

void hf_world_fini(struct hf_world *world)
{
    for (unsigned i = 0; i < world->count; i++) {
        if (world->clients[i])
            (void)hf_world_close(world, world->clients[i]);
    }
    hf_faulty_use(NULL);
}

struct hf_client *hf_world_open(struct hf_world *world)
{
    const struct hf_strategy *faulty = world->without_lookup
                                           ? &hf_strategy_faulty_without_lookup
                                           : &hf_strategy_faulty;
    struct hf_env env = {
        .clock = clock_of,
        .strategy = world->plain ? NULL : faulty,
        .seed = world->seed * 64 + world->count + 3,
        .arg = world,
    };
    struct hf_client_opts opts;

    assert_true(world->count < HF_WORLD_CLIENTS_MAX);
    hf_client_opts_init(&opts);
    opts.owner = "world";
    assert_int_equal(
        hf_client_open(world->url, &opts, &env, &world->clients[world->count]),
        HF_OK);
    world->stopped[world->count] = 0;
    return world->clients[world->count++];
}

static unsigned find_number(const struct hf_world *world,
                            const struct hf_client *client)
{
    unsigned i = 0;

    while (i < world->count && world->clients[i] != client)
        i++;
    assert_true(i < world->count);
    return i;
}

enum hf_err hf_world_close(struct hf_world *world, struct hf_client *client)
{
    unsigned number = find_number(world, client);

    world->clients[number] = NULL;
    return hf_close(client, 0);
}

void hf_world_stop(struct hf_world *world, struct hf_client *client,
                   uint32_t ms)
{
    world->stopped[find_number(world, client)] = hf_time_add(world->now, ms);
}

void hf_world_note(struct hf_world *world, uint64_t what)
{
    world->trace = (world->trace ^ what) * UINT64_C(0x100000001b3);
    world->trace ^= world->trace >> 29;
}

/* ---- Time ---------------------------------------------------------------*/

/* When client `i` has something to do next. */
static hf_time client_due(const struct hf_world *world, unsigned i)
{
    const struct hf_client *client = world->clients[i];
    hf_time at;

    if (!client)
        return HF_NEVER;
    at = hf_loop_next_timer(client);
    if (!hf_dlist_is_empty(&client->loop.callbacks) ||
        !hf_dlist_is_empty(&client->loop.posts) || at < world->now)
        at = world->now;
    return at > world->stopped[i] ? at : world->stopped[i];
}

static hf_time next_instant(const struct hf_world *world)
{
    hf_time next = hf_faulty_next(&world->net);

    for (unsigned i = 0; i < world->count; i++) {
        if (client_due(world, i) < next)
            next = client_due(world, i);
    }
    return next;
}

static void process_client(struct hf_world *world, unsigned i)
{
    assert_int_equal(hf_process(world->clients[i]), HF_OK);
    hf_world_note(world, (uint64_t)world->now * 8 + i);
    if (world->observe)
        world->observe(world, world->observe_arg);
}

bool hf_world_step(struct hf_world *world, hf_time until)
{
    hf_time next = next_instant(world);
    unsigned first;

    if (next > until) {
        world->now = until > world->now ? until : world->now;
        return false;
    }
    world->still = next > world->now ? 0 : world->still + 1;
    assert_true(world->still < STILL_MAX);
    world->now = next > world->now ? next : world->now;
    hf_faulty_step(&world->net);
    first = hf_random_below(&world->random, world->count + 1);
    for (unsigned i = 0; i < world->count; i++) {
        unsigned at = (first + i) % world->count;

        if (world->clients[at] && client_due(world, at) <= world->now)
            process_client(world, at);
    }
    return true;
}

void hf_world_run(struct hf_world *world, uint32_t ms)
{
    hf_time until = hf_time_add(world->now, ms);

    while (hf_world_step(world, until))
        ;
}

void hf_world_jump(struct hf_world *world, uint32_t ms)
{
    world->now = hf_time_add(world->now, ms);
}

enum hf_err hf_world_wait(struct hf_world *world, struct hf_future *future)
{
    hf_time until = hf_time_add(world->now, HOUR_MS);
    enum hf_err err = HF_OK;

    while (!hf_future_done(future, &err))
        assert_true(hf_world_step(world, until));
    hf_future_free(future);
    return err;
}

/* ---- Short forms --------------------------------------------------------*/

enum hf_err hf_world_acquire(struct hf_world *world, struct hf_client *client,
                             const char *key, const struct hf_lock_opts *opts,
                             struct hf_lock **lock)
{
    struct hf_future *future;

    assert_int_equal(hf_acquire_start(client, hf_key_of(key), opts, lock, NULL,
                                      NULL, &future),
                     HF_OK);
    return hf_world_wait(world, future);
}

enum hf_err hf_world_release(struct hf_world *world, struct hf_lock *lock)
{
    struct hf_future *future;
    enum hf_err err = hf_release_start(lock, NULL, NULL, &future);

    return err ? err : hf_world_wait(world, future);
}

enum hf_err hf_world_renew(struct hf_world *world, struct hf_lock *lock,
                           uint32_t ttl_ms)
{
    struct hf_future *future;
    enum hf_err err = hf_renew_start(lock, ttl_ms, NULL, NULL, &future);

    return err ? err : hf_world_wait(world, future);
}

bool hf_world_is_held(struct hf_world *world, const char *key,
                      uint32_t *waiters)
{
    struct hf_client *client = hf_world_open(world);
    struct hf_future *future;
    struct hf_info info;
    bool held;

    assert_int_equal(hf_read_start(client, hf_key_of(key), HF_LINEARIZABLE,
                                   &info, NULL, NULL, &future),
                     HF_OK);
    assert_int_equal(hf_world_wait(world, future), HF_OK);
    held = info.held;
    if (waiters)
        *waiters = info.waiters;
    hf_info_fini(&info);
    assert_int_equal(hf_world_close(world, client), HF_OK);
    world->count--;
    return held;
}
