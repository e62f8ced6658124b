#include "lib/twin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"

/* A holder or a waiter. */
struct claim {
    struct hf_bytes key;
    struct hf_bytes value;
    struct hf_bytes note;
    struct hf_nonce nonce;
    uint64_t session;
    uint64_t sequence;
    uint64_t arrival; /* position in the order of arrival */
    uint32_t lease_ms;
    bool holds;
    bool waited;
    bool forced;
    uint64_t token;
    uint32_t generation;
};

struct session {
    uint64_t id;
    struct hf_nonce secret;
    bool ended;
    struct hf_bytes label;
    uint64_t done;
    uint64_t highest;
    struct hf_session_result *results; /* unsorted */
    size_t kept_count;
};

struct hf_twin {
    uint8_t version;
    uint64_t token;
    uint64_t last_session;
    uint64_t index;
    struct session *sessions;
    size_t session_count;
    struct claim *claims; /* in order of arrival */
    size_t claim_count;
    struct hf_twin_events *events; /* of the command that is applied */
};

/* ---- Helpers ------------------------------------------------------------*/

static char text[400];

__attribute__((format(printf, 1, 2))) static const char *set_text(
    const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return text;
}

static void *resize(void *block, size_t count, size_t size)
{
    block = realloc(block, (count + 1) * size);
    if (!block)
        abort();
    return block;
}

static struct hf_bytes copy_bytes(const void *data, size_t size)
{
    uint8_t *block = resize(NULL, size, 1);

    hf_copy(block, data, size);
    return (struct hf_bytes){block, size};
}

static void free_bytes(struct hf_bytes bytes)
{
    free((void *)(uintptr_t)bytes.data);
}

static struct hf_bytes key_bytes(struct hf_key key)
{
    return (struct hf_bytes){key.data, key.size};
}

/* ---- Lookups ------------------------------------------------------------*/

static struct session *find_session(const struct hf_twin *twin, uint64_t id)
{
    for (size_t i = 0; i < twin->session_count; i++) {
        if (twin->sessions[i].id == id)
            return &twin->sessions[i];
    }
    return NULL;
}

static struct claim *find_holder(const struct hf_twin *twin,
                                 struct hf_bytes key)
{
    for (size_t i = 0; i < twin->claim_count; i++) {
        if (twin->claims[i].holds && hf_bytes_equal(twin->claims[i].key, key))
            return &twin->claims[i];
    }
    return NULL;
}

/* The waiter at `position`, from 1, in the queue of `key`; NULL if there is
 * none. */
static struct claim *find_waiter(const struct hf_twin *twin,
                                 struct hf_bytes key, size_t position)
{
    for (size_t i = 0; i < twin->claim_count; i++) {
        if (!twin->claims[i].holds &&
            hf_bytes_equal(twin->claims[i].key, key) && --position == 0)
            return &twin->claims[i];
    }
    return NULL;
}

static uint32_t count_waiters(const struct hf_twin *twin, struct hf_bytes key)
{
    uint32_t count = 0;

    while (find_waiter(twin, key, count + 1))
        count++;
    return count;
}

static struct claim *find_waiter_by_nonce(const struct hf_twin *twin,
                                          const struct hf_command *command)
{
    struct claim *claim = NULL;

    for (size_t position = 1;
         (claim = find_waiter(twin, key_bytes(command->key), position));
         position++) {
        if (hf_nonce_equal(&claim->nonce, &command->nonce))
            return claim;
    }
    return NULL;
}

static struct hf_session_result *find_result(const struct session *session,
                                             uint64_t sequence)
{
    for (size_t i = 0; i < session->kept_count; i++) {
        if (session->results[i].sequence == sequence)
            return &session->results[i];
    }
    return NULL;
}

static uint32_t count_holds(const struct hf_twin *twin, uint64_t session)
{
    uint32_t count = 0;

    for (size_t i = 0; i < twin->claim_count; i++)
        count += twin->claims[i].holds && twin->claims[i].session == session;
    return count;
}

/* ---- Changes ------------------------------------------------------------*/

static struct hf_twin_event *add_event(struct hf_twin_events *events)
{
    if (events->count == events->capacity) {
        events->capacity = 2 * events->capacity + 8;
        events->list =
            resize(events->list, events->capacity, sizeof(*events->list));
    }
    return &events->list[events->count++];
}

static void add_twin_event(struct hf_twin *twin, enum hf_event_kind kind,
                           const struct claim *about, bool ends,
                           uint32_t lease_ms)
{
    const struct claim *holder = find_holder(twin, about->key);
    struct hf_twin_event *event = add_event(twin->events);

    *event = (struct hf_twin_event){
        .kind = kind,
        .waited = kind == HF_EVENT_GRANTED && about->waited,
        .ends = ends,
        .lease_ms = lease_ms,
        .index = ++twin->index,
        .token = holder->token,
        .session = about->session,
        .key_size = about->key.size,
    };
    if (event->waited)
        event->granted = about->nonce;
    hf_copy(event->key, about->key.data, about->key.size);
}

static void remove_claim(struct hf_twin *twin, struct claim *claim)
{
    size_t at = (size_t)(claim - twin->claims);

    free_bytes(claim->key);
    free_bytes(claim->value);
    free_bytes(claim->note);
    memmove(claim, claim + 1, (--twin->claim_count - at) * sizeof(*claim));
}

static void withdraw_claim(struct hf_twin *twin, struct claim *claim)
{
    struct claim withdrawn = *claim;

    withdrawn.key = copy_bytes(claim->key.data, claim->key.size);
    remove_claim(twin, claim);
    add_twin_event(twin, HF_EVENT_WITHDRAWN, &withdrawn, false, 0);
    free_bytes(withdrawn.key);
}

static void free_session(struct session *session)
{
    free_bytes(session->label);
    free(session->results);
}

/* Remove the sessions that have ended and hold no lock any more. */
static void remove_ended_sessions(struct hf_twin *twin)
{
    size_t count = 0;

    for (size_t i = 0; i < twin->session_count; i++) {
        struct session *session = &twin->sessions[i];

        if (session->ended && count_holds(twin, session->id) == 0)
            free_session(session);
        else
            twin->sessions[count++] = *session;
    }
    twin->session_count = count;
}

static void grant_claim(struct hf_twin *twin, struct claim *claim)
{
    struct hf_session_result *kept =
        find_result(find_session(twin, claim->session), claim->sequence);

    claim->holds = true;
    claim->waited = true;
    claim->token = ++twin->token;
    if (kept)
        kept->result = (struct hf_result){.token = claim->token};
    add_twin_event(twin, HF_EVENT_GRANTED, claim, false, claim->lease_ms);
}

static void end_hold(struct hf_twin *twin, struct claim *holder,
                     enum hf_event_kind kind)
{
    struct hf_bytes key = copy_bytes(holder->key.data, holder->key.size);
    struct claim *next;

    add_twin_event(twin, kind, holder, true, 0);
    remove_claim(twin, holder);
    remove_ended_sessions(twin);
    next = find_waiter(twin, key, 1);
    if (next)
        grant_claim(twin, next);
    free_bytes(key);
}

/* ---- Commands -----------------------------------------------------------*/

static void open_session(struct hf_twin *twin, const struct hf_command *command,
                         struct hf_result *result)
{
    for (size_t i = 0; i < twin->session_count; i++) {
        const struct session *session = &twin->sessions[i];

        if (!session->ended &&
            hf_nonce_equal(&session->secret, &command->nonce)) {
            result->session = session->id;
            return;
        }
    }
    if (twin->session_count >= HF_SESSIONS_MAX) {
        result->err = HF_ELIMIT;
        return;
    }
    twin->sessions = resize(twin->sessions, twin->session_count + 1,
                            sizeof(*twin->sessions));
    twin->sessions[twin->session_count++] = (struct session){
        .id = ++twin->last_session,
        .secret = command->nonce,
        .label = copy_bytes(command->note.data, command->note.size),
    };
    result->session = twin->last_session;
}

static struct claim *first_waiter(const struct hf_twin *twin, uint64_t session)
{
    struct claim *first = NULL;

    for (size_t i = 0; i < twin->claim_count; i++) {
        struct claim *claim = &twin->claims[i];

        if (!claim->holds && claim->session == session &&
            (!first || claim->sequence < first->sequence))
            first = claim;
    }
    return first;
}

static void close_session(struct hf_twin *twin, struct session *session)
{
    struct claim *claim;

    while ((claim = first_waiter(twin, session->id)))
        withdraw_claim(twin, claim);
    session->ended = true;
    session->secret = (struct hf_nonce){{0}};
    session->kept_count = 0;
    remove_ended_sessions(twin);
}

static struct claim *add_claim(struct hf_twin *twin,
                               const struct hf_command *command)
{
    uint32_t waiters = count_waiters(twin, key_bytes(command->key));
    uint64_t last = 0;

    if (waiters > 0)
        last = find_waiter(twin, key_bytes(command->key), waiters)->arrival;
    twin->claims =
        resize(twin->claims, twin->claim_count + 1, sizeof(*twin->claims));
    twin->claims[twin->claim_count] = (struct claim){
        .key = copy_bytes(command->key.data, command->key.size),
        .value = copy_bytes(command->value.data, command->value.size),
        .note = copy_bytes(command->note.data, command->note.size),
        .nonce = command->nonce,
        .session = command->session,
        .sequence = command->sequence,
        .arrival = last + 1,
        .lease_ms = command->lease_ms,
    };
    return &twin->claims[twin->claim_count++];
}

/* The position of a waiter, counted from the arrival of the first waiter.
 * Waiters in between may have left the queue, so limit the position to the
 * length of the queue, as the table does. */
static uint32_t position_of(const struct hf_twin *twin,
                            const struct claim *claim)
{
    uint32_t waiters = count_waiters(twin, claim->key);
    uint64_t position =
        claim->arrival - find_waiter(twin, claim->key, 1)->arrival + 1;

    return position > waiters ? waiters : (uint32_t)position;
}

static void apply_lock(struct hf_twin *twin, const struct hf_command *command,
                       struct hf_result *result)
{
    struct claim *holder = find_holder(twin, key_bytes(command->key));
    struct claim *waiter = find_waiter_by_nonce(twin, command);

    if (!holder) {
        holder = add_claim(twin, command);
        holder->holds = true;
        holder->token = ++twin->token;
        result->token = holder->token;
        add_twin_event(twin, HF_EVENT_GRANTED, holder, false, holder->lease_ms);
    } else if (hf_nonce_equal(&holder->nonce, &command->nonce)) {
        result->token = holder->token;
        result->generation = holder->generation;
    } else if (waiter) {
        waiter->session = command->session;
        waiter->sequence = command->sequence;
        result->err = HF_EBUSY;
        result->position = position_of(twin, waiter);
    } else if (!command->queue) {
        result->err = HF_EBUSY;
    } else if (count_waiters(twin, holder->key) >= HF_WAITERS_MAX) {
        result->err = HF_ELIMIT;
    } else {
        waiter = add_claim(twin, command);
        result->err = HF_EBUSY;
        result->position = count_waiters(twin, waiter->key);
        add_twin_event(twin, HF_EVENT_QUEUED, waiter, false, 0);
    }
}

static void apply_renew(struct hf_twin *twin, struct claim *holder,
                        const struct hf_command *command,
                        struct hf_result *result)
{
    if (holder->forced) {
        result->err = HF_EFORCED;
        return;
    }
    result->generation = ++holder->generation;
    if (holder->lease_ms < command->lease_ms)
        holder->lease_ms = command->lease_ms;
    add_twin_event(twin, HF_EVENT_RENEWED, holder, false, command->lease_ms);
}

static void apply_update(struct hf_twin *twin, struct claim *holder,
                         const struct hf_command *command,
                         struct hf_result *result)
{
    if (command->has_expected &&
        !hf_bytes_equal(holder->value, command->expected)) {
        result->err = HF_EMISMATCH;
        return;
    }
    free_bytes(holder->value);
    holder->value = copy_bytes(command->value.data, command->value.size);
    add_twin_event(twin, HF_EVENT_UPDATED, holder, false, 0);
}

static void apply_to_holder(struct hf_twin *twin,
                            const struct hf_command *command,
                            struct hf_result *result)
{
    struct claim *holder = find_holder(twin, key_bytes(command->key));

    if (!holder)
        result->err = HF_ENOTHELD;
    else if (holder->token != command->token ||
             !hf_nonce_equal(&holder->nonce, &command->nonce))
        result->err = HF_ENOTOWNER;
    else if (command->kind == HF_COMMAND_RENEW)
        apply_renew(twin, holder, command, result);
    else if (command->kind == HF_COMMAND_UPDATE)
        apply_update(twin, holder, command, result);
    else
        end_hold(twin, holder, HF_EVENT_RELEASED);
}

static void apply_expire(struct hf_twin *twin, const struct hf_command *command,
                         struct hf_result *result)
{
    struct claim *holder = find_holder(twin, key_bytes(command->key));

    if (!holder)
        result->err = HF_ENOTHELD;
    else if (holder->token != command->token ||
             holder->generation != command->generation)
        result->err = HF_ENOTOWNER;
    else
        end_hold(twin, holder, HF_EVENT_EXPIRED);
}

static void apply_cancel(struct hf_twin *twin, const struct hf_command *command,
                         struct hf_result *result)
{
    struct claim *holder = find_holder(twin, key_bytes(command->key));
    struct claim *waiter = find_waiter_by_nonce(twin, command);

    if (waiter) {
        withdraw_claim(twin, waiter);
    } else if (holder && hf_nonce_equal(&holder->nonce, &command->nonce)) {
        result->token = holder->token;
        end_hold(twin, holder, HF_EVENT_RELEASED);
    } else {
        result->err = HF_ENOTHELD;
    }
}

static void apply_force(struct hf_twin *twin, const struct hf_command *command,
                        struct hf_result *result)
{
    struct claim *holder = find_holder(twin, key_bytes(command->key));

    if (!holder) {
        result->err = HF_ENOTHELD;
    } else if (holder->token != command->token) {
        result->err = HF_ENOTOWNER;
    } else if (command->now) {
        end_hold(twin, holder, HF_EVENT_FORCED);
    } else if (!holder->forced) {
        holder->forced = true;
        add_twin_event(twin, HF_EVENT_FORCED, holder, false, 0);
    }
}

/* ---- Exactly once -------------------------------------------------------*/

static bool is_overtaken(const struct session *session,
                         const struct hf_command *command)
{
    for (size_t i = 0; i < session->kept_count; i++) {
        const struct hf_session_result *kept = &session->results[i];

        if (kept->sequence > command->sequence &&
            kept->kind != HF_COMMAND_LOCK &&
            hf_nonce_equal(&kept->nonce, &command->nonce))
            return true;
    }
    return false;
}

/* If the result is known without running the command, from the session or as an
 * error, set `*result` and return true. */
static bool has_result(const struct session *session,
                       const struct hf_command *command,
                       struct hf_result *result)
{
    const struct hf_session_result *kept =
        find_result(session, command->sequence);
    uint64_t done =
        command->done > session->done ? command->done : session->done;

    if (command->sequence == 0 || command->sequence < done ||
        (!kept && command->kind == HF_COMMAND_LOCK &&
         is_overtaken(session, command)))
        result->err = HF_ECANCELED;
    else if (kept)
        *result = kept->result;
    else if (command->sequence - done >= HF_WINDOW_MAX)
        result->err = HF_ELIMIT;
    else
        return false;
    return true;
}

static void keep_result(struct session *session,
                        const struct hf_command *command,
                        const struct hf_result *result)
{
    session->results = resize(session->results, session->kept_count + 1,
                              sizeof(*session->results));
    session->results[session->kept_count++] = (struct hf_session_result){
        .sequence = command->sequence,
        .kind = command->kind,
        .nonce = command->nonce,
        .result = *result,
    };
    if (session->highest < command->sequence)
        session->highest = command->sequence;
}

static void forget_results_below(struct session *session, uint64_t done)
{
    size_t count = 0;

    if (session->done < done)
        session->done = done;
    for (size_t i = 0; i < session->kept_count; i++) {
        if (session->results[i].sequence >= session->done)
            session->results[count++] = session->results[i];
    }
    session->kept_count = count;
}

static void run_command(struct hf_twin *twin, const struct hf_command *command,
                        struct hf_result *result)
{
    if (command->kind == HF_COMMAND_LOCK)
        apply_lock(twin, command, result);
    else if (command->kind == HF_COMMAND_CANCEL)
        apply_cancel(twin, command, result);
    else if (command->kind == HF_COMMAND_FORCE)
        apply_force(twin, command, result);
    else
        apply_to_holder(twin, command, result);
}

static void run_once(struct hf_twin *twin, const struct hf_command *command,
                     struct hf_result *result)
{
    struct session *session = find_session(twin, command->session);

    if (!session || session->ended) {
        result->err = HF_EINDOUBT;
        return;
    }
    if (command->kind == HF_COMMAND_CLOSE) {
        if (session->highest > command->sequence)
            result->err = HF_ENOTOWNER;
        else
            close_session(twin, session);
        return;
    }
    if (!has_result(session, command, result)) {
        run_command(twin, command, result);
        /* Other sessions may have been removed, so `session` may have moved. */
        session = find_session(twin, command->session);
        keep_result(session, command, result);
    }
    forget_results_below(session, command->done);
}

void hf_twin_apply(struct hf_twin *twin, const struct hf_command *command,
                   struct hf_result *result, struct hf_twin_events *events)
{
    twin->events = events;
    *result = (struct hf_result){0};
    if (command->kind == HF_COMMAND_OPEN)
        open_session(twin, command, result);
    else if (command->kind == HF_COMMAND_EXPIRE)
        apply_expire(twin, command, result);
    else if (command->kind == HF_COMMAND_VERSION)
        twin->version =
            command->version > twin->version ? command->version : twin->version;
    else
        run_once(twin, command, result);
}

struct hf_twin *hf_twin_new(void)
{
    struct hf_twin *twin = resize(NULL, 1, sizeof(*twin));

    *twin = (struct hf_twin){.version = HF_VERSION_FIRST};
    return twin;
}

void hf_twin_free(struct hf_twin *twin)
{
    if (!twin)
        return;
    while (twin->claim_count > 0)
        remove_claim(twin, &twin->claims[twin->claim_count - 1]);
    for (size_t i = 0; i < twin->session_count; i++)
        free_session(&twin->sessions[i]);
    free(twin->claims);
    free(twin->sessions);
    free(twin);
}

/* ---- Comparison ---------------------------------------------------------*/

void hf_twin_events_add(struct hf_twin_events *events,
                        const struct hf_table_event *event)
{
    struct hf_twin_event *to = add_event(events);

    *to = (struct hf_twin_event){
        .kind = event->kind,
        .waited = event->waited,
        .ends = event->ends,
        .lease_ms = event->lease_ms,
        .index = event->index,
        .token = event->hold->token,
        .session = event->session->id,
        .key_size = event->hold->key_size,
    };
    if (event->waiter && (*event->waiter)->token == event->hold->token)
        to->granted = (*event->waiter)->nonce;
    hf_copy(to->key, event->hold->key, event->hold->key_size);
}

void hf_twin_events_fini(struct hf_twin_events *events)
{
    free(events->list);
    *events = (struct hf_twin_events){0};
}

static bool results_equal(const struct hf_result *a, const struct hf_result *b)
{
    return a->err == b->err && a->position == b->position &&
           a->generation == b->generation && a->token == b->token &&
           a->session == b->session;
}

const char *hf_twin_compare_results(const struct hf_result *table,
                                    const struct hf_result *twin)
{
    if (results_equal(table, twin))
        return NULL;
    return set_text(
        "result: %s position %u generation %u token %llu session %llu, "
        "expected %s position %u generation %u token %llu session %llu",
        hf_err_name(table->err), table->position, table->generation,
        (unsigned long long)table->token, (unsigned long long)table->session,
        hf_err_name(twin->err), twin->position, twin->generation,
        (unsigned long long)twin->token, (unsigned long long)twin->session);
}

static bool events_equal(const struct hf_twin_event *a,
                         const struct hf_twin_event *b)
{
    return a->kind == b->kind && a->waited == b->waited && a->ends == b->ends &&
           a->lease_ms == b->lease_ms && a->token == b->token &&
           a->session == b->session && a->index == b->index &&
           hf_nonce_equal(&a->granted, &b->granted) &&
           a->key_size == b->key_size && !memcmp(a->key, b->key, a->key_size);
}

const char *hf_twin_compare_events(const struct hf_twin_events *table,
                                   const struct hf_twin_events *twin)
{
    if (table->count != twin->count)
        return set_text("%zu events, expected %zu", table->count, twin->count);
    for (size_t i = 0; i < table->count; i++) {
        const struct hf_twin_event *a = &table->list[i];
        const struct hf_twin_event *b = &twin->list[i];

        if (!events_equal(a, b))
            return set_text("event %zu: kind %d session %llu, "
                            "expected kind %d session %llu",
                            i, (int)a->kind, (unsigned long long)a->session,
                            (int)b->kind, (unsigned long long)b->session);
    }
    return NULL;
}

static bool data_equals(const uint8_t *data, uint32_t value_size,
                        uint8_t note_size, const struct claim *claim)
{
    struct hf_bytes value = {data, value_size};
    struct hf_bytes note = {data ? data + value_size : NULL, note_size};

    if (!data)
        return claim->value.size + claim->note.size == 0;
    return hf_bytes_equal(value, claim->value) &&
           hf_bytes_equal(note, claim->note);
}

static const char *compare_queue(const struct hf_twin *twin,
                                 const struct hf_hold *hold)
{
    struct hf_bytes key = {hold->key, hold->key_size};
    const struct hf_dlist *link = hold->queue.next;
    uint64_t first[2] = {0}; /* the first waiter's arrival, in each table */
    size_t position = 0;

    for (; link != &hold->queue; link = link->next) {
        const struct hf_table_waiter *a =
            HF_CONTAINER(link, struct hf_table_waiter, in_queue);
        const struct claim *b = find_waiter(twin, key, ++position);

        if (b && position == 1) {
            first[0] = a->arrival;
            first[1] = b->arrival;
        }

        if (!b || !hf_nonce_equal(&a->nonce, &b->nonce) ||
            a->session->id != b->session || a->sequence != b->sequence ||
            a->lease_ms != b->lease_ms ||
            a->arrival - first[0] != b->arrival - first[1] ||
            !data_equals(a->data, a->value_size, a->note_size, b))
            return set_text("another waiter at position %zu", position);
    }
    if (count_waiters(twin, key) != position || hold->waiters != position)
        return set_text("%zu waiters, expected %u", position,
                        count_waiters(twin, key));
    return NULL;
}

static const char *compare_hold(const struct hf_twin *twin,
                                const struct hf_hold *a)
{
    struct hf_bytes key = {a->key, a->key_size};
    const struct claim *b = find_holder(twin, key);

    if (!b)
        return set_text("a key is held that should be free");
    if (!hf_nonce_equal(&a->nonce, &b->nonce) || a->session->id != b->session)
        return set_text("a key has another holder");
    if (a->token != b->token || a->generation != b->generation ||
        a->lease_ms != b->lease_ms || a->forced != b->forced)
        return set_text("a hold's token, generation, lease or flags");
    if (!data_equals(a->data, a->value_size, a->note_size, b))
        return set_text("a hold's value or note");
    return compare_queue(twin, a);
}

static const char *compare_session(const struct hf_twin *twin,
                                   const struct session *b,
                                   const struct hf_session *a)
{
    uint64_t window = b->highest < b->done ? 0 : b->highest - b->done + 1;

    if (a->ended != b->ended || a->done != b->done ||
        !hf_nonce_equal(&a->secret, &b->secret) || a->highest != b->highest ||
        a->holds != count_holds(twin, b->id) ||
        a->label_size != b->label.size ||
        memcmp(a->label, b->label.data, b->label.size) != 0)
        return set_text("session %llu", (unsigned long long)b->id);
    for (uint64_t i = 0; i < window; i++) {
        unsigned long long sequence = b->done + i;
        const struct hf_session_result *x = hf_session_find(a, sequence);
        const struct hf_session_result *y = find_result(b, sequence);

        if (!x && !y)
            continue;
        if (!x || !y || x->kind != y->kind ||
            !hf_nonce_equal(&x->nonce, &y->nonce) ||
            !results_equal(&x->result, &y->result))
            return set_text("session %llu: the kept result of %llu",
                            (unsigned long long)b->id, sequence);
    }
    return NULL;
}

const char *hf_twin_compare(const struct hf_twin *twin,
                            const struct hf_table *table)
{
    const struct hf_hold *hold = NULL;
    const char *difference = NULL;
    size_t holders = 0;

    for (size_t i = 0; i < twin->claim_count; i++)
        holders += twin->claims[i].holds;
    if (table->version != twin->version || table->token != twin->token ||
        table->index != twin->index ||
        table->last_session != twin->last_session)
        return set_text("a counter");
    if (table->holds.count != holders ||
        table->waiting.count != twin->claim_count - holders ||
        table->sessions.count != twin->session_count)
        return set_text("%zu holds, %zu waiters, %zu sessions, "
                        "expected %zu, %zu, %zu",
                        table->holds.count, table->waiting.count,
                        table->sessions.count, holders,
                        twin->claim_count - holders, twin->session_count);
    while (!difference && (hold = hf_table_next_hold(table, hold)))
        difference = compare_hold(twin, hold);
    for (size_t i = 0; !difference && i < twin->session_count; i++) {
        const struct session *session = &twin->sessions[i];
        const struct hf_session *other =
            hf_table_find_session(table, session->id);

        difference = other ? compare_session(twin, session, other)
                           : set_text("a session is missing");
    }
    return difference;
}

/* ---- Invariants ---------------------------------------------------------*/

static bool is_in_list(const struct hf_dlist *list, const struct hf_dlist *link)
{
    const struct hf_dlist *at = list->next;

    while (at != list && at != link)
        at = at->next;
    return at == link;
}

static size_t list_length(const struct hf_dlist *list)
{
    size_t count = 0;

    for (const struct hf_dlist *at = list->next; at != list; at = at->next)
        count++;
    return count;
}

static bool data_fits(const uint8_t *data, uint32_t value_size,
                      uint8_t note_size, uint32_t lease_ms)
{
    return value_size <= HF_VALUE_MAX &&
           (data != NULL) == (value_size + note_size > 0) && lease_ms >= 1 &&
           lease_ms <= HF_LEASE_MAX_MS;
}

static const char *check_claim(const struct hf_table *table,
                               const struct hf_table_waiter *claim)
{
    const struct hf_session *session = claim->session;
    const struct hf_session_result *kept =
        hf_session_find(session, claim->sequence);

    if (hf_table_find_session(table, session->id) != session || session->ended)
        return set_text("a waiter's session is not in the table");
    if (!is_in_list(&session->waiting, &claim->in_session))
        return set_text("a waiter is not in the list of its session");
    if (hf_table_find_waiter(table, claim->hold, &claim->nonce) != claim)
        return set_text("two waiters of a key have one nonce");
    if (hf_nonce_equal(&claim->nonce, &claim->hold->nonce))
        return set_text("a holder waits for itself");
    if (hf_table_lookup(table, hf_hold_key(claim->hold), &claim->nonce).state !=
        HF_LOOKUP_QUEUED)
        return set_text("a waiter cannot look itself up");
    if (!data_fits(claim->data, claim->value_size, claim->note_size,
                   claim->lease_ms))
        return set_text("a waiter's value, note or lease");
    if (claim->sequence == 0 || claim->sequence > session->highest)
        return set_text("a waiter's sequence was never seen");
    if (kept && (kept->kind != HF_COMMAND_LOCK ||
                 !hf_nonce_equal(&kept->nonce, &claim->nonce)))
        return set_text("a waiter's kept result is another command's");
    return NULL;
}

static const char *check_queue(const struct hf_table *table,
                               const struct hf_hold *hold)
{
    const char *violation = NULL;
    uint64_t arrival = 0;

    if (hold->waiters != list_length(&hold->queue) ||
        hold->waiters > HF_WAITERS_MAX)
        return set_text("%u waiters", hold->waiters);
    for (const struct hf_dlist *link = hold->queue.next;
         !violation && link != &hold->queue; link = link->next) {
        const struct hf_table_waiter *claim =
            HF_CONTAINER(link, struct hf_table_waiter, in_queue);

        if (claim->hold != hold || claim->arrival <= arrival)
            return set_text("a queue is out of order");
        arrival = claim->arrival;
        violation = check_claim(table, claim);
    }
    return violation;
}

static const char *check_hold(const struct hf_table *table,
                              const struct hf_hold *hold)
{
    if (hold->key_size < 1 || hold->key_size > HF_KEY_MAX ||
        hf_table_find(table, hf_hold_key(hold)) != hold)
        return set_text("a key is in the table twice");
    if (hf_table_find_session(table, hold->session->id) != hold->session)
        return set_text("a holder's session is not in the table");
    if (hf_table_lookup(table, hf_hold_key(hold), &hold->nonce).token !=
        hold->token)
        return set_text("a holder cannot look itself up");
    if (hold->token < 1 || hold->token > table->token)
        return set_text("a token that was never granted");
    if (!data_fits(hold->data, hold->value_size, hold->note_size,
                   hold->lease_ms))
        return set_text("a hold's value, note or lease");
    return check_queue(table, hold);
}

static const char *check_session(const struct hf_table *table,
                                 const struct hf_session *session)
{
    if (session->id < 1 || session->id > table->last_session)
        return set_text("a session that was never opened");
    if (!session->ended &&
        hf_table_find_secret(table, &session->secret) != session)
        return set_text("two sessions have one secret");
    if (session->ended && (session->holds == 0 || session->capacity > 0 ||
                           !hf_dlist_is_empty(&session->waiting)))
        return set_text("an ended session");
    if (session->highest >= session->done &&
        session->highest - session->done >= HF_WINDOW_MAX)
        return set_text("a session's window");
    for (uint32_t i = 0; i < session->capacity; i++) {
        const struct hf_session_result *kept = &session->results[i];

        if (kept->sequence == 0)
            continue;
        if (kept->sequence > session->highest ||
            !hf_command_is_kept(kept->kind))
            return set_text("a kept result");
    }
    return NULL;
}

static const char *check_order(const struct hf_table *table)
{
    const struct hf_session *session = NULL;
    const struct hf_hold *hold = NULL;
    uint64_t last = 0;

    for (; (hold = hf_table_next_hold(table, hold)); last = hold->token) {
        if (hold->token <= last)
            return set_text("tokens do not rise from hold to hold");
    }
    last = 0;
    for (; (session = hf_table_next_session(table, session));
         last = session->id) {
        if (session->id <= last)
            return set_text("ids do not rise from session to session");
    }
    return NULL;
}

static const char *check_waiting(const struct hf_session *session)
{
    uint64_t last = 0;

    for (const struct hf_dlist *link = session->waiting.next;
         link != &session->waiting; link = link->next) {
        const struct hf_table_waiter *claim =
            HF_CONTAINER(link, const struct hf_table_waiter, in_session);

        if (claim->sequence <= last)
            return set_text("sequences do not rise from waiter to waiter");
        last = claim->sequence;
    }
    return NULL;
}

/* Sums over all holds, and again over all sessions. Both must be the same,
 * except that only the second has `sessions`. */
struct sums {
    size_t holds;
    size_t waiting;
    size_t sessions;
};

static const char *check_sums(const struct hf_table *table, struct sums a,
                              struct sums b)
{
    if (a.holds != b.holds || a.waiting != b.waiting)
        return set_text("holds and sessions do not add up");
    if (a.holds != table->holds.count || a.waiting != table->waiting.count ||
        b.sessions != table->sessions.count)
        return set_text("a map's count");
    if (a.holds > HF_HOLDS_MAX || b.sessions > HF_SESSIONS_MAX)
        return set_text("a limit");
    return NULL;
}

static size_t queue_bytes(const struct hf_hold *hold)
{
    size_t bytes = 0;

    for (const struct hf_dlist *link = hold->queue.next; link != &hold->queue;
         link = link->next) {
        const struct hf_table_waiter *claim =
            HF_CONTAINER(link, const struct hf_table_waiter, in_queue);

        bytes += sizeof(*claim) + claim->value_size + claim->note_size;
    }
    return bytes;
}

static const char *check_bytes(const struct hf_table *table)
{
    const struct hf_session *session = NULL;
    const struct hf_hold *hold = NULL;
    size_t bytes = 0;

    while ((hold = hf_table_next_hold(table, hold)))
        bytes += sizeof(*hold) + hold->key_size + hold->value_size +
                 hold->note_size + queue_bytes(hold);
    while ((session = hf_table_next_session(table, session)))
        bytes += sizeof(*session) + session->label_size +
                 session->capacity * sizeof(*session->results);
    return bytes == hf_table_bytes(table) ? NULL : set_text("the bytes");
}

const char *hf_table_check(const struct hf_table *table)
{
    const struct hf_hold *hold = NULL;
    const struct hf_session *session = NULL;
    struct sums of_holds = {0};
    struct sums of_sessions = {0};
    const char *violation = NULL;

    while (!violation && (hold = hf_table_next_hold(table, hold))) {
        violation = check_hold(table, hold);
        of_holds.holds++;
        of_holds.waiting += hold->waiters;
    }
    while (!violation && (session = hf_table_next_session(table, session))) {
        violation = check_session(table, session);
        if (!violation)
            violation = check_waiting(session);
        of_sessions.holds += session->holds;
        of_sessions.waiting += list_length(&session->waiting);
        of_sessions.sessions++;
    }
    if (!violation)
        violation = check_sums(table, of_holds, of_sessions);
    if (!violation)
        violation = check_bytes(table);
    return violation ? violation : check_order(table);
}
