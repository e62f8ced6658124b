/* client.h - one open client: what its parts share.
 *
 * `mutex` guards everything below it. Whoever holds it may move the state of
 * calls, locks and futures on; user callbacks are only queued, and run without
 * the mutex by whoever *drives* (loop.h).
 *
 * Each public call is enter(), work, leave(). */
#ifndef HF_CLIENT_CLIENT_H
#define HF_CLIENT_CLIENT_H

#include <pthread.h>

#include "base/dlist.h"
#include "base/map.h"
#include "base/random.h"
#include "client/loop.h"
#include "strategy/strategy.h"

/* What a test may put in place of the world. NULL members: the real thing. */
struct hf_env {
    hf_time (*clock)(void *arg);
    const struct hf_strategy *strategy; /* instead of the URL's scheme */
    uint64_t seed;                      /* of the randomness; 0: real */
    void *arg;                          /* for clock */
};

/* A close that runs in the background. */
struct hf_close {
    bool started;
    struct hf_timer timer; /* at its deadline, or when all is confirmed */
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
    clockid_t clock_id; /* of the real clock */
    const struct hf_strategy *strategy;
    void *self; /* the strategy's state */
    uint32_t caps;
    char owner[HF_NOTE_MAX + 1];
    bool inherit;

    pthread_mutex_t turnstile; /* held by the next to have the mutex */
    pthread_mutex_t mutex;
    unsigned references; /* the opener, handles, futures, watches, calls */
    struct hf_opening *opening; /* until hf_open_start() has ended */
    bool opened;                /* the strategy is, and not yet closed */
    bool closing;               /* no new calls */
    bool closed;                /* nothing is answered any more */
    hf_time now;                /* of this turn, once somebody has asked */
    bool now_known;
    struct hf_loop loop;
    struct hf_random random;
    struct hf_error error; /* the last failure */

    uint64_t next_sequence;
    uint64_t next_watch;
    struct hf_dlist calls;       /* numbered and unanswered, by sequence */
    struct hf_dlist parked;      /* calls that wait for the window to move */
    struct hf_blocked *draining; /* hf_close(): until there are no calls */
    struct hf_close close;       /* hf_close_start() */
    bool unconfirmed; /* a withdrawal was: a lock may stay for its lease */
    struct hf_dlist locks;
    size_t driven_locks; /* of them: to be renewed, or with events */
    struct hf_dlist watches;
    struct hf_dlist operations; /* reads, waits, ... that hf_close() ends */
    struct hf_dlist withdrawals;
    struct hf_map waiting; /* locks in line, by nonce */
};

/* hf_open() with parts of the world replaced. */
enum hf_err hf_client_open(const char *url, const struct hf_client_opts *opts,
                           const struct hf_env *env, struct hf_client **client);

/* hf_open_start() in the same way. */
enum hf_err hf_client_open_start(const char *url,
                                 const struct hf_client_opts *opts,
                                 const struct hf_env *env,
                                 struct hf_client **client,
                                 struct hf_listener listener);

/* Free it: nobody refers to it any more. */
void hf_client_destroy(struct hf_client *client);

/* A call was the last one, or the client has opened: if it closes, go on. */
void hf_close_on_drained(struct hf_client *client);

/* Lock the mutex and begin a turn; the thread is not cancelled until it leaves.
 * HF_EFORK, HF_ECLOSED, HF_ESTATE (it is being opened): not locked. */
enum hf_err hf_client_enter(struct hf_client *client);

/* Lock the mutex after whoever waits for it already. A thread that drops the
 * mutex only to take it again would else keep all others out. */
void hf_client_lock(struct hf_client *client);

/* The same, also while closing: for what ends things. */
enum hf_err hf_client_enter_any(struct hf_client *client);

/* Lock it after user code has returned. If that has forked, and this is the
 * child, nothing more may be done: the connections are the parent's. */
void hf_client_relock(struct hf_client *client);

static inline bool hf_client_is_forked(const struct hf_client *client)
{
    return *client->alive == 0;
}

/* Whether this thread may block on `client` (NULL: HF_EINVAL) at all, asked
 * before anything is begun: HF_EDEADLK inside a callback. */
enum hf_err hf_client_may_block(struct hf_client *client);

/* Move on whatever is answered, wake whom it concerns, unlock. */
void hf_client_leave(struct hf_client *client);

/* Count one more, or one less: hf_client_leave() frees what nobody counts. */
void hf_client_ref(struct hf_client *client);
void hf_client_unref(struct hf_client *client);

/* Keep a failure's words for hf_client_error(), and return its code. */
enum hf_err hf_client_fail(struct hf_client *client, enum hf_err code,
                           const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline hf_time hf_client_clock(const struct hf_client *client)
{
    return client->clock(client->clock_arg);
}

/* The time of this turn: read when it is first asked for, because a clock read
 * costs as much as all else that a short call does. */
static inline hf_time hf_client_now(struct hf_client *client)
{
    if (!client->now_known) {
        client->now = hf_client_clock(client);
        client->now_known = true;
    }
    return client->now;
}

/* `deadline` by the clock that condition variables can wait by. */
struct timespec hf_client_monotonic(const struct hf_client *client,
                                    hf_time deadline);

/* A new turn. */
static inline void hf_client_reset_now(struct hf_client *client)
{
    client->now_known = false;
}

#endif
