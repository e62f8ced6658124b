/* workload.h - a simulation: several clients of one store, used at random.
 *
 *   workload.c          what the clients do
 *   workload_calls.c    their calls, and how these are recorded in the history
 *   workload_checks.c   the invariants, checked after every turn and at the end
 *   workload_faults.c   faults of the network, clocks and processes
 *
 * Every random decision comes from `sim->random`, so that a seed reproduces a
 * run. Failures are cmocka assertions. */
#ifndef HF_TESTS_CLIENT_WORKLOAD_H
#define HF_TESTS_CLIENT_WORKLOAD_H

#include <stdio.h>

#include "hf-check/recorder.h"
#include "lib/runner.h"
#include "lib/world.h"

enum {
    CLIENTS_MAX = 4,
    CLAIMS_PER_CLIENT = 3,
    KEYS_MAX = 3,
    TTL_MAX_MS = 3000,
    TIMEOUT_MAX_MS = 3000,
    SLOW_MS = 6100, /* a slow request, or its answer, takes up to this */
    ANSWERS_MS = 2 * SLOW_MS + 2000, /* all calls complete within this time
                                        after the last fault */
};

/* The faults, and other rare actions, that a seed may draw. */
struct plan {
    bool network, clocks, stops, cuts, closes;
    bool sessions;  /* the server closes sessions of clients that are open */
    bool transfers; /* locks are detached, and adopted by another client */
    /* The server loses its data now and then. Two clients may then hold a key,
     * and tokens may decrease, so neither is checked. */
    bool loses_data;
};

/* One handle, used for one claim after another. */
struct claim {
    struct sim *sim;
    unsigned client, key;
    struct hf_lock *lock; /* may be NULL */
    struct hf_future *future;
    bool own_handle; /* from hf_lock_new(), so it can be freed at any time */
    bool has_events; /* the handle has an event callback */
    bool claiming, held, releasing;
    /* The claim succeeded, and the lock was not released or detached since. */
    bool granted;
    bool adopted;    /* the lock was adopted; it is not in the history */
    unsigned events; /* events reported so far: bits 1 << enum hf_lock_event */
    uint64_t token;
    size_t lock_op;
    hf_time claimed_at;
    uint32_t lease_ms;
    unsigned grants;  /* how often the handle was granted its key */
    unsigned count;   /* the value of the lock, which UPDATE increments */
    bool is_counting; /* `count` is known */
    bool is_updating; /* an UPDATE that increments `count` is open */
    unsigned open;    /* calls without a result */
};

/* One call that has not completed. */
struct call {
    struct sim *sim;
    struct claim *claim; /* NULL if the call is not on a handle */
    unsigned client;
    enum hf_op_kind kind;
    bool recorded;   /* sim_call_begin() was called */
    bool of_adopted; /* the claim was adopted when the call started */
    /* An UPDATE of claim->count: claim->grants when it started. Otherwise 0. */
    unsigned grant;
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
    struct claim claims[CLIENTS_MAX * CLAIMS_PER_CLIENT];
    struct hf_faulty_odds odds;
    uint64_t started, completed; /* calls */
    bool ending;                 /* the run is ending: start no new claims */
    bool verbose; /* print a trace, because one seed is replayed */
};

extern const char *const sim_keys[KEYS_MAX];

/* Print what a client does, if a single seed is replayed. */
#define TRACE(sim, ...)                                                        \
    do {                                                                       \
        if ((sim)->verbose) {                                                  \
            printf("%10lld  ",                                                 \
                   (long long)((sim)->world.now - HF_WORLD_START));            \
            printf(__VA_ARGS__);                                               \
            printf("\n");                                                      \
        }                                                                      \
    } while (0)

/* Fail with a message, unless `condition` is true. */
#define REQUIRE(sim, condition, ...)                                           \
    do {                                                                       \
        if (!(condition)) {                                                    \
            printf("%lld ms: ",                                                \
                   (long long)((sim)->world.now - HF_WORLD_START));            \
            printf(__VA_ARGS__);                                               \
            printf("\n");                                                      \
            fail();                                                            \
        }                                                                      \
    } while (0)

/* sim_below() returns a random number below `bound`. sim_chance() returns true
 * with a probability of `percent`. */
uint32_t sim_below(struct sim *sim, uint32_t bound);
bool sim_chance(struct sim *sim, uint32_t percent);

/* Let the clients act for `ms`. */
void sim_run(struct sim *sim, uint32_t ms);

/* Start to release the lock. */
void sim_unlock(struct claim *claim);

/* Free the handle. A lock that it holds is released in the background. */
void sim_free_handle(struct claim *claim);

/* Return the time for the history: nanoseconds since the start of the run, plus
 * 1. */
uint64_t sim_now(const struct sim *sim);

/* Write the nonce of `lock` as hexadecimal digits and a terminating 0. */
void sim_nonce_text(const struct hf_lock *lock, char *text);

/* Allocate the struct of a call before the library is called; `claim` may be
 * NULL. If the library refuses the call, free() the struct. Otherwise call
 * sim_call_started() and, after the result has arrived, sim_call_complete(). A
 * call that the history contains also needs sim_call_begin() and
 * sim_call_end(). */
struct call *sim_call_new(struct sim *sim, struct claim *claim,
                          unsigned client);
void sim_call_started(struct call *call);

/* Record the start of the operation in the history. */
void sim_call_begin(struct call *call, enum hf_op_kind kind, unsigned key);

/* Record the end of the operation, if its start was recorded. `deadline` is
 * when the validity of a granted or renewed lock ends. */
void sim_call_end(struct call *call, enum hf_err err, hf_time deadline);

/* Check a call whose result was delivered, and free it. */
void sim_call_complete(struct call *call, enum hf_err err);

/* Record a release in the background, whose result is never known. */
void sim_record_background_release(struct claim *claim);

/* While a claim waits, it may be granted and expire without the client's
 * knowledge, once for each lease that fits into the wait. Record that these
 * grants are possible. */
void sim_record_missed_grants(struct claim *claim);

/* The `observe` callback of the world: check that each key has at most one
 * valid holder, and that losses are reported. */
void sim_observe(struct hf_world *world, void *arg);

/* Fail if an unlock returned HF_OK although the server has not ended the
 * claim. */
void sim_check_unlock(const struct call *call, enum hf_err err);

/* Fail if the client has lost a lock and LOST is not reported yet. Called by
 * other callbacks, which must not run before LOST. */
void sim_check_lost_first(struct sim *sim, unsigned client);

/* Check that no key is held and that no claim waits. */
void sim_check_nothing_is_left(struct sim *sim);

void sim_check_history(struct sim *sim);

/* Draw, for the whole run, the odds of faults and the rate of the clock. */
void sim_draw_faults(struct sim *sim);

/* For each of `stops`, `cuts`, `sessions`, `closes` and `loses_data` in the
 * plan, draw whether it happens now. The first four hit `client`. */
void sim_inject_fault(struct sim *sim, unsigned client);

/* Returns true if the client is stopped, as by SIGSTOP. */
bool sim_is_stopped(const struct sim *sim, unsigned client);

/* End all faults, start no new claims, and release the locks of the clients
 * that are open. */
void sim_heal(struct sim *sim);

#endif
