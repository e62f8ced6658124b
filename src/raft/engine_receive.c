/* engine_receive.c - pass messages and snapshots that arrive to the library. */
#include "raft/rules.h"

#define RESULT_VERSION 2 /* of an APPEND_RESULT, in libraft 0.22 */

/* The library wants the sender's address, and copies it if the sender leads.
 * Returns NULL if `id` is not a member. */
static char *address_of(const struct hf_engine *engine, uint64_t id)
{
    const struct raft_configuration *conf = &engine->raft->configuration;

    for (unsigned i = 0; i < conf->n; i++) {
        if (conf->servers[i].id == id)
            return conf->servers[i].address;
    }
    return NULL;
}

enum hf_err hf_engine_decode_membership(struct hf_bytes bytes,
                                        struct raft_configuration *conf)
{
    struct raft_buffer buffer = {(void *)(uintptr_t)bytes.data, bytes.size};
    struct hf_membership members;

    if (hf_membership_decode(bytes, &members))
        return HF_EINVAL;
    return raft_configuration_decode(&buffer, conf) ? HF_ENOMEM : HF_OK;
}

/* ---- Appends ------------------------------------------------------------*/

/* Returns true if `append` changes the members, which is not supported: only
 * entry 1 may be of the kind HF_ENTRY_CHANGE. */
static bool has_change(const struct hf_message_append *append)
{
    for (uint32_t i = 0; i < append->count; i++) {
        if (append->entries[i].kind == HF_ENTRY_CHANGE &&
            append->prev_index + 1 + i != 1)
            return true;
    }
    return false;
}

/* Reject a leader of an older term, which then steps down. The library does the
 * same, but sends an uninitialised last index. */
static enum hf_err reject_leader(struct hf_engine *engine, uint64_t peer,
                                 uint64_t prev_index)
{
    struct hf_message *message = hf_engine_add_message(engine);

    if (!message)
        return HF_ENOMEM;
    *message = (struct hf_message){
        .kind = HF_MESSAGE_APPEND_RESULT,
        .peer = peer,
        .term = hf_engine_term(engine),
        .version = RESULT_VERSION,
        .append_result = {.rejected = prev_index},
    };
    return HF_OK;
}

/* The library frees the batch of the first entry if it appends none of the
 * entries. Otherwise this function frees the batch. */
static enum hf_err step_append(struct hf_engine *engine,
                               struct raft_event *event, void *batch,
                               struct hf_engine_update *update)
{
    unsigned before = update->changes;
    enum hf_err err;

    if (batch)
        engine->library_entries[0].batch = batch;
    err = hf_engine_step_library(engine, event, update);
    if (!err && (update->changes & ~before & HF_ENGINE_ENTRIES))
        raft_free(batch);
    return err;
}

static enum hf_err receive_append(struct hf_engine *engine,
                                  struct raft_event *event,
                                  const struct hf_message *message,
                                  struct hf_engine_update *update)
{
    struct hf_message_append append = message->append;
    struct raft_append_entries *to = &event->receive.message->append_entries;
    void *batch = NULL;
    enum hf_err err = HF_OK;

    if (message->term < hf_engine_term(engine))
        return reject_leader(engine, message->peer, append.prev_index);
    if (!engine->installing)
        hf_rules_trim_append(&append, engine->snapshot.index,
                             engine->snapshot.term);
    if (has_change(&append))
        return HF_OK;
    if (append.count > 0) {
        err = hf_engine_prepare_entries(engine, append.entries, append.count,
                                        true);
        batch = err ? NULL : raft_malloc(1);
        if (!batch)
            return err ? err : HF_ENOMEM;
    }
    event->receive.message->type = RAFT_APPEND_ENTRIES;
    *to = (struct raft_append_entries){
        .version = message->version,
        .term = message->term,
        .prev_log_index = append.prev_index,
        .prev_log_term = append.prev_term,
        .leader_commit = append.commit,
        .entries = engine->library_entries,
        .n_entries = append.count,
    };
    return step_append(engine, event, batch, update);
}

/* ---- Other messages -----------------------------------------------------*/

static void convert_vote(const struct hf_message *message,
                         struct raft_message *to)
{
    if (message->kind == HF_MESSAGE_VOTE) {
        to->type = RAFT_REQUEST_VOTE;
        to->request_vote = (struct raft_request_vote){
            .version = message->version,
            .term = message->term,
            .candidate_id = message->peer,
            .last_log_index = message->vote.last_index,
            .last_log_term = message->vote.last_term,
            .disrupt_leader = message->vote.disrupt,
            .pre_vote = message->vote.pre_vote,
        };
    } else {
        to->type = RAFT_TIMEOUT_NOW;
        to->timeout_now = (struct raft_timeout_now){
            .version = message->version,
            .term = message->term,
            .last_log_index = message->vote.last_index,
            .last_log_term = message->vote.last_term,
        };
    }
}

static void receive_result(const struct hf_message *message,
                           struct raft_message *to)
{
    if (message->kind == HF_MESSAGE_APPEND_RESULT) {
        to->type = RAFT_APPEND_ENTRIES_RESULT;
        to->append_entries_result = (struct raft_append_entries_result){
            .version = message->version,
            .term = message->term,
            .rejected = message->append_result.rejected,
            .last_log_index = message->append_result.last_index,
            .features = message->append_result.features,
            .capacity = message->append_result.capacity,
        };
    } else {
        to->type = RAFT_REQUEST_VOTE_RESULT;
        to->request_vote_result = (struct raft_request_vote_result){
            .version = message->version,
            .term = message->term,
            .vote_granted = message->vote_result.granted,
            .pre_vote = message->vote_result.pre_vote,
            .features = message->vote_result.features,
            .capacity = message->vote_result.capacity,
        };
    }
}

/* Note a vote for this node, a candidate, in the current term. */
static void note_vote(struct hf_engine *engine,
                      const struct hf_message *message)
{
    const struct hf_membership *members = &engine->members;
    uint64_t term = hf_engine_term(engine);

    if (!message->vote_result.granted || message->vote_result.pre_vote ||
        message->term != term || engine->raft->voted_for != engine->config.id)
        return;
    if (engine->granted_term != term)
        engine->granted = 0;
    engine->granted_term = term;
    for (size_t i = 0; i < members->count; i++) {
        if (members->voters[i] == message->peer)
            engine->granted |= UINT32_C(1) << i;
    }
    hf_rules_take_late_vote(engine->raft, members, engine->granted);
}

/* Returns true if this node leads in `term`, so that a message of another
 * leader of `term` breaks Raft's rule of one leader per term. The library would
 * corrupt its heap on such a message. */
static bool is_second_leader(const struct hf_engine *engine, uint64_t term)
{
    return hf_engine_role(engine) == HF_ENGINE_LEADER &&
           term == hf_engine_term(engine);
}

static enum hf_err receive_kind(struct hf_engine *engine,
                                struct raft_event *event,
                                const struct hf_message *message,
                                struct hf_engine_update *update)
{
    switch (message->kind) {
    case HF_MESSAGE_APPEND:
        if (is_second_leader(engine, message->term))
            return hf_engine_fail(engine, "a term has two leaders");
        return receive_append(engine, event, message, update);
    case HF_MESSAGE_VOTE:
        hf_rules_forget_leader(engine->raft, (hf_time)event->time);
        convert_vote(message, event->receive.message);
        break;
    case HF_MESSAGE_TIMEOUT_NOW:
        convert_vote(message, event->receive.message);
        break;
    case HF_MESSAGE_VOTE_RESULT:
        if (!hf_rules_takes_vote_result(engine->raft))
            return HF_OK;
        note_vote(engine, message);
        receive_result(message, event->receive.message);
        break;
    case HF_MESSAGE_APPEND_RESULT:
        hf_engine_note_answer(engine, message->peer);
        receive_result(message, event->receive.message);
        break;
    default:
        return HF_OK; /* a message for another module */
    }
    return hf_engine_step_library(engine, event, update);
}

enum hf_err hf_engine_receive(struct hf_engine *engine,
                              const struct hf_engine_event *event,
                              struct hf_engine_update *update)
{
    const struct hf_message *message = event->message;
    struct raft_message to = {
        .server_id = message->peer,
        .server_address = address_of(engine, message->peer),
    };
    struct raft_event step = {
        .type = RAFT_RECEIVE,
        .time = (raft_time)event->now,
        .receive = {&to},
    };

    if (!to.server_address || message->peer == engine->config.id)
        return HF_OK; /* not another member */
    /* The sender leads in the current term or a later one, so the report that
     * the leader is lost is out of date. */
    if (message->kind == HF_MESSAGE_APPEND &&
        message->term >= hf_engine_term(engine))
        engine->lost_leader = 0; /* there is a leader */
    return receive_kind(engine, &step, message, update);
}

/* ---- The leader is lost -------------------------------------------------*/

/* The library ignores a TIMEOUT_NOW while entries are not durable, so this is
 * called again after each flush as long as engine->lost_leader is set. */
enum hf_err hf_engine_replace_leader(struct hf_engine *engine, hf_time now,
                                     struct hf_engine_update *update)
{
    struct raft_message message = {
        .type = RAFT_TIMEOUT_NOW,
        .server_id = engine->lost_leader,
        .server_address = "",
    };
    struct raft_event event = {
        .type = RAFT_RECEIVE,
        .time = (raft_time)now,
        .receive = {&message},
    };

    if (hf_engine_term(engine) != engine->lost_term ||
        hf_engine_leader(engine) != engine->lost_leader ||
        engine->lost_leader == engine->config.id) {
        engine->lost_leader = 0;
        return HF_OK;
    }
    if (engine->durable < engine->log.last || engine->installing)
        return HF_OK;
    engine->lost_leader = 0;
    message.timeout_now = (struct raft_timeout_now){
        .term = hf_engine_term(engine),
        .last_log_index = engine->log.last,
        .last_log_term = hf_entries_term(&engine->log, engine->log.last),
    };
    return hf_engine_step_library(engine, &event, update);
}

/* ---- Snapshots ----------------------------------------------------------*/

static enum hf_err step_snapshot(struct hf_engine *engine,
                                 const struct hf_engine_event *event,
                                 struct raft_message *message,
                                 struct hf_engine_update *update)
{
    struct raft_event step = {
        .type = RAFT_RECEIVE,
        .time = (raft_time)event->now,
        .receive = {message},
    };
    struct hf_engine_snapshot snapshot = event->received.snapshot;
    struct hf_buf bytes = {0};
    enum hf_err err;

    hf_buf_raw(&bytes, snapshot.members.data, snapshot.members.size);
    if (bytes.failed) {
        raft_configuration_close(&message->install_snapshot.conf);
        raft_free(message->install_snapshot.data.base);
        return HF_ENOMEM;
    }
    err = hf_engine_step_library(engine, &step, update);
    if (err || !(update->changes & HF_ENGINE_INSTALL)) {
        hf_buf_fini(&bytes);
        return err;
    }
    hf_buf_fini(&engine->members_bytes);
    engine->members_bytes = bytes;
    engine->snapshot = snapshot;
    engine->snapshot.members = (struct hf_bytes){bytes.data, bytes.size};
    return HF_OK;
}

enum hf_err hf_engine_receive_snapshot(struct hf_engine *engine,
                                       const struct hf_engine_event *event,
                                       struct hf_engine_update *update)
{
    const struct hf_engine_snapshot *snapshot = &event->received.snapshot;
    struct raft_message message = {
        .type = RAFT_INSTALL_SNAPSHOT,
        .server_id = event->received.from,
        .server_address = address_of(engine, event->received.from),
    };
    struct raft_install_snapshot *install = &message.install_snapshot;
    enum hf_err err;

    if (engine->installing)
        return HF_EBUSY;
    if (!message.server_address || snapshot->index == 0 || snapshot->term == 0)
        return HF_EINVAL;
    if (event->received.term < hf_engine_term(engine))
        return reject_leader(engine, event->received.from, 0);
    if (is_second_leader(engine, event->received.term))
        return hf_engine_fail(engine, "a term has two leaders");
    *install = (struct raft_install_snapshot){
        .term = event->received.term,
        .last_index = snapshot->index,
        .last_term = snapshot->term,
        .conf_index = snapshot->members_index,
    };
    err = hf_engine_decode_membership(snapshot->members, &install->conf);
    if (err)
        return err;
    install->data.base = raft_malloc(1); /* the data is in a file instead */
    if (!install->data.base) {
        raft_configuration_close(&install->conf);
        return HF_ENOMEM;
    }
    return step_snapshot(engine, event, &message, update);
}
