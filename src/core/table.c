#include "core/entries.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"

static void send(struct hf_table *table, struct hf_table_event *event)
{
    event->index = ++table->index;
    table->event(table->arg, event);
}

static void tell(struct hf_table *table, enum hf_event_kind kind,
                 struct hf_hold *hold, const struct hf_session *session)
{
    struct hf_table_event event = {
        .kind = kind,
        .waited = kind == HF_EVENT_GRANTED && hold->untold,
        .lease_ms = kind == HF_EVENT_GRANTED ? hold->lease_ms : 0,
        .hold = hold,
        .session = session,
    };

    send(table, &event);
}

/* ---- How claims and grants end ------------------------------------------*/

static void withdraw(struct hf_table *table, struct hf_claim *claim)
{
    hf_table_leave_line(table, claim);
    tell(table, HF_EVENT_WITHDRAWN, claim->hold, claim->session);
    hf_claim_free(claim);
}

static void let_go(struct hf_table *table, struct hf_hold *hold)
{
    struct hf_session *session = hold->session;

    hf_hold_forget_untold(hold);
    hold->session = NULL;
    session->holds--;
    hf_table_drop_session(table, session);
}

static void grant_first(struct hf_table *table, struct hf_hold *hold)
{
    struct hf_claim *claim =
        HF_CONTAINER(hold->line.next, struct hf_claim, in_line);
    struct hf_kept *kept;

    hf_table_grant_untold(table, hold, claim);
    hold->session = claim->session;
    hold->session->holds++;
    hold->nonce = claim->nonce;
    hf_table_give_token(table, hold);
    hold->generation = 0;
    hold->lease_ms = claim->lease_ms;
    hold->forced = false;
    free(hold->data);
    hold->data = claim->data;
    hold->value_size = claim->value_size;
    hold->note_size = claim->note_size;
    claim->data = NULL;
    kept = hf_session_find(claim->session, claim->sequence);
    if (kept)
        kept->result = (struct hf_result){.token = hold->token};
    tell(table, HF_EVENT_GRANTED, hold, hold->session);
}

/* End the grant, for the reason that `kind` names, and pass the key on. */
static void end(struct hf_table *table, struct hf_hold *hold,
                enum hf_event_kind kind)
{
    struct hf_table_event event = {
        .kind = kind,
        .ends = true,
        .freed = hf_list_empty(&hold->line),
        .hold = hold,
        .session = hold->session,
    };

    send(table, &event);
    let_go(table, hold);
    if (hf_list_empty(&hold->line))
        hf_table_remove_hold(table, hold);
    else
        grant_first(table, hold);
}

/* ---- Commands -----------------------------------------------------------*/

static enum hf_err open_session(struct hf_table *table,
                                const struct hf_command *command,
                                struct hf_result *result)
{
    struct hf_session *session;

    if (table->sessions.count >= HF_SESSIONS_MAX) {
        result->err = HF_ELIMIT;
        return HF_OK;
    }
    session = hf_session_new(table->last_session + 1, command->note);
    if (!session)
        return HF_ENOMEM;
    hf_table_add_session(table, session);
    result->session = ++table->last_session;
    return HF_OK;
}

static void close_session(struct hf_table *table, struct hf_session *session)
{
    struct hf_list *link;

    while ((link = hf_list_take(&session->waiting)))
        withdraw(table, HF_CONTAINER(link, struct hf_claim, of_session));
    while ((link = hf_list_first(&session->granted)))
        hf_hold_forget_untold(
            HF_CONTAINER(link, struct hf_claim, of_session)->hold);
    session->ended = true;
    hf_table_drop_session(table, session);
}

static bool owns(const struct hf_hold *hold, const struct hf_command *command)
{
    return hold->token == command->token &&
           hf_nonce_equal(&hold->nonce, &command->nonce);
}

static enum hf_err grant_new(struct hf_table *table, struct hf_session *session,
                             const struct hf_command *command, uint64_t hash,
                             struct hf_result *result)
{
    struct hf_hold *hold;
    uint8_t *data;

    if (table->holds.count >= HF_HOLDS_MAX) {
        result->err = HF_ELIMIT;
        return HF_OK;
    }
    if (hf_table_data(command->value, command->note, &data))
        return HF_ENOMEM;
    hold = hf_table_add_hashed(table, command->key, hash, session);
    if (!hold) {
        free(data);
        return HF_ENOMEM;
    }
    hold->nonce = command->nonce;
    hf_table_give_token(table, hold);
    hold->lease_ms = command->lease_ms;
    hold->data = data;
    hold->value_size = (uint32_t)command->value.size;
    hold->note_size = (uint8_t)command->note.size;
    result->token = hold->token;
    tell(table, HF_EVENT_GRANTED, hold, session);
    return HF_OK;
}

static enum hf_err join_line(struct hf_table *table, struct hf_hold *hold,
                             struct hf_session *session,
                             const struct hf_command *command,
                             struct hf_result *result)
{
    struct hf_claim *claim;
    uint8_t *data;

    if (hold->waiters >= HF_WAITERS_MAX) {
        result->err = HF_ELIMIT;
        return HF_OK;
    }
    if (hf_table_data(command->value, command->note, &data))
        return HF_ENOMEM;
    claim = hf_table_add_claim(table, hold, session, &command->nonce,
                               command->sequence);
    if (!claim) {
        free(data);
        return HF_ENOMEM;
    }
    claim->lease_ms = command->lease_ms;
    claim->data = data;
    claim->value_size = (uint32_t)command->value.size;
    claim->note_size = (uint8_t)command->note.size;
    result->place = hold->waiters;
    tell(table, HF_EVENT_QUEUED, hold, session);
    return HF_OK;
}

static enum hf_err lock(struct hf_table *table, struct hf_session *session,
                        const struct hf_command *command,
                        struct hf_result *result)
{
    uint64_t hash = hf_table_hash(table, command->key);
    struct hf_hold *hold = hf_table_find_hashed(table, command->key, hash);
    struct hf_claim *claim;

    if (!hold)
        return grant_new(table, session, command, hash, result);
    if (hf_nonce_equal(&hold->nonce, &command->nonce)) {
        hf_hold_forget_untold(hold);
        result->token = hold->token;
        result->generation = hold->generation;
        return HF_OK;
    }
    result->err = HF_EBUSY;
    claim = hf_table_find_claim(table, hold, &command->nonce);
    if (claim) {
        /* Asked again, perhaps from a new session of the same client: the last
         * to ask is notified, and the grant overwrites its kept result. */
        hf_claim_join_session(claim, session, command->sequence);
        result->place = hf_claim_place(claim);
        return HF_OK;
    }
    if (!command->queue)
        return HF_OK;
    return join_line(table, hold, session, command, result);
}

static enum hf_err update(struct hf_table *table, struct hf_hold *hold,
                          const struct hf_command *command,
                          struct hf_result *result)
{
    uint8_t *data;

    if (command->has_expected &&
        !hf_bytes_equal(hf_hold_value(hold), command->expected)) {
        result->err = HF_EMISMATCH;
        return HF_OK;
    }
    if (hf_table_data(command->value, hf_hold_note(hold), &data))
        return HF_ENOMEM;
    free(hold->data);
    hold->data = data;
    hold->value_size = (uint32_t)command->value.size;
    tell(table, HF_EVENT_UPDATED, hold, hold->session);
    return HF_OK;
}

static void renew(struct hf_table *table, struct hf_hold *hold,
                  const struct hf_command *command, struct hf_result *result)
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
    send(table, &event);
}

/* UNLOCK, RENEW and UPDATE: only the holder. */
static enum hf_err owned(struct hf_table *table,
                         const struct hf_command *command,
                         struct hf_result *result)
{
    struct hf_hold *hold = hf_table_find(table, command->key);

    if (!hold) {
        result->err = HF_ENOTHELD;
        return HF_OK;
    }
    if (!owns(hold, command)) {
        result->err = HF_ENOTOWNER;
        return HF_OK;
    }
    if (command->kind == HF_COMMAND_UPDATE)
        return update(table, hold, command, result);
    if (command->kind == HF_COMMAND_RENEW)
        renew(table, hold, command, result);
    else
        end(table, hold, HF_EVENT_RELEASED);
    return HF_OK;
}

static void cancel(struct hf_table *table, const struct hf_command *command,
                   struct hf_result *result)
{
    struct hf_hold *hold = hf_table_find(table, command->key);
    struct hf_claim *claim =
        hold ? hf_table_find_claim(table, hold, &command->nonce) : NULL;

    if (claim) {
        withdraw(table, claim);
    } else if (hold && hf_nonce_equal(&hold->nonce, &command->nonce)) {
        result->token = hold->token;
        end(table, hold, HF_EVENT_RELEASED);
    } else {
        result->err = HF_ENOTHELD;
    }
}

static void expire(struct hf_table *table, const struct hf_command *command,
                   struct hf_result *result)
{
    struct hf_hold *hold = hf_table_find(table, command->key);

    if (!hold)
        result->err = HF_ENOTHELD;
    else if (hold->token != command->token ||
             hold->generation != command->generation)
        result->err = HF_ENOTOWNER;
    else
        end(table, hold, HF_EVENT_EXPIRED);
}

static void force(struct hf_table *table, const struct hf_command *command,
                  struct hf_result *result)
{
    struct hf_hold *hold = hf_table_find(table, command->key);

    if (!hold) {
        result->err = HF_ENOTHELD;
    } else if (hold->token != command->token) {
        result->err = HF_ENOTOWNER;
    } else if (command->now) {
        end(table, hold, HF_EVENT_FORCED);
    } else if (!hold->forced) {
        hold->forced = true;
        tell(table, HF_EVENT_FORCED, hold, hold->session);
    }
}

static enum hf_err run(struct hf_table *table, struct hf_session *session,
                       const struct hf_command *command,
                       struct hf_result *result)
{
    switch (command->kind) {
    case HF_COMMAND_LOCK:
        return lock(table, session, command, result);
    case HF_COMMAND_CANCEL:
        cancel(table, command, result);
        return HF_OK;
    case HF_COMMAND_FORCE:
        force(table, command, result);
        return HF_OK;
    default:
        return owned(table, command, result);
    }
}

/* A command of a session: once, however often it comes. */
static enum hf_err run_once(struct hf_table *table,
                            const struct hf_command *command,
                            struct hf_result *result)
{
    struct hf_session *session = hf_table_session(table, command->session);
    enum hf_err err;

    if (!session || session->ended) {
        result->err = HF_EINDOUBT;
        return HF_OK;
    }
    if (command->kind == HF_COMMAND_CLOSE) {
        close_session(table, session);
        return HF_OK;
    }
    err = hf_session_admit(session, command, result);
    if (err)
        return err == HF_ENOMEM ? err : HF_OK;
    err = run(table, session, command, result);
    if (!err)
        hf_session_keep(session, command, result);
    return err;
}

enum hf_err hf_table_apply(struct hf_table *table,
                           const struct hf_command *command,
                           struct hf_result *result)
{
    struct hf_result answer = {0};
    enum hf_err err = HF_OK;

    HF_ASSERT(hf_command_valid(command));
    if (command->kind == HF_COMMAND_OPEN)
        err = open_session(table, command, &answer);
    else if (command->kind == HF_COMMAND_EXPIRE)
        expire(table, command, &answer);
    else
        err = run_once(table, command, &answer);
    if (!err)
        *result = answer;
    return err;
}

bool hf_table_take_grant(struct hf_table *table, struct hf_session *session,
                         struct hf_grant *grant)
{
    struct hf_list *link = hf_list_first(&session->granted);
    struct hf_hold *hold;

    (void)table;
    if (!link)
        return false;
    hold = HF_CONTAINER(link, struct hf_claim, of_session)->hold;
    *grant = (struct hf_grant){
        .hold = hold,
        .nonce = hold->nonce,
        .token = hold->token,
        .generation = hold->generation,
    };
    hf_hold_forget_untold(hold);
    return true;
}
