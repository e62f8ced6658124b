#include "node/state_machine.h"

#include <stdlib.h>

#include "node/attachments.h"

/* ---- Notes --------------------------------------------------------------*/

static struct hf_note *note_of(const struct hf_state_machine *machine,
                               const struct hf_nonce *nonce)
{
    uint64_t hash = hf_siphash(&machine->seed, nonce->bytes, HF_NONCE_SIZE);

    return &machine->notes[hash % HF_NOTES];
}

static void note_lock(struct hf_state_machine *machine, hf_time now,
                      const struct hf_nonce *nonce)
{
    *note_of(machine, nonce) = (struct hf_note){*nonce, now};
}

static hf_time find_note(const struct hf_state_machine *machine,
                         const struct hf_nonce *nonce)
{
    const struct hf_note *note = note_of(machine, nonce);

    return hf_nonce_equal(&note->nonce, nonce) ? note->applied : HF_NEVER;
}

static void forget_notes(struct hf_state_machine *machine)
{
    for (size_t i = 0; i < HF_NOTES; i++)
        machine->notes[i] = (struct hf_note){.applied = HF_NEVER};
}

/* ---- The store ----------------------------------------------------------*/

/* Keep each grant after a wait for hf_state_machine_take_grant(), and which
 * lock was broken. Every node does so; the caller decides whether to report
 * it. */
static void on_machine_event(void *arg, const struct hf_table_event *event)
{
    struct hf_state_machine *machine = arg;
    struct hf_table_waiter *waiter;

    if (event->kind == HF_EVENT_FORCED) {
        machine->forced_session = event->session->id;
        machine->forced_token = event->hold->token;
    }
    if (event->kind != HF_EVENT_GRANTED)
        return;
    machine->has_granted = !event->waited;
    waiter = hf_table_take_waiter(event);
    if (waiter)
        hf_dlist_push_back(&machine->grants, &waiter->in_queue);
}

struct hf_store *hf_state_machine_new_store(struct hf_state_machine *machine)
{
    struct hf_store *store = malloc(sizeof(*store));

    if (!store)
        return NULL;
    if (!hf_store_init(store, &machine->seed, machine->history_bytes,
                       on_machine_event, machine))
        return store;
    free(store);
    return NULL;
}

void hf_state_machine_free_store(struct hf_store *store)
{
    if (store)
        hf_store_fini(store);
    free(store);
}

enum hf_err hf_state_machine_init(struct hf_state_machine *machine,
                                  const struct hf_seed *seed,
                                  size_t history_bytes)
{
    *machine = (struct hf_state_machine){.seed = *seed,
                                         .history_bytes = history_bytes};
    hf_dlist_init(&machine->grants);
    machine->notes = malloc(HF_NOTES * sizeof(*machine->notes));
    if (!machine->notes)
        return HF_ENOMEM;
    forget_notes(machine);
    machine->store = hf_state_machine_new_store(machine);
    return machine->store ? HF_OK : HF_ENOMEM;
}

static struct hf_table_waiter *take_waiter(struct hf_state_machine *machine)
{
    struct hf_dlist *link = hf_dlist_take(&machine->grants);

    return link ? HF_CONTAINER(link, struct hf_table_waiter, in_queue) : NULL;
}

void hf_state_machine_fini(struct hf_state_machine *machine)
{
    struct hf_table_waiter *waiter;

    while ((waiter = take_waiter(machine)))
        hf_table_waiter_free(waiter);
    hf_state_machine_free_store(machine->store);
    free(machine->notes);
    *machine = (struct hf_state_machine){0};
}

struct hf_store *hf_state_machine_replace(struct hf_state_machine *machine,
                                          struct hf_store *store,
                                          uint64_t index)
{
    struct hf_store *replaced = machine->store;

    machine->store = store;
    machine->applied = index;
    forget_notes(machine);
    return replaced;
}

/* ---- Commands -----------------------------------------------------------*/

enum hf_err hf_state_machine_apply(struct hf_state_machine *machine,
                                   hf_time now,
                                   const struct hf_command *command,
                                   struct hf_result *result)
{
    enum hf_err err;

    machine->forced_session = 0;
    machine->has_granted = false;
    err = hf_store_run(machine->store, now, command, result);
    if (err)
        return err;
    machine->commands++;
    if (command->kind == HF_COMMAND_LOCK && result->position > 0)
        note_lock(machine, now, &command->nonce);
    return HF_OK;
}

bool hf_state_machine_take_grant(struct hf_state_machine *machine,
                                 struct hf_node_grant *grant, hf_time *noted)
{
    struct hf_table_waiter *waiter = take_waiter(machine);

    if (!waiter)
        return false;
    *grant = (struct hf_node_grant){
        .session = waiter->session->id,
        .nonce = waiter->nonce,
        .token = waiter->token,
        .age_ms = -1,
    };
    *noted = find_note(machine, &waiter->nonce);
    hf_table_waiter_free(waiter);
    return true;
}

/* ---- Leases -------------------------------------------------------------*/

bool hf_state_machine_take_due(struct hf_state_machine *machine, hf_time now,
                               struct hf_command *expire)
{
    return hf_store_take_due(machine->store, now, expire, 1) == 1;
}

void hf_state_machine_reset_due(struct hf_state_machine *machine)
{
    hf_store_retry_due(machine->store);
}

hf_time hf_state_machine_deadline(const struct hf_state_machine *machine)
{
    return hf_store_next_deadline(machine->store);
}
