/* list.h - list the locks of one server whose keys begin with a prefix: a script
 * scans for them (scan.lua), and each is READ.
 *
 * The list is not a snapshot. A lock that is held during the whole listing is in
 * it; one that is taken or released meanwhile may be. For watched keys each READ
 * also records a lease that it finds expired. */
#ifndef HF_STRATEGY_REDIS_LIST_H
#define HF_STRATEGY_REDIS_LIST_H

#include "strategy/redis/reply.h"

struct hf_redis_list;

/* What was found, in the order of the keys. Infos and cause are the caller's
 * to free. */
struct hf_redis_list_result {
    enum hf_err err;
    char *cause;
    struct hf_info *infos;
    size_t count;
};
typedef void hf_redis_list_fn(void *arg, struct hf_redis_list_result *listed);

/* Begin. `done` is called once, later, unless it is abandoned; with NULL
 * nothing is kept of what is found. `*progress` is set to the time of each
 * reply, until it is done or abandoned; it may be NULL. HF_ENOMEM,
 * HF_EUNAVAIL. */
enum hf_err hf_redis_list_start(struct hf_redis_connection *server,
                                struct hf_key prefix, hf_redis_list_fn *done,
                                void *arg, hf_time *progress,
                                struct hf_redis_list **list);

/* Nobody wants it any more. */
void hf_redis_list_abandon(struct hf_redis_list *list);

#endif
