/* world.h - clients in one thread, with one clock that the test moves.
 *
 * Nothing happens but in hf_world_step(): it moves the clock to the next instant
 * at which anything is due, lets requests arrive (faulty.h), and processes the
 * clients that have something to do, in an order drawn by the seed. The same
 * seed and the same calls give the same trace.
 *
 * Blocking calls would wait for the real clock: start them, and hf_world_wait()
 * for their futures. Failures are cmocka assertions. */
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
    hf_time stopped[HF_WORLD_CLIENTS_MAX];           /* not driven until then */
    unsigned count;                                  /* ever opened */
    unsigned still; /* steps since the clock moved */
    uint64_t trace; /* a hash of all that happened */
    char url[32];
    bool plain; /* clients are opened without a network in between */
    void (*on_clock)(struct hf_world *world); /* a client reads it; or NULL */
    /* After each client's turn; may be NULL. */
    void (*observe)(struct hf_world *world, void *arg);
    void *observe_arg;
};

/* Where the clock begins: later than any real one, so that no descriptor of a
 * client's ever fires by itself. */
#define HF_WORLD_START INT64_C(1000000000000)

void hf_world_init(struct hf_world *world, uint64_t seed);

/* Closes what is open. */
void hf_world_fini(struct hf_world *world);

/* The same store for all, behind a network without faults. */
struct hf_client *hf_world_open(struct hf_world *world);

/* Give the client no time to say goodbye. */
enum hf_err hf_world_close(struct hf_world *world, struct hf_client *client);

/* A client that is not driven for a while, as by SIGSTOP. */
void hf_world_stop(struct hf_world *world, struct hf_client *client,
                   uint32_t ms);

/* One instant, if there is one up to `until`; else the clock goes there, and
 * the answer is false. */
bool hf_world_step(struct hf_world *world, hf_time until);

/* Let `ms` pass. */
void hf_world_run(struct hf_world *world, uint32_t ms);

/* The clock jumps, and nobody was there to see it. */
void hf_world_jump(struct hf_world *world, uint32_t ms);

/* Step until `future` is answered, free it, and say how. An hour at most. */
enum hf_err hf_world_wait(struct hf_world *world, struct hf_future *future);

/* Add to the trace. */
void hf_world_note(struct hf_world *world, uint64_t what);

/* ---- Short forms --------------------------------------------------------*/

/* hf_acquire_start() and hf_world_wait(). */
enum hf_err hf_world_lock(struct hf_world *world, struct hf_client *client,
                          const char *key, const struct hf_lock_opts *opts,
                          struct hf_lock **lock);
enum hf_err hf_world_unlock(struct hf_world *world, struct hf_lock *lock);
enum hf_err hf_world_renew(struct hf_world *world, struct hf_lock *lock,
                           uint32_t ttl_ms);

/* Whether somebody holds `key` by a look through a client of its own, and how
 * many wait. */
bool hf_world_held(struct hf_world *world, const char *key, uint32_t *waiters);

#endif
