#include "node/replica.h"

#include <stdlib.h>

#include "node/attachments.h"

/* ---- Notes --------------------------------------------------------------*/

static struct hf_note *note_of(const struct hf_node_replica *replica,
                               const struct hf_nonce *nonce)
{
    uint64_t hash = hf_siphash(&replica->seed, nonce->bytes, HF_NONCE_SIZE);

    return &replica->notes[hash % HF_NOTES];
}

static void note_lock(struct hf_node_replica *replica, hf_time now,
                      const struct hf_nonce *nonce)
{
    *note_of(replica, nonce) = (struct hf_note){*nonce, now};
}

static hf_time find_note(const struct hf_node_replica *replica,
                         const struct hf_nonce *nonce)
{
    const struct hf_note *note = note_of(replica, nonce);

    return hf_nonce_equal(&note->nonce, nonce) ? note->applied : HF_NEVER;
}

static void forget_notes(struct hf_node_replica *replica)
{
    for (size_t i = 0; i < HF_NOTES; i++)
        replica->notes[i] = (struct hf_note){.applied = HF_NEVER};
}

/* ---- The store ----------------------------------------------------------*/

/* Keep each grant after a wait for hf_node_replica_take_grant(). Every node
 * does so; the caller decides whether to report it. */
static void on_replica_event(void *arg, const struct hf_table_event *event)
{
    struct hf_node_replica *replica = arg;
    struct hf_table_waiter *waiter;

    if (event->kind != HF_EVENT_GRANTED || !event->waited)
        return;
    waiter = hf_table_take_waiter(event);
    if (waiter)
        hf_dlist_push_back(&replica->grants, &waiter->in_queue);
}

struct hf_store *hf_node_replica_new_store(struct hf_node_replica *replica)
{
    struct hf_store *store = malloc(sizeof(*store));

    if (!store)
        return NULL;
    if (!hf_store_init(store, &replica->seed, replica->history_bytes,
                       on_replica_event, replica))
        return store;
    free(store);
    return NULL;
}

void hf_node_replica_free_store(struct hf_store *store)
{
    if (store)
        hf_store_fini(store);
    free(store);
}

enum hf_err hf_node_replica_init(struct hf_node_replica *replica,
                                 const struct hf_seed *seed,
                                 size_t history_bytes)
{
    *replica =
        (struct hf_node_replica){.seed = *seed, .history_bytes = history_bytes};
    hf_dlist_init(&replica->grants);
    replica->notes = malloc(HF_NOTES * sizeof(*replica->notes));
    if (!replica->notes)
        return HF_ENOMEM;
    forget_notes(replica);
    replica->store = hf_node_replica_new_store(replica);
    return replica->store ? HF_OK : HF_ENOMEM;
}

static struct hf_table_waiter *take_waiter(struct hf_node_replica *replica)
{
    struct hf_dlist *link = hf_dlist_take(&replica->grants);

    return link ? HF_CONTAINER(link, struct hf_table_waiter, in_queue) : NULL;
}

void hf_node_replica_fini(struct hf_node_replica *replica)
{
    struct hf_table_waiter *waiter;

    while ((waiter = take_waiter(replica)))
        hf_table_waiter_free(waiter);
    hf_node_replica_free_store(replica->store);
    free(replica->notes);
    *replica = (struct hf_node_replica){0};
}

struct hf_store *hf_node_replica_replace(struct hf_node_replica *replica,
                                         struct hf_store *store, uint64_t index)
{
    struct hf_store *replaced = replica->store;

    replica->store = store;
    replica->applied = index;
    forget_notes(replica);
    return replaced;
}

/* ---- Commands -----------------------------------------------------------*/

enum hf_err hf_node_replica_apply(struct hf_node_replica *replica, hf_time now,
                                  const struct hf_command *command,
                                  struct hf_result *result)
{
    enum hf_err err = hf_store_run(replica->store, now, command, result);

    if (err)
        return err;
    replica->commands++;
    if (command->kind == HF_COMMAND_LOCK && result->position > 0)
        note_lock(replica, now, &command->nonce);
    return HF_OK;
}

bool hf_node_replica_take_grant(struct hf_node_replica *replica,
                                struct hf_node_grant *grant, hf_time *noted)
{
    struct hf_table_waiter *waiter = take_waiter(replica);

    if (!waiter)
        return false;
    *grant = (struct hf_node_grant){
        .session = waiter->session->id,
        .nonce = waiter->nonce,
        .token = waiter->token,
        .age_ms = -1,
    };
    *noted = find_note(replica, &waiter->nonce);
    hf_table_waiter_free(waiter);
    return true;
}

/* ---- Leases -------------------------------------------------------------*/

bool hf_node_replica_take_due(struct hf_node_replica *replica, hf_time now,
                              struct hf_command *expire)
{
    return hf_store_take_due(replica->store, now, expire, 1) == 1;
}

void hf_node_replica_reset_due(struct hf_node_replica *replica)
{
    hf_store_retry_due(replica->store);
}

hf_time hf_node_replica_deadline(const struct hf_node_replica *replica)
{
    return hf_store_next_deadline(replica->store);
}
