/* torture.h - the parts of `torture`, which tests a store with many processes.
 *
 *     torture.c          the verb: options and report
 *     torture_run.c      the rounds: starts workers, disturbs them, checks
 *     torture_worker.c   a worker process: a client that uses locks at random
 *     torture_history.c  the history of a round, built from what workers send
 *
 * A run is a sequence of rounds. Each round has its own keys and its own worker
 * processes, so that its history can be checked by itself, and memory is
 * limited. Workers send an event to the parent before and after each call,
 * through one pipe. All times are nanoseconds of CLOCK_BOOTTIME, because that
 * is the clock of hf_lock_deadline(). */
#ifndef CLI_TORTURE_H
#define CLI_TORTURE_H

#include <holdfast.h>
#include <stdatomic.h>

#include "args.h"
#include "hf-check/check.h"
#include "hf-check/recorder.h"

#define TORTURE_CLIENTS_MAX 256
#define TORTURE_KEYS_MAX 1024
#define TORTURE_KILLS_MAX 1024 /* in a round */
#define TORTURE_WORKERS_MAX (TORTURE_CLIENTS_MAX + TORTURE_KILLS_MAX)
#define TORTURE_OPERATIONS_MAX 100000u /* in a round; ends it early */
#define TORTURE_KEY_SIZE 96

/* What does not change during a run. */
struct torture_plan {
    const char *url;
    uint32_t caps;
    uint32_t ttl_ms;
    uint32_t for_ms;
    unsigned clients, keys;
    bool kill;
    uint64_t seed;
    uint64_t run; /* part of each key, so that two runs share no key */
};

/* Write the text of a key, "holdfast-torture/RUN/ROUND/NUMBER". */
void torture_key(const struct torture_plan *plan, uint32_t round,
                 uint32_t number, char key[TORTURE_KEY_SIZE]);

/* A pseudo-random number below `limit`, which is at least 1. */
uint64_t torture_random(uint64_t *state, uint64_t limit);

/* The time, in nanoseconds of CLOCK_BOOTTIME. */
uint64_t torture_now(void);

/* ---- Events of workers --------------------------------------------------*/

enum torture_event_kind {
    TORTURE_BEGIN,  /* a call begins */
    TORTURE_END,    /* the current call has ended */
    TORTURE_LOST,   /* the library has reported the loss of a lock */
    TORTURE_FAILED, /* the store could not be opened */
};

/* An event, as it is sent through the pipe. Members that do not belong to its
 * kind are 0. A worker makes one call at a time. */
struct torture_event {
    enum torture_event_kind kind;
    uint32_t client; /* number of the worker, unique in its round */
    uint32_t key;
    enum hf_op_kind call;         /* BEGIN */
    enum hf_err err;              /* END, FAILED */
    uint8_t nonce[HF_NONCE_SIZE]; /* zeros if it is not known */
    uint64_t token;
    uint64_t now;
    uint64_t deadline; /* BEGIN: before the call; END: after it */
    uint64_t lease;    /* BEGIN of a lock or a renewal */
};

/* ---- Workers ------------------------------------------------------------*/

/* What a worker needs besides the plan. */
struct torture_job {
    uint32_t round;
    uint32_t client;
    int events;              /* the pipe to the parent */
    const atomic_bool *stop; /* shared: end as soon as possible */
};

/* Use locks until job->stop is set, then release everything. Runs in a forked
 * child, which ends with the returned status. */
int torture_worker_main(const struct torture_plan *plan,
                        const struct torture_job *job);

/* ---- The history of a round ---------------------------------------------*/

struct torture_counts {
    uint64_t operations, grants;
    uint64_t busy;     /* claims that were refused, or timed out in the queue */
    uint64_t in_doubt; /* calls whose answer was lost, or that never ended */
    uint64_t kills, stops;
};

/* The last call of a worker. */
struct torture_call {
    bool pending;
    size_t op; /* its handle in the recorder */
    enum hf_op_kind kind;
    uint32_t key;
    uint64_t invoke, deadline, lease;
};

struct torture_history {
    const struct torture_plan *plan;
    struct torture_counts *counts;
    enum hf_err *last_err; /* of a call that was neither busy nor timed out */
    uint32_t round;
    struct hf_recorder recorder;
    struct torture_call calls[TORTURE_WORKERS_MAX];
};

void torture_history_init(struct torture_history *history,
                          const struct torture_plan *plan, uint32_t round,
                          struct torture_counts *counts, enum hf_err *last_err);
void torture_history_fini(struct torture_history *history);

void torture_history_add(struct torture_history *history,
                         const struct torture_event *event);

/* Record that the parent kills a worker now. */
void torture_history_kill(struct torture_history *history, uint32_t client);

/* Record that a worker has died, at an unknown time after its last event. */
void torture_history_death(struct torture_history *history, uint32_t client);

/* Record that the parent stops or continues a worker now. */
void torture_history_note(struct torture_history *history, const char *action,
                          uint32_t client);

/* Count the calls that never ended as in doubt, and check the history. */
void torture_history_check(struct torture_history *history,
                           struct hf_check_report *report);

/* ---- The run ------------------------------------------------------------*/

/* The result of a run. The history is that of the last round. */
struct torture_result {
    struct torture_counts counts;
    uint32_t rounds;
    uint64_t elapsed_ms;
    enum hf_err last_err;
    int signal; /* the signal that ended the run, or 0 */
    int status; /* of a failure that was reported, or 0 */
    bool has_history;
    struct torture_history history;
    struct hf_check_report report;
};

/* Run rounds until a violation is found, the time has passed, a signal arrives,
 * or a worker fails. The caller calls torture_history_fini() if `has_history`
 * is set. */
void torture_run(const struct args *args, const struct torture_plan *plan,
                 struct torture_result *result);

#endif
