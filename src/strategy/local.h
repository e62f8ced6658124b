/* local.h - what the strategies share that run the lock table in this process:
 * answers to requests, and the watches of one client.
 *
 * The caller holds whatever guards the store. */
#ifndef HF_STRATEGY_LOCAL_H
#define HF_STRATEGY_LOCAL_H

#include "core/store.h"
#include "strategy/strategy.h"

/* After a COMMAND was run: what its answer says of time. */
void hf_local_tell_time(const struct hf_store *store,
                        struct hf_request *request);

/* READ and LIST, at `now`. */
void hf_local_read(const struct hf_store *store, hf_time now,
                   struct hf_request *request);
void hf_local_list(const struct hf_store *store, hf_time now,
                   struct hf_request *request);

/* WATCH, into a list of the client's watches; a repeat finds it in place.
 * UNWATCH; and all of them. */
enum hf_err hf_local_watch(struct hf_store *store, struct hf_list *watches,
                           const struct hf_request *request);
void hf_local_unwatch(struct hf_list *watches, uint64_t number);
void hf_local_unwatch_all(struct hf_list *watches);

/* The store was made anew: what the watches missed shows as dropped. */
enum hf_err hf_local_rewatch(struct hf_store *store, struct hf_list *watches);

/* The next event for any of the watches, copied out of the history. */
struct hf_local_event {
    struct hf_push_event push;
    char owner[HF_NOTE_MAX + 1];
    uint8_t key[HF_KEY_MAX];
};
bool hf_local_next_event(const struct hf_store *store, struct hf_list *watches,
                         struct hf_local_event *event);

/* The next grant that `session` waited for. */
bool hf_local_next_grant(struct hf_store *store, uint64_t session,
                         struct hf_push_grant *grant);

#endif
