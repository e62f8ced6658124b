#include "raft/engine.h"

#include <stdlib.h>

#include "base/assert.h"
#include "raft/library.h"
#include "raft/rules.h"

/* The most batches that one step frees. A step adds one batch at most. */
#define COLLECT_MAX 64

/* ---- Init and fini ------------------------------------------------------*/

static bool is_valid_config(const struct hf_engine_config *config)
{
    return config->id > 0 && config->heartbeat_ms > 0 &&
           config->election_ms / 2 > config->heartbeat_ms &&
           config->inflight_max > 0;
}

bool hf_engine_is_expected_library(struct raft *raft,
                                   const struct hf_engine_config *config)
{
    return raft->id == config->id && raft->state == RAFT_FOLLOWER &&
           raft_state(raft) == RAFT_FOLLOWER &&
           raft->election_timeout == config->election_ms &&
           raft->heartbeat_timeout == config->heartbeat_ms &&
           raft->follower_state.randomized_election_timeout >=
               config->election_ms &&
           raft->follower_state.randomized_election_timeout <=
               2 * config->election_ms &&
           raft->pre_vote && raft->max_inflight_entries == config->inflight_max;
}

enum hf_err hf_engine_init(struct hf_engine *engine,
                           const struct hf_engine_config *config)
{
    struct raft *raft;

    *engine = (struct hf_engine){.config = *config};
    if (!is_valid_config(config))
        return HF_EINVAL;
    raft = calloc(1, sizeof(*raft));
    if (!raft)
        return HF_ENOMEM;
    if (raft_init(raft, NULL, NULL, config->id, "self")) {
        free(raft);
        return HF_ENOMEM;
    }
    raft->tracer = NULL; /* a tracer formats a text at every step */
    raft_seed(raft, config->seed);
    raft_set_election_timeout(raft, config->election_ms);
    raft_set_heartbeat_timeout(raft, config->heartbeat_ms);
    raft_set_pre_vote(raft, true);
    raft_set_max_inflight_entries(raft, config->inflight_max);
    hf_rules_set_snapshot_timeout(raft, config->election_ms);
    engine->raft = raft;
    return hf_engine_is_expected_library(raft, config) ? HF_OK
                                                       : HF_EUNSUPPORTED;
}

void hf_engine_fini(struct hf_engine *engine)
{
    if (engine->raft)
        raft_close(engine->raft, NULL);
    free(engine->raft);
    hf_entries_fini(&engine->log);
    hf_writes_fini(&engine->writes);
    hf_buf_fini(&engine->members_bytes);
    hf_batch_free(engine->arriving);
    free(engine->library_entries);
    free(engine->messages);
    free(engine->sending);
    *engine = (struct hf_engine){0};
}

/* ---- Compaction ---------------------------------------------------------*/

/* How many of the snapshot's entries the log keeps, for peers that lag. Their
 * bytes are limited, too, so that there is always room for new commands. */
static uint64_t count_trailing(const struct hf_engine *engine)
{
    return hf_entries_count_last(&engine->log, engine->snapshot.index,
                                 engine->config.trailing,
                                 hf_entries_bytes_max(&engine->log) / 4);
}

/* Forget the entries that the snapshot contains, but not the last `trailing` of
 * them. The library must forget the same entries, or fewer. */
static void compact_log(struct hf_engine *engine, uint64_t trailing)
{
    hf_entries_compact(&engine->log, engine->snapshot.index - trailing);
}

/* ---- Start --------------------------------------------------------------*/

void hf_engine_first_entry(const struct hf_membership *members,
                           struct hf_buf *data, struct hf_entry *entry)
{
    size_t start = data->size;

    hf_membership_encode(data, members);
    *entry = (struct hf_entry){
        .term = 1,
        .kind = HF_ENTRY_CHANGE,
        .data = {data->data + start, data->size - start},
    };
}

/* Decode the members, and keep a copy of the snapshot's description. */
static enum hf_err keep_snapshot(struct hf_engine *engine,
                                 const struct hf_engine_snapshot *snapshot)
{
    struct hf_buf bytes = {0};

    if (hf_membership_decode(snapshot->members, &engine->members))
        return HF_EINVAL;
    hf_buf_raw(&bytes, snapshot->members.data, snapshot->members.size);
    if (bytes.failed)
        return HF_ENOMEM;
    hf_buf_fini(&engine->members_bytes);
    engine->members_bytes = bytes;
    engine->snapshot = *snapshot;
    engine->snapshot.members = (struct hf_bytes){bytes.data, bytes.size};
    return HF_OK;
}

/* Without a snapshot, the members are in the first entry. */
static enum hf_err keep_first_entry(struct hf_engine *engine)
{
    const struct hf_entry *entry = hf_entries_find(&engine->log, 1);
    struct hf_engine_snapshot none = {.members_index = 1};

    if (!entry || entry->kind != HF_ENTRY_CHANGE)
        return HF_EINVAL;
    none.members = entry->data;
    return keep_snapshot(engine, &none);
}

/* Returns true if the log contains the snapshot's last entry, or begins right
 * after it. Otherwise a crash came between the installation of the snapshot and
 * the reset of the log, and the whole log must be dropped. */
static bool log_agrees(const struct hf_engine *engine)
{
    return hf_entries_term(&engine->log, engine->snapshot.index) ==
           engine->snapshot.term;
}

static enum hf_err start_library(struct hf_engine *engine, uint64_t term,
                                 uint64_t vote, hf_time now,
                                 struct hf_engine_update *update)
{
    uint64_t first = engine->log.base_index + 1;
    size_t count = (size_t)(engine->log.last - engine->log.base_index);
    struct raft_snapshot_metadata metadata = {0};
    struct raft_event event = {.type = RAFT_START, .time = (raft_time)now};
    struct hf_entry *entries = malloc((count + 1) * sizeof(*entries));
    enum hf_err err = entries ? HF_OK : HF_ENOMEM;

    if (!err) {
        (void)hf_entries_read(&engine->log, first, count, SIZE_MAX, entries);
        err = hf_engine_prepare_entries(engine, entries, count, false);
    }
    if (!err && engine->snapshot.index > 0)
        err = hf_engine_decode_membership(engine->snapshot.members,
                                          &metadata.configuration);
    if (!err) {
        metadata.index = engine->snapshot.index;
        metadata.term = engine->snapshot.term;
        metadata.configuration_index = engine->snapshot.members_index;
        event.start.term = term;
        event.start.voted_for = vote;
        event.start.metadata = engine->snapshot.index > 0 ? &metadata : NULL;
        event.start.start_index = first;
        event.start.entries = engine->library_entries;
        event.start.n_entries = (unsigned)count;
        err = hf_engine_step_library(engine, &event, update);
    }
    free(entries);
    return err;
}

enum hf_err hf_engine_start(struct hf_engine *engine,
                            const struct hf_engine_loaded *loaded, hf_time now,
                            struct hf_engine_update *update)
{
    uint64_t term = loaded->term;
    uint64_t vote = loaded->vote;
    enum hf_err err;

    HF_ASSERT(!engine->started);
    *update = (struct hf_engine_update){0};
    if (loaded->snapshot.index > 0)
        err = keep_snapshot(engine, &loaded->snapshot);
    else
        err = keep_first_entry(engine);
    if (!err)
        err = hf_writes_reserve(&engine->writes);
    if (err)
        return err;
    if (loaded->snapshot.index > 0 && !log_agrees(engine)) {
        hf_entries_reset(&engine->log, engine->snapshot.index,
                         engine->snapshot.term);
        update->changes |= HF_ENGINE_RESET;
    }
    if (loaded->snapshot.index > 0)
        compact_log(engine, count_trailing(engine));
    if (hf_rules_raise_term(&engine->members, engine->config.id, &term, &vote))
        update->changes |= HF_ENGINE_HARD_STATE;
    engine->durable = engine->log.last;
    engine->started = true;
    err = start_library(engine, term, vote, now, update);
    return err ? err : hf_engine_finish(engine, now, false, update);
}

/* ---- Steps --------------------------------------------------------------*/

static enum hf_err on_tick(struct hf_engine *engine, hf_time now,
                           struct hf_engine_update *update)
{
    struct raft_event event = {.type = RAFT_TIMEOUT, .time = (raft_time)now};

    if (now < (hf_time)raft_timeout(engine->raft) ||
        !hf_rules_may_time_out(engine->raft, hf_engine_after(engine) == 0))
        return HF_OK;
    hf_rules_restart_pre_vote(engine->raft);
    return hf_engine_step_library(engine, &event, update);
}

static enum hf_err on_submit(struct hf_engine *engine,
                             const struct hf_engine_event *event,
                             struct hf_engine_update *update)
{
    uint64_t term = hf_engine_term(engine);
    struct hf_entry *entries;
    enum hf_err err;

    if (hf_engine_role(engine) != HF_ENGINE_LEADER)
        return HF_ESTATE;
    if (raft_transferee(engine->raft) != 0)
        return HF_EBUSY;
    if (event->submit.count == 0)
        return HF_OK;
    entries = calloc(event->submit.count, sizeof(*entries));
    if (!entries)
        return HF_ENOMEM;
    for (size_t i = 0; i < event->submit.count; i++) {
        HF_ASSERT(event->submit.commands[i].size <= HF_RAFT_ENTRY_MAX);
        entries[i] = (struct hf_entry){term, HF_ENTRY_COMMAND,
                                       event->submit.commands[i]};
    }
    err = hf_engine_submit(engine, entries, event->submit.count, event->now,
                           update);
    free(entries);
    return err;
}

/* The received snapshot is durable, so the library may continue after it. */
static enum hf_err finish_install(struct hf_engine *engine, hf_time now,
                                  struct hf_engine_update *update)
{
    struct raft_event event = {.type = RAFT_PERSISTED_SNAPSHOT,
                               .time = (raft_time)now};
    struct raft_snapshot_metadata *metadata =
        &event.persisted_snapshot.metadata;
    enum hf_err err = hf_engine_decode_membership(engine->snapshot.members,
                                                  &metadata->configuration);

    if (err)
        return hf_engine_fail(engine, "out of memory");
    metadata->index = engine->snapshot.index;
    metadata->term = engine->snapshot.term;
    metadata->configuration_index = engine->snapshot.members_index;
    event.persisted_snapshot.last = true;
    engine->installing = false;
    engine->durable = engine->snapshot.index;
    update->changes |= HF_ENGINE_RESTORE;
    return hf_engine_step_library(engine, &event, update);
}

static enum hf_err on_persisted(struct hf_engine *engine,
                                const struct hf_engine_event *event,
                                struct hf_engine_update *update)
{
    struct raft_event step = {.type = RAFT_PERSISTED_ENTRIES,
                              .time = (raft_time)event->now};
    bool installed = false;
    bool was_durable = hf_engine_after(engine) == 0;
    uint64_t last = hf_writes_take(&engine->writes, event->write, &installed);
    enum hf_err err = HF_OK;

    if (event->write > engine->durable_write)
        engine->durable_write = event->write;
    if (!was_durable && hf_engine_after(engine) == 0)
        hf_rules_begin_wait(engine->raft, event->now,
                            event->now - engine->hard_state_at);
    if (installed)
        return finish_install(engine, event->now, update);
    if (!engine->installing && last > engine->durable) {
        engine->durable = last;
        step.persisted_entries.index = last;
        err = hf_engine_step_library(engine, &step, update);
    }
    if (!err && engine->lost_leader != 0 && !hf_writes_reserve(&engine->writes))
        err = hf_engine_replace_leader(engine, event->now, update);
    return err;
}

static enum hf_err on_snapshot_taken(struct hf_engine *engine,
                                     const struct hf_engine_event *event,
                                     struct hf_engine_update *update)
{
    struct raft_event step = {.type = RAFT_SNAPSHOT,
                              .time = (raft_time)event->now};
    struct raft_snapshot_metadata *metadata = &step.snapshot.metadata;
    uint64_t trailing;
    enum hf_err err;

    if (engine->installing || event->index <= engine->snapshot.index ||
        event->index > engine->durable || event->index > engine->commit)
        return HF_ESTATE;
    err = hf_engine_decode_membership(engine->snapshot.members,
                                      &metadata->configuration);
    if (err)
        return err;
    engine->snapshot.index = event->index;
    engine->snapshot.term = hf_entries_term(&engine->log, event->index);
    metadata->index = engine->snapshot.index;
    metadata->term = engine->snapshot.term;
    metadata->configuration_index = engine->snapshot.members_index;
    trailing = count_trailing(engine);
    step.snapshot.trailing = (unsigned)trailing;
    err = hf_engine_step_library(engine, &step, update);
    if (!err)
        compact_log(engine, trailing);
    return err;
}

/* Refuse a transfer to a peer that lacks entries. If the peer lags by more than
 * one message, the library sends TIMEOUT_NOW too early: the peer ignores it,
 * and nothing can be submitted for an election timeout. */
static enum hf_err on_transfer(struct hf_engine *engine,
                               const struct hf_engine_event *event,
                               struct hf_engine_update *update)
{
    struct raft_event step = {.type = RAFT_TRANSFER,
                              .time = (raft_time)event->now};

    if (hf_engine_role(engine) != HF_ENGINE_LEADER)
        return HF_ESTATE;
    if (event->peer == engine->config.id ||
        !hf_membership_has(&engine->members, event->peer))
        return HF_EINVAL;
    if (raft_transferee(engine->raft) != 0 ||
        hf_engine_match(engine, event->peer) != engine->log.last)
        return HF_EBUSY;
    step.transfer.server_id = event->peer;
    return hf_engine_step_library(engine, &step, update);
}

static enum hf_err on_leader_lost(struct hf_engine *engine,
                                  const struct hf_engine_event *event,
                                  struct hf_engine_update *update)
{
    engine->lost_leader = event->peer;
    engine->lost_term = hf_engine_term(engine);
    return hf_engine_replace_leader(engine, event->now, update);
}

static enum hf_err step_event(struct hf_engine *engine,
                              const struct hf_engine_event *event,
                              struct hf_engine_update *update)
{
    switch (event->kind) {
    case HF_ENGINE_TICK:
        return on_tick(engine, event->now, update);
    case HF_ENGINE_RECEIVE:
        return hf_engine_receive(engine, event, update);
    case HF_ENGINE_PERSISTED:
        return on_persisted(engine, event, update);
    case HF_ENGINE_SUBMIT:
        return on_submit(engine, event, update);
    case HF_ENGINE_SNAPSHOT_TAKEN:
        return on_snapshot_taken(engine, event, update);
    case HF_ENGINE_SNAPSHOT_RECEIVED:
        return hf_engine_receive_snapshot(engine, event, update);
    case HF_ENGINE_TRANSFER:
        return on_transfer(engine, event, update);
    case HF_ENGINE_LEADER_LOST:
        return on_leader_lost(engine, event, update);
    }
    return HF_EINVAL;
}

enum hf_err hf_engine_step(struct hf_engine *engine,
                           const struct hf_engine_event *event,
                           struct hf_engine_update *update)
{
    enum hf_err err;

    HF_ASSERT(engine->started);
    *update = (struct hf_engine_update){0};
    engine->message_count = 0;
    if (engine->failed)
        return HF_ESYSTEM;
    err = hf_writes_reserve(&engine->writes);
    if (!err || event->kind == HF_ENGINE_PERSISTED)
        err = step_event(engine, event, update);
    hf_batch_free(engine->arriving);
    engine->arriving = NULL;
    hf_entries_collect(&engine->log, COLLECT_MAX);
    if (err)
        return err;
    return hf_engine_finish(engine, event->now, event->kind == HF_ENGINE_TICK,
                            update);
}

/* ---- State --------------------------------------------------------------*/

uint64_t hf_engine_after(const struct hf_engine *engine)
{
    return engine->hard_state_write > engine->durable_write
               ? engine->hard_state_write
               : 0;
}

uint64_t hf_engine_term(const struct hf_engine *engine)
{
    return raft_current_term(engine->raft);
}

enum hf_engine_role hf_engine_role(const struct hf_engine *engine)
{
    return (enum hf_engine_role)engine->raft->state;
}

uint64_t hf_engine_leader(const struct hf_engine *engine)
{
    switch (hf_engine_role(engine)) {
    case HF_ENGINE_LEADER:
        return engine->config.id;
    case HF_ENGINE_FOLLOWER:
        return engine->raft->follower_state.current_leader.id;
    case HF_ENGINE_CANDIDATE:
        break;
    }
    return 0;
}

bool hf_engine_can_read(const struct hf_engine *engine)
{
    return hf_engine_role(engine) == HF_ENGINE_LEADER && engine->commit > 0 &&
           hf_entries_term(&engine->log, engine->commit) ==
               hf_engine_term(engine);
}

uint64_t hf_engine_match(const struct hf_engine *engine, uint64_t peer)
{
    raft_index index = 0;

    return raft_match_index(engine->raft, peer, &index) ? 0 : index;
}
