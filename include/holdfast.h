/* holdfast.h - a keyed mutex for threads, processes and fleets of machines.
 *
 * Copyright (c) the holdfast authors. SPDX-License-Identifier: MIT
 *
 * A *client* is opened by a URL, which chooses the strategy behind the locks.
 * A *lock* is one claim on one key: it is granted with a *token*, and it is
 * held for a *lease* of ttl_ms, which renewals make longer.
 *
 *     struct hf_client *client;
 *     struct hf_lock *lock;
 *
 *     if (hf_open("memory:demo", NULL, &client) != HF_OK)
 *         return 1;
 *     if (hf_acquire(client, hf_key_of("nightly"), NULL, &lock) == HF_OK) {
 *         ...work, while hf_lock_valid_for(lock, 0)...
 *         hf_release(lock);
 *         hf_lock_free(lock);
 *     }
 *     hf_close(client, 1000);
 *
 * What is promised
 *   - For one key, at no instant do two holders see hf_lock_valid_for(lock, 0)
 *     true, as long as clocks *run* at the same rate within 1 %. Nobody's
 *     wall clock matters, but a server's without HF_CAP_STEADY. A server
 *     without HF_CAP_DURABLE forgets locks when it restarts, and may grant
 *     one that is valid; see "Redis" in holdfast(3) for ?grace=.
 *   - Who acts after the end of its validity is outside any lock's power.
 *     Send the token with each write that the lock protects, and let the
 *     store refuse a token smaller than the largest it has seen.
 *   - An operation was done, was not done, or is in doubt (HF_EINDOUBT).
 *
 * Three ways to call, which behave alike
 *   - hf_X() blocks until it is answered.
 *   - hf_X_start() returns at once. Its answer goes to a callback, to a
 *     future, or to both. Outputs are written before either hears of it, and
 *     only on HF_OK; they must stay in place until then.
 *   - A program with an event loop polls hf_fd() and calls hf_process().
 *
 * Threads. Any thread may call anything. Callbacks run one at a time: in a
 * thread of the client's own if it has threads, else inside hf_process() or
 * inside whichever blocking call is waiting. It has two threads if it was
 * opened with `background`; or from the first blocking call on that watches,
 * or takes a lock that is to be renewed or has events, unless the program
 * drives by itself: it has called hf_fd() or hf_process().
 * Inside a callback each non-blocking call is legal; a blocking one on the
 * same client answers HF_EDEADLK. Calls on another client that wait for it are
 * legal in one direction only: blocking calls, and hf_lock_free() and
 * hf_watch_close(), which wait for a callback of the handle. Where callbacks of
 * two clients wait for each other, both wait forever, as with two mutexes that
 * are locked in different orders.
 *
 * A slow callback delays the other callbacks of its client, LOST included, and
 * hf_close() until its deadline. In a client with threads of its own it delays
 * nothing else: locks are renewed, a loss is recorded in time, so that
 * hf_lock_valid_for() and hf_lock_state() report it, and other threads' calls are
 * answered. Without such threads nothing is renewed or recorded until it
 * returns, unless another thread is inside a blocking call or hf_process();
 * hf_lock_valid_for() is right in any case.
 *
 * After fork() the child cannot use the client: calls answer HF_EFORK. A callback
 * may fork. If the child returns from it, no other callback runs there, and the
 * call that ran the callback returns HF_EFORK; in a thread of the client's own
 * there is no such call, and the child ends as by _exit(1).
 *
 * No call is a cancellation point: pthread_cancel() of a thread inside one takes
 * effect after it has returned. hf_interrupt() ends blocking calls.
 *
 * Memory. Arguments are borrowed for the call and copied where they are
 * needed longer. What hf_X() gives is the caller's until the matching
 * hf_X_free() or hf_X_fini(), which accept NULL.
 * A callback's `arg` is never touched by the library and may be freed
 *   - of `done`: when `done` has run. It runs exactly once if hf_X_start()
 *     returned HF_OK, whether or not the future is freed or canceled, and not
 *     at all otherwise.
 *   - of `on_event` and of a watch's `each`: when hf_lock_free() or
 *     hf_watch_close() of its handle has returned. They wait for a callback of
 *     that handle which another thread is in, so hold no lock that it takes.
 *     Inside a callback of the client they do not wait: then, when that
 *     callback returns. If hf_acquire() fails there is no handle to free: then,
 *     when it has returned, which waits for the callback in the same way. If
 *     hf_acquire_start() fails: when its `done` has run.
 *   - of a list's `each`: when hf_list() has returned, or the future of
 *     hf_list_start() is answered. Neither happens while `each` is running,
 *     even if the list is interrupted or canceled or the client is closed.
 * A future or a handle may be freed while other threads are inside calls on it,
 * and inside its own callback; calls that *begin* later are the program's
 * mistake.
 *
 * Binary compatibility. A program and a library with the same soname work
 * together, whichever is newer.
 *   - Option structs start with their size and grow at the end. The library
 *     uses the part that it knows. A larger struct is accepted as long as the
 *     part that it does not know is zero: options added later are off, or at
 *     their default, when they are 0. Otherwise it answers HF_EUNSUPPORTED.
 *   - hf_error, hf_info and hf_event never change their size. Members added
 *     later take the place of `reserved`, which the library sets to 0: a
 *     member that is 0 is also what an older library gives.
 *   - Every function is an exported symbol, with a symbol version. What is
 *     `static inline` here is for C only, and a binding has no need of it:
 *     hf_lock_opts_fill(opts, size) instead of hf_lock_opts_init(opts). */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HF_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

#define HF_VERSION "0.1.0"

/* The library's version, which may be newer than the header's. */
HF_API const char *hf_version(void);

/* ---- Errors -------------------------------------------------------------
 *
 * A code exists where a caller would act differently. */
#define HF_ERRORS(X)                                                           \
    X(EINVAL, -1, "bad argument")                                              \
    X(ENOMEM, -2, "out of memory; nothing was changed")                        \
    X(EBUSY, -3, "held by another")                                            \
    X(ETIMEDOUT, -4, "the wait ran out")                                       \
    X(EUNAVAIL, -5, "nothing that could decide was reached; not done")         \
    X(EINDOUBT, -6, "the answer was lost; it may have been done")              \
    X(ENOTOWNER, -7, "held by another claim")                                  \
    X(ENOTHELD, -8, "held by nobody")                                          \
    X(EEXPIRED, -9, "the lease had ended")                                     \
    X(EMISMATCH, -10, "the value is not the expected one")                     \
    X(EFORCED, -11, "an operator broke the lock; it runs out")                 \
    X(ECANCELED, -12, "canceled")                                              \
    X(ECLOSED, -13, "the client is closed")                                    \
    X(ESTATE, -14, "the handle is in another state")                           \
    X(EDEADLK, -15, "a blocking call inside a callback")                       \
    X(EFORK, -16, "the client belongs to the parent process")                  \
    X(ELIMIT, -17, "a limit is reached")                                       \
    X(EUNSUPPORTED, -18, "this strategy or build cannot do that")              \
    X(EPROTO, -19, "the bytes cannot be understood")                           \
    X(ESYSTEM, -20, "the operating system refused")                            \
    X(EINTR, -21, "interrupted by hf_interrupt()")                             \
    X(EDENIED, -22, "the server does not allow it to this user")

enum hf_err {
    HF_OK = 0,
#define HF_ERROR_VALUE(name, value, text) HF_##name = (value),
    HF_ERRORS(HF_ERROR_VALUE)
#undef HF_ERROR_VALUE
};

/* "HF_EBUSY" and "held by another"; never NULL, whatever the number. */
HF_API const char *hf_err_name(enum hf_err err);
HF_API const char *hf_err_text(enum hf_err err);

/* A failure in words: what was wrong, which argument, what to do next. */
struct hf_error {
    enum hf_err code;
    char text[444];
    uint64_t reserved[8];
};

/* ---- Bytes --------------------------------------------------------------
 *
 * Keys and values hold any byte: nothing is a sentinel. */
#define HF_KEY_MAX 1024    /* a key has 1 to this many bytes */
#define HF_VALUE_MAX 65536 /* a value has 0 to this many bytes */
#define HF_NOTE_MAX 255    /* a note, an owner: text of at most this many */

struct hf_bytes {
    const void *data;
    size_t size;
};

struct hf_key {
    const void *data;
    size_t size;
};

/* A key, or a value, from a string: hf_key_of("nightly"). */
static inline struct hf_key hf_key_of(const char *text)
{
    struct hf_key key = {text, text ? strlen(text) : 0};

    return key;
}

static inline struct hf_bytes hf_bytes_of(const char *text)
{
    struct hf_bytes bytes = {text, text ? strlen(text) : 0};

    return bytes;
}

/* ---- Client -------------------------------------------------------------*/
struct hf_client;
struct hf_lock;
struct hf_future;
struct hf_watch;

#define HF_FOREVER UINT32_MAX

/* How a call that was started has ended. Called once, while driving. */
typedef void hf_done_fn(enum hf_err err, void *arg);

/* What a strategy promises. `?require=fence,fifo` in a URL makes hf_open()
 * fail where one of them is missing. */
#define HF_CAPS(X)                                                             \
    X(FENCE, "fence", 0)     /* tokens rise for as long as anyone looks */     \
    X(DURABLE, "durable", 1) /* locks survive a restart */                     \
    X(FIFO, "fifo", 2)       /* waiters are served as they came */             \
    X(PUSH, "push", 3)       /* waiters are woken, not polling */              \
    X(STEADY, "steady", 4)   /* no wall clock in any lease */                  \
    X(FAILOVER_SAFE, "failover-safe", 5)                                       \
    X(LINEARIZABLE_READ, "linearizable-read", 6)                               \
    X(VALUE, "value", 7) /* values can be kept and updated */                  \
    X(WATCH, "watch", 8)                                                       \
    X(FLEET, "fleet", 9) /* locks hold across machines */

enum hf_cap {
#define HF_CAP_BIT(name, text, bit) HF_CAP_##name = 1 << (bit),
    HF_CAPS(HF_CAP_BIT)
#undef HF_CAP_BIT
};

struct hf_client_opts {
    size_t size;            /* set by hf_client_opts_init() */
    bool background;        /* threads of the client's own, from the start */
    bool inherit;           /* programs that this process executes keep its
                               locks, should it die: see below */
    const char *owner;      /* shown to operators; NULL: "command[pid]@host" */
    struct hf_error *error; /* filled where hf_open() fails; may be NULL */
};

/* With file:, a lock that was not detached ends when the process of its client
 * dies. For a program that runs another one under a lock, that is too early: the
 * other may still be running. With `inherit` the programs that it executes get a
 * descriptor of the client; the lock is handed over when all of them have ended
 * or have closed it, or at the end of its lease. If no descriptor is free for
 * that, hf_open() fails with HF_ESYSTEM. Other strategies ignore it. */

/* Fill `opts`, a struct of `size` bytes, with the defaults. Every option
 * struct starts with this call. */
HF_API void hf_client_opts_fill(struct hf_client_opts *opts, size_t size);
static inline void hf_client_opts_init(struct hf_client_opts *opts)
{
    hf_client_opts_fill(opts, sizeof(*opts));
}

/* Open the locks that `url` names, for example "memory:NAME".
 *
 *   opts   NULL for the defaults
 *
 * HF_EINVAL        the URL or an option is wrong; opts->error says which
 * HF_EUNSUPPORTED  no such strategy in this build, or it lacks what the URL
 *                  requires, or the library is too old for an option
 * HF_EDENIED       the server refuses the user, the password, or a right
 * Otherwise as the strategy says. Any thread. */
HF_API enum hf_err hf_open(const char *url, const struct hf_client_opts *opts,
                           struct hf_client **client);

/* End every claim of this client: waits are withdrawn, locks are given back,
 * open calls are answered HF_ECLOSED. Returns by `timeout_ms` whatever the
 * other side does; handles and futures stay the caller's to free, and answer
 * HF_ECLOSED. The client itself is gone.
 *
 * HF_OK        all was confirmed
 * HF_EINDOUBT  the time ran out first: a lock may stay taken for its lease
 * HF_EDEADLK   inside a callback; the client is as it was
 * HF_EFORK     it is the parent's; nothing of it can be freed here */
HF_API enum hf_err hf_close(struct hf_client *client, uint32_t timeout_ms);

/* Open without blocking. `*client` is there when this returns HF_OK, and can be
 * driven, waited on, interrupted and closed; all other calls on it answer
 * HF_ESTATE until it is open. Then `done` and the future report what hf_open()
 * would have returned. If that is a failure, the client is good for nothing but
 * hf_close() or hf_close_start(), which must still be called; hf_future_error()
 * and hf_client_error() have the text.
 *
 * What can be checked at once is: then this returns the failure, opts->error is
 * filled, and there is no client.
 *
 * A thread looks names up and connects, and ends when it is through. Closing
 * the client does not wait for it beyond the deadline. */
HF_API enum hf_err hf_open_start(const char *url,
                                 const struct hf_client_opts *opts,
                                 struct hf_client **client, hf_done_fn *done,
                                 void *arg, struct hf_future **future);

/* Close without blocking; legal inside a callback. From now on all is as in
 * hf_close(), but somebody must drive on: the client's own threads do, which are
 * started if need be; or the program, if it drives by itself, goes on with
 * hf_process(). `done` (which may be NULL) is the last callback of the client
 * and gets what hf_close() would have returned. After it has run the client is
 * gone, and so is the descriptor that hf_fd() gave.
 *
 * It runs by `timeout_ms`, or when a callback that runs longer returns.
 *
 * HF_ECLOSED    it is being closed already; `done` does not run
 * HF_ENOMEM, HF_ESYSTEM  the client is as it was */
HF_API enum hf_err hf_close_start(struct hf_client *client, uint32_t timeout_ms,
                                  hf_done_fn *done, void *arg);

/* The capabilities, HF_CAP_FENCE | ..., and the name of one of them. */
HF_API uint32_t hf_caps(const struct hf_client *client);
HF_API const char *hf_cap_name(enum hf_cap cap);

/* What is known of the store, for people: `each` is called with a name and a text,
 * such as "server" and "Redis 7.0.15", before this returns. It may not call
 * anything on `client`. Names are stable, texts are not; there is no password in
 * them. HF_ESTATE, HF_ECLOSED: it is not open. */
typedef void hf_fact_fn(const char *name, const char *text, void *arg);
HF_API enum hf_err hf_describe(struct hf_client *client, hf_fact_fn *each,
                               void *arg);

/* The last failure of any call on this client, in words. */
HF_API void hf_client_error(const struct hf_client *client,
                            struct hf_error *error);

/* For event loops: poll the descriptor for reading; when it is readable, or
 * whenever it pleases, call hf_process(), which does what is due, runs some of
 * the callbacks and never blocks. It does a limited amount of work: while there
 * is more, the descriptor stays readable. In a client with threads of its own
 * it does nothing. hf_fd() answers -1 of NULL and in a forked child. */
HF_API int hf_fd(struct hf_client *client);
HF_API enum hf_err hf_process(struct hf_client *client);

/* End the blocking calls that are waiting on `client` right now, whatever
 * thread they are in. Any thread may call this, and so may a signal handler.
 *
 *   - hf_future_wait() and hf_lock_wait() return HF_EINTR, and the operation
 *     goes on. If nothing waits at the moment, the next of these two that would
 *     wait returns HF_EINTR instead. So no interrupt is lost that comes just
 *     before the wait.
 *   - hf_acquire(), hf_lock_acquire(), hf_read() and the others cancel their operation as
 *     hf_future_cancel() does, and return HF_EINTR, or HF_EINDOUBT where it may
 *     have changed something. A claim is withdrawn first, which takes a second
 *     at most. These calls end only if they wait already: a program that must
 *     not miss an interrupt uses hf_X_start() and hf_future_wait().
 *   - hf_release() and hf_close() go on: each ends by its own timeout. */
HF_API void hf_interrupt(struct hf_client *client);

/* ---- Futures ------------------------------------------------------------
 *
 * The C form of a promise. hf_X_start(..., done, arg, &future): `done` and
 * `&future` may each be NULL. */

/* Whether it is answered; if so and `err` is not NULL, how. */
HF_API bool hf_future_done(const struct hf_future *future, enum hf_err *err);

/* Wait until it is answered, then say how in `*err` (which may be NULL).
 *
 * HF_ETIMEDOUT  not answered within `wait_ms`; `*err` is untouched
 * HF_EINTR      hf_interrupt() was called; `*err` is untouched, the operation
 *               goes on, and one can wait again
 * HF_EDEADLK    inside a callback */
HF_API enum hf_err hf_future_wait(struct hf_future *future, uint32_t wait_ms,
                                  enum hf_err *err);

/* Give the operation up. It is still answered, once: HF_ECANCELED, or
 * HF_EINDOUBT where it may have changed something; a lock that was granted
 * meanwhile is given back. An unlock goes on. */
HF_API void hf_future_cancel(struct hf_future *future);

/* How it failed, in words; code HF_OK while there is nothing to say. */
HF_API void hf_future_error(const struct hf_future *future,
                            struct hf_error *error);

/* Forget it. The operation goes on and its callback still runs. */
HF_API void hf_future_free(struct hf_future *future);

/* ---- Locks --------------------------------------------------------------
 *
 *            claim            granted               unlock
 *     IDLE ---------> CLAIMING ---------> HELD ---------------> RELEASING
 *      ^                 |  ^ claim         | validity ended      ^ |
 *      |         refused |  |               v        unlock       | |
 *      +-----------------+  +------------- LOST ------------------+ |
 *      +------------------------------------------------------------+
 *
 * Lost is final: once hf_lock_valid_for() has been false for a claim, no thread sees
 * it true again for that claim, whatever a renewal answers later. */
enum hf_state {
    HF_LOCK_IDLE,
    HF_LOCK_CLAIMING,
    HF_LOCK_HELD,
    HF_LOCK_LOST,
    HF_LOCK_RELEASING,
};

enum hf_lock_event {
    HF_LOCK_EVENT_WAITING = 1, /* in line now: hf_lock_position() says where */
    HF_LOCK_EVENT_AT_RISK,     /* renewals fail: half the ttl has gone;
                                  hf_lock_error() says why */
    HF_LOCK_EVENT_LOST,        /* validity has ended without hf_release() */
};

/* Each event comes at most once a claim, AT_RISK only where it is renewed.
 * LOST comes before any other callback of the client that is not yet running,
 * and, if this process runs and no other callback is running, before anyone
 * else can hold the key.
 *
 * Each loss is reported once, unless hf_release(), hf_lock_free() or a close comes
 * first: no event of a claim is delivered after these. A handle that claims
 * again while its loss is still to be reported sends the new claim after the
 * callback for LOST has returned; that time is part of wait_ms, and of
 * timeout_ms where wait_ms is shorter. */
typedef void hf_lock_event_fn(struct hf_lock *lock, enum hf_lock_event event,
                              void *arg);

struct hf_lock_opts {
    size_t size;         /* set by hf_lock_opts_init() */
    uint32_t ttl_ms;     /* how long it is held without renewal; 0: 10 s */
    uint32_t wait_ms;    /* time in line: 5 s; 0 tries once; HF_FOREVER */
    uint32_t timeout_ms; /* how long an answer may take once the request is
                              sent; 0: 5 s. Time that a LOCK waits inside a
                              busy client is part of wait_ms */
    uint32_t renew_ms;   /* with renew: when this much is left; 0: 2/3, in
                              mongodb: 5/6, of the ttl */
    bool renew;          /* keep it until unlocked */
    bool idle;           /* hf_lock_new(): do not claim yet */
    bool
        ttl_includes_wait; /* the ttl counts from the claim on, wait included */
    struct hf_bytes value; /* kept with the lock, shown by hf_read() */
    const char *note;      /* shown to operators; NULL: none */
    hf_lock_event_fn *on_event; /* may be NULL */
    void *arg;                  /* for on_event */
    struct hf_error *error;     /* filled where the call that got these options
                               fails before it returns; may be NULL */
};

/* Fill `opts` with the defaults of this process. */
HF_API void hf_lock_opts_fill(struct hf_lock_opts *opts, size_t size);
static inline void hf_lock_opts_init(struct hf_lock_opts *opts)
{
    hf_lock_opts_fill(opts, sizeof(*opts));
}

/* Change the defaults of this process: the times and flags, not what points
 * somewhere. Handles made before keep what they were made with, and forked
 * children inherit them. NULL restores the library's own. HF_EINVAL, with
 * opts->error, if they contradict. */
HF_API enum hf_err hf_lock_opts_set_default(const struct hf_lock_opts *opts);

/* Take the lock on `key`, waiting up to opts->wait_ms for it.
 *
 * On HF_OK, `*lock` is held until hf_release() or until its lease ends. Its
 * token is larger than any granted for this key before: send it with each
 * write the lock protects, and let the store refuse a smaller one.
 * On any other answer `*lock` is untouched.
 *
 *   key    1 to HF_KEY_MAX bytes of any value; copied
 *   opts   NULL for the defaults: ttl 10 s, wait 5 s, no renewal
 *
 * HF_EBUSY      wait_ms is 0 and another claim holds the key; it may be
 *               one of this client
 * HF_ETIMEDOUT  wait_ms passed first; the wait is withdrawn
 * HF_EUNAVAIL   nothing that could decide was reached in time; not held
 * HF_EINDOUBT   the answer was lost; the withdrawal goes on behind, the key
 *               may be held until the ttl has passed
 * HF_EINVAL     an argument is wrong; the text names it
 * HF_EUNSUPPORTED  the library is too old for an option
 *
 * Blocks. Any thread; not from inside a callback (HF_EDEADLK). */
HF_API enum hf_err hf_acquire(struct hf_client *client, struct hf_key key,
                              const struct hf_lock_opts *opts,
                              struct hf_lock **lock);
HF_API enum hf_err hf_acquire_start(struct hf_client *client, struct hf_key key,
                                    const struct hf_lock_opts *opts,
                                    struct hf_lock **lock, hf_done_fn *done,
                                    void *arg, struct hf_future **future);

/* A handle to claim, free and claim again. Unless opts->idle is set it starts
 * claiming at once, without waiting for the answer: hf_lock_wait() hears it. */
HF_API enum hf_err hf_lock_new(struct hf_client *client, struct hf_key key,
                               const struct hf_lock_opts *opts,
                               struct hf_lock **lock);

/* Claim with an idle or lost handle; answers as hf_acquire() does. A refused
 * claim leaves the handle idle. HF_ESTATE: claimed already. */
HF_API enum hf_err hf_lock_acquire(struct hf_lock *lock);
HF_API enum hf_err hf_lock_acquire_start(struct hf_lock *lock, hf_done_fn *done,
                                         void *arg, struct hf_future **future);

/* Wait for the claim that is under way, if any, and say how the last claim
 * of this handle was answered. HF_ESTATE: there was none. */
HF_API enum hf_err hf_lock_wait(struct hf_lock *lock);

/* A handle for a claim made elsewhere, by what hf_lock_nonce() and hf_lock_token() told
 * there. Its validity is unknown, so hf_lock_valid_for() is false until the first
 * renewal is confirmed; unlock, renew and update work. When that has run out
 * the handle is lost, which is final as for any other. Where the first handle
 * was not detached, both act on one claim: if either unlocks, the claim has
 * ended for both. A lapsed adopter that claims again leaves the old claim
 * alone. */
#define HF_NONCE_SIZE 16
HF_API enum hf_err hf_lock_adopt(struct hf_client *client, struct hf_key key,
                                 const uint8_t nonce[HF_NONCE_SIZE],
                                 uint64_t token,
                                 const struct hf_lock_opts *opts,
                                 struct hf_lock **lock);

/* Detach the handle from the lock that it holds, and leave that to whoever
 * adopts it. The handle is idle and not valid from now on; hf_lock_nonce() and
 * hf_lock_token() still tell the claim's until it claims again, which it does under a
 * new nonce. Nothing renews the lock, and neither freeing the handle nor closing
 * the client releases it: it ends with its lease at the latest. HF_ESTATE: it is
 * not held. */
HF_API enum hf_err hf_lock_detach(struct hf_lock *lock);

/* Give the claim back. Validity ends before anything is sent, and the handle
 * is idle afterwards, whatever the answer. A claim that is under way is
 * waited for first, and if it fails so does this, with its answer.
 *
 * HF_OK         it was held until now, by the server's count, which is a
 *               little longer than validity; it is free or another's
 * HF_EEXPIRED   the lease had ended before
 * HF_ENOTOWNER, HF_ENOTHELD  the same, of an adopted handle: another holds
 *               the key, nobody does
 * HF_EINDOUBT   no answer within timeout_ms, or the first answer was lost and
 *               nothing proves what it said; it ends with its lease at latest
 * HF_EUNAVAIL   nothing that could end it was reached: it ends with its lease
 * HF_ESTATE     nothing is claimed */
HF_API enum hf_err hf_release(struct hf_lock *lock);
HF_API enum hf_err hf_release_start(struct hf_lock *lock, hf_done_fn *done,
                                    void *arg, struct hf_future **future);

/* Extend the lease to `ttl_ms` from now (0: the ttl of the handle). Never
 * creates a lock, and never shortens a lease.
 *
 * HF_EFORCED   an operator broke the lock: it stays valid until it runs out
 * HF_EEXPIRED  the handle is lost, whatever the server knows
 * Other answers as of hf_release(). */
HF_API enum hf_err hf_renew(struct hf_lock *lock, uint32_t ttl_ms);
HF_API enum hf_err hf_renew_start(struct hf_lock *lock, uint32_t ttl_ms,
                                  hf_done_fn *done, void *arg,
                                  struct hf_future **future);

/* Replace the value, if it is `expected` (NULL: whatever it is). The lease is
 * as it was. HF_EMISMATCH: it is not; other answers as of hf_renew(), but not
 * HF_EFORCED: a broken lock can be updated until it runs out. */
HF_API enum hf_err hf_update(struct hf_lock *lock,
                             const struct hf_bytes *expected,
                             struct hf_bytes value);
HF_API enum hf_err hf_update_start(struct hf_lock *lock,
                                   const struct hf_bytes *expected,
                                   struct hf_bytes value, hf_done_fn *done,
                                   void *arg, struct hf_future **future);

/* Whether the lock is surely held for `ms` more milliseconds: a load and a
 * clock read, no message. False from the end of validity on, which is before
 * anyone else can hold the key. */
HF_API bool hf_lock_valid_for(const struct hf_lock *lock, uint32_t ms);

/* How long that is; 0 where it is not held. */
HF_API uint32_t hf_lock_remaining_ms(const struct hf_lock *lock);

/* The instant, in milliseconds of CLOCK_BOOTTIME, at which validity ends. Time in
 * which the machine is suspended does not count against a lock of file: or
 * memory:, so that after it this instant is a later one. */
HF_API int64_t hf_lock_deadline(const struct hf_lock *lock);

/* The fencing token of the grant; 0 before there was one. */
HF_API uint64_t hf_lock_token(const struct hf_lock *lock);

/* The claim's nonce, a secret: who knows it can unlock. Zeros before the
 * first claim. */
HF_API void hf_lock_nonce(const struct hf_lock *lock,
                          uint8_t nonce[HF_NONCE_SIZE]);

HF_API struct hf_key hf_lock_key(const struct hf_lock *lock);
HF_API enum hf_state hf_lock_state(const struct hf_lock *lock);

/* The last known position in the queue, 1 for the next; 0 if it does not
 * wait. */
HF_API uint32_t hf_lock_position(const struct hf_lock *lock);

/* The last failure of a call on this handle, or of its renewals, in words. While
 * renewals fail, it has the cause from the first failed attempt on, or once an
 * answer is overdue, which is before AT_RISK; code HF_OK when one succeeds. */
HF_API void hf_lock_error(const struct hf_lock *lock, struct hf_error *error);

/* Free the handle. What it still claims is released in the background,
 * unconfirmed; but not what was adopted or detached. Legal while calls on it are
 * open, in this or another thread: they are answered (HF_ECANCELED). A callback
 * of it that another thread is in has returned when this returns. Inside an
 * event callback, before the caller has seen the answer of hf_acquire(), hf_lock_acquire()
 * or their _start forms, it gives the claim up even if that was granted: the
 * answer is HF_ECANCELED, and the handle is gone. */
HF_API void hf_lock_free(struct hf_lock *lock);

/* Take the lock, call `run`, give the lock back. The result of `run` goes to
 * `*result`. While it runs it may ask hf_lock_valid_for(lock, 0).
 *
 * HF_OK        it ran, and the lock was held to its end
 * HF_EEXPIRED  it ran, but the lock had been lost
 * Otherwise as hf_acquire() where it did not run, and as hf_release() where it
 * did: `*result` is written exactly if it ran. */
typedef int hf_run_fn(struct hf_lock *lock, void *arg);
HF_API enum hf_err hf_run(struct hf_client *client, struct hf_key key,
                          const struct hf_lock_opts *opts, hf_run_fn *run,
                          void *arg, int *result);

/* ---- Looking ------------------------------------------------------------*/
enum hf_consistency {
    HF_LINEARIZABLE, /* as of some instant during the call */
    HF_LOCAL,        /* what the nearest server knows; may be old */
};

/* Who holds a key. Nonces are secrets and never shown. */
struct hf_info {
    struct hf_key key;
    bool held;
    bool forced;      /* broken by an operator: it runs out */
    uint64_t token;   /* of the holder */
    uint32_t held_ms; /* since the grant */
    uint32_t left_ms; /* of the lease; HF_FOREVER: a plain Redis client has
                         set the key without expiry */
    uint32_t waiters;
    struct hf_bytes value;
    const char *owner; /* "" where unknown */
    const char *note;
    uint64_t index; /* of the newest event: watch from the next */
    void *storage;  /* what the pointers point into */
    uint64_t reserved[8];
};
HF_API void hf_info_fini(struct hf_info *info);

/* Read one key; a key that nobody holds is not an error: held is false. */
HF_API enum hf_err hf_read(struct hf_client *client, struct hf_key key,
                           enum hf_consistency how, struct hf_info *info);
HF_API enum hf_err hf_read_start(struct hf_client *client, struct hf_key key,
                                 enum hf_consistency how, struct hf_info *info,
                                 hf_done_fn *done, void *arg,
                                 struct hf_future **future);

/* Call `each` for every held key that begins with `prefix` (which may be
 * empty), in byte order, each key once. A key that is taken or freed during
 * the call may be listed or not; to follow what changes, watch from 1 above the
 * smallest `index` in the list. `info` is its own only until it returns; false
 * ends the list early. The callback may not block. */
typedef bool hf_list_fn(const struct hf_info *info, void *arg);
HF_API enum hf_err hf_list(struct hf_client *client, struct hf_key prefix,
                           hf_list_fn *each, void *arg);
HF_API enum hf_err hf_list_start(struct hf_client *client, struct hf_key prefix,
                                 hf_list_fn *each, void *each_arg,
                                 hf_done_fn *done, void *arg,
                                 struct hf_future **future);

/* Wait until somebody holds `key`; at once if so. `info` may be NULL.
 * HF_ETIMEDOUT: nobody did within `wait_ms`. */
HF_API enum hf_err hf_wait_held(struct hf_client *client, struct hf_key key,
                                uint32_t wait_ms, struct hf_info *info);
HF_API enum hf_err hf_wait_held_start(struct hf_client *client,
                                      struct hf_key key, uint32_t wait_ms,
                                      struct hf_info *info, hf_done_fn *done,
                                      void *arg, struct hf_future **future);

/* How a key came to be free. */
enum hf_freed {
    HF_FREED_ALREADY = 1, /* it was free when first read */
    HF_FREED_RELEASED,
    HF_FREED_EXPIRED,
    HF_FREED_FORCED,
    HF_FREED_UNSEEN, /* it is free; the event was missed */
};

/* Wait until nobody holds `key`. `freed` may be NULL. Being free is a fact of
 * the past once it is told: to have the key, lock it. */
HF_API enum hf_err hf_wait_free(struct hf_client *client, struct hf_key key,
                                uint32_t wait_ms, enum hf_freed *freed);
HF_API enum hf_err hf_wait_free_start(struct hf_client *client,
                                      struct hf_key key, uint32_t wait_ms,
                                      enum hf_freed *freed, hf_done_fn *done,
                                      void *arg, struct hf_future **future);

/* ---- Watching -----------------------------------------------------------*/
enum hf_event_kind {
    HF_EVENT_GRANTED = 1,
    HF_EVENT_RENEWED = 2,
    HF_EVENT_UPDATED = 4,
    HF_EVENT_RELEASED = 8,
    HF_EVENT_EXPIRED = 16,
    HF_EVENT_FORCED = 32, /* now, or marked to run out */
    HF_EVENT_QUEUED = 64,
    HF_EVENT_WITHDRAWN = 128,
    HF_EVENT_DROPPED = 256, /* events are missing here */
    HF_EVENT_ANY = 511,
};

/* Indexes rise over all keys of a strategy: by one an event, but in mongodb:,
 * where they are instants of the cluster. */
struct hf_event {
    enum hf_event_kind kind;
    uint64_t index; /* DROPPED: of the first event after the gap */
    struct hf_key key;
    uint64_t token;    /* 0 for QUEUED and WITHDRAWN */
    const char *owner; /* of the claim that the event is about */
    bool freed;        /* nobody holds the key after this event */
    uint64_t reserved[8];
};

struct hf_watch_opts {
    size_t size;
    uint64_t from;  /* first index wanted; 0: from now on */
    uint32_t kinds; /* HF_EVENT_GRANTED | ...; DROPPED always comes */
};
HF_API void hf_watch_opts_fill(struct hf_watch_opts *opts, size_t size);
static inline void hf_watch_opts_init(struct hf_watch_opts *opts)
{
    hf_watch_opts_fill(opts, sizeof(*opts));
}

/* Call `each` for every event on keys that begin with `prefix`, in order,
 * while driving, until hf_watch_close(). Where events came faster than they
 * were taken, or `from` is older than what is kept, one DROPPED event stands
 * in their place. `event` is its own only until it returns. */
typedef void hf_watch_fn(const struct hf_event *event, void *arg);
HF_API enum hf_err hf_watch_open(struct hf_client *client, struct hf_key prefix,
                                 const struct hf_watch_opts *opts,
                                 hf_watch_fn *each, void *arg,
                                 struct hf_watch **watch);
HF_API enum hf_err hf_watch_open_start(struct hf_client *client,
                                       struct hf_key prefix,
                                       const struct hf_watch_opts *opts,
                                       hf_watch_fn *each, void *each_arg,
                                       struct hf_watch **watch,
                                       hf_done_fn *done, void *arg,
                                       struct hf_future **future);

/* End it. No callback of it runs after this returns: one that another thread is
 * in is waited for, but not inside a callback of the same client. */
HF_API void hf_watch_close(struct hf_watch *watch);

/* ---- Operators ----------------------------------------------------------*/

/* Break the lock that was granted with `token`: renewals are refused, so it
 * runs out and no two holders are ever valid. With `now` it passes on at
 * once, and only the fence protects. A holder that renews is notified at once
 * by memory:, file:, redis: and redlock:, and by mongodb: while its client waits
 * for another lock or watches; else it finds out at its next renewal.
 *
 * HF_ENOTOWNER  another token holds the key
 * HF_ENOTHELD   nobody does */
HF_API enum hf_err hf_force(struct hf_client *client, struct hf_key key,
                            uint64_t token, bool now);
HF_API enum hf_err hf_force_start(struct hf_client *client, struct hf_key key,
                                  uint64_t token, bool now, hf_done_fn *done,
                                  void *arg, struct hf_future **future);

#ifdef __cplusplus
}
#endif

#endif
