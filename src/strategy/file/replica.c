#include "strategy/file/replica.h"

#include <stdlib.h>
#include <string.h>

#include "base/crash_point.h"
#include "core/snapshot.h"

#define LOCK_COST                                                              \
    256 /* bytes that a command adds to a snapshot at most, besides its data */
#define ENTRY_MAX (256 << 10)   /* no encoded command has more bytes */
#define TIME_MAX (HF_NEVER / 4) /* no machine's clock ever gets close to this */

/* A client that is further behind than this many bytes of the log reads ahead
 * before it enters the critical section, where reading this many bytes takes
 * about a tenth of a millisecond. */
#define LAG_MAX (UINT64_C(16) << 10)
#define AHEAD_TRIES 4 /* attempts before reading in the critical section */

void hf_replica_init(struct hf_replica *replica, struct hf_arena *arena,
                     const struct hf_seed *seed, hf_table_event_fn *event,
                     void *arg)
{
    *replica = (struct hf_replica){.arena = arena};
    (void)hf_store_init(&replica->store, seed, 0, event, arg);
    replica->store.table.token = arena->first_token;
}

void hf_replica_fini(struct hf_replica *replica)
{
    hf_buf_fini(&replica->scratch);
    hf_store_fini(&replica->store);
}

/* ---- Snapshots ------------------------------------------------------------
 *
 * A snapshot has the table; then for each hold its key, `since` and deadline;
 * then the size of the table's part. */

static void encode_snapshot(const struct hf_replica *replica,
                            struct hf_buf *buf)
{
    struct hf_hold *hold = NULL;
    size_t size;

    hf_snapshot_encode(&replica->store.table, buf);
    size = buf->size;
    while ((hold = hf_table_next_hold(&replica->store.table, hold))) {
        hf_buf_bytes(buf, hold->key, hold->key_size);
        hf_buf_u64(buf, (uint64_t)hold->since);
        hf_buf_u64(buf, (uint64_t)hf_store_deadline(&replica->store, hold));
    }
    hf_buf_u64(buf, size);
}

/* Returns true if a time is in a sane range. Other processes wrote these times,
 * so without this check arithmetic with them could overflow. */
static bool is_plausible(hf_time instant)
{
    return instant >= 0 && instant <= TIME_MAX;
}

/* Leases are in the order of the holds, so no lookups are needed. */
static enum hf_err decode_leases(struct hf_store *store,
                                 struct hf_reader *reader)
{
    struct hf_hold *hold = NULL;

    while ((hold = hf_table_next_hold(&store->table, hold))) {
        struct hf_bytes key = hf_reader_bytes(reader, HF_KEY_MAX);
        hf_time since = (hf_time)hf_reader_u64(reader);
        hf_time end = (hf_time)hf_reader_u64(reader);

        if (reader->failed || !is_plausible(since) || !is_plausible(end) ||
            !hf_key_equal(hf_hold_key(hold),
                          (struct hf_key){key.data, key.size}))
            return HF_EPROTO;
        hold->since = since;
        hf_leases_set(&store->leases, &hold->lease, end);
    }
    return reader->size > 0 ? HF_EPROTO : HF_OK;
}

/* Restore the leases with the instant 0, because decode_leases() can only
 * extend them. */
static enum hf_err decode_snapshot(struct hf_store *store,
                                   struct hf_bytes bytes)
{
    struct hf_reader tail = {.size = 8};
    struct hf_reader leases = {0};
    uint64_t size;
    enum hf_err err;

    if (bytes.size < 8)
        return HF_EPROTO;
    tail.data = (const uint8_t *)bytes.data + bytes.size - 8;
    size = hf_reader_u64(&tail);
    if (size > bytes.size - 8)
        return HF_EPROTO;
    err = hf_store_restore(store, 0, bytes.data, size);
    if (err)
        return err;
    leases.data = (const uint8_t *)bytes.data + size;
    leases.size = bytes.size - 8 - size;
    return decode_leases(store, &leases);
}

static enum hf_err set_damaged(struct hf_replica *replica, const char *what)
{
    replica->damage = what;
    return HF_EPROTO;
}

static enum hf_err load_snapshot(struct hf_replica *replica,
                                 struct hf_bytes bytes, uint64_t position)
{
    struct hf_store *store = &replica->store;
    enum hf_err err = HF_OK;

    replica->stale = true;
    replica->reloaded = true;
    replica->updated = true;
    HF_CRASH_POINT(31);
    hf_store_clear(store);
    if (bytes.size > 0)
        err = decode_snapshot(store, bytes);
    else
        store->table.token = replica->arena->first_token;
    if (err == HF_ENOMEM)
        return err;
    if (err)
        return set_damaged(replica, "its snapshot is damaged");
    replica->position = position;
    replica->snapshot_size = bytes.size;
    replica->stale = false;
    return HF_OK;
}

/* Load a private copy, because a hostile process may change the shared bytes
 * while they are decoded. */
static enum hf_err load_copy(struct hf_replica *replica, struct hf_bytes bytes,
                             uint64_t position)
{
    struct hf_bytes copy = {malloc(bytes.size), bytes.size};
    enum hf_err err = HF_ENOMEM;

    if (copy.data) {
        memcpy((void *)copy.data, bytes.data, bytes.size);
        err = load_snapshot(replica, copy, position);
    }
    free((void *)copy.data);
    return err;
}

static enum hf_err load_current_snapshot(struct hf_replica *replica)
{
    uint64_t position;
    struct hf_bytes bytes = hf_arena_snapshot(replica->arena, &position);

    if (!hf_arena_has_entry(replica->arena, position))
        return set_damaged(replica, "its snapshot is damaged");
    if (bytes.size == 0)
        return load_snapshot(replica, bytes, position);
    return load_copy(replica, bytes, position);
}

/* ---- Reading ------------------------------------------------------------*/

static size_t snapshot_cost(const struct hf_command *command)
{
    return command->key.size * 2 + command->value.size + command->note.size +
           LOCK_COST;
}

/* Add the cost of a command to the estimate. Only LOCK, OPEN and UPDATE make a
 * snapshot larger. */
static void grow_snapshot_size(struct hf_replica *replica,
                               const struct hf_command *command)
{
    if (command->kind == HF_COMMAND_LOCK || command->kind == HF_COMMAND_OPEN ||
        command->kind == HF_COMMAND_UPDATE)
        replica->snapshot_size += snapshot_cost(command);
}

/* Copy the entry to `scratch`, because a hostile process may change the shared
 * bytes while the command is applied, and without the arena lock other clients
 * may overwrite them. */
static enum hf_err copy_entry(struct hf_replica *replica,
                              struct hf_bytes *entry)
{
    struct hf_buf *buf = &replica->scratch;

    if (entry->size > ENTRY_MAX)
        return set_damaged(replica, "its log is damaged");
    buf->size = 0;
    buf->failed = false;
    hf_buf_raw(buf, entry->data, entry->size);
    *entry = (struct hf_bytes){buf->data, buf->size};
    return buf->failed ? HF_ENOMEM : HF_OK;
}

static enum hf_err apply_entry(struct hf_replica *replica, hf_time stamp,
                               struct hf_bytes entry, uint64_t position)
{
    struct hf_command command;
    struct hf_result result;

    if (!is_plausible(stamp) ||
        hf_command_decode(&command, entry.data, entry.size))
        return set_damaged(replica, "its log is damaged");
    replica->updated = true;
    if (hf_store_run(&replica->store, stamp, &command, &result))
        return HF_ENOMEM;
    grow_snapshot_size(replica, &command);
    replica->position = position;
    return HF_OK;
}

enum step {
    STEP_APPLIED,
    STEP_END,     /* there is no further entry */
    STEP_GONE,    /* the entry was overwritten: read the snapshot */
    STEP_CHANGED, /* the entry changed while it was copied */
    STEP_FAILED,  /* `*err` says why */
};

/* Apply the next entry. Without the arena lock, apply it only if it did not
 * change while it was copied, because a command cannot be undone. */
static enum step read_entry(struct hf_replica *replica, bool is_unlocked,
                            enum hf_err *err)
{
    uint64_t position = replica->position;
    struct hf_bytes entry;
    hf_time stamp;

    switch (hf_arena_read(replica->arena, &position, &stamp, &entry)) {
    case HF_ARENA_ENTRY_NONE:
        return STEP_END;
    case HF_ARENA_ENTRY_GONE:
        return STEP_GONE;
    case HF_ARENA_ENTRY_DAMAGED:
        *err = set_damaged(replica, "its log is damaged");
        return STEP_FAILED;
    case HF_ARENA_ENTRY_READ:
        break;
    }
    *err = copy_entry(replica, &entry);
    if (!*err && is_unlocked && !hf_arena_end_read(replica->arena))
        return STEP_CHANGED;
    if (!*err)
        *err = apply_entry(replica, stamp, entry, position);
    return *err ? STEP_FAILED : STEP_APPLIED;
}

enum hf_err hf_replica_catch_up(struct hf_replica *replica)
{
    enum hf_err err = replica->stale ? load_current_snapshot(replica) : HF_OK;
    enum step step = STEP_APPLIED;

    while (!err && step != STEP_END) {
        step = read_entry(replica, false, &err);
        if (step == STEP_GONE)
            err = load_current_snapshot(replica);
    }
    return err;
}

/* ---- Reading without the arena lock -------------------------------------*/

static bool needs_snapshot(const struct hf_replica *replica)
{
    return replica->stale ||
           !hf_arena_has_entry(replica->arena, replica->position);
}

static bool is_far_behind(const struct hf_replica *replica)
{
    return needs_snapshot(replica) ||
           replica->arena->tail - replica->position > LAG_MAX;
}

/* Read to the end of the log as of hf_arena_begin_read(); the log may grow
 * meanwhile. A snapshot that changes while it is read leaves the replica stale.
 * Returns false after an error, which hf_replica_catch_up() meets again if it
 * is real. */
static bool read_ahead_once(struct hf_replica *replica)
{
    enum step step = STEP_APPLIED;
    enum hf_err err = HF_OK;

    if (needs_snapshot(replica)) {
        err = load_current_snapshot(replica);
        if (!hf_arena_end_read(replica->arena)) {
            replica->stale = true;
            return true;
        }
    }
    while (!err && step == STEP_APPLIED)
        step = read_entry(replica, true, &err);
    return !err && step != STEP_GONE;
}

void hf_replica_read_ahead(struct hf_replica *replica)
{
    for (int i = 0; i < AHEAD_TRIES; i++) {
        if (!hf_arena_begin_read(replica->arena) || !is_far_behind(replica) ||
            !read_ahead_once(replica))
            return;
    }
}

enum hf_err hf_replica_reload_history(struct hf_replica *replica)
{
    replica->stale = true;
    return hf_replica_catch_up(replica);
}

/* ---- Writing ------------------------------------------------------------*/

/* Write a snapshot of the whole table, which empties the ring. */
static enum hf_err write_snapshot(struct hf_replica *replica)
{
    struct hf_buf buf = {0};
    enum hf_err err;

    encode_snapshot(replica, &buf);
    err = buf.failed
              ? HF_ENOMEM
              : hf_arena_set_snapshot(replica->arena,
                                      (struct hf_bytes){buf.data, buf.size});
    replica->snapshot_size = buf.size;
    hf_buf_fini(&buf);
    return err;
}

/* Make sure that a snapshot will still fit after the command. */
static enum hf_err check_room(struct hf_replica *replica,
                              const struct hf_command *command)
{
    size_t cost = snapshot_cost(command);

    if (hf_arena_reserve_snapshot(replica->arena,
                                  replica->snapshot_size + cost) == HF_OK)
        return HF_OK;
    /* The estimate only grows, so write a snapshot to get the exact size. */
    if (write_snapshot(replica))
        return HF_ELIMIT;
    return hf_arena_reserve_snapshot(replica->arena,
                                     replica->snapshot_size + cost);
}

static enum hf_err write_log_entry(struct hf_replica *replica, hf_time now,
                                   const struct hf_command *command)
{
    struct hf_buf *buf = &replica->scratch;
    struct hf_bytes entry;
    enum hf_err err;

    buf->size = 0;
    buf->failed = false;
    hf_command_encode(command, replica->store.table.version, buf);
    if (buf->failed)
        return HF_ENOMEM;
    entry = (struct hf_bytes){buf->data, buf->size};
    err = hf_arena_write(replica->arena, now, entry);
    if (err != HF_ELIMIT)
        return err;
    err = write_snapshot(replica);
    return err ? err : hf_arena_write(replica->arena, now, entry);
}

void hf_replica_run(struct hf_replica *replica, hf_time now,
                    const struct hf_command *command, struct hf_result *result)
{
    enum hf_err err = HF_OK;

    if (command->kind == HF_COMMAND_LOCK || command->kind == HF_COMMAND_UPDATE)
        err = check_room(replica, command);
    if (!err)
        err = write_log_entry(replica, now, command);
    if (err) {
        *result = (struct hf_result){.err = err};
        return;
    }
    if (hf_store_run(&replica->store, now, command, result)) {
        hf_arena_discard(replica->arena);
        return;
    }
    hf_arena_record_lease(replica->arena, now, command->lease_ms);
    HF_CRASH_POINT(24);
    if (!hf_arena_publish(replica->arena)) {
        replica->stale = true;
        *result = (struct hf_result){.err = HF_EUNAVAIL};
        return;
    }
    if (replica->store.table.holds.count == 0)
        hf_arena_record_idle(replica->arena, now);
    grow_snapshot_size(replica, command);
    replica->position = replica->arena->pending;
}
