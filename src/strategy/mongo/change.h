/* change.h - one change of a lock's document, as a change stream reports it. */
#ifndef HF_STRATEGY_MONGO_CHANGE_H
#define HF_STRATEGY_MONGO_CHANGE_H

#include <mongoc/mongoc.h>

#include "base/dlist.h"

struct hf_mongo_change {
    struct hf_dlist link;
    uint64_t time; /* cluster time of hf_mongo_reply_time_of() */
    bool lost;     /* a mark for a gap: changes before `time` were lost */
    char *key;     /* escaped; allocated together with this struct */
    char *events;  /* likewise */
};

/* The caller frees it with free(). NULL: out of memory. */
struct hf_mongo_change *hf_mongo_change_new(uint64_t time, const char *key,
                                            const char *events);

/* Decode a document of the stream. NULL: it has no events, or out of memory. */
struct hf_mongo_change *hf_mongo_change_read(const bson_t *document);

/* Append the stages of the stream's pipeline. They pass on all changes, or
 * those that name `client` if it is not NULL, with only the fields that
 * hf_mongo_change_read() needs. */
void hf_mongo_change_add_stages(bson_t *stages, const char *client);

#endif
