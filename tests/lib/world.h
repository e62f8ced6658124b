/* world.h - clients in one thread, with one clock that the test moves.
 *
 * Everything happens in hf_world_step(), which moves the clock to the next time
 * at which anything is due, delivers requests (faulty.h), and processes the
 * clients that have something to do, in an order that the seed determines. The
 * same seed and the same calls give the same trace.
 *
 * Blocking calls would wait for the real clock: use the calls that return a
 * future, and hf_world_wait(). Failures are cmocka assertions. */
#ifndef HF_TESTS_LIB_WORLD_H
#define HF_TESTS_LIB_WORLD_H

#include "lib/faulty.h"

#define HF_WORLD_CLIENTS_MAX 8

struct hf_world {
    uint64_t seed;
    hf_time now;
    struct hf_random random;
    struct hf_faulty_net net;
    struct hf_client *clients[HF_WORLD_CLIENTS_MAX]; /* NULL: closed */
    hf_time stopped[HF_WORLD_CLIENTS_MAX]; /* until when a client is stopped */
    unsigned count;                        /* entries of `clients` in use */
    unsigned still;                        /* steps since the clock moved */
    uint64_t trace; /* hash of all numbers given to hf_world_note() */
    char url[32];
    bool plain;          /* open clients without the faulty network */
    bool without_lookup; /* open clients whose strategy serves no LOOKUP */
    /* Called at the next reading of the clock only; may be NULL. */
    void (*on_clock)(struct hf_world *world);
    /* Called after each hf_process(); may be NULL. */
    void (*observe)(struct hf_world *world, void *arg);
    void *observe_arg;
};

/* The start of the clock: later than any real clock, so that no timerfd of a
 * client ever fires. */
#define HF_WORLD_START INT64_C(1000000000000)

void hf_world_init(struct hf_world *world, uint64_t seed);

/* Close the open clients. */
void hf_world_fini(struct hf_world *world);

/* Open a client. All clients share a store. Unless `plain` is set, they reach
 * it through `net`, which has no faults until the test adds cues, odds or a
 * cut. */
struct hf_client *hf_world_open(struct hf_world *world);

/* Close a client with a timeout of 0, so that it does not wait for its
 * releases. */
enum hf_err hf_world_close(struct hf_world *world, struct hf_client *client);

/* Do not process a client for `ms`, as if it got SIGSTOP. */
void hf_world_stop(struct hf_world *world, struct hf_client *client,
                   uint32_t ms);

/* Advance to the next time at which something is due. If that is after `until`,
 * set the clock to `until` and return false. */
bool hf_world_step(struct hf_world *world, hf_time until);

/* Step for `ms`. */
void hf_world_run(struct hf_world *world, uint32_t ms);

/* Move the clock without processing anything. */
void hf_world_jump(struct hf_world *world, uint32_t ms);

/* Step until `future` is done, free it, and return its result. The case fails
 * if that takes longer than an hour. */
enum hf_err hf_world_wait(struct hf_world *world, struct hf_future *future);

/* Add a number to the hash in `trace`. */
void hf_world_note(struct hf_world *world, uint64_t what);

/* ---- Short forms --------------------------------------------------------*/

/* Start the call, and wait for its result with hf_world_wait(). */
enum hf_err hf_world_acquire(struct hf_world *world, struct hf_client *client,
                             const char *key, const struct hf_lock_opts *opts,
                             struct hf_lock **lock);
enum hf_err hf_world_release(struct hf_world *world, struct hf_lock *lock);
enum hf_err hf_world_renew(struct hf_world *world, struct hf_lock *lock,
                           uint32_t ttl_ms);

/* Read `key` with a new client. Returns true if the key is held, and stores the
 * number of waiters in `*waiters`, which may be NULL. */
bool hf_world_is_held(struct hf_world *world, const char *key,
                      uint32_t *waiters);

#endif
