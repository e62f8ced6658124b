/* strategy.h - the interface between the client and the strategies.
 *
 * A strategy carries requests to the store that decides, and carries answers,
 * grants and events back. What all strategies need is in the client: deadlines,
 * back-off, repeats, withdrawal, validity and renewal. A strategy
 *   - never repeats a request that may have had an effect: it reports the
 *     request as lost, and the client decides. It may postpone a request that
 *     has not begun, as file: does while the arena is locked. (raft: repeats
 *     commands in their session, where the cluster executes them once.)
 *   - gets the time from hf_host_ops.now, on the clock that hf_strategy.clock
 *     names, and does not end a request because the answer is slow. (redlock:
 *     continues without one slow server while the others can decide.)
 *   - does not block for long once it is open: memory: locks the mutex of its
 *     store; file: waits for the arena lock for a limited time, and may write
 *     its token file. A strategy runs slower operations in threads, as mongodb:
 *     does.
 *
 * Threads. `open` may run in any thread. So may `caps` and `close` when they
 * are called directly after it. Everything else runs with the client's mutex
 * held, one call at a time: the other members, timers, descriptors and posts.
 * Threads of a strategy call hf_host_ops.post and nothing else of the host.
 *
 * Members are called by the client only. A strategy must not call functions of
 * holdfast.h that take a client.
 *
 * CONTRIBUTING.md says how a strategy joins. A strategy whose library is a
 * burden to programs that do not use it is a module (strategy/module.h). */
#ifndef HF_STRATEGY_STRATEGY_H
#define HF_STRATEGY_STRATEGY_H

#include "base/dlist.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/random.h"
#include "base/time.h"
#include "base/url.h"
#include "core/command.h"
#include "strategy/waker.h"

struct hf_host;
struct hf_request;

/* ---- Requests -----------------------------------------------------------*/

enum hf_request_kind {
    HF_REQUEST_COMMAND, /* LOCK, UNLOCK, RENEW, UPDATE, CANCEL or FORCE */
    HF_REQUEST_READ,    /* the state of command.key */
    HF_REQUEST_LOOKUP,  /* whether command.nonce holds or waits for command.key;
                           only for strategies with `looks_up` */
    HF_REQUEST_LIST,    /* the held keys that begin with command.key */
    HF_REQUEST_WATCH,   /* push events of keys that begin with command.key */
    HF_REQUEST_UNWATCH, /* stop pushing events to `watch` */
};

/* A proof of how early a lease can have started. At the grant, `age_ms` had
 * passed on the server's clock since it received a message that this client
 * sent at `sent`: so the lease did not start before `sent` plus `age_ms`. A
 * strategy that shares the client's clock sets `sent` to the instant of the
 * grant, and `age_ms` to 0. */
struct hf_anchor {
    bool known; /* false: assume that the lease started when the request was
                   first sent */
    hf_time sent;
    uint32_t age_ms;
};

/* A LOOKUP is answered like a LOCK that is repeated, but it never changes
 * anything: HF_OK with token and generation, HF_EBUSY with the position in the
 * queue, or HF_ENOTHELD if the claim neither holds the key nor waits for it. An
 * HF_LOCAL answer may be old, but is true of some earlier instant. An
 * HF_LINEARIZABLE answer is true of some instant between `submit` and the
 * answer. */
struct hf_answer {
    struct hf_result result; /* a queued claim: HF_EBUSY and its position */
    struct hf_anchor anchor; /* set for a LOCK or RENEW that succeeded; may be
                                set for a LOOKUP that found a grant */
    uint32_t poll_after_ms;  /* a queued claim: check it again after this time
                                at the latest; 0: the client decides */
    bool is_pushed;          /* a queued claim: no push can be lost, so do not
                                check it before poll_after_ms, even if that is
                                a long time */
    uint64_t index;          /* READ, LIST, WATCH: index of the newest event */
    struct hf_info *infos;   /* READ: one; LIST: `count` of them; freed by the
                                client */
    size_t count;
    bool sure;         /* UNLOCK: the result is certain, even if an earlier copy
                          of the request was lost */
    bool session_gone; /* a command, with HF_EINDOUBT: the store has closed the
                          session in which the command was sent, so no copy of
                          it can be executed from now on. Only for strategies
                          with `looks_up` */
    char *cause;       /* why the request failed; allocated, may be NULL */
};

/* The client embeds requests in its calls. The bytes of the command stay valid
 * until the request is answered. The strategy may use `link` until then.
 *
 * The session of a command. The client submits a command with session 0 if no
 * copy of it can have been executed, and the strategy sets the session in
 * which it sends the command. When the client repeats the command, the session
 * is still set. If that session is gone, the strategy must not send the
 * command in the next one, where it would be new: it answers with
 * session_gone. A strategy whose session lasts until `close` need not check. */
struct hf_request {
    enum hf_request_kind kind;
    struct hf_command command;
    enum hf_consistency how; /* READ, LOOKUP */
    uint64_t watch;          /* WATCH, UNWATCH: the watch's number */
    uint64_t from;           /* WATCH: the first index; 0: from now on */
    bool exact;              /* WATCH: only events of command.key itself */
    hf_time progress;        /* LIST: when the strategy last received a part
                                  of the result, or 0. The client counts the
                                  deadline from here */
    bool waits;              /* LOCK: the claim was queued at the last
                                  answer */
    bool keeps;              /* LOCK: the client will renew the lock */
    hf_time first_sent;      /* LOCK: when the strategy first sent it, in any
                                  attempt; HF_NEVER: not yet. For strategies
                                  that send a LOCK again by themselves */
    hf_time deadline;        /* when the client gives up; it may move this
                                  while the request is open */
    struct hf_answer answer;
    struct hf_dlist link;
    bool answered; /* set by the host until it calls `done` */
    void (*done)(struct hf_request *request); /* set by the client */
};

/* ---- Pushes -------------------------------------------------------------*/

/* The claim with `nonce`, which waited, was granted the key. If `offered`, the
 * claim holds the key only after a RENEW; that RENEW carries the value, for
 * strategies that store no values of waiters. A push may be lost, so the client
 * checks the claim from time to time: by a LOOKUP if the strategy has
 * `looks_up`, otherwise by repeating the LOCK. */
struct hf_push_grant {
    struct hf_nonce nonce;
    uint64_t token;
    struct hf_anchor anchor;
    bool offered;
};

#define HF_ANY_TOKEN UINT64_MAX /* stands for any lock in `recheck` */

/* An event for the watch with the number `watch`. The key and the owner are
 * valid only during the call of hf_host_ops.event. */
struct hf_push_event {
    uint64_t watch;
    struct hf_event event;
};

/* ---- The host -----------------------------------------------------------*/

struct hf_timer {
    struct hf_heap_link link;
    void (*fire)(struct hf_timer *timer);
};

struct hf_fd {
    int fd;
    uint32_t events; /* EPOLLIN | EPOLLOUT */
    void (*ready)(struct hf_fd *fd, uint32_t events);
};

struct hf_post {
    struct hf_dlist link;
    void (*run)(struct hf_post *post);
};

struct hf_host {
    const struct hf_host_ops *ops;
};

struct hf_host_ops {
    /* The time at the start of this turn. */
    hf_time (*now)(struct hf_host *host);

    /* timer_add reserves memory and may fail; after that, a timer can be set,
     * moved, and unset (HF_NEVER) at any time. */
    enum hf_err (*timer_add)(struct hf_host *host, struct hf_timer *timer);
    void (*timer_set)(struct hf_host *host, struct hf_timer *timer, hf_time at);
    void (*timer_remove)(struct hf_host *host, struct hf_timer *timer);

    /* fd_add starts to poll fd->fd for fd->events, fd_change applies a new
     * value of fd->events, and fd_remove stops polling. */
    enum hf_err (*fd_add)(struct hf_host *host, struct hf_fd *fd);
    enum hf_err (*fd_change)(struct hf_host *host, struct hf_fd *fd);
    void (*fd_remove)(struct hf_host *host, struct hf_fd *fd);

    /* Run post->run soon, with the client's mutex held. Does nothing if the
     * post is pending already. If this returns a waker, the caller calls
     * hf_waker_wake() once it has unlocked the mutexes that the woken thread
     * will lock.
     * This is the only member that any thread may call. */
    struct hf_waker *(*post)(struct hf_host *host, struct hf_post *post);

    /* Cancel a post or a deferred post, if it is pending. */
    void (*unpost)(struct hf_host *host, struct hf_post *post);

    /* Run post->run at the end of this turn, before the client sleeps. A
     * strategy uses this to collect its output and send it with one write. */
    void (*defer)(struct hf_host *host, struct hf_post *post);

    /* Answer a request. Its `done` runs soon, never inside this call. */
    void (*answer)(struct hf_host *host, struct hf_request *request);

    void (*grant)(struct hf_host *host, const struct hf_push_grant *grant);

    /* Check the waiter with `nonce` now, by a LOOKUP or a repeated LOCK. */
    void (*nudge)(struct hf_host *host, const struct hf_nonce *nonce);

    /* The lock with `token` may have been forced; HF_ANY_TOKEN stands for any
     * lock. If the client renews that lock, it sends a renewal now, whose
     * result decides, so a false report costs only one renewal. */
    void (*recheck)(struct hf_host *host, uint64_t token);
    void (*event)(struct hf_host *host, const struct hf_push_event *event);

    /* The client's options `owner` and `inherit`, and its random generator. */
    const char *(*owner)(struct hf_host *host);
    bool (*inherit)(struct hf_host *host);
    struct hf_random *(*random)(struct hf_host *host);
};

/* Set a timer; HF_NEVER unsets it. A timer that is not set is unset without a
 * call of the host. */
static inline void hf_timer_set(struct hf_host *host, struct hf_timer *timer,
                                hf_time at)
{
    if (at != HF_NEVER || hf_heap_has(&timer->link))
        host->ops->timer_set(host, timer, at);
}

/* ---- The strategy -------------------------------------------------------*/

struct hf_strategy {
    const char *scheme; /* "redis" in redis://host:6379 */
    size_t size;        /* bytes of private state, zeroed by the client */

    /* The clock of the strategy's leases and of all deadlines of the client; 0
     * means CLOCK_BOOTTIME. Use CLOCK_MONOTONIC if all clients that can compete
     * for a lock run on one machine, and so are suspended together. */
    clockid_t clock;

    /* By default the client renews a lock when about 1/renew_part of its ttl
     * has passed; 0 means 1/3. A strategy with slow failovers renews earlier,
     * so that more of the lease is left when a failover begins. */
    unsigned renew_part;

    /* The strategy serves LOOKUP, so the client checks its waiters with it.
     * Otherwise it repeats the LOCK, which then also shows the store that the
     * waiter is alive, as redis: needs. */
    bool looks_up;

    /* A push may be lost, so the client checks each waiter after about half
     * its ttl or after about this time, whichever is less; 0 means a second. */
    uint32_t poll_ms;

    /* Check `url` and connect. This is the only member that reports a failure,
     * and the only one that may block for long: for some seconds, with no mutex
     * held. It runs in the thread that called hf_open(), or in a thread that
     * hf_open_start() started. Until it has returned, neither members nor
     * timers, descriptors or posts of the strategy run. After a failure the
     * strategy must have freed everything, because `close` is not called. `url`
     * is borrowed for the call. */
    enum hf_err (*open)(void *self, struct hf_url *url, struct hf_host *host,
                        struct hf_error *error);

    /* The capabilities, HF_CAP_FENCE | ... Called once, when `open` has
     * succeeded. */
    uint32_t (*caps)(const void *self);

    /* Call `each` with the facts that hf_describe() reports. May be NULL. */
    void (*describe)(const void *self, hf_fact_fn *each, void *arg);

    /* Start a request. Answer it exactly once with hf_host_ops.answer, inside
     * this call or later, with its result, with HF_EUNAVAIL (it had no effect)
     * or with HF_EINDOUBT (it was sent, and the answer was lost). The client
     * waits for the answer up to the deadline of the call, then cancels; it
     * submits the request again only after HF_EUNAVAIL or HF_EINDOUBT. So
     * report a request as lost as soon as that is known (the connection
     * failed), and never because the answer is slow. Grants of other claims,
     * and events, may be pushed inside this call and inside `cancel`. */
    void (*submit)(void *self, struct hf_request *request);

    /* Give up a request that is not answered yet. Answer it before this
     * returns, even if it is still being executed: with HF_EINDOUBT, or with
     * HF_EUNAVAIL if it certainly had and will have no effect. Never called for
     * a request that was answered, so a strategy whose `submit` answers every
     * request needs no code here. */
    void (*cancel)(void *self, struct hf_request *request);

    /* When an unanswered request was sent, by the client's clock; HF_NEVER
     * while it waits inside the strategy. If the member is NULL, requests are
     * sent when they are submitted. */
    hf_time (*sent_at)(void *self, const struct hf_request *request);

    /* A lock was detached, so it must last until its lease expires, even if
     * this client's process dies. NULL if all locks last that long anyway. */
    void (*detach)(void *self);

    /* Free everything; no request is open. Withdraw the waiters of this client
     * if that takes no time; the client has already canceled them, as far as
     * its deadline allowed. A thread that cannot be stopped, because it is
     * inside a library, must use memory of its own: nothing of the strategy may
     * touch the host after this returns. */
    void (*close)(void *self);
};

/* Find the strategy for `scheme`. HF_EUNSUPPORTED: this build has no such
 * strategy, and `error` lists those that it has; or the module of the strategy
 * cannot be loaded, and `error` says why. */
enum hf_err hf_registry_find(const char *scheme,
                             const struct hf_strategy **found,
                             struct hf_error *error);

/* Free the infos and the cause of an answer, and zero it. */
void hf_answer_clear(struct hf_answer *answer);

/* Copy an info; its key, value and strings go to one block, info->storage. Can
 * fail with HF_ENOMEM. */
enum hf_err hf_info_copy(struct hf_info *info, const struct hf_info *from);

/* Sort infos by key, and those of the same key by token. */
void hf_info_sort(struct hf_info *infos, size_t count);

/* Sort, and free all infos except the one of the newest grant of each key.
 * Returns the number of remaining infos. */
size_t hf_info_sort_unique(struct hf_info *infos, size_t count);

#endif
