/* wait.h - hf_wait_held() and hf_wait_free(): waiting for a key's state.
 *
 * A wait is a watch of one key (watch.h). It sends WATCH, if the strategy
 * supports it, and then READ, so that no change between the two is missed, and
 * repeats READ about once a second in case a push is lost. All functions
 * require the client's mutex. */
#ifndef HF_CLIENT_WAIT_H
#define HF_CLIENT_WAIT_H

#include "client/loop.h"

/* The members of struct hf_watch that are used by waits only. */
struct hf_wait {
    struct hf_timer timer;
    hf_time wait_until;
    bool has_answer;  /* a READ has succeeded */
    bool seen_held;   /* wait_free: a READ found the key held */
    bool seen_free;   /* wait_free: a READ found the key free, and the event
                         that says why has not arrived yet */
    bool read_again;  /* send another READ after the open request */
    uint64_t granted; /* wait_held: the token of the last grant event */
    char owner[HF_NOTE_MAX + 1]; /* wait_held: the owner of that grant */
    struct hf_info *info;
    enum hf_freed *freed;
};

/* Called when the watch gets an event. */
void hf_wait_on_event(struct hf_watch *watch, const struct hf_event *event);

/* Called when the WATCH or READ of the watch is settled. */
void hf_wait_on_settled(struct hf_watch *watch);

/* Called when the timer of the watch fires. */
void hf_wait_on_timer(struct hf_timer *timer);

#endif
