#include "client/waiting.h"

#include "client/client.h"

#define POLL_MS 1000 /* used if the strategy does not set poll_ms */
#define POLL_MIN_MS 20

void hf_waiting_add(struct hf_lock *lock)
{
    if (!lock->in_map)
        hf_map_insert(&lock->client->waiting, &lock->by_nonce,
                      hf_nonce_own_hash(&lock->nonce));
    lock->in_map = true;
}

void hf_waiting_remove(struct hf_lock *lock)
{
    if (lock->in_map)
        hf_map_remove(&lock->client->waiting, &lock->by_nonce);
    lock->in_map = false;
}

/* A push can arrive before the answer to LOCK that says "queued", because
 * pushes may use another connection. The handle is not in client->waiting yet
 * then, so search all handles. */
static struct hf_lock *find_requesting_lock(const struct hf_client *client,
                                            const struct hf_nonce *nonce)
{
    for (struct hf_dlist *link = client->locks.next; link != &client->locks;
         link = link->next) {
        struct hf_lock *lock = HF_CONTAINER(link, struct hf_lock, link);

        if (lock->phase == HF_ACQUIRE_REQUESTING &&
            hf_nonce_equal(&lock->nonce, nonce))
            return lock;
    }
    return NULL;
}

struct hf_lock *hf_waiting_find(const struct hf_client *client,
                                const struct hf_nonce *nonce)
{
    struct hf_map_link *link =
        hf_map_find(&client->waiting, hf_nonce_own_hash(nonce));

    for (; link; link = hf_map_find_next(link)) {
        struct hf_lock *lock = HF_CONTAINER(link, struct hf_lock, by_nonce);

        if (hf_nonce_equal(&lock->nonce, nonce))
            return lock;
    }
    return find_requesting_lock(client, nonce);
}

uint32_t hf_waiting_poll_ms(struct hf_lock *lock,
                            const struct hf_answer *answer)
{
    uint32_t interval = lock->client->strategy->poll_ms;
    uint32_t poll_after_ms = answer ? answer->poll_after_ms : 0;

    if (poll_after_ms > 0 && answer->is_pushed)
        return poll_after_ms;
    if (interval == 0)
        interval = POLL_MS;
    if (lock->ttl_ms / 2 < interval)
        interval = lock->ttl_ms / 2 + POLL_MIN_MS;
    interval += hf_random_below(&lock->client->random, interval / 4);
    return poll_after_ms > 0 && poll_after_ms < interval ? poll_after_ms
                                                         : interval;
}
