/* change.h - one change of a lock's document, as a change stream reports it. */
#ifndef HF_STRATEGY_MONGO_CHANGE_H
#define HF_STRATEGY_MONGO_CHANGE_H

#include <mongoc/mongoc.h>

#include "base/dlist.h"

struct hf_mongo_change {
    struct hf_dlist link;
    uint64_t time; /* cluster time, as hf_mongo_reply_time_of() returns it */
    bool lost;     /* this is no change, but marks a gap before `time` */
    char *key;     /* escaped; allocated together with this struct */
    char *events;  /* see event_line.h; allocated together with this struct */
};

/* Create a change, which the caller frees with free(). Returns NULL if out of
 * memory. */
struct hf_mongo_change *hf_mongo_change_new(uint64_t time, const char *key,
                                            const char *events);

/* Decode a document of the stream. Returns NULL if it lacks the key, the events
 * or the time, or if out of memory. */
struct hf_mongo_change *hf_mongo_change_read(const bson_t *document);

/* Append the stages of the stream's pipeline. They pass on all changes, or
 * those that name `client` if it is not NULL, with only the fields that
 * hf_mongo_change_read() needs. */
void hf_mongo_change_add_stages(bson_t *stages, const char *client);

#endif
