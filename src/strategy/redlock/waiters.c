/* waiters.c - the claims of this client that wait for a lock. There is no queue
 * on the servers: a waiter retries when a release is announced. */
#include <stdlib.h>

#include "base/bytes.h"
#include "strategy/redlock/redlock.h"

#define NUDGE_SPREAD_MS 4 /* jitter, so that not all clients retry at once */

struct waiter {
    struct hf_dlist link;
    bool nudged; /* the waiter retries when the timer fires */
    struct hf_nonce nonce;
    size_t key_size;
    uint8_t key[];
};

static struct waiter *waiter_from_link(struct hf_dlist *link)
{
    return HF_CONTAINER(link, struct waiter, link);
}

static struct hf_key waiter_key(const struct waiter *waiter)
{
    return (struct hf_key){waiter->key, waiter->key_size};
}

static struct waiter *find_redlock_waiter(const struct hf_redlock *redlock,
                                          const struct hf_nonce *nonce)
{
    for (struct hf_dlist *link = redlock->waiters.next;
         link != &redlock->waiters; link = link->next) {
        if (hf_nonce_equal(&waiter_from_link(link)->nonce, nonce))
            return waiter_from_link(link);
    }
    return NULL;
}

static bool has_waiter_for(const struct hf_redlock *redlock, struct hf_key key)
{
    for (struct hf_dlist *link = redlock->waiters.next;
         link != &redlock->waiters; link = link->next) {
        if (hf_key_equal(waiter_key(waiter_from_link(link)), key))
            return true;
    }
    return false;
}

/* If memory is exhausted, the waiter is not notified of a release; it still
 * polls. */
void hf_redlock_waiters_add(struct hf_redlock *redlock,
                            const struct hf_command *command)
{
    bool subscribed = has_waiter_for(redlock, command->key);
    struct waiter *waiter;

    if (find_redlock_waiter(redlock, &command->nonce))
        return;
    waiter = calloc(1, sizeof(*waiter) + command->key.size);
    if (!waiter)
        return;
    waiter->nonce = command->nonce;
    waiter->key_size = command->key.size;
    hf_copy(waiter->key, command->key.data, command->key.size);
    hf_dlist_push_back(&redlock->waiters, &waiter->link);
    if (!subscribed)
        hf_redlock_pubsub_subscribe(redlock, command->key);
}

void hf_redlock_waiters_remove(struct hf_redlock *redlock,
                               const struct hf_nonce *nonce)
{
    struct waiter *waiter = find_redlock_waiter(redlock, nonce);

    if (!waiter)
        return;
    hf_dlist_remove(&waiter->link);
    if (!has_waiter_for(redlock, waiter_key(waiter)))
        hf_redlock_pubsub_unsubscribe(redlock, waiter_key(waiter));
    free(waiter);
}

void hf_redlock_waiters_subscribe(struct hf_redlock_server *server)
{
    struct hf_redlock *redlock = server->redlock;

    for (struct hf_dlist *link = redlock->waiters.next;
         link != &redlock->waiters; link = link->next)
        hf_redlock_pubsub_subscribe_server(server,
                                           waiter_key(waiter_from_link(link)));
}

void hf_redlock_waiters_nudge(struct hf_redlock *redlock, struct hf_key key)
{
    struct hf_host *host = redlock->host;
    struct hf_random *random = host->ops->random(host);
    bool any = false;

    for (struct hf_dlist *link = redlock->waiters.next;
         link != &redlock->waiters; link = link->next) {
        struct waiter *waiter = waiter_from_link(link);

        waiter->nudged =
            waiter->nudged || hf_key_equal(waiter_key(waiter), key);
        any = any || waiter->nudged;
    }
    if (any && !redlock->nudge_pending)
        hf_timer_set(host, &redlock->nudge_timer,
                     hf_time_add(host->ops->now(host),
                                 hf_random_below(random, NUDGE_SPREAD_MS)));
    redlock->nudge_pending = redlock->nudge_pending || any;
}

void hf_redlock_waiters_on_timer(struct hf_timer *timer)
{
    struct hf_redlock *redlock =
        HF_CONTAINER(timer, struct hf_redlock, nudge_timer);

    redlock->nudge_pending = false;
    for (struct hf_dlist *link = redlock->waiters.next;
         link != &redlock->waiters; link = link->next) {
        struct waiter *waiter = waiter_from_link(link);

        if (waiter->nudged)
            redlock->host->ops->nudge(redlock->host, &waiter->nonce);
        waiter->nudged = false;
    }
}

void hf_redlock_waiters_fini(struct hf_redlock *redlock)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&redlock->waiters)))
        free(waiter_from_link(link));
}
