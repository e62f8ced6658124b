/* watch.h - what a client is told of: one registration with the strategy.
 *
 * A watch of the user's queues copies of what is pushed until its callback has
 * taken them; over HF_WATCH_QUEUE_MAX, or without memory, the newest are
 * dropped and one DROPPED event marks the place. A wait for a key's state is
 * registered in the same way, and hears of events in wait.c.
 *
 * It lives until the strategy pushes no more, and the user has freed its own.
 * With the client's mutex held throughout. */
#ifndef HF_CLIENT_WATCH_H
#define HF_CLIENT_WATCH_H

#include "client/call.h"
#include "client/future.h"
#include "client/operation.h"
#include "client/wait.h"

/* What it is for: the user's own, or a wait. */
enum hf_watch_purpose {
    HF_WATCH_EVENTS,
    HF_WATCH_WAIT_HELD,
    HF_WATCH_WAIT_FREE
};

struct hf_watch {
    struct hf_client *client;
    struct hf_dlist link; /* in the client */
    struct hf_call call;  /* WATCH, READ, UNWATCH in turn */
    uint64_t number;
    unsigned references;
    enum hf_watch_purpose purpose;
    bool pushing; /* the strategy may push: it holds a reference */
    bool ended;   /* nothing is told any more */

    /* The user's own. */
    uint32_t kinds;
    hf_watch_fn *each;
    void *each_arg;
    struct hf_dlist queue;
    size_t queued;
    uint64_t dropped; /* first index after what is missing; 0: nothing is */
    struct hf_callback callback;
    struct hf_watch **out;

    struct hf_wait wait;

    struct hf_future *opening; /* who waits for it */
    size_t key_size;
    uint8_t key[];
};

/* Make one that answers a future, which the listener gets; nothing is sent
 * yet. HF_ENOMEM, HF_ELIMIT. */
enum hf_err hf_watch_new(struct hf_client *client, struct hf_key key,
                         enum hf_watch_purpose purpose,
                         struct hf_listener listener,
                         struct hf_watch **new_watch);

/* Send a request of this kind for its key; no other is open. */
void hf_watch_send(struct hf_watch *watch, enum hf_request_kind kind);

/* The opening, or the whole wait, is over: answer the future. What failed, and
 * a wait in any case, is told nothing more. `cause` may be NULL. */
void hf_watch_answer(struct hf_watch *watch, enum hf_err err,
                     const char *cause);

/* Its key, or prefix; borrowed. */
struct hf_key hf_watch_key(const struct hf_watch *watch);

/* hf_host_ops.event: a push has come. */
void hf_watch_on_event(struct hf_host *host, const struct hf_push_event *push);

/* The client closes. */
void hf_watch_abort(struct hf_watch *watch);
struct hf_watch *hf_watch_of(struct hf_dlist *link);

#endif
