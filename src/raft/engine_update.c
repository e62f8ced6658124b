/* engine_update.c - pass events to the library, and collect what it changes. */
#include <stdlib.h>

#include "base/assert.h"
#include "raft/rules.h"

enum hf_err hf_engine_fail(struct hf_engine *engine, const char *failure)
{
    engine->failed = true;
    engine->failure = failure;
    return HF_ESYSTEM;
}

/* ---- Entries ------------------------------------------------------------*/

static enum hf_err reserve_library_entries(struct hf_engine *engine,
                                           size_t count)
{
    struct raft_entry *entries;

    if (count <= engine->library_capacity)
        return HF_OK;
    entries = realloc(engine->library_entries, count * sizeof(*entries));
    if (!entries)
        return HF_ENOMEM;
    engine->library_entries = entries;
    engine->library_capacity = count;
    return HF_OK;
}

/* The library reads the data of HF_ENTRY_CHANGE only, and keeps neither the
 * array nor the data, so `*out` may point to the caller's data. The library
 * requires that `batch` is not NULL. */
static void convert_entry(const struct hf_entry *entry, struct raft_entry *out)
{
    static char not_null;

    *out = (struct raft_entry){
        .term = entry->term,
        .type = (enum raft_entry_type)entry->kind,
        .buf = {(void *)(uintptr_t)entry->data.data, entry->data.size},
        .batch = &not_null,
    };
}

enum hf_err hf_engine_prepare_entries(struct hf_engine *engine,
                                      const struct hf_entry *entries,
                                      size_t count, bool keep)
{
    enum hf_err err = reserve_library_entries(engine, count);

    if (err)
        return err;
    for (size_t i = 0; i < count; i++)
        convert_entry(&entries[i], &engine->library_entries[i]);
    if (!keep)
        return HF_OK;
    HF_ASSERT(!engine->arriving);
    engine->arriving = hf_batch_new(entries, count);
    if (!engine->arriving)
        return HF_ENOMEM;
    return hf_entries_reserve(&engine->log);
}

/* Prepare the no-op that the library appends as a new leader. The caller of the
 * library has to free its buffer. */
static enum hf_err prepare_barrier(struct hf_engine *engine)
{
    struct hf_entry entry = {
        engine->raft->barrier.term, HF_ENTRY_BARRIER, {NULL, 0}};

    raft_free(engine->raft->barrier.buf.base);
    engine->raft->barrier.buf.base = NULL;
    engine->raft->barrier.batch = NULL;
    return hf_engine_prepare_entries(engine, &entry, 1, true);
}

/* Replace the tail of the log with the arriving entries, without the first
 * `skip`: if a message overlaps the log, the library appends only its new
 * entries. */
static enum hf_err append_entries(struct hf_engine *engine,
                                  const struct raft_update *of_library,
                                  struct hf_engine_update *update)
{
    uint64_t first = of_library->entries.index;
    size_t skip = 0;

    if (of_library->entries.batch == &engine->raft->barrier) {
        if (prepare_barrier(engine))
            return hf_engine_fail(engine, "no memory for a no-op");
    } else {
        skip = (size_t)(of_library->entries.batch - engine->library_entries);
    }
    HF_ASSERT(engine->arriving);
    HF_ASSERT(!(update->changes & HF_ENGINE_ENTRIES));
    hf_entries_cut(&engine->log, first);
    HF_ASSERT(engine->log.last + 1 == first);
    hf_entries_attach(&engine->log, engine->arriving, skip);
    engine->arriving = NULL;
    if (engine->durable >= first)
        engine->durable = first - 1;
    update->changes |= HF_ENGINE_ENTRIES;
    update->first = first;
    update->last = engine->log.last;
    return HF_OK;
}

enum hf_err hf_engine_submit(struct hf_engine *engine,
                             const struct hf_entry *entries, size_t count,
                             hf_time now, struct hf_engine_update *update)
{
    struct raft_event event = {.type = RAFT_SUBMIT, .time = (raft_time)now};
    enum hf_err err = hf_engine_prepare_entries(engine, entries, count, true);

    if (!err && entries[0].kind == HF_ENTRY_COMMAND &&
        !hf_entries_has_room(&engine->log, engine->arriving))
        err = HF_ELIMIT;
    if (err)
        return err;
    event.submit.entries = engine->library_entries;
    event.submit.n = (unsigned)count;
    update->submitted = engine->log.last + 1;
    return hf_engine_step_library(engine, &event, update);
}

/* A new leader appends an entry of its own term at once: only by committing it
 * does the leader commit all entries before it. The library appends one only if
 * the log has uncommitted entries. */
static enum hf_err submit_barrier(struct hf_engine *engine, hf_time now,
                                  struct hf_engine_update *update)
{
    struct hf_entry entry = {
        hf_engine_term(engine), HF_ENTRY_BARRIER, {NULL, 0}};

    if (hf_engine_submit(engine, &entry, 1, now, update))
        return hf_engine_fail(engine, "no memory for a no-op");
    return HF_OK;
}

/* ---- Messages -----------------------------------------------------------*/

struct hf_message *hf_engine_add_message(struct hf_engine *engine)
{
    size_t capacity = engine->message_capacity * 2 + 8;
    struct hf_message *messages;

    if (engine->message_count == engine->message_capacity) {
        messages = realloc(engine->messages, capacity * sizeof(*messages));
        if (!messages)
            return NULL;
        engine->messages = messages;
        engine->message_capacity = capacity;
    }
    return &engine->messages[engine->message_count++];
}

static void convert_result(const struct raft_message *from,
                           struct hf_message *to)
{
    if (from->type == RAFT_APPEND_ENTRIES_RESULT) {
        const struct raft_append_entries_result *result =
            &from->append_entries_result;

        to->kind = HF_MESSAGE_APPEND_RESULT;
        to->term = result->term;
        to->version = result->version;
        to->append_result = (struct hf_message_append_result){
            result->rejected, result->last_log_index, result->features,
            result->capacity};
    } else {
        const struct raft_request_vote_result *result =
            &from->request_vote_result;

        to->kind = HF_MESSAGE_VOTE_RESULT;
        to->term = result->term;
        to->version = result->version;
        to->vote_result = (struct hf_message_vote_result){
            result->vote_granted, result->pre_vote, result->features,
            result->capacity};
    }
}

static void convert_request(const struct raft_message *from,
                            struct hf_message *to)
{
    if (from->type == RAFT_APPEND_ENTRIES) {
        const struct raft_append_entries *append = &from->append_entries;

        to->kind = HF_MESSAGE_APPEND;
        to->term = append->term;
        to->version = append->version;
        to->append = (struct hf_message_append){
            .prev_index = append->prev_log_index,
            .prev_term = append->prev_log_term,
            .commit = append->leader_commit,
            .count = append->n_entries,
        };
    } else if (from->type == RAFT_REQUEST_VOTE) {
        const struct raft_request_vote *vote = &from->request_vote;

        to->kind = HF_MESSAGE_VOTE;
        to->term = vote->term;
        to->version = vote->version;
        to->vote =
            (struct hf_message_vote){vote->last_log_index, vote->last_log_term,
                                     vote->pre_vote, vote->disrupt_leader};
    } else {
        const struct raft_timeout_now *timeout = &from->timeout_now;

        to->kind = HF_MESSAGE_TIMEOUT_NOW;
        to->term = timeout->term;
        to->version = timeout->version;
        to->vote = (struct hf_message_vote){
            timeout->last_log_index, timeout->last_log_term, false, false};
    }
}

/* Ask the node to send its newest snapshot to `peer`. The library may repeat
 * the request while the snapshot is being sent. List the peer only once per
 * update; the caller ignores it while a transfer is in progress (engine.h). */
static void add_snapshot_peer(struct hf_engine_update *update, uint64_t peer)
{
    for (size_t i = 0; i < update->snapshot_peer_count; i++) {
        if (update->snapshot_peers[i] == peer)
            return;
    }
    HF_ASSERT(update->snapshot_peer_count < HF_RAFT_VOTERS_MAX);
    update->snapshot_peers[update->snapshot_peer_count++] = peer;
}

/* Copy a message field by field: the library's messages are valid until its
 * next step only, and have bytes that are not initialised. A message to server
 * 0 acknowledges entries of a leader that hf_rules_forget_leader() has removed;
 * it is dropped. */
static enum hf_err collect_message(struct hf_engine *engine,
                                   const struct raft_message *from,
                                   struct hf_engine_update *update)
{
    struct hf_message *to;

    if (from->server_id == 0)
        return HF_OK;
    if (from->type == RAFT_INSTALL_SNAPSHOT) {
        add_snapshot_peer(update, from->server_id);
        return HF_OK;
    }
    to = hf_engine_add_message(engine);
    if (!to)
        return hf_engine_fail(engine, "no memory for a message");
    *to = (struct hf_message){.peer = from->server_id};
    if (from->type == RAFT_APPEND_ENTRIES_RESULT ||
        from->type == RAFT_REQUEST_VOTE_RESULT)
        convert_result(from, to);
    else
        convert_request(from, to);
    if (to->kind == HF_MESSAGE_VOTE_RESULT)
        hf_rules_tell_term(to, hf_engine_term(engine));
    return HF_OK;
}

/* ---- One step of the library --------------------------------------------*/

/* The library has emptied its log for the snapshot that was received. It gives
 * back the description of the snapshot, which is freed here. */
static void begin_install(struct hf_engine *engine,
                          struct raft_update *of_library,
                          struct hf_engine_update *update)
{
    raft_configuration_close(&of_library->snapshot.metadata.configuration);
    raft_free(of_library->snapshot.chunk.base);
    hf_entries_reset(&engine->log, of_library->snapshot.metadata.index,
                     of_library->snapshot.metadata.term);
    engine->installing = true;
    engine->durable = 0;
    update->changes |= HF_ENGINE_INSTALL;
}

enum hf_err hf_engine_step_library(struct hf_engine *engine,
                                   struct raft_event *event,
                                   struct hf_engine_update *update)
{
    struct raft_update of_library = {0};
    enum hf_err err = HF_OK;
    int error = raft_step(engine->raft, event, &of_library);

    if (hf_rules_is_fatal(error))
        return hf_engine_fail(engine, raft_strerror(error));
    if (of_library.flags & LIBRARY_HARD_STATE)
        update->changes |= HF_ENGINE_HARD_STATE;
    if (of_library.flags & LIBRARY_SNAPSHOT)
        begin_install(engine, &of_library, update);
    if (of_library.flags & LIBRARY_ENTRIES)
        err = append_entries(engine, &of_library, update);
    if (of_library.flags & LIBRARY_MESSAGES) {
        for (unsigned i = 0; !err && i < of_library.messages.n; i++)
            err =
                collect_message(engine, &of_library.messages.batch[i], update);
    }
    return err;
}

/* ---- The end of a step --------------------------------------------------*/

/* Give the write a number, if there is anything to store. Messages wait for the
 * hard state, because a vote that a crash could undo might be given twice. */
static void number_write(struct hf_engine *engine, hf_time now,
                         struct hf_engine_update *update)
{
    unsigned stored = HF_ENGINE_HARD_STATE | HF_ENGINE_ENTRIES |
                      HF_ENGINE_INSTALL | HF_ENGINE_RESET;
    struct hf_write write = {
        .number = engine->last_write + 1,
        .last = update->changes & HF_ENGINE_ENTRIES ? update->last : 0,
        .installs = (update->changes & HF_ENGINE_INSTALL) != 0,
    };

    if (update->changes & stored) {
        hf_writes_push(&engine->writes, &write,
                       write.installs ? 1 : update->first);
        update->write = engine->last_write = write.number;
    }
    if (update->changes & HF_ENGINE_HARD_STATE) {
        engine->hard_state_write = write.number;
        engine->hard_state_at = now;
    }
    update->after = hf_engine_after(engine);
}

/* Returns the element for `peer` of an array by voter, or NULL. */
static uint64_t *find_by_voter(const struct hf_engine *engine, uint64_t *array,
                               uint64_t peer)
{
    for (size_t i = 0; i < engine->members.count; i++) {
        if (engine->members.voters[i] == peer)
            return &array[i];
    }
    return NULL;
}

void hf_engine_note_answer(struct hf_engine *engine, uint64_t peer)
{
    uint64_t *unanswered = find_by_voter(engine, engine->unanswered, peer);

    if (unanswered)
        *unanswered = 0;
}

/* Count the entries of an append. Returns true if no more may be sent to the
 * peer before it answers. */
static bool count_unanswered(struct hf_engine *engine,
                             const struct hf_message *message)
{
    uint64_t *bytes = find_by_voter(engine, engine->unanswered, message->peer);

    for (uint32_t i = 0; bytes && i < message->append.count; i++)
        *bytes += message->append.entries[i].data.size;
    return bytes && *bytes >= HF_RAFT_UNANSWERED_BYTES;
}

/* Add the entries to the append engine->messages[at]. If they are too many or
 * too large for one message, the rest follows in another one, because the
 * library assumes that all entries were sent. But a peer that does not answer
 * gets no more than HF_RAFT_UNANSWERED_BYTES, or the library would fill its
 * connection again and again; what is missing then counts as lost. `*used`
 * counts the entries in engine->sending. */
static enum hf_err fill_append(struct hf_engine *engine, size_t at,
                               size_t *used)
{
    struct hf_message *message = &engine->messages[at];
    struct hf_entry *entries = &engine->sending[*used];
    uint32_t wanted = message->append.count;
    size_t max =
        wanted < HF_RAFT_APPEND_ENTRIES ? wanted : HF_RAFT_APPEND_ENTRIES;
    struct hf_message rest = *message;
    struct hf_message *next;

    message->append.entries = entries;
    message->append.count = 0;
    if (count_unanswered(engine, message))
        return HF_OK; /* a heartbeat */
    message->append.count =
        (uint32_t)hf_entries_read(&engine->log, message->append.prev_index + 1,
                                  max, HF_RAFT_APPEND_BYTES, entries);
    if (message->append.count == 0)
        return hf_engine_fail(engine, "an entry to send is not in the log");
    *used += message->append.count;
    if (count_unanswered(engine, message) || message->append.count == wanted)
        return HF_OK;
    rest.append.prev_index += message->append.count;
    rest.append.prev_term =
        hf_entries_term(&engine->log, rest.append.prev_index);
    rest.append.count = wanted - message->append.count;
    next = hf_engine_add_message(engine);
    if (!next)
        return hf_engine_fail(engine, "no memory for a message");
    *next = rest;
    return HF_OK;
}

/* Add the entries to the appends: the library gives only their number. */
static enum hf_err fill_messages(struct hf_engine *engine)
{
    size_t needed = 0;
    size_t used = 0;
    struct hf_entry *sending;

    for (size_t i = 0; i < engine->message_count; i++) {
        if (engine->messages[i].kind == HF_MESSAGE_APPEND)
            needed += engine->messages[i].append.count;
    }
    if (needed > engine->sending_capacity) {
        sending = realloc(engine->sending, needed * sizeof(*sending));
        if (!sending)
            return hf_engine_fail(engine, "no memory for entries to send");
        engine->sending = sending;
        engine->sending_capacity = needed;
    }
    for (size_t i = 0; i < engine->message_count; i++) {
        if (engine->messages[i].kind == HF_MESSAGE_APPEND &&
            engine->messages[i].append.count > 0 &&
            fill_append(engine, i, &used))
            return HF_ESYSTEM;
    }
    return HF_OK;
}

static void note_commit_sent(struct hf_engine *engine)
{
    for (size_t i = 0; i < engine->message_count; i++) {
        const struct hf_message *message = &engine->messages[i];
        uint64_t *sent =
            message->kind == HF_MESSAGE_APPEND
                ? find_by_voter(engine, engine->commit_sent, message->peer)
                : NULL;

        if (sent && *sent < message->append.commit)
            *sent = message->append.commit;
    }
}

bool hf_engine_send_commit(struct hf_engine *engine, uint64_t peer,
                           struct hf_message *message)
{
    uint64_t *sent = find_by_voter(engine, engine->commit_sent, peer);
    uint64_t match = hf_engine_match(engine, peer);

    if (!sent || peer == engine->config.id || *sent >= engine->commit ||
        match < engine->commit || hf_entries_term(&engine->log, match) == 0)
        return false;
    *message = (struct hf_message){
        .kind = HF_MESSAGE_APPEND,
        .peer = peer,
        .term = hf_engine_term(engine),
        .append = {.prev_index = match,
                   .prev_term = hf_entries_term(&engine->log, match),
                   .commit = engine->commit},
    };
    *sent = engine->commit;
    return true;
}

/* While a snapshot is being installed, the library may report the snapshot's
 * index as committed, although the node does not have that state yet. */
static void report_commit(struct hf_engine *engine,
                          struct hf_engine_update *update)
{
    uint64_t commit;

    if (engine->installing)
        return;
    commit =
        hf_rules_raise_commit(engine->commit, raft_commit_index(engine->raft));
    if (commit != engine->commit)
        update->changes |= HF_ENGINE_COMMIT;
    engine->commit = update->commit = commit;
}

enum hf_err hf_engine_finish(struct hf_engine *engine, hf_time now,
                             bool after_timeout,
                             struct hf_engine_update *update)
{
    enum hf_engine_role role = hf_engine_role(engine);
    bool elected = role == HF_ENGINE_LEADER && engine->role != role;

    if (elected) {
        memset(engine->commit_sent, 0, sizeof(engine->commit_sent));
        memset(engine->unanswered, 0, sizeof(engine->unanswered));
    }
    if (elected && !(update->changes & HF_ENGINE_ENTRIES) &&
        submit_barrier(engine, now, update))
        return HF_ESYSTEM;
    if (fill_messages(engine))
        return HF_ESYSTEM;
    note_commit_sent(engine);
    number_write(engine, now, update);
    report_commit(engine, update);
    update->role = role;
    update->leader = hf_engine_leader(engine);
    if (role != engine->role || update->leader != engine->leader)
        update->changes |= HF_ENGINE_ROLE;
    engine->role = role;
    engine->leader = update->leader;
    update->term = hf_engine_term(engine);
    update->vote = raft_voted_for(engine->raft);
    update->messages = engine->messages;
    update->message_count = engine->message_count;
    update->timeout = hf_rules_next_timeout(engine->raft, now, after_timeout);
    return HF_OK;
}
