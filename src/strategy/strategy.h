/* strategy.h - the one seam between the client and the ways to hold a lock.
 *
 * A strategy carries requests to whatever decides, and answers and pushes
 * back. It never retries, reads no clock and keeps no deadline, and once it is
 * open it never blocks: repeats, back-off, deadlines, withdrawal, validity and renewal live once, in
 * the client. All its members run in the client's context, one at a time; what
 * comes from other threads comes through hf_host.post.
 *
 * To join: one file with one exported `struct hf_strategy`, one line in
 * registry.c, two lines in the conformance suite. A strategy whose library is
 * a burden to who does not use it is a module (strategy/module.h). */
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

/* ---- What a strategy is asked -------------------------------------------*/

enum hf_request_kind {
    HF_REQUEST_COMMAND, /* LOCK, UNLOCK, RENEW, UPDATE, CANCEL or FORCE */
    HF_REQUEST_READ,    /* who holds command.key */
    HF_REQUEST_LIST,    /* who holds what begins with command.key */
    HF_REQUEST_WATCH,   /* push events on what begins with command.key */
    HF_REQUEST_UNWATCH, /* stop pushing to `watch` */
};

/* How long ago, on the granter's own steady clock, the granter received a
 * message that this client sent at `sent`, when it granted. What shares the
 * client's clock gives the grant's own stamp, and age 0. */
struct hf_anchor {
    bool known; /* false: count from the first send of the request */
    hf_time sent;
    uint32_t age_ms;
};

struct hf_answer {
    struct hf_result result; /* LOCK in line: HF_EBUSY and a place */
    struct hf_anchor anchor; /* LOCK, RENEW that succeeded */
    uint32_t poll_after_ms;  /* in line: when a repeat may tell more; 0: no
                                idea */
    bool
        is_pushed; /* in line: no push is lost, so a repeat before look_again_ms
                       is of no use, however long that is */
    uint64_t index;        /* READ, LIST, WATCH: of the newest event */
    struct hf_info *infos; /* READ: one; LIST: count; the client frees them */
    size_t count;
    bool sure;   /* UNLOCK: no other copy of it did anything either */
    char *cause; /* why it failed, in words, allocated; may be NULL */
};

/* Embedded in what the client knows of the call. The command's bytes stay in
 * place until it is answered. The strategy may use `link` until then. */
struct hf_request {
    enum hf_request_kind kind;
    struct hf_command command; /* session is the strategy's to fill in */
    enum hf_consistency how;   /* READ */
    uint64_t watch;            /* WATCH, UNWATCH: the client's number for it */
    uint64_t from;             /* WATCH: first index wanted; 0: from now */
    bool exact;                /* WATCH: of command.key alone */
    hf_time progress;          /* LIST: when a part of it came last, or 0; the
                                  strategy's: its deadline counts from there */
    bool waits;                /* LOCK: its last answer was a position */
    bool keeps;                /* LOCK: the holder will renew it */
    struct hf_answer answer;
    struct hf_dlist link;
    bool answered;                            /* the host's: `done` is to run */
    void (*done)(struct hf_request *request); /* the client's */
};

/* ---- What it may push ---------------------------------------------------*/

/* A claim that waited in line was granted; or was offered the key, and holds it
 * once it has renewed. That RENEW carries the claim's value, for strategies that
 * keep none in the queue. Lost pushes are made good: the client repeats the LOCK. */
struct hf_push_grant {
    struct hf_nonce nonce;
    uint64_t token;
    uint32_t generation;
    struct hf_anchor anchor;
    bool offered;
};

#define HF_ANY_TOKEN UINT64_MAX /* no lock is granted with it */

/* An event for a watch. Key and owner are borrowed for the call. */
struct hf_push_event {
    uint64_t watch;
    struct hf_event event;
};

/* ---- What the host gives ------------------------------------------------*/

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
    /* The time of this turn: never later than the clock. */
    hf_time (*now)(struct hf_host *host);

    /* A timer takes its place in the heap once, which may fail, and can then
     * be set, moved and unset (HF_NEVER) at will. */
    enum hf_err (*timer_add)(struct hf_host *host, struct hf_timer *timer);
    void (*timer_set)(struct hf_host *host, struct hf_timer *timer, hf_time at);
    void (*timer_remove)(struct hf_host *host, struct hf_timer *timer);

    /* Watch a descriptor, change what it is watched for, stop. */
    enum hf_err (*fd_add)(struct hf_host *host, struct hf_fd *fd);
    enum hf_err (*fd_change)(struct hf_host *host, struct hf_fd *fd);
    void (*fd_remove)(struct hf_host *host, struct hf_fd *fd);

    /* Run post->run in the client's context, soon; a post that is under way
     * already stays one. The caller rings what it is given, if anything, when
     * it holds no lock that the woken wants. The only member that any thread
     * may call. */
    struct hf_waker *(*post)(struct hf_host *host, struct hf_post *post);

    /* Take back a post that may be under way, or was deferred. */
    void (*unpost)(struct hf_host *host, struct hf_post *post);

    /* Run post->run when this turn ends, before anyone sleeps: what gathers
     * until then can go out as one write. In the client's context only. */
    void (*defer)(struct hf_host *host, struct hf_post *post);

    /* Answer a request: its `done` runs soon, never inside this call. */
    void (*answer)(struct hf_host *host, struct hf_request *request);

    void (*grant)(struct hf_host *host, const struct hf_push_grant *grant);

    /* A claim that waits in line had better ask again now. */
    void (*nudge)(struct hf_host *host, const struct hf_nonce *nonce);

    /* The lock that was granted with `token` may have been broken; HF_ANY_TOKEN:
     * any lock may. If this client keeps it, it is renewed now, and the answer
     * decides: a wrong report costs one renewal. */
    void (*recheck)(struct hf_host *host, uint64_t token);
    void (*event)(struct hf_host *host, const struct hf_push_event *event);

    /* The owner's label; hf_client_opts.inherit; and chance. */
    const char *(*owner)(struct hf_host *host);
    bool (*inherit)(struct hf_host *host);
    struct hf_random *(*random)(struct hf_host *host);
};

/* Set it, or leave what is not set as it is. */
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

    /* The clock that its leases, and so all deadlines of the client, are counted
     * on; 0: CLOCK_BOOTTIME. CLOCK_MONOTONIC where a suspended machine suspends
     * everyone who may compete for a lock. */
    clockid_t clock;

    /* A lease is renewed when 1/renew_part of it has gone; 0: a third. Where a
     * failover takes long, more has to be left of the lease when it begins. */
    unsigned renew_part;

    /* Check `url` and connect. The only member that may fail, and the only one
     * that may block, for some seconds: it runs before all others, in whatever
     * thread, and until it returns nothing of the strategy is called, neither
     * timers nor descriptors nor posts. */
    enum hf_err (*open)(void *self, struct hf_url *url, struct hf_host *host,
                        struct hf_error *error);

    /* What this one promises, once it is open: HF_CAP_FENCE | ... */
    uint32_t (*caps)(const void *self);

    /* Call `each` with what is known of the store: hf_describe(). May be NULL. */
    void (*describe)(const void *self, hf_fact_fn *each, void *arg);

    /* Start a request. It is answered exactly once, by hf_host.answer: done,
     * refused, HF_EUNAVAIL (surely not done) or HF_EINDOUBT (sent, and lost).
     * The client waits for that answer however long it takes, and submits the
     * request again only after one of the last two: so a strategy reports a
     * request as lost as soon as it knows (its connection failed), and never
     * because an answer is slow. Pushes for other requests may come inside this
     * call, and inside cancel. */
    void (*submit)(void *self, struct hf_request *request);

    /* Give up on a request that is not answered yet: answer it now, whatever
     * goes on outside: HF_EINDOUBT, or HF_EUNAVAIL if it was never sent. */
    void (*cancel)(void *self, struct hf_request *request);

    /* When the request was sent, on the client's clock; HF_NEVER while it waits
     * inside the strategy. Only for requests that are not answered. NULL: each
     * is sent when it is submitted. */
    hf_time (*sent_at)(void *self, const struct hf_request *request);

    /* A lock was detached: it is to live until its lease ends, even if this
     * client's process dies. NULL: it does anyway. */
    void (*detach)(void *self);

    /* Let go of everything, now: no request is open any more. Waiters that
     * this client has in line are withdrawn where that can be done. What
     * cannot be stopped, such as a thread inside a library, is orphaned with
     * memory of its own: nothing may touch the host after this returns. */
    void (*close)(void *self);
};

/* The strategy for a scheme. HF_EUNSUPPORTED, with what this build has. */
enum hf_err hf_registry_find(const char *scheme,
                             const struct hf_strategy **found,
                             struct hf_error *error);

/* Free what the answer holds, and zero it. */
void hf_answer_clear(struct hf_answer *answer);

/* An info whose strings are copied into one block of its own. HF_ENOMEM. */
enum hf_err hf_info_copy(struct hf_info *info, const struct hf_info *from);

/* Sort by key, and infos of the same key by token. */
void hf_info_sort(struct hf_info *infos, size_t count);

/* Sort, and drop all but the newest grant of each key. Returns how many are
 * left. */
size_t hf_info_sort_unique(struct hf_info *infos, size_t count);

#endif
