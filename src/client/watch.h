/* watch.h - a subscription to the events of a key or a prefix.
 *
 * A watch that the user has opened queues copies of the events for its
 * callback. If HF_WATCH_QUEUE_MAX events are queued, or memory is short, the
 * watch drops new events and reports one DROPPED event in their place.
 * hf_wait_held() and hf_wait_free() use a watch too; its events go to wait.c.
 *
 * The strategy holds one reference until UNWATCH is answered, the user holds
 * one until hf_watch_close(). All functions require the client's mutex. */
#ifndef HF_CLIENT_WATCH_H
#define HF_CLIENT_WATCH_H

#include "client/call.h"
#include "client/future.h"
#include "client/operation.h"
#include "client/wait.h"

enum hf_watch_purpose {
    HF_WATCH_EVENTS, /* hf_watch_open() */
    HF_WATCH_WAIT_HELD,
    HF_WATCH_WAIT_FREE
};

struct hf_watch {
    struct hf_client *client;
    struct hf_dlist link; /* in client->watches, while `pushing` */
    struct hf_call call;  /* for WATCH, READ and UNWATCH, one at a time */
    uint64_t number;      /* identifies the watch to the strategy */
    unsigned references;
    enum hf_watch_purpose purpose;
    bool pushing; /* the strategy may push events, and has a reference */
    bool ended;   /* no event is reported any more */

    /* These members are for HF_WATCH_EVENTS only. */
    uint32_t kinds;
    hf_watch_fn *each;
    void *each_arg;
    struct hf_dlist queue; /* struct queued_event */
    size_t queued;
    uint64_t dropped; /* the first index after the gap; 0: no gap */
    struct hf_callback callback;
    struct hf_watch **out; /* where hf_watch_open() returns the watch */

    struct hf_wait wait; /* HF_WATCH_WAIT_HELD, HF_WATCH_WAIT_FREE only */

    struct hf_future *opening; /* receives the result of the opening, or of the
                                  wait; NULL afterwards */
    size_t key_size;
    uint8_t key[];
};

/* Create a watch and its future, which goes to `listener`. Nothing is sent yet.
 * Can fail with HF_ENOMEM or HF_ELIMIT. */
enum hf_err hf_watch_new(struct hf_client *client, struct hf_key key,
                         enum hf_watch_purpose purpose,
                         struct hf_listener listener,
                         struct hf_watch **new_watch);

/* Send WATCH, READ or UNWATCH. The call must not be open. */
void hf_watch_send(struct hf_watch *watch, enum hf_request_kind kind);

/* Complete the opening of a watch, or a wait, with `err`. The watch ends,
 * unless it is an HF_WATCH_EVENTS watch and `err` is HF_OK. `cause` may be
 * NULL. */
void hf_watch_answer(struct hf_watch *watch, enum hf_err err,
                     const char *cause);

/* The key or prefix; borrowed. */
struct hf_key hf_watch_key(const struct hf_watch *watch);

/* hf_host_ops.event */
void hf_watch_on_event(struct hf_host *host, const struct hf_push_event *push);

/* End the watch without an UNWATCH, because the client is closing. */
void hf_watch_abort(struct hf_watch *watch);

/* The watch that contains `link`, a link in client->watches. */
struct hf_watch *hf_watch_of(struct hf_dlist *link);

#endif
