#include "core/store.h"

#include "core/snapshot.h"

static void record_history(struct hf_store *store,
                           const struct hf_table_event *event)
{
    struct hf_event kept = {
        .kind = event->kind,
        .index = event->index,
        .key = hf_hold_key(event->hold),
        .token = event->hold->token,
        .owner = event->session->label,
        .freed = event->freed,
    };

    if (event->kind == HF_EVENT_QUEUED || event->kind == HF_EVENT_WITHDRAWN)
        kept.token = 0;
    hf_history_add(&store->history, &kept);
}

static void on_table_event(void *arg, const struct hf_table_event *event)
{
    struct hf_store *store = arg;
    struct hf_hold *hold = event->hold;

    store->touched = event->ends ? NULL : hold;
    if (event->ends)
        hf_leases_drop(&store->leases, &hold->lease);
    if (event->kind == HF_EVENT_GRANTED)
        hold->since = store->now;
    if (event->kind == HF_EVENT_GRANTED || event->kind == HF_EVENT_RENEWED)
        hf_leases_set(&store->leases, &hold->lease,
                      hf_time_add(store->now, event->lease_ms));
    if (store->history.bytes)
        record_history(store, event);
    store->event(store->arg, event);
}

enum hf_err hf_store_init(struct hf_store *store, const struct hf_seed *seed,
                          size_t history_bytes, hf_table_event_fn *event,
                          void *arg)
{
    *store = (struct hf_store){.event = event, .arg = arg};
    hf_table_init(&store->table, seed, on_table_event, store);
    if (history_bytes == 0)
        return HF_OK;
    return hf_store_enable_history(store, history_bytes);
}

void hf_store_fini(struct hf_store *store)
{
    hf_table_fini(&store->table);
    hf_leases_fini(&store->leases);
    hf_history_fini(&store->history);
}

void hf_store_clear(struct hf_store *store)
{
    struct hf_table *table = &store->table;

    hf_table_fini(table);
    hf_table_init(table, &table->seed, table->event, table->arg);
    hf_leases_fini(&store->leases);
    store->touched = NULL;
    hf_history_restart(&store->history, 1);
}

static enum hf_err start_leases(struct hf_store *store, hf_time now)
{
    struct hf_hold *hold = NULL;

    while ((hold = hf_table_next_hold(&store->table, hold))) {
        if (hf_leases_reserve(&store->leases))
            return HF_ENOMEM;
        hold->since = now;
        hf_leases_set(&store->leases, &hold->lease,
                      hf_time_add(now, hold->lease_ms));
    }
    return HF_OK;
}

enum hf_err hf_store_restore(struct hf_store *store, hf_time now,
                             const void *data, size_t size)
{
    enum hf_err err;

    hf_store_clear(store);
    err = hf_snapshot_decode(&store->table, data, size);
    if (!err)
        err = start_leases(store, now);
    if (err)
        hf_store_clear(store);
    else
        hf_history_restart(&store->history, store->table.index + 1);
    return err;
}

enum hf_err hf_store_run(struct hf_store *store, hf_time now,
                         const struct hf_command *command,
                         struct hf_result *result)
{
    enum hf_err err = HF_OK;

    store->now = now;
    store->touched = NULL;
    /* Reserve room for a LOCK only, because only a LOCK can add a lease: when
     * another command hands a key over, the ended grant drops its lease
     * first. */
    if (command->kind == HF_COMMAND_LOCK)
        err = hf_leases_reserve(&store->leases);
    if (!err)
        err = hf_table_apply(&store->table, command, result);
    if (err)
        *result = (struct hf_result){.err = err};
    return err;
}

size_t hf_store_take_due(struct hf_store *store, hf_time now,
                         struct hf_command *expires, size_t max)
{
    size_t count = 0;
    struct hf_lease *lease;

    if (hf_leases_next_deadline(&store->leases) > now)
        return 0; /* the common case: drivers call this before each command */
    while (count < max && (lease = hf_leases_take(&store->leases, now))) {
        const struct hf_hold *hold = HF_CONTAINER(lease, struct hf_hold, lease);

        expires[count++] = (struct hf_command){
            .kind = HF_COMMAND_EXPIRE,
            .key = hf_hold_key(hold),
            .token = hold->token,
            .generation = hold->generation,
        };
    }
    return count;
}

void hf_store_retry_due(struct hf_store *store)
{
    hf_leases_retry(&store->leases);
}

hf_time hf_store_deadline(const struct hf_store *store,
                          const struct hf_hold *hold)
{
    return hf_leases_deadline(&store->leases, &hold->lease);
}

hf_time hf_store_next_deadline(const struct hf_store *store)
{
    return hf_leases_next_deadline(&store->leases);
}

struct hf_info hf_store_info(const struct hf_store *store, hf_time now,
                             const struct hf_hold *hold,
                             char note[HF_NOTE_MAX + 1])
{
    struct hf_bytes bytes = hf_hold_note(hold);

    hf_copy(note, bytes.data, bytes.size);
    note[bytes.size] = '\0';
    return (struct hf_info){
        .key = hf_hold_key(hold),
        .held = true,
        .forced = hold->forced,
        .token = hold->token,
        .held_ms = hf_time_left(now, hold->since),
        .left_ms = hf_time_left(hf_store_deadline(store, hold), now),
        .waiters = hold->waiters,
        .value = hf_hold_value(hold),
        .owner = hold->session->label,
        .note = note,
        .index = store->table.index,
    };
}

enum hf_err hf_store_enable_history(struct hf_store *store, size_t bytes)
{
    if (store->history.bytes)
        return HF_OK;
    return hf_history_init(&store->history, bytes, store->table.index + 1);
}
