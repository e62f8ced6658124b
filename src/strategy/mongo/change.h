/* change.h - one change of a document, as a change stream reports it. */
#ifndef HF_STRATEGY_MONGO_CHANGE_H
#define HF_STRATEGY_MONGO_CHANGE_H

#include <mongoc/mongoc.h>

#include "base/list.h"

struct hf_mongo_change {
    struct hf_list link;
    uint64_t time; /* as hf_mongo_time() has it */
    bool lost;     /* a mark: what was before `time` is missing */
    char *key;     /* as text; with the events in one block behind this */
    char *events;
};

/* It is the caller's to free(). NULL: out of memory. */
struct hf_mongo_change *hf_mongo_change_new(uint64_t time, const char *key,
                                            const char *events);

/* The same of a document of the stream. NULL also where it reports no events. */
struct hf_mongo_change *hf_mongo_change_read(const bson_t *document);

/* Append the stages of the stream's pipeline: all changes, or those that name
 * `client`, reduced to what hf_mongo_change_read() needs. */
void hf_mongo_change_add_stages(bson_t *stages, const char *client);

#endif
