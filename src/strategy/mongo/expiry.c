/* expiry.c - end the leases of watched keys when they are due. No server does
 * that by itself, so the clients that watch a key do it. The change stream then
 * reports the expiry to every client that watches the key. */
#include <stdlib.h>

#include "base/bytes.h"
#include "strategy/mongo/mongo.h"

#define CHECKS_MAX 64   /* checks in flight; after a suspend, many are due */
#define RECHECK_MS 1000 /* until the next check after a failed one */

struct expiry {
    struct hf_map_link by_key;
    struct hf_heap_link link;
    size_t key_size;
    uint8_t key[];
};

static uint64_t hash_expiry_key(const struct hf_mongo *mongo, struct hf_key key)
{
    return hf_siphash(&mongo->seed, key.data, key.size);
}

static struct expiry *find_expiry(const struct hf_mongo *mongo,
                                  struct hf_key key)
{
    struct hf_map_link *link =
        hf_map_find(&mongo->expiries, hash_expiry_key(mongo, key));

    for (; link; link = hf_map_find_next(link)) {
        struct expiry *expiry = HF_CONTAINER(link, struct expiry, by_key);

        if (hf_key_equal((struct hf_key){expiry->key, expiry->key_size}, key))
            return expiry;
    }
    return NULL;
}

static struct expiry *add_expiry(struct hf_mongo *mongo, struct hf_key key)
{
    struct expiry *expiry = calloc(1, sizeof(*expiry) + key.size);

    if (!expiry ||
        hf_heap_reserve(&mongo->expiry_heap, mongo->expiry_heap.count + 1)) {
        free(expiry);
        return NULL;
    }
    expiry->key_size = key.size;
    hf_copy(expiry->key, key.data, key.size);
    hf_map_insert(&mongo->expiries, &expiry->by_key,
                  hash_expiry_key(mongo, key));
    return expiry;
}

static void free_expiry(struct hf_mongo *mongo, struct expiry *expiry)
{
    hf_map_remove(&mongo->expiries, &expiry->by_key);
    hf_heap_drop(&mongo->expiry_heap, &expiry->link);
    free(expiry);
}

/* If memory is exhausted, there is no check. That is not fatal: the next
 * command on the key ends the lease. */
void hf_mongo_expiry_set(struct hf_mongo *mongo, struct hf_key key,
                         uint32_t span)
{
    struct expiry *expiry = find_expiry(mongo, key);

    if (!expiry)
        expiry = add_expiry(mongo, key);
    if (expiry)
        hf_heap_set(&mongo->expiry_heap, &expiry->link,
                    hf_time_add(mongo->host->ops->now(mongo->host),
                                (uint64_t)span + 1));
}

void hf_mongo_expiry_remove(struct hf_mongo *mongo, struct hf_key key)
{
    struct expiry *expiry = find_expiry(mongo, key);

    if (expiry)
        free_expiry(mongo, expiry);
}

hf_time hf_mongo_expiry_next(const struct hf_mongo *mongo)
{
    return mongo->expiry_checks < CHECKS_MAX
               ? hf_heap_top_key(&mongo->expiry_heap)
               : HF_NEVER;
}

/* ---- Checks -------------------------------------------------------------*/

static void on_expiry_reply(struct hf_mongo_call *call)
{
    const struct hf_mongo_reply *reply = &call->reply;
    uint8_t key[HF_MONGO_ESCAPED_SIZE(HF_KEY_MAX)];
    const char *text = call->op.key;
    size_t size = hf_mongo_unescape(key, text, strlen(text));
    struct hf_mongo *mongo = call->mongo;

    if (hf_watches_is_empty(&mongo->watches))
        ; /* no watch is left, so schedule no further check */
    else if (reply->err || (reply->held && !reply->has_left))
        hf_mongo_expiry_set(mongo, (struct hf_key){key, size}, RECHECK_MS);
    else if (reply->held)
        hf_mongo_expiry_set(mongo, (struct hf_key){key, size}, reply->left_ms);
    hf_mongo_call_free(call);
    hf_mongo_watch_set_tick(mongo);
}

static void send_expiry_check(struct hf_mongo *mongo, struct hf_key key)
{
    struct hf_mongo_call *call =
        hf_mongo_call_new(mongo, NULL, on_expiry_reply);

    if (!call)
        return;
    if (hf_mongo_op_init_expire(&call->op, &mongo->identity, key)) {
        hf_mongo_call_free(call);
        return;
    }
    call->is_expiry_check = true;
    mongo->expiry_checks++;
    hf_mongo_call_send_op(call);
}

void hf_mongo_expiry_check(struct hf_mongo *mongo)
{
    hf_time now = mongo->host->ops->now(mongo->host);

    while (hf_mongo_expiry_next(mongo) <= now) {
        struct expiry *expiry =
            HF_CONTAINER(hf_heap_top(&mongo->expiry_heap), struct expiry, link);

        send_expiry_check(mongo,
                          (struct hf_key){expiry->key, expiry->key_size});
        free_expiry(mongo, expiry);
    }
}

/* ---- Opening and closing ------------------------------------------------*/

enum hf_err hf_mongo_expiry_open(struct hf_mongo *mongo)
{
    return hf_random_bytes(mongo->host->ops->random(mongo->host), &mongo->seed,
                           sizeof(mongo->seed));
}

void hf_mongo_expiry_close(struct hf_mongo *mongo)
{
    struct hf_heap_link *top;

    while ((top = hf_heap_top(&mongo->expiry_heap)))
        free_expiry(mongo, HF_CONTAINER(top, struct expiry, link));
    hf_map_fini(&mongo->expiries);
    hf_heap_fini(&mongo->expiry_heap);
}
