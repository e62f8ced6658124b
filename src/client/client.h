/* client.h - one open client: the state that all of its modules share.
 *
 * `mutex` guards every member declared after it, except the atomics and the
 * posts in `loop`. Code that holds the mutex may change the state of calls,
 * locks and futures, but it only queues user callbacks: these run later and
 * without the mutex (loop.h).
 *
 * A public function that needs the mutex calls hf_client_enter(), does its
 * work, and calls hf_client_leave(). The time in between is one *turn*. One
 * pass of the event loop is a turn too. */
#ifndef HF_CLIENT_CLIENT_H
#define HF_CLIENT_CLIENT_H

#include <pthread.h>

#include "base/dlist.h"
#include "base/map.h"
#include "base/random.h"
#include "client/loop.h"
#include "strategy/strategy.h"

/* Dependencies that a test can replace. NULL or 0 selects the default. */
struct hf_env {
    hf_time (*clock)(void *arg);
    const struct hf_strategy *strategy; /* replaces the strategy of the URL */
    uint64_t seed;                      /* seed of the random generator */
    void *arg;                          /* passed to clock */
};

/* The state of hf_close_start(). */
struct hf_close {
    bool started;
    struct hf_timer timer; /* fires when drained, or at the deadline */
    hf_time deadline;
    struct hf_callback callback;
    hf_done_fn *done;
    void *arg;
    enum hf_err err;
};

struct hf_listener;
struct hf_opening;

struct hf_client {
    struct hf_host host;
    const uint32_t *alive; /* a page that reads 0 in a forked child */
    hf_time (*clock)(void *arg);
    void *clock_arg;
    clockid_t clock_id; /* the system clock that real_clock() reads */
    const struct hf_strategy *strategy;
    void *self; /* the strategy's state */
    uint32_t caps;
    char owner[HF_NOTE_MAX + 1];
    bool inherit;

    pthread_mutex_t turnstile; /* makes the mutex fair; see hf_client_lock() */
    pthread_mutex_t mutex;
    unsigned references; /* held by the opener, handles, futures, watches,
                            operations and threads */
    struct hf_opening *opening; /* not NULL while a thread opens the strategy */
    bool opened;                /* the strategy is open */
    bool closing;               /* new calls are refused */
    bool closed;                /* open calls have been abandoned */
    hf_time now;                /* valid if now_known; see hf_client_now() */
    bool now_known;
    struct hf_loop loop;
    struct hf_random random;
    struct hf_error error; /* the last failure, for hf_client_error() */

    uint64_t next_sequence;
    uint64_t next_watch;
    struct hf_dlist calls;       /* open commands and LOOKUPs, by sequence */
    struct hf_dlist parked;      /* commands and LOOKUPs that wait, without a
                                    number, until the window has room */
    struct hf_blocked *draining; /* the thread in hf_close() that waits until
                                    the client is drained (close.c) */
    struct hf_close close;       /* hf_close_start() */
    bool unconfirmed;            /* a withdrawal failed: its claim may last
                                    until its lease expires */
    struct hf_dlist locks;
    size_t driven_locks; /* locks with renewals or an event callback */
    struct hf_dlist watches;
    struct hf_dlist operations; /* open reads, lists, renewals, ... */
    struct hf_dlist withdrawals;
    struct hf_map waiting; /* queued locks, by nonce */
};

/* hf_open() with the dependencies in `env`. */
enum hf_err hf_client_open(const char *url, const struct hf_client_opts *opts,
                           const struct hf_env *env, struct hf_client **client);

/* hf_open_start() with the dependencies in `env`. */
enum hf_err hf_client_open_start(const char *url,
                                 const struct hf_client_opts *opts,
                                 const struct hf_env *env,
                                 struct hf_client **client,
                                 struct hf_listener listener);

/* Free the client. No thread and no object may refer to it any more, and its
 * strategy must be closed. */
void hf_client_destroy(struct hf_client *client);

/* Continue a close that was waiting until no call is open and the strategy is
 * not being opened. Does nothing if it still has to wait, or if the client is
 * not closing. */
void hf_close_on_drained(struct hf_client *client);

/* Lock the mutex and begin a turn. pthread_cancel() of this thread has no
 * effect until hf_client_leave(). On failure the mutex is not locked.
 *
 * HF_EFORK   this is a forked child
 * HF_ECLOSED the client is closed or closing, or hf_open_start() has failed
 * HF_ESTATE  hf_open_start() has not finished, even if the client is closing */
enum hf_err hf_client_enter(struct hf_client *client);

/* Like hf_client_enter(), but also enters a client that is opening, closing or
 * closed, for functions that only read, free, cancel, drive or close something.
 * Can fail with HF_EFORK only. */
enum hf_err hf_client_enter_any(struct hf_client *client);

/* Lock the mutex, after the threads that already wait for it. Without this
 * order, a thread that unlocks the mutex and locks it again would starve the
 * others. */
void hf_client_lock(struct hf_client *client);

/* Lock the mutex after a user callback. The callback may have forked: in the
 * child, the caller must not touch the strategy, whose connections are shared
 * with the parent. */
void hf_client_relock(struct hf_client *client);

static inline bool hf_client_is_forked(const struct hf_client *client)
{
    return *client->alive == 0;
}

/* Check that this thread may block on `client`. Blocking functions call this
 * before they start anything. Returns HF_EDEADLK inside a callback, HF_EINVAL
 * for NULL, or an error of hf_client_enter(). */
enum hf_err hf_client_may_block(struct hf_client *client);

/* End the turn: settle the calls that are answered, unlock the mutex and wake
 * the driver if it has work. Frees the client if it has no references. */
void hf_client_leave(struct hf_client *client);

void hf_client_ref(struct hf_client *client);

/* Drop a reference. If it is the last, hf_client_leave() frees the client. */
void hf_client_unref(struct hf_client *client);

/* Record an error for hf_client_error(). Returns `code`. */
enum hf_err hf_client_fail(struct hf_client *client, enum hf_err code,
                           const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline hf_time hf_client_clock(const struct hf_client *client)
{
    return client->clock(client->clock_arg);
}

/* The time of this turn. Only the first call in a turn reads the clock, because
 * a clock read costs as much as the rest of a short call. */
static inline hf_time hf_client_now(struct hf_client *client)
{
    if (!client->now_known) {
        client->now = hf_client_clock(client);
        client->now_known = true;
    }
    return client->now;
}

/* Convert `deadline` to CLOCK_MONOTONIC, for condition variables. */
struct timespec hf_client_monotonic(const struct hf_client *client,
                                    hf_time deadline);

/* Make the next hf_client_now() read the clock. */
static inline void hf_client_reset_now(struct hf_client *client)
{
    client->now_known = false;
}

#endif
