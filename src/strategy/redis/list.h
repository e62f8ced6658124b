/* list.h - list the locks of one server whose keys begin with a prefix.
 *
 * scan.lua finds the keys, and a READ is sent for each. The list is not a
 * snapshot. A lock that is held during the whole listing is in it; a lock that
 * is taken or released meanwhile may be missing. For watched keys, each READ
 * also records a lease that it finds expired. */
#ifndef HF_STRATEGY_REDIS_LIST_H
#define HF_STRATEGY_REDIS_LIST_H

#include "strategy/redis/reply.h"

struct hf_redis_list;

/* The locks in the order of their keys. The callback owns `infos` and
 * `cause`. */
struct hf_redis_list_result {
    enum hf_err err;
    char *cause;
    struct hf_info *infos;
    size_t count;
};
typedef void hf_redis_list_fn(void *arg, struct hf_redis_list_result *listed);

/* Start a listing. `done` is called once, after this function has returned,
 * unless the listing is abandoned. If `done` is NULL, the READs are sent only
 * so that the server records expired leases for watches, and their results are
 * discarded. Until the listing ends, each step of the scan sets `*progress` to
 * the current time, unless `progress` or `done` is NULL. `*list` is for
 * hf_redis_list_abandon(); `list` may be NULL. Returns HF_OK, HF_ENOMEM or
 * HF_EUNAVAIL. */
enum hf_err hf_redis_list_start(struct hf_redis_connection *server,
                                struct hf_key prefix, hf_redis_list_fn *done,
                                void *arg, hf_time *progress,
                                struct hf_redis_list **list);

/* Stop the listing. `done` is not called; the listing frees itself when the
 * last pending reply arrives. */
void hf_redis_list_abandon(struct hf_redis_list *list);

#endif
