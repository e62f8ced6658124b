/* due.c - which leases of watched keys end when: nobody else need look at a
 * clock, so who watches does. */
#include <stdlib.h>

#include "base/bytes.h"
#include "strategy/mongo/mongo.h"

#define LOOKS_MAX 64       /* at a time: who slept may find many due */
#define LOOK_AGAIN_MS 1000 /* where a look failed */

struct due {
    struct hf_map_link by_key;
    struct hf_heap_link link;
    size_t key_size;
    uint8_t key[];
};

static uint64_t hash(const struct hf_mongo *mongo, struct hf_key key)
{
    return hf_siphash(&mongo->seed, key.data, key.size);
}

static struct due *find(const struct hf_mongo *mongo, struct hf_key key)
{
    struct hf_map_link *link = hf_map_find(&mongo->due, hash(mongo, key));

    for (; link; link = hf_map_find_next(link)) {
        struct due *due = HF_CONTAINER(link, struct due, by_key);

        if (hf_key_equal((struct hf_key){due->key, due->key_size}, key))
            return due;
    }
    return NULL;
}

static struct due *add(struct hf_mongo *mongo, struct hf_key key)
{
    struct due *due = calloc(1, sizeof(*due) + key.size);

    if (!due || hf_heap_reserve(&mongo->due_heap, mongo->due_heap.count + 1)) {
        free(due);
        return NULL;
    }
    due->key_size = key.size;
    hf_copy(due->key, key.data, key.size);
    hf_map_insert(&mongo->due, &due->by_key, hash(mongo, key));
    return due;
}

static void drop(struct hf_mongo *mongo, struct due *due)
{
    hf_map_remove(&mongo->due, &due->by_key);
    hf_heap_drop(&mongo->due_heap, &due->link);
    free(due);
}

/* Without memory for it, the event comes when somebody asks for the key. */
void hf_mongo_due_set(struct hf_mongo *mongo, struct hf_key key, uint32_t span)
{
    struct due *due = find(mongo, key);

    if (!due)
        due = add(mongo, key);
    if (due)
        hf_heap_set(&mongo->due_heap, &due->link,
                    hf_time_add(mongo->host->ops->now(mongo->host),
                                (uint64_t)span + 1));
}

void hf_mongo_due_drop(struct hf_mongo *mongo, struct hf_key key)
{
    struct due *due = find(mongo, key);

    if (due)
        drop(mongo, due);
}

hf_time hf_mongo_due_next(const struct hf_mongo *mongo)
{
    return mongo->due_looks < LOOKS_MAX ? hf_heap_top_key(&mongo->due_heap)
                                        : HF_NEVER;
}

/* ---- Looking ------------------------------------------------------------*/

static void looked(struct hf_mongo_call *call)
{
    const struct hf_mongo_reply *reply = &call->reply;
    uint8_t key[HF_MONGO_TEXT_SIZE(HF_KEY_MAX)];
    const char *text = call->question.key;
    size_t size = hf_mongo_unescape(key, text, strlen(text));
    struct hf_mongo *mongo = call->mongo;

    if (hf_list_empty(&mongo->watches))
        ; /* nobody wants to know any more */
    else if (reply->err || (reply->held && !reply->has_left))
        hf_mongo_due_set(mongo, (struct hf_key){key, size}, LOOK_AGAIN_MS);
    else if (reply->held)
        hf_mongo_due_set(mongo, (struct hf_key){key, size}, reply->left_ms);
    hf_mongo_call_free(call);
    hf_mongo_set_tick(mongo);
}

static void look_at(struct hf_mongo *mongo, struct hf_key key)
{
    struct hf_mongo_call *call = hf_mongo_call_new(mongo, NULL, looked);

    if (!call)
        return;
    if (hf_mongo_ask_look(&call->question, &mongo->asker, key)) {
        hf_mongo_call_free(call);
        return;
    }
    call->is_due = true;
    mongo->due_looks++;
    hf_mongo_send_question(call);
}

void hf_mongo_due_look(struct hf_mongo *mongo)
{
    hf_time now = mongo->host->ops->now(mongo->host);

    while (hf_mongo_due_next(mongo) <= now) {
        struct due *due =
            HF_CONTAINER(hf_heap_top(&mongo->due_heap), struct due, link);

        look_at(mongo, (struct hf_key){due->key, due->key_size});
        drop(mongo, due);
    }
}

/* ---- Beginning and end --------------------------------------------------*/

enum hf_err hf_mongo_due_open(struct hf_mongo *mongo)
{
    return hf_random_bytes(mongo->host->ops->random(mongo->host), &mongo->seed,
                           sizeof(mongo->seed));
}

void hf_mongo_due_close(struct hf_mongo *mongo)
{
    struct hf_heap_link *top;

    while ((top = hf_heap_top(&mongo->due_heap)))
        drop(mongo, HF_CONTAINER(top, struct due, link));
    hf_map_fini(&mongo->due);
    hf_heap_fini(&mongo->due_heap);
}
