/* wait.h - waiting until a key is held, or free.
 *
 * hf_wait_held() and hf_wait_free() register first and read then, so that no
 * change between the two is missed, and read again now and then in case a push
 * is lost. What registers is a watch (watch.h), which hands on here whatever
 * comes for it. With the client's mutex held throughout. */
#ifndef HF_CLIENT_WAIT_H
#define HF_CLIENT_WAIT_H

#include "client/loop.h"

/* The part of a watch that only a wait has. */
struct hf_wait {
    struct hf_timer timer;
    hf_time wait_until;
    bool has_answer;  /* the server has answered */
    bool seen_held;   /* for free: it was not free from the start */
    bool seen_free;   /* for free: a READ was ahead of the event */
    bool read_again;  /* an event came while a READ was open */
    uint64_t granted; /* for held: the token of the last grant seen */
    char owner[HF_NOTE_MAX + 1]; /* and whose it was */
    struct hf_info *info;
    enum hf_freed *freed;
};

/* An event came; WATCH or READ is answered; the timer of a wait fires. */
void hf_wait_on_event(struct hf_watch *watch, const struct hf_event *event);
void hf_wait_on_settled(struct hf_watch *watch);
void hf_wait_on_timer(struct hf_timer *timer);

#endif
