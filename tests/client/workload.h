/* workload.h - several clients of one store, used at random, from one seed.
 *
 *   workload.c           what the clients do
 *   workload_calls.c     their calls, as the history has them
 *   workload_checks.c    what must be true, after every turn and at the end
 *   workload_trouble.c   what goes wrong: networks, clocks, stopped processes
 *
 * All that is drawn is drawn from `sim->random`, in the same order each time.
 * Failures are cmocka assertions. */
#ifndef HF_TESTS_CLIENT_WORKLOAD_H
#define HF_TESTS_CLIENT_WORKLOAD_H

#include <stdio.h>

#include "hf-check/recorder.h"
#include "lib/runner.h"
#include "lib/world.h"

enum {
    CLIENTS_MAX = 4,
    CLAIMS_A_CLIENT = 3,
    KEYS_MAX = 3,
    TTL_MAX_MS = 3000,
    TIMEOUT_MAX_MS = 3000,
    ANSWERS_MS = 8000, /* until a call notices that all is well again */
};

/* What a case is about: which kinds of trouble its seeds may draw. */
struct plan {
    bool network, clocks, stops, cuts, closes;
    bool transfers; /* locks are detached, and adopted by another client */
    bool forgets;   /* the server loses its data now and then: whatever needs
                       its memory (one holder, rising tokens) is not checked */
};

/* One handle, used for one claim after another. */
struct claim {
    struct sim *sim;
    unsigned client, key;
    struct hf_lock *lock; /* NULL: none */
    struct hf_future *future;
    bool own_handle; /* made idle first, so that it can be freed at any time */
    bool listens;
    bool claiming, held, releasing;
    bool mine; /* the answer was "granted", and it was not given back since */
    bool adopted; /* from another client: the history has nothing of it */
    unsigned told;
    uint64_t token;
    size_t lock_op;
    hf_time claimed_at;
    uint32_t lease_ms;
    unsigned open; /* calls */
};

/* One call that is not answered yet. */
struct call {
    struct sim *sim;
    struct claim *claim; /* NULL: of no handle */
    unsigned client;
    enum hf_op_kind kind;
    bool recorded;
    bool of_adopted; /* its claim was adopted when it began */
    size_t op;
    uint64_t token;
    struct hf_info info;
    enum hf_freed freed;
    char nonce[2 * HF_NONCE_SIZE + 1];
};

struct sim {
    uint64_t seed;
    const struct plan *plan;
    struct hf_world world;
    struct hf_random random;
    struct hf_recorder recorder;
    struct hf_client *clients[CLIENTS_MAX];
    hf_time next_action[CLIENTS_MAX];
    bool closed[CLIENTS_MAX];
    unsigned client_count, key_count;
    struct claim claims[CLIENTS_MAX * CLAIMS_A_CLIENT];
    struct hf_faulty_odds odds;
    uint64_t top[KEYS_MAX]; /* the largest token granted so far */
    uint64_t started, answered;
    bool ending;
    bool talk;
};

extern const char *const sim_keys[KEYS_MAX];

/* Where one seed is replayed, say what happens. */
#define TALK(sim, ...)                                                         \
    do {                                                                       \
        if ((sim)->talk) {                                                     \
            printf("%10lld  ",                                                 \
                   (long long)((sim)->world.now - HF_WORLD_START));            \
            printf(__VA_ARGS__);                                               \
            printf("\n");                                                      \
        }                                                                      \
    } while (0)

/* Fail, and say when and why, unless `condition` is true. */
#define DEMAND(sim, condition, ...)                                            \
    do {                                                                       \
        if (!(condition)) {                                                    \
            printf("%lld ms: ",                                                \
                   (long long)((sim)->world.now - HF_WORLD_START));            \
            printf(__VA_ARGS__);                                               \
            printf("\n");                                                      \
            fail();                                                            \
        }                                                                      \
    } while (0)

/* A number below `bound`; true so many times in a hundred. */
uint32_t sim_below(struct sim *sim, uint32_t bound);
bool sim_chance(struct sim *sim, uint32_t in_a_hundred);

/* Let the clients act for `ms`. */
void sim_run(struct sim *sim, uint32_t ms);

/* Give back what is held. */
void sim_unlock(struct claim *claim);

/* Free the handle; what it holds is given back behind. */
void sim_free_handle(struct claim *claim);

/* Now, as the history counts: nanoseconds since the start, from 1. */
uint64_t sim_now(const struct sim *sim);

/* The nonce of `lock` as hexadecimal digits, and a 0. */
void sim_nonce_text(const struct hf_lock *lock, char *text);

/* A call that is to be made; `claim` may be NULL. Free it, or see it through
 * started, perhaps begin and end, and answered. */
struct call *sim_call_new(struct sim *sim, struct claim *claim,
                          unsigned client);
void sim_call_started(struct call *call);

/* The operation begins now, in the history. */
void sim_call_begin(struct call *call, enum hf_op_kind kind, unsigned key);

/* It ends now, if it ever began there. `deadline`: of what it granted. */
void sim_call_end(struct call *call, enum hf_err err, hf_time deadline);

/* Every answer passes here, once: `call` is gone after it. */
void sim_call_answered(struct call *call, enum hf_err err);

/* What is held is given back behind, and nobody hears how that ends. */
void sim_record_unheard(struct claim *claim);

/* Who waited may have had its turn before, unheard, and lost it again: each
 * lease that fits into the wait may have been such a one. */
void sim_record_missed_turns(struct claim *claim);

/* hf_world.observe: one holder at most, and losses are told. */
void sim_observe(struct hf_world *world, void *arg);

/* HF_OK from an unlock means that the server has carried one out. */
void sim_check_unlock(const struct call *call, enum hf_err err);

/* One that was stopped hears LOST before anything else. */
void sim_check_lost_first(struct sim *sim, unsigned client);

/* Nobody holds anything, and nobody waits. */
void sim_check_nothing_is_left(struct sim *sim);

void sim_check_history(struct sim *sim);

/* What the plan allows: for the whole seed, and now and then. */
void sim_draw_trouble(struct sim *sim);
void sim_trouble(struct sim *sim, unsigned client);

/* Whether the client is not driven now, as by SIGSTOP. */
bool sim_is_stopped(const struct sim *sim, unsigned client);

/* All is well from now on, and nobody begins anything new. */
void sim_heal(struct sim *sim);

#endif
