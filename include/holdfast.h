/* holdfast.h - a keyed mutex for threads, processes and fleets of machines.
 *
 * Copyright (c) the holdfast authors. SPDX-License-Identifier: MIT
 *
 * A *client* is opened by a URL, which selects the strategy: where locks are
 * kept, and what is promised about them. A *lock* is a handle for one claim on
 * one key. A grant comes with a *token*, and with a *lease* that lasts at least
 * ttl_ms and that renewals extend.
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
 *   - For each key, hf_lock_valid_for(lock, 0) is never true for two holders
 *     at the same instant, provided that clocks *run* at the same rate within
 *     1 %. Wall clocks do not matter, except a server's own where the strategy
 *     lacks HF_CAP_STEADY. A server without HF_CAP_DURABLE forgets its locks
 *     when it restarts and may grant a lock that is still valid; see "Redis"
 *     in holdfast(3) for ?grace=.
 *   - No lock can stop a client that keeps acting after its lease has expired.
 *     Send the token with each write that the lock protects, and let the
 *     store refuse a token smaller than the largest it has seen.
 *   - An operation took effect, did not take effect, or is in doubt
 *     (HF_EINDOUBT).
 *
 * Three ways to call, with the same results
 *   - hf_X() blocks until the operation is complete.
 *   - hf_X_start() returns at once. The result goes to a callback, to a
 *     future, or to both. Outputs are written only on HF_OK, before the
 *     callback runs and before the future is done; they must stay valid until
 *     then.
 *   - A program with an event loop polls hf_fd() and calls hf_process().
 *
 * Threads. Any thread may call any function. Callbacks run one at a time: in a
 * background thread if the client has threads, otherwise inside hf_process() or
 * inside a blocking call that is waiting. A client starts its two threads when
 * it is opened with `background`, or at the first blocking call that opens a
 * watch, or acquires a lock that is renewed or has an event callback. A client
 * does not start its threads if the program has called hf_fd() or hf_process(),
 * because then the program drives the client.
 * Inside a callback every non-blocking call is legal; a blocking call on the
 * same client returns HF_EDEADLK. Calls that wait for another client (blocking
 * calls on it, and hf_lock_free() and hf_watch_close(), which wait for a
 * running callback of the handle) are legal in one direction only: if callbacks
 * of two clients wait for each other, both wait forever, as with two mutexes
 * that are locked in different orders.
 *
 * A slow callback delays the other callbacks of its client, LOST included, and
 * delays hf_close() up to its timeout. In a client with threads, a slow
 * callback delays nothing else: locks are renewed, hf_lock_valid_for() and
 * hf_lock_state() report a loss in time, and calls of other threads complete.
 * Without threads nothing is renewed or recorded until the callback returns,
 * unless another thread is inside a blocking call or hf_process().
 * hf_lock_valid_for() is correct in any case.
 *
 * After fork() the child cannot use the client: calls return HF_EFORK. A
 * callback may fork. If the child returns from the callback, no other callback
 * runs in the child, and the call that ran the callback returns HF_EFORK; in a
 * background thread there is no such call, and the child calls _exit(1).
 *
 * No call is a cancellation point: pthread_cancel() of a thread inside a call
 * takes effect after the call has returned. hf_interrupt() ends blocking calls.
 *
 * Memory. Arguments are borrowed for the call, and copied if they are needed
 * longer. The caller owns what hf_X() returns and frees it with the matching
 * hf_X_free(), hf_X_close() or hf_X_fini(), which accept NULL.
 * The library never touches the `arg` of a callback. The program may free
 *   - the `arg` of `done` when `done` has run. `done` runs exactly once if
 *     hf_X_start() returned HF_OK, whether or not the future is freed or
 *     canceled, and never otherwise.
 *   - the `arg` of `on_event`, and of a watch's `each`, when hf_lock_free() or
 *     hf_watch_close() of the handle has returned. These wait for a callback of
 *     the handle that runs in another thread, so do not hold a mutex that the
 *     callback takes. Called inside a callback of the client they do not wait;
 *     then `arg` may be freed when that callback returns. If hf_acquire()
 *     fails there is no handle, and `arg` may be freed when hf_acquire() has
 *     returned, which waits for the callback in the same way; if
 *     hf_acquire_start() fails, when its `done` has run.
 *   - the `arg` of a list's `each` when hf_list() has returned, or the future
 *     of hf_list_start() is done. Neither happens while `each` is running, even
 *     if the list is interrupted or canceled or the client is closed.
 * A future or a handle may be freed while other threads are inside calls on it,
 * and inside its own callback. Calling a function with a freed future or handle
 * is a bug in the program.
 *
 * Binary compatibility. A program and a library with the same soname work
 * together, whichever is newer.
 *   - Option structs start with their size and grow at the end. The library
 *     uses the members that it knows. It accepts a larger struct if the unknown
 *     members are zero, and returns HF_EUNSUPPORTED otherwise: for options
 *     added later, 0 means off, or the default.
 *   - hf_error, hf_info and hf_event never change their size. Members added
 *     later replace `reserved`, which the library sets to 0, so a new member
 *     that an older library does not know is 0.
 *   - Every function is an exported symbol with a symbol version. The
 *     `static inline` functions are for C; a binding calls
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

/* The library's version, which may differ from HF_VERSION, the version of this
 * header. */
HF_API const char *hf_version(void);

/* ---- Errors -------------------------------------------------------------
 *
 * Two failures have different codes if a caller would handle them
 * differently. */
#define HF_ERRORS(X)                                                           \
    X(EINVAL, -1, "bad argument")                                              \
    X(ENOMEM, -2, "out of memory; nothing was changed")                        \
    X(EBUSY, -3, "held by another claim")                                      \
    X(ETIMEDOUT, -4, "timed out")                                              \
    X(EUNAVAIL, -5, "no server reachable; nothing was changed")                \
    X(EINDOUBT, -6, "the answer was lost; the change may have been made")      \
    X(ENOTOWNER, -7, "held by another claim")                                  \
    X(ENOTHELD, -8, "not held")                                                \
    X(EEXPIRED, -9, "the lease has expired")                                   \
    X(EMISMATCH, -10, "the value is not the expected one")                     \
    X(EFORCED, -11, "an operator broke the lock; it cannot be renewed")        \
    X(ECANCELED, -12, "canceled")                                              \
    X(ECLOSED, -13, "the client is closed")                                    \
    X(ESTATE, -14, "not possible in the present state of the handle")          \
    X(EDEADLK, -15, "blocking call inside a callback")                         \
    X(EFORK, -16, "the client belongs to the parent process")                  \
    X(ELIMIT, -17, "limit reached")                                            \
    X(EUNSUPPORTED, -18, "not supported by this strategy or build")            \
    X(EPROTO, -19, "malformed data")                                           \
    X(ESYSTEM, -20, "the operating system returned an error")                  \
    X(EINTR, -21, "interrupted by hf_interrupt()")                             \
    X(EDENIED, -22, "permission denied by the server")

enum hf_err {
    HF_OK = 0,
#define HF_ERROR_VALUE(name, value, text) HF_##name = (value),
    HF_ERRORS(HF_ERROR_VALUE)
#undef HF_ERROR_VALUE
};

/* The name and the text of an error, such as "HF_EBUSY" and "held by another
 * claim". Never NULL, even for an unknown code. */
HF_API const char *hf_err_name(enum hf_err err);
HF_API const char *hf_err_text(enum hf_err err);

/* An error message: what was wrong, which argument, what to do next. */
struct hf_error {
    enum hf_err code;
    char text[444];
    uint64_t reserved[8];
};

/* ---- Bytes --------------------------------------------------------------
 *
 * Keys and values are binary safe: they may contain any byte. */
#define HF_KEY_MAX 1024    /* a key has 1 to this many bytes */
#define HF_VALUE_MAX 65536 /* a value has 0 to this many bytes */
#define HF_NOTE_MAX 255    /* a note or an owner has 0 to this many */

struct hf_bytes {
    const void *data;
    size_t size;
};

struct hf_key {
    const void *data;
    size_t size;
};

/* Make a key, or a value, from a C string: hf_key_of("nightly"). */
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

/* Called exactly once, with the result of an hf_X_start() call. */
typedef void hf_done_fn(enum hf_err err, void *arg);

/* What a strategy promises. `?require=fence,fifo` in a URL makes hf_open() fail
 * if the strategy lacks one of these capabilities. */
#define HF_CAPS(X)                                                             \
    X(FENCE, "fence", 0)     /* the tokens of a key always increase */         \
    X(DURABLE, "durable", 1) /* locks survive a restart of the server */       \
    X(FIFO, "fifo", 2)       /* waiters are granted in order of arrival */     \
    X(PUSH, "push", 3)       /* waiters are notified of their grants */        \
    X(STEADY, "steady", 4)   /* leases do not depend on a wall clock */        \
    /* no lock is lost when another server takes over */                       \
    X(FAILOVER_SAFE, "failover-safe", 5)                                       \
    /* reads can return the state at an instant during the call */             \
    X(LINEARIZABLE_READ, "linearizable-read", 6)                               \
    X(VALUE, "value", 7) /* locks carry values */                              \
    X(WATCH, "watch", 8) /* events can be watched */                           \
    X(FLEET, "fleet", 9) /* locks are shared by clients on other machines */

enum hf_cap {
#define HF_CAP_BIT(name, text, bit) HF_CAP_##name = 1 << (bit),
    HF_CAPS(HF_CAP_BIT)
#undef HF_CAP_BIT
};

struct hf_client_opts {
    size_t size;            /* set by hf_client_opts_init() */
    bool background;        /* start the client's threads at once */
    bool inherit;           /* programs that this process executes keep its
                               locks if it dies: see below */
    const char *owner;      /* shown to operators; NULL: "command[pid]@host" */
    struct hf_error *error; /* set if hf_open() fails; may be NULL */
};

/* With file:, a lock that was not detached ends when the process of its client
 * dies. For a program that runs another program under a lock, that is too
 * early: the other program may still be running. With `inherit`, the programs
 * that the process executes inherit a descriptor of the client, and the lock
 * ends when all of these programs have exited or closed the descriptor, or when
 * the lease expires. If no descriptor is free for this purpose, hf_open() fails
 * with HF_ESYSTEM. Other strategies ignore this option. */

/* Fill `opts`, a struct of `size` bytes, with the defaults. Call this (or
 * hf_X_opts_init()) before setting members of an option struct. */
HF_API void hf_client_opts_fill(struct hf_client_opts *opts, size_t size);
static inline void hf_client_opts_init(struct hf_client_opts *opts)
{
    hf_client_opts_fill(opts, sizeof(*opts));
}

/* Open a client of the store that `url` names, for example "memory:NAME".
 *
 *   opts   NULL for the defaults
 *
 * HF_EINVAL        the URL or an option is invalid; opts->error names it
 * HF_EUNSUPPORTED  this build lacks the strategy, the strategy lacks a
 *                  capability that the URL requires, or the library is too old
 *                  for an option
 * HF_EDENIED       the server rejected the user, the password, or a command
 * Other errors depend on the strategy; opts->error has the text. */
HF_API enum hf_err hf_open(const char *url, const struct hf_client_opts *opts,
                           struct hf_client **client);

/* Close the client: cancel its waits, release its locks, complete its open
 * calls with HF_ECLOSED, and free it. Returns within `timeout_ms` even if the
 * server does not answer. The caller still owns handles and futures and must
 * free them; other calls on them return HF_ECLOSED.
 *
 * HF_OK        the server confirmed every release
 * HF_EINDOUBT  timed out: a lock may stay held until its lease expires
 * HF_EDEADLK   called inside a callback; the client is unchanged
 * HF_ECLOSED   the client is being closed already
 * HF_EFORK     the client belongs to the parent process; it is not freed */
HF_API enum hf_err hf_close(struct hf_client *client, uint32_t timeout_ms);

/* Open without blocking. When this returns HF_OK, `*client` can be driven,
 * waited on, interrupted and closed; all other calls on it return HF_ESTATE
 * until it is open. Then `done` and the future report what hf_open() would have
 * returned. If the result is an error, the only legal calls on the client are
 * hf_client_error(), and hf_close() or hf_close_start(), which the program must
 * still call; hf_future_error() and hf_client_error() have the text.
 *
 * If an error is found at once, such as a malformed URL, this function returns
 * the error, sets opts->error and creates no client.
 *
 * A temporary thread resolves names and connects. Closing the client does not
 * wait for that thread beyond the timeout. */
HF_API enum hf_err hf_open_start(const char *url,
                                 const struct hf_client_opts *opts,
                                 struct hf_client **client, hf_done_fn *done,
                                 void *arg, struct hf_future **future);

/* Close without blocking; legal inside a callback. A program that drives the
 * client must keep calling hf_process(); otherwise the client's threads do the
 * work, and are started if necessary. `done` (which may be NULL) is the
 * client's last callback and receives what hf_close() would have returned.
 * After `done` has run, the client and the descriptor of hf_fd() no longer
 * exist.
 *
 * `done` runs within `timeout_ms`, or when a callback that runs longer returns.
 *
 * HF_ECLOSED    the client is being closed already; `done` does not run
 * HF_ENOMEM, HF_ESYSTEM  the client is unchanged */
HF_API enum hf_err hf_close_start(struct hf_client *client, uint32_t timeout_ms,
                                  hf_done_fn *done, void *arg);

/* The client's capabilities: HF_CAP_FENCE | ... */
HF_API uint32_t hf_caps(const struct hf_client *client);

/* "fence" for HF_CAP_FENCE; "?" for a value that is no single capability. */
HF_API const char *hf_cap_name(enum hf_cap cap);

/* Describe the store to people: call `each` with pairs of a name and a text,
 * such as "server" and "Redis 7.0.15", before this returns. `each` must not
 * call functions on `client`. Names are stable, texts are not. Passwords are
 * never shown. Returns HF_ESTATE or HF_ECLOSED if the client is not open. */
typedef void hf_fact_fn(const char *name, const char *text, void *arg);
HF_API enum hf_err hf_describe(struct hf_client *client, hf_fact_fn *each,
                               void *arg);

/* The last error of any call on this client. */
HF_API void hf_client_error(const struct hf_client *client,
                            struct hf_error *error);

/* For event loops: poll the descriptor for reading, and call hf_process() when
 * it is readable, or at any other time. hf_process() handles I/O and timers,
 * runs callbacks and never blocks. It does a limited amount of work per call;
 * the descriptor stays readable while there is more. In a client with threads,
 * hf_process() does nothing. hf_fd() returns -1 for NULL, and in a forked
 * child. */
HF_API int hf_fd(struct hf_client *client);
HF_API enum hf_err hf_process(struct hf_client *client);

/* Interrupt the blocking calls that wait on `client` now, in all threads. Any
 * thread, and a signal handler, may call this function.
 *
 *   - hf_future_wait() and hf_lock_wait() return HF_EINTR; the operation
 *     continues. If neither function is waiting, the next call of either that
 *     would wait returns HF_EINTR instead, so that an interrupt just before the
 *     wait is not lost.
 *   - hf_acquire(), hf_lock_acquire(), hf_read() and other calls cancel their
 *     operation as hf_future_cancel() does, and return HF_EINTR, or HF_EINDOUBT
 *     if it may have changed something. A claim is canceled first, which takes
 *     a second at most. Only calls that already wait are interrupted: a program
 *     that must not miss an interrupt uses hf_X_start() and hf_future_wait().
 *   - hf_release() and hf_close() are not interrupted; they have timeouts. */
HF_API void hf_interrupt(struct hf_client *client);

/* ---- Futures ------------------------------------------------------------
 *
 * A future is the C form of a promise. In hf_X_start(..., done, arg, &future),
 * `done` and `&future` may each be NULL. */

/* Returns true if the operation is complete, and writes its result to `*err`
 * (`err` may be NULL). Otherwise returns false; `*err` is unchanged. */
HF_API bool hf_future_done(const struct hf_future *future, enum hf_err *err);

/* Wait until the operation is complete, and write its result to `*err` (`err`
 * may be NULL).
 *
 * HF_ETIMEDOUT  not complete within `wait_ms`; `*err` is unchanged
 * HF_EINTR      hf_interrupt() was called; `*err` is unchanged, the operation
 *               continues, and the program may wait again
 * HF_EDEADLK    called inside a callback */
HF_API enum hf_err hf_future_wait(struct hf_future *future, uint32_t wait_ms,
                                  enum hf_err *err);

/* Cancel the operation if it is not complete. It still completes exactly once,
 * with HF_ECANCELED, or with HF_EINDOUBT if it may have changed something. A
 * lock that was granted in the meantime is released. hf_release_start() cannot
 * be canceled. */
HF_API void hf_future_cancel(struct hf_future *future);

/* The error of the operation. The code is HF_OK if the operation has succeeded
 * or is not complete. */
HF_API void hf_future_error(const struct hf_future *future,
                            struct hf_error *error);

/* Free the future. The operation continues, and its callback still runs. */
HF_API void hf_future_free(struct hf_future *future);

/* ---- Locks --------------------------------------------------------------
 *
 *           acquire           granted              release
 *     IDLE ---------> CLAIMING ---------> HELD ---------------> RELEASING
 *      ^                 |  ^ acquire       | validity ended      ^ |
 *      |         refused |  |               v        release      | |
 *      +-----------------+  +------------- LOST ------------------+ |
 *      +------------------------------------------------------------+
 *
 * A loss is final: once hf_lock_valid_for() has been false for a claim, no
 * thread sees it true again for that claim, even if a renewal succeeds
 * later. hf_lock_detach() makes a held handle idle. */
enum hf_state {
    HF_LOCK_IDLE,
    HF_LOCK_CLAIMING,
    HF_LOCK_HELD,
    HF_LOCK_LOST,
    HF_LOCK_RELEASING,
};

enum hf_lock_event {
    HF_LOCK_EVENT_WAITING = 1, /* queued: see hf_lock_position() */
    HF_LOCK_EVENT_AT_RISK,     /* at least half the ttl has passed and renewals
                                  fail, or renewals are refused: see
                                  hf_lock_error() */
    HF_LOCK_EVENT_LOST,        /* validity ended without hf_release() */
};

/* Each event occurs at most once per claim, and AT_RISK only for locks that are
 * renewed. LOST is delivered before any other pending callback of the client.
 * It is delivered before another client can hold the key, provided that this
 * process is running and no other callback is running.
 *
 * Each loss is reported once, unless hf_release(), hf_lock_free() or a close
 * comes first: no event of a claim is delivered after one of these calls. If a
 * handle is acquired again while its loss is still unreported, the new claim is
 * sent after the callback for LOST has returned; that time counts against
 * wait_ms, or against timeout_ms if wait_ms is shorter. */
typedef void hf_lock_event_fn(struct hf_lock *lock, enum hf_lock_event event,
                              void *arg);

struct hf_lock_opts {
    size_t size;            /* set by hf_lock_opts_init() */
    uint32_t ttl_ms;        /* time held without renewal; 0: 10 s */
    uint32_t wait_ms;       /* longest wait in the queue; default 5 s; 0: do not
                               wait; HF_FOREVER: no limit */
    uint32_t timeout_ms;    /* longest wait for the reply to a request that was
                              sent; 0: 5 s. Time that a LOCK waits inside a
                              busy client counts against wait_ms */
    uint32_t renew_ms;      /* with renew: renew when this much of the
                               validity is left; 0: 2/3 (mongodb: 5/6) of the
                               ttl */
    bool renew;             /* renew the lock until hf_release() */
    bool idle;              /* hf_lock_new(): do not acquire yet */
    bool ttl_includes_wait; /* the ttl starts when the wait starts */
    struct hf_bytes value;  /* stored with the lock, shown by hf_read() */
    const char *note;       /* shown to operators; NULL: none */
    hf_lock_event_fn *on_event; /* may be NULL */
    void *arg;                  /* for on_event */
    struct hf_error *error;     /* set if the call that takes these options
                               returns an error; may be NULL */
};

/* Fill `opts` with the defaults of this process. */
HF_API void hf_lock_opts_fill(struct hf_lock_opts *opts, size_t size);
static inline void hf_lock_opts_init(struct hf_lock_opts *opts)
{
    hf_lock_opts_fill(opts, sizeof(*opts));
}

/* Change the defaults of this process: times and flags. `value`, `note`,
 * `error` and the callback have no defaults. Existing handles keep their
 * options; forked children inherit the defaults. NULL restores the library's
 * defaults. Returns HF_EINVAL, and says why in opts->error, if an option is out
 * of range or two contradict each other. */
HF_API enum hf_err hf_lock_opts_set_default(const struct hf_lock_opts *opts);

/* Acquire the lock on `key`, waiting up to opts->wait_ms for it.
 *
 * On HF_OK, `*lock` is held until hf_release() or until its lease expires. Its
 * token is larger than any token granted for this key before: send the token
 * with each write that the lock protects, and let the store refuse a smaller
 * token. On any other result `*lock` is unchanged.
 *
 *   key    1 to HF_KEY_MAX bytes of any value; copied
 *   opts   NULL for the defaults: ttl 10 s, wait 5 s, no renewal
 *
 * HF_EBUSY      wait_ms is 0 and another claim, possibly of this client,
 *               holds the key
 * HF_ETIMEDOUT  not granted within wait_ms; the wait is canceled
 * HF_EUNAVAIL   no server, or too few of them, reachable in time; not held
 * HF_EINDOUBT   the reply was lost. The claim is canceled in the background,
 *               and may hold the key until its lease expires
 * HF_EINVAL     an argument is invalid; the error text names it
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

/* Make a handle that can be acquired and released any number of times. Unless
 * opts->idle is set, this starts to acquire the lock; hf_lock_wait() returns
 * the result. */
HF_API enum hf_err hf_lock_new(struct hf_client *client, struct hf_key key,
                               const struct hf_lock_opts *opts,
                               struct hf_lock **lock);

/* Acquire the lock with an idle or lost handle; the results are those of
 * hf_acquire(). The handle is idle after an error. Returns HF_ESTATE if the
 * handle is claiming, held or releasing. */
HF_API enum hf_err hf_lock_acquire(struct hf_lock *lock);
HF_API enum hf_err hf_lock_acquire_start(struct hf_lock *lock, hf_done_fn *done,
                                         void *arg, struct hf_future **future);

/* Wait for the handle's pending claim, if any, and return the result of its
 * last claim. Returns HF_ESTATE if there was no claim. */
HF_API enum hf_err hf_lock_wait(struct hf_lock *lock);

/* Make a handle for a lock that another handle, usually of another process, has
 * acquired: pass that handle's hf_lock_nonce() and hf_lock_token(). How long
 * the lock is valid is unknown, so hf_lock_valid_for() is false until a renewal
 * is confirmed; release, renew and update work at once. When the validity ends,
 * the handle is lost; this is final, as for any other handle. If the first
 * handle was not detached, both handles act on one claim, and a release by
 * either ends it for both. If a lost handle is acquired again, it makes a new
 * claim and does not touch the adopted claim. */
#define HF_NONCE_SIZE 16
HF_API enum hf_err hf_lock_adopt(struct hf_client *client, struct hf_key key,
                                 const uint8_t nonce[HF_NONCE_SIZE],
                                 uint64_t token,
                                 const struct hf_lock_opts *opts,
                                 struct hf_lock **lock);

/* Detach the handle from the lock that it holds, so that another process can
 * adopt the lock. The handle becomes idle and is not valid; hf_lock_nonce() and
 * hf_lock_token() still return the nonce and the token of the detached claim,
 * until the handle is acquired again with a new nonce. Nothing renews the lock,
 * and neither freeing the handle nor closing the client releases it: the lock
 * ends when an adopter releases it, or when its lease expires. Returns
 * HF_ESTATE if the handle does not hold the lock. */
HF_API enum hf_err hf_lock_detach(struct hf_lock *lock);

/* Release the lock. Validity ends before the request is sent, and the handle is
 * idle afterwards whatever the result. If a claim is pending, this waits for
 * the claim first, and returns the claim's error if the claim fails.
 *
 * HF_OK         the lock was held until now, by the server's lease, which is a
 *               little longer than validity; the key is free, or granted to the
 *               next waiter
 * HF_EEXPIRED   the lease had expired before the release
 * HF_ENOTOWNER  in place of HF_EEXPIRED for an adopted handle: another claim
 *               holds the key
 * HF_ENOTHELD   in place of HF_EEXPIRED for an adopted handle: the key is free
 * HF_EINDOUBT   no reply within timeout_ms, or the first reply was lost and
 *               nothing proves what it was; at the latest the lock ends when
 *               its lease expires
 * HF_EUNAVAIL   no server reachable: the lock ends when its lease expires
 * HF_ESTATE     the handle is idle */
HF_API enum hf_err hf_release(struct hf_lock *lock);
HF_API enum hf_err hf_release_start(struct hf_lock *lock, hf_done_fn *done,
                                    void *arg, struct hf_future **future);

/* Renew the lock, so that it is held for `ttl_ms` from now (0: the ttl of the
 * handle). This never creates a lock, and never shortens a lease.
 *
 * HF_EFORCED   an operator broke the lock: it ends when its lease expires
 * HF_EEXPIRED  the handle is lost, even if the server still has the lock
 * Other results are those of hf_release(). */
HF_API enum hf_err hf_renew(struct hf_lock *lock, uint32_t ttl_ms);
HF_API enum hf_err hf_renew_start(struct hf_lock *lock, uint32_t ttl_ms,
                                  hf_done_fn *done, void *arg,
                                  struct hf_future **future);

/* Replace the value if it equals `*expected`, or in any case if `expected` is
 * NULL. The lease is unchanged. Returns HF_EMISMATCH if the value differs.
 * Other results are those of hf_renew(), except HF_EFORCED, because a broken
 * lock can be updated until its lease expires. */
HF_API enum hf_err hf_update(struct hf_lock *lock,
                             const struct hf_bytes *expected,
                             struct hf_bytes value);
HF_API enum hf_err hf_update_start(struct hf_lock *lock,
                                   const struct hf_bytes *expected,
                                   struct hf_bytes value, hf_done_fn *done,
                                   void *arg, struct hf_future **future);

/* Returns true if the lock is certain to be held for another `ms` milliseconds,
 * and false once validity has ended, which happens before another client can
 * hold the key. This costs a load and a clock read, and sends nothing. */
HF_API bool hf_lock_valid_for(const struct hf_lock *lock, uint32_t ms);

/* How long the lock is certain to be held; 0 if it is not held. */
HF_API uint32_t hf_lock_remaining_ms(const struct hf_lock *lock);

/* The instant, in milliseconds of CLOCK_BOOTTIME, at which validity ends; 0 if
 * the lock is not held. Time during which the machine is suspended does not
 * count against a lock of file: or memory:, so a suspension moves this
 * instant. */
HF_API int64_t hf_lock_deadline(const struct hf_lock *lock);

/* The fencing token of the last grant; 0 if there was none. */
HF_API uint64_t hf_lock_token(const struct hf_lock *lock);

/* The nonce of the last claim; all zeros if there was none. It is a secret:
 * every process that knows it can release the lock. */
HF_API void hf_lock_nonce(const struct hf_lock *lock,
                          uint8_t nonce[HF_NONCE_SIZE]);

HF_API struct hf_key hf_lock_key(const struct hf_lock *lock);
HF_API enum hf_state hf_lock_state(const struct hf_lock *lock);

/* The last known position in the queue, 1 for the next waiter to be granted; 0
 * if the handle is not waiting. */
HF_API uint32_t hf_lock_position(const struct hf_lock *lock);

/* The last error of a call on this handle, or of its renewals. While renewals
 * fail, this is the cause: from the first failed attempt, or once a reply is
 * overdue, which happens before AT_RISK. When a renewal succeeds, the code is
 * HF_OK again. */
HF_API void hf_lock_error(const struct hf_lock *lock, struct hf_error *error);

/* Free the handle. Its claim is released in the background, without
 * confirmation, unless it was adopted or detached. This is legal while calls on
 * the handle are in progress, in this or another thread; those calls return
 * HF_ECANCELED. It waits for a callback of the handle that runs in another
 * thread. Inside an event callback, before the caller has seen the result of
 * hf_acquire(), hf_lock_acquire() or their _start forms, this abandons the
 * claim even if it was granted: the result is HF_ECANCELED, and the handle is
 * freed. */
HF_API void hf_lock_free(struct hf_lock *lock);

/* Acquire the lock, call `run`, and release the lock. `*result` is set to what
 * `run` returns. `run` may call hf_lock_valid_for(lock, 0).
 *
 * HF_OK        `run` was called, and the lock was held until it returned
 * HF_EEXPIRED  `run` was called, but the lock was lost before it returned
 * Other results are those of hf_acquire() if `run` was not called, and those of
 * hf_release() if it was. `*result` is written if and only if `run` was
 * called. */
typedef int hf_run_fn(struct hf_lock *lock, void *arg);
HF_API enum hf_err hf_run(struct hf_client *client, struct hf_key key,
                          const struct hf_lock_opts *opts, hf_run_fn *run,
                          void *arg, int *result);

/* ---- Reading ------------------------------------------------------------*/
enum hf_consistency {
    HF_LINEARIZABLE, /* the state at some instant during the call */
    HF_LOCAL,        /* the state of the nearest server; may be stale */
};

/* The state of a key. Nonces are secrets and never shown. */
struct hf_info {
    struct hf_key key;
    bool held;
    bool forced;      /* broken by an operator: cannot be renewed */
    uint64_t token;   /* the holder's token */
    uint32_t held_ms; /* time since the grant */
    uint32_t left_ms; /* time until the lease expires; HF_FOREVER: a Redis
                         client other than holdfast has set the key without
                         expiry */
    uint32_t waiters;
    struct hf_bytes value;
    const char *owner; /* "" if unknown */
    const char *note;
    uint64_t index; /* index of the newest event; watch from index + 1 */
    void *storage;  /* the memory that the members above point to */
    uint64_t reserved[8];
};
HF_API void hf_info_fini(struct hf_info *info);

/* Read one key; free `*info` with hf_info_fini(). A key that is not held is no
 * error: info->held is false. */
HF_API enum hf_err hf_read(struct hf_client *client, struct hf_key key,
                           enum hf_consistency how, struct hf_info *info);
HF_API enum hf_err hf_read_start(struct hf_client *client, struct hf_key key,
                                 enum hf_consistency how, struct hf_info *info,
                                 hf_done_fn *done, void *arg,
                                 struct hf_future **future);

/* Call `each` once for every held key that begins with `prefix` (which may be
 * empty), in byte order. A key that is acquired or released during the call may
 * or may not be listed; to follow changes, watch from 1 above the smallest
 * `index` in the list. `info` is valid until `each` returns; if `each` returns
 * false, the list ends. `each` must not block. */
typedef bool hf_list_fn(const struct hf_info *info, void *arg);
HF_API enum hf_err hf_list(struct hf_client *client, struct hf_key prefix,
                           hf_list_fn *each, void *arg);
HF_API enum hf_err hf_list_start(struct hf_client *client, struct hf_key prefix,
                                 hf_list_fn *each, void *each_arg,
                                 hf_done_fn *done, void *arg,
                                 struct hf_future **future);

/* Wait until `key` is held; return at once if it is held already. `info` may
 * be NULL. Returns HF_ETIMEDOUT if the key was not held within `wait_ms`, or
 * HF_EUNAVAIL if no server answered in that time. Without HF_CAP_WATCH, the key
 * is read once a second, so a lock that is held for a shorter time may be
 * missed. */
HF_API enum hf_err hf_wait_held(struct hf_client *client, struct hf_key key,
                                uint32_t wait_ms, struct hf_info *info);
HF_API enum hf_err hf_wait_held_start(struct hf_client *client,
                                      struct hf_key key, uint32_t wait_ms,
                                      struct hf_info *info, hf_done_fn *done,
                                      void *arg, struct hf_future **future);

/* Why a key is free. */
enum hf_freed {
    HF_FREED_ALREADY = 1, /* the key was free when the wait started */
    HF_FREED_RELEASED,
    HF_FREED_EXPIRED,
    HF_FREED_FORCED,
    HF_FREED_UNSEEN, /* the reason is unknown: its event was missed, or there
                        is none (no HF_CAP_WATCH) */
};

/* Wait until `key` is free, and set `*freed` to the reason (`freed` may be
 * NULL). Returns HF_ETIMEDOUT if the key was not free within `wait_ms`, or
 * HF_EUNAVAIL if no server answered in that time. When this returns, another
 * client may already have acquired the key, so a program that wants to hold
 * the key must acquire it. */
HF_API enum hf_err hf_wait_free(struct hf_client *client, struct hf_key key,
                                uint32_t wait_ms, enum hf_freed *freed);
HF_API enum hf_err hf_wait_free_start(struct hf_client *client,
                                      struct hf_key key, uint32_t wait_ms,
                                      enum hf_freed *freed, hf_done_fn *done,
                                      void *arg, struct hf_future **future);

/* ---- Watching -----------------------------------------------------------*/
#define HF_EVENTS(X)                                                           \
    X(GRANTED, "granted", 0)                                                   \
    X(RENEWED, "renewed", 1)                                                   \
    X(UPDATED, "updated", 2)                                                   \
    X(RELEASED, "released", 3)                                                 \
    X(EXPIRED, "expired", 4)                                                   \
    X(FORCED, "forced", 5) /* broken by an operator; see `freed` */            \
    X(QUEUED, "queued", 6)                                                     \
    X(WITHDRAWN, "withdrawn", 7) /* a waiter left the queue */                 \
    X(DROPPED, "dropped", 8)     /* some events are missing here */

enum hf_event_kind {
#define HF_EVENT_BIT(name, text, bit) HF_EVENT_##name = 1 << (bit),
    HF_EVENTS(HF_EVENT_BIT)
#undef HF_EVENT_BIT
#define HF_EVENT_BIT(name, text, bit) | 1 << (bit)
    HF_EVENT_ANY = 0 HF_EVENTS(HF_EVENT_BIT),
#undef HF_EVENT_BIT
};

/* "granted" for HF_EVENT_GRANTED; "?" for a value that is no single kind. */
HF_API const char *hf_event_name(enum hf_event_kind kind);

/* An event, as a watch reports it. Indexes increase over all keys of a store:
 * in mongodb: they are cluster times; other strategies count events. */
struct hf_event {
    enum hf_event_kind kind;
    uint64_t index; /* DROPPED: index of the first event after the gap */
    struct hf_key key;
    uint64_t token;    /* 0 for QUEUED and WITHDRAWN */
    const char *owner; /* owner of the claim that the event concerns */
    bool freed;        /* the key is free after this event */
    uint64_t reserved[8];
};

struct hf_watch_opts {
    size_t size;
    uint64_t from;  /* index of the first event; 0: from now on */
    uint32_t kinds; /* HF_EVENT_GRANTED | ...; DROPPED is always reported */
};
HF_API void hf_watch_opts_fill(struct hf_watch_opts *opts, size_t size);
static inline void hf_watch_opts_init(struct hf_watch_opts *opts)
{
    hf_watch_opts_fill(opts, sizeof(*opts));
}

/* Call `each` for every event on keys that begin with `prefix`, in order, until
 * hf_watch_close(). One DROPPED event replaces the events that were lost
 * because they arrived faster than `each` handled them, or because `from` is
 * older than the oldest event kept. `event` is valid until `each` returns.
 * Returns HF_EUNSUPPORTED without HF_CAP_WATCH. */
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

/* Close the watch. No callback of the watch runs after this function returns:
 * it waits for a callback that runs in another thread, unless it is called
 * inside a callback of the same client. */
HF_API void hf_watch_close(struct hf_watch *watch);

/* ---- Operators ----------------------------------------------------------*/

/* Break the lock that was granted with `token`. Its renewals are refused, so it
 * ends when its lease expires, and two holders are never valid at the same
 * time. With `now` the key is free at once. The old holder may then still
 * consider its lock valid, so only fencing protects the data. A holder that
 * renews its lock is notified at once by memory:, file:, raft:, redis: and
 * redlock:, and by mongodb: while its client waits for another lock or watches;
 * otherwise it finds out at its next renewal.
 *
 * HF_ENOTOWNER  the key is held with another token
 * HF_ENOTHELD   the key is not held */
HF_API enum hf_err hf_force(struct hf_client *client, struct hf_key key,
                            uint64_t token, bool now);
HF_API enum hf_err hf_force_start(struct hf_client *client, struct hf_key key,
                                  uint64_t token, bool now, hf_done_fn *done,
                                  void *arg, struct hf_future **future);

#ifdef __cplusplus
}
#endif

#endif
