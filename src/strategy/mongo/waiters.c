/* waiters.c - the claims of this client that are in queues. While there are
 * any, the change stream has to run. Some of the claims have to repeat their
 * LOCK at a given time. */
#include <stdlib.h>
#include <string.h>

#include "strategy/mongo/mongo.h"

struct waiter {
    struct hf_map_link by_nonce;
    struct hf_heap_link retry; /* linked if the LOCK has to be repeated */
    struct hf_nonce nonce;
};

static struct waiter *waiter_of(struct hf_map_link *link)
{
    return HF_CONTAINER(link, struct waiter, by_nonce);
}

static struct waiter *find_mongo_waiter(const struct hf_mongo *mongo,
                                        const struct hf_nonce *nonce)
{
    struct hf_map_link *link =
        hf_map_find(&mongo->waiters, hf_nonce_own_hash(nonce));

    for (; link; link = hf_map_find_next(link))
        if (hf_nonce_equal(&waiter_of(link)->nonce, nonce))
            return waiter_of(link);
    return NULL;
}

static void free_waiter(struct hf_mongo *mongo, struct waiter *waiter)
{
    hf_map_remove(&mongo->waiters, &waiter->by_nonce);
    hf_heap_drop(&mongo->retries, &waiter->retry);
    free(waiter);
}

bool hf_mongo_waiters_has(const struct hf_mongo *mongo,
                          const struct hf_nonce *nonce)
{
    return find_mongo_waiter(mongo, nonce) != NULL;
}

bool hf_mongo_waiters_add(struct hf_mongo *mongo, const struct hf_nonce *nonce)
{
    struct waiter *waiter;

    if (find_mongo_waiter(mongo, nonce))
        return true;
    waiter = calloc(1, sizeof(*waiter));
    if (!waiter || hf_heap_reserve(&mongo->retries, mongo->waiters.count + 1)) {
        free(waiter);
        return false;
    }
    waiter->nonce = *nonce;
    hf_map_insert(&mongo->waiters, &waiter->by_nonce, hf_nonce_own_hash(nonce));
    return true;
}

void hf_mongo_waiters_remove(struct hf_mongo *mongo,
                             const struct hf_nonce *nonce)
{
    struct waiter *waiter = find_mongo_waiter(mongo, nonce);

    if (!waiter)
        return;
    free_waiter(mongo, waiter);
    hf_mongo_watch_release_stream(mongo);
}

void hf_mongo_waiters_retry(struct hf_mongo *mongo,
                            const struct hf_nonce *nonce, uint32_t span_ms)
{
    struct waiter *waiter = find_mongo_waiter(mongo, nonce);

    if (waiter)
        hf_heap_set(&mongo->retries, &waiter->retry,
                    hf_time_add(mongo->host->ops->now(mongo->host), span_ms));
}

void hf_mongo_waiters_retry_all(struct hf_mongo *mongo)
{
    for (struct hf_map_link *link = hf_map_next(&mongo->waiters, NULL); link;
         link = hf_map_next(&mongo->waiters, link))
        hf_heap_set(&mongo->retries, &waiter_of(link)->retry,
                    mongo->host->ops->now(mongo->host));
}

void hf_mongo_waiters_nudge(struct hf_mongo *mongo)
{
    hf_time now = mongo->host->ops->now(mongo->host);

    while (hf_heap_top_key(&mongo->retries) <= now) {
        struct waiter *waiter =
            HF_CONTAINER(hf_heap_top(&mongo->retries), struct waiter, retry);

        hf_heap_drop(&mongo->retries, &waiter->retry);
        mongo->host->ops->nudge(mongo->host, &waiter->nonce);
    }
}

void hf_mongo_waiters_close(struct hf_mongo *mongo)
{
    struct hf_map_link *link;

    while ((link = hf_map_next(&mongo->waiters, NULL)))
        free_waiter(mongo, waiter_of(link));
    hf_map_fini(&mongo->waiters);
    hf_heap_fini(&mongo->retries);
}
