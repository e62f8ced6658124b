#include "core/table_links.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"

static void emit_event(struct hf_table *table, struct hf_table_event *event)
{
    event->index = ++table->index;
    table->event(table->arg, event);
}

static void emit_hold_event(struct hf_table *table, enum hf_event_kind kind,
                            struct hf_hold *hold,
                            const struct hf_session *session)
{
    struct hf_table_event event = {
        .kind = kind,
        .lease_ms = kind == HF_EVENT_GRANTED ? hold->lease_ms : 0,
        .hold = hold,
        .session = session,
    };

    emit_event(table, &event);
}

/* ---- Ending claims and grants -------------------------------------------*/

static void withdraw_waiter(struct hf_table *table,
                            struct hf_table_waiter *waiter)
{
    hf_table_remove_waiter(table, waiter);
    emit_hold_event(table, HF_EVENT_WITHDRAWN, waiter->hold, waiter->session);
    hf_table_waiter_free(waiter);
}

static void drop_holder(struct hf_table *table, struct hf_hold *hold)
{
    struct hf_session *session = hold->session;

    hold->session = NULL;
    session->holds--;
    hf_table_drop_session(table, session);
}

/* Report the grant and pass the waiter to the driver, if the driver takes
 * it. */
static void emit_waiter_granted(struct hf_table *table, struct hf_hold *hold,
                                struct hf_table_waiter *waiter)
{
    struct hf_table_event event = {
        .kind = HF_EVENT_GRANTED,
        .waited = true,
        .lease_ms = hold->lease_ms,
        .hold = hold,
        .session = hold->session,
        .waiter = &waiter,
    };

    emit_event(table, &event);
    hf_table_waiter_free(waiter);
}

static void grant_first_waiter(struct hf_table *table, struct hf_hold *hold)
{
    struct hf_table_waiter *waiter =
        HF_CONTAINER(hold->queue.next, struct hf_table_waiter, in_queue);
    struct hf_session_result *kept;

    hf_table_remove_waiter(table, waiter);
    hold->session = waiter->session;
    hold->session->holds++;
    hold->nonce = waiter->nonce;
    hf_table_assign_token(table, hold);
    hold->generation = 0;
    hold->lease_ms = waiter->lease_ms;
    hold->forced = false;
    hf_table_set_hold_data(table, hold, waiter->data, waiter->value_size,
                           waiter->note_size);
    waiter->data = NULL;
    kept = hf_session_find(waiter->session, waiter->sequence);
    if (kept)
        kept->result = (struct hf_result){.token = hold->token};
    waiter->token = hold->token;
    emit_waiter_granted(table, hold, waiter);
}

/* End the grant, reporting it as `kind`, and grant the key to the first waiter,
 * or remove the hold if there is no waiter. */
static void end_grant(struct hf_table *table, struct hf_hold *hold,
                      enum hf_event_kind kind)
{
    struct hf_table_event event = {
        .kind = kind,
        .ends = true,
        .freed = hf_dlist_is_empty(&hold->queue),
        .hold = hold,
        .session = hold->session,
    };

    emit_event(table, &event);
    drop_holder(table, hold);
    if (hf_dlist_is_empty(&hold->queue))
        hf_table_remove_hold(table, hold);
    else
        grant_first_waiter(table, hold);
}

/* ---- Commands -----------------------------------------------------------*/

static enum hf_err open_session(struct hf_table *table,
                                const struct hf_command *command,
                                struct hf_result *result)
{
    struct hf_session *session = hf_table_find_secret(table, &command->nonce);

    if (session) { /* the answer to an earlier copy was lost */
        result->session = session->id;
        return HF_OK;
    }
    if (table->sessions.count >= HF_SESSIONS_MAX) {
        result->err = HF_ELIMIT;
        return HF_OK;
    }
    session =
        hf_session_new(table->last_session + 1, &command->nonce, command->note);
    if (!session)
        return HF_ENOMEM;
    hf_table_add_session(table, session);
    result->session = ++table->last_session;
    return HF_OK;
}

/* Close the session. The driver closes the sessions of clients that it has not
 * heard from for some time; if a command has arrived in the meantime, the
 * client is alive, and the CLOSE is void. */
static void close_session(struct hf_table *table, struct hf_session *session,
                          const struct hf_command *command,
                          struct hf_result *result)
{
    struct hf_dlist *link;

    if (session->highest > command->sequence) {
        result->err = HF_ENOTOWNER;
        return;
    }
    while ((link = hf_dlist_take(&session->waiting)))
        withdraw_waiter(table,
                        HF_CONTAINER(link, struct hf_table_waiter, in_session));
    hf_table_end_session(table, session);
}

static bool is_owner(const struct hf_hold *hold,
                     const struct hf_command *command)
{
    return hold->token == command->token &&
           hf_nonce_equal(&hold->nonce, &command->nonce);
}

static enum hf_err grant_free_key(struct hf_table *table,
                                  struct hf_session *session,
                                  const struct hf_command *command,
                                  uint64_t hash, struct hf_result *result)
{
    struct hf_hold *hold;
    uint8_t *data;

    if (table->holds.count >= HF_HOLDS_MAX) {
        result->err = HF_ELIMIT;
        return HF_OK;
    }
    if (hf_table_pack_data(command->value, command->note, &data))
        return HF_ENOMEM;
    hold = hf_table_add_hashed(table, command->key, hash, session);
    if (!hold) {
        free(data);
        return HF_ENOMEM;
    }
    hold->nonce = command->nonce;
    hf_table_assign_token(table, hold);
    hold->lease_ms = command->lease_ms;
    hf_table_set_hold_data(table, hold, data, command->value.size,
                           command->note.size);
    result->token = hold->token;
    emit_hold_event(table, HF_EVENT_GRANTED, hold, session);
    return HF_OK;
}

static enum hf_err enqueue_waiter(struct hf_table *table, struct hf_hold *hold,
                                  struct hf_session *session,
                                  const struct hf_command *command,
                                  struct hf_result *result)
{
    struct hf_table_waiter *waiter;
    uint8_t *data;

    if (hold->waiters >= HF_WAITERS_MAX ||
        session->waiters >= HF_SESSION_WAITERS_MAX) {
        result->err = HF_ELIMIT;
        return HF_OK;
    }
    if (hf_table_pack_data(command->value, command->note, &data))
        return HF_ENOMEM;
    waiter = hf_table_add_waiter(table, hold, session, &command->nonce,
                                 command->sequence);
    if (!waiter) {
        free(data);
        return HF_ENOMEM;
    }
    waiter->lease_ms = command->lease_ms;
    hf_table_set_waiter_data(table, waiter, data, command->value.size,
                             command->note.size);
    result->position = hold->waiters;
    emit_hold_event(table, HF_EVENT_QUEUED, hold, session);
    return HF_OK;
}

static enum hf_err apply_lock(struct hf_table *table,
                              struct hf_session *session,
                              const struct hf_command *command,
                              struct hf_result *result)
{
    uint64_t hash = hf_table_hash_key(table, command->key);
    struct hf_hold *hold = hf_table_find_hashed(table, command->key, hash);
    struct hf_table_waiter *waiter;

    if (!hold)
        return grant_free_key(table, session, command, hash, result);
    if (hf_nonce_equal(&hold->nonce, &command->nonce)) {
        result->token = hold->token;
        result->generation = hold->generation;
        return HF_OK;
    }
    result->err = HF_EBUSY;
    waiter = hf_table_find_waiter(table, hold, &command->nonce);
    if (waiter) {
        /* This is a repeated LOCK, perhaps from a new session of the same
         * client. The session that sent the last LOCK is notified of the grant,
         * which overwrites the result kept for that LOCK, so link the waiter to
         * that session. */
        hf_table_waiter_set_session(waiter, session, command->sequence);
        result->position = hf_table_waiter_position(waiter);
        return HF_OK;
    }
    if (!command->queue)
        return HF_OK;
    return enqueue_waiter(table, hold, session, command, result);
}

static enum hf_err apply_update(struct hf_table *table, struct hf_hold *hold,
                                const struct hf_command *command,
                                struct hf_result *result)
{
    uint8_t *data;

    if (command->has_expected &&
        !hf_bytes_equal(hf_hold_value(hold), command->expected)) {
        result->err = HF_EMISMATCH;
        return HF_OK;
    }
    if (hf_table_pack_data(command->value, hf_hold_note(hold), &data))
        return HF_ENOMEM;
    hf_table_set_hold_data(table, hold, data, command->value.size,
                           hold->note_size);
    emit_hold_event(table, HF_EVENT_UPDATED, hold, hold->session);
    return HF_OK;
}

static void apply_renew(struct hf_table *table, struct hf_hold *hold,
                        const struct hf_command *command,
                        struct hf_result *result)
{
    struct hf_table_event event = {
        .kind = HF_EVENT_RENEWED,
        .lease_ms = command->lease_ms,
    };

    if (hold->forced) {
        result->err = HF_EFORCED;
        return;
    }
    hold->generation++;
    if (command->lease_ms > hold->lease_ms)
        hold->lease_ms = command->lease_ms;
    result->generation = hold->generation;
    event.hold = hold;
    event.session = hold->session;
    emit_event(table, &event);
}

/* Apply UNLOCK, RENEW or UPDATE, which only the holder may send. */
static enum hf_err apply_owner_command(struct hf_table *table,
                                       const struct hf_command *command,
                                       struct hf_result *result)
{
    struct hf_hold *hold = hf_table_find(table, command->key);

    if (!hold) {
        result->err = HF_ENOTHELD;
        return HF_OK;
    }
    if (!is_owner(hold, command)) {
        result->err = HF_ENOTOWNER;
        return HF_OK;
    }
    if (command->kind == HF_COMMAND_UPDATE)
        return apply_update(table, hold, command, result);
    if (command->kind == HF_COMMAND_RENEW)
        apply_renew(table, hold, command, result);
    else
        end_grant(table, hold, HF_EVENT_RELEASED);
    return HF_OK;
}

static void apply_cancel(struct hf_table *table,
                         const struct hf_command *command,
                         struct hf_result *result)
{
    struct hf_hold *hold = hf_table_find(table, command->key);
    struct hf_table_waiter *waiter =
        hold ? hf_table_find_waiter(table, hold, &command->nonce) : NULL;

    if (waiter) {
        withdraw_waiter(table, waiter);
    } else if (hold && hf_nonce_equal(&hold->nonce, &command->nonce)) {
        result->token = hold->token;
        end_grant(table, hold, HF_EVENT_RELEASED);
    } else {
        result->err = HF_ENOTHELD;
    }
}

static void apply_expire(struct hf_table *table,
                         const struct hf_command *command,
                         struct hf_result *result)
{
    struct hf_hold *hold = hf_table_find(table, command->key);

    if (!hold)
        result->err = HF_ENOTHELD;
    else if (hold->token != command->token ||
             hold->generation != command->generation)
        result->err = HF_ENOTOWNER;
    else
        end_grant(table, hold, HF_EVENT_EXPIRED);
}

static void apply_force(struct hf_table *table,
                        const struct hf_command *command,
                        struct hf_result *result)
{
    struct hf_hold *hold = hf_table_find(table, command->key);

    if (!hold) {
        result->err = HF_ENOTHELD;
    } else if (hold->token != command->token) {
        result->err = HF_ENOTOWNER;
    } else if (command->now) {
        end_grant(table, hold, HF_EVENT_FORCED);
    } else if (!hold->forced) {
        hold->forced = true;
        emit_hold_event(table, HF_EVENT_FORCED, hold, hold->session);
    }
}

static void apply_version(struct hf_table *table,
                          const struct hf_command *command)
{
    if (command->version > table->version)
        table->version = command->version;
}

static enum hf_err apply_session_command(struct hf_table *table,
                                         struct hf_session *session,
                                         const struct hf_command *command,
                                         struct hf_result *result)
{
    switch (command->kind) {
    case HF_COMMAND_LOCK:
        return apply_lock(table, session, command, result);
    case HF_COMMAND_CANCEL:
        apply_cancel(table, command, result);
        return HF_OK;
    case HF_COMMAND_FORCE:
        apply_force(table, command, result);
        return HF_OK;
    default:
        return apply_owner_command(table, command, result);
    }
}

/* Apply a command, unless the session knows its result or refuses it. */
static enum hf_err apply_admitted(struct hf_table *table,
                                  struct hf_session *session,
                                  const struct hf_command *command,
                                  struct hf_result *result)
{
    enum hf_admission admission = hf_session_admit(session, command, result);
    enum hf_err err;

    if (admission != HF_ADMISSION_NEW)
        return admission == HF_ADMISSION_NO_MEMORY ? HF_ENOMEM : HF_OK;
    err = apply_session_command(table, session, command, result);
    if (!err)
        hf_session_keep(session, command, result);
    return err;
}

/* Apply a session's command once, no matter how many copies arrive. */
static enum hf_err apply_once(struct hf_table *table,
                              const struct hf_command *command,
                              struct hf_result *result)
{
    struct hf_session *session = hf_table_find_session(table, command->session);
    uint32_t capacity;
    enum hf_err err;

    if (!session || session->ended) {
        result->err = HF_EINDOUBT;
        return HF_OK;
    }
    if (command->kind == HF_COMMAND_CLOSE) {
        close_session(table, session, command, result);
        return HF_OK;
    }
    capacity = session->capacity;
    err = apply_admitted(table, session, command, result);
    hf_table_results_resized(table, session, capacity);
    return err;
}

enum hf_err hf_table_apply(struct hf_table *table,
                           const struct hf_command *command,
                           struct hf_result *result)
{
    struct hf_result answer = {0};
    enum hf_err err = HF_OK;

    HF_ASSERT(hf_command_is_valid(command));
    if (command->kind == HF_COMMAND_OPEN)
        err = open_session(table, command, &answer);
    else if (command->kind == HF_COMMAND_EXPIRE)
        apply_expire(table, command, &answer);
    else if (command->kind == HF_COMMAND_VERSION)
        apply_version(table, command);
    else
        err = apply_once(table, command, &answer);
    if (!err)
        *result = answer;
    return err;
}
