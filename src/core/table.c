#include "core/table.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"

void hf_table_init(struct hf_table *table, const struct hf_seed *seed,
                   hf_table_event_fn *event, void *arg)
{
    *table = (struct hf_table){.seed = *seed, .event = event, .arg = arg};
    hf_map_init(&table->holds);
    hf_map_init(&table->sessions);
    hf_map_init(&table->waiting);
}

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

enum hf_err hf_table_data(struct hf_bytes value, struct hf_bytes note,
                          uint8_t **data)
{
    uint8_t *block = NULL;

    if (value.size + note.size > 0) {
        block = malloc(value.size + note.size);
        if (!block)
            return HF_ENOMEM;
        hf_copy(block, value.data, value.size);
        hf_copy(block + value.size, note.data, note.size);
    }
    *data = block;
    return HF_OK;
}

/* ---- Finding ------------------------------------------------------------*/

static uint64_t hash_key(const struct hf_table *table, struct hf_key key)
{
    return hf_siphash(&table->seed, key.data, key.size);
}

static uint64_t hash_nonce(const struct hf_table *table,
                           const struct hf_nonce *nonce)
{
    return hf_siphash(&table->seed, nonce->bytes, sizeof(nonce->bytes));
}

static struct hf_hold *find_hashed(const struct hf_table *table,
                                   struct hf_key key, uint64_t hash)
{
    struct hf_map_link *link = hf_map_find(&table->holds, hash);

    for (; link; link = hf_map_find_next(link)) {
        struct hf_hold *hold = HF_CONTAINER(link, struct hf_hold, link);

        if (hf_key_equal(hf_hold_key(hold), key))
            return hold;
    }
    return NULL;
}

struct hf_hold *hf_table_find(const struct hf_table *table, struct hf_key key)
{
    return find_hashed(table, key, hash_key(table, key));
}

struct hf_hold *hf_table_next(const struct hf_table *table,
                              const struct hf_hold *hold)
{
    struct hf_map_link *link =
        hf_map_next(&table->holds, hold ? &hold->link : NULL);

    return link ? HF_CONTAINER(link, struct hf_hold, link) : NULL;
}

struct hf_session *hf_table_session(const struct hf_table *table, uint64_t id)
{
    struct hf_map_link *link = hf_map_find(&table->sessions, id);

    return link ? HF_CONTAINER(link, struct hf_session, link) : NULL;
}

struct hf_claim *hf_table_find_claim(const struct hf_table *table,
                                     const struct hf_hold *hold,
                                     const struct hf_nonce *nonce)
{
    struct hf_map_link *link = NULL;

    if (!hf_list_empty(&hold->line))
        link = hf_map_find(&table->waiting, hash_nonce(table, nonce));
    for (; link; link = hf_map_find_next(link)) {
        struct hf_claim *claim = HF_CONTAINER(link, struct hf_claim, by_nonce);

        if (claim->hold == hold && hf_nonce_equal(&claim->nonce, nonce))
            return claim;
    }
    return NULL;
}

/* ---- Sessions -----------------------------------------------------------*/

void hf_table_add_session(struct hf_table *table, struct hf_session *session)
{
    /* Ids are numbers that the table gives out: they are their own hash. */
    hf_map_insert(&table->sessions, &session->link, session->id);
}

/* An ended session stays as long as it holds keys, for its label. */
static void drop_session(struct hf_table *table, struct hf_session *session)
{
    if (!session->ended || session->holds > 0)
        return;
    hf_map_remove(&table->sessions, &session->link);
    hf_session_free(session);
}

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

/* ---- Claims that wait ---------------------------------------------------*/

struct hf_claim *hf_table_add_claim(struct hf_table *table,
                                    struct hf_hold *hold,
                                    struct hf_session *session,
                                    const struct hf_nonce *nonce)
{
    struct hf_claim *claim = calloc(1, sizeof(*claim));
    struct hf_list *last = hold->line.prev;

    if (!claim)
        return NULL;
    claim->hold = hold;
    claim->session = session;
    claim->nonce = *nonce;
    claim->arrival = 1;
    if (!hf_list_empty(&hold->line))
        claim->arrival += HF_CONTAINER(last, struct hf_claim, in_line)->arrival;
    hf_list_push_back(&hold->line, &claim->in_line);
    hf_list_push_back(&session->waiting, &claim->of_session);
    hf_map_insert(&table->waiting, &claim->by_nonce, hash_nonce(table, nonce));
    hold->waiters++;
    return claim;
}

uint32_t hf_claim_place(const struct hf_claim *claim)
{
    const struct hf_list *first = claim->hold->line.next;
    uint64_t ahead =
        claim->arrival - HF_CONTAINER(first, struct hf_claim, in_line)->arrival;

    /* Those who left the line are still counted: never too small. */
    if (ahead >= claim->hold->waiters)
        ahead = claim->hold->waiters - 1;
    return (uint32_t)ahead + 1;
}

static void leave_line(struct hf_table *table, struct hf_claim *claim)
{
    hf_map_remove(&table->waiting, &claim->by_nonce);
    hf_list_remove(&claim->in_line);
    hf_list_remove(&claim->of_session);
    claim->hold->waiters--;
}

static void free_claim(struct hf_claim *claim)
{
    free(claim->data);
    free(claim);
}

static void withdraw(struct hf_table *table, struct hf_claim *claim)
{
    leave_line(table, claim);
    tell(table, HF_EVENT_WITHDRAWN, claim->hold, claim->session);
    free_claim(claim);
}

/* The grant is known, or has ended: there is nothing to tell any more. */
static void forget_untold(struct hf_hold *hold)
{
    if (!hold->untold)
        return;
    hf_list_remove(&hold->untold->of_session);
    free_claim(hold->untold);
    hold->untold = NULL;
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
    forget_untold(hold);
    return true;
}

/* ---- Holding ------------------------------------------------------------*/

static struct hf_hold *add_hashed(struct hf_table *table, struct hf_key key,
                                  uint64_t hash, struct hf_session *session)
{
    struct hf_hold *hold = malloc(sizeof(*hold) + key.size);

    if (!hold)
        return NULL;
    *hold =
        (struct hf_hold){.session = session, .key_size = (uint16_t)key.size};
    hf_list_init(&hold->line);
    hf_copy(hold->key, key.data, key.size);
    hf_map_insert(&table->holds, &hold->link, hash);
    session->holds++;
    return hold;
}

struct hf_hold *hf_table_add_hold(struct hf_table *table, struct hf_key key,
                                  struct hf_session *session)
{
    return add_hashed(table, key, hash_key(table, key), session);
}

static void free_hold(struct hf_table *table, struct hf_hold *hold)
{
    hf_map_remove(&table->holds, &hold->link);
    free(hold->data);
    free(hold);
}

static void let_go(struct hf_table *table, struct hf_hold *hold)
{
    struct hf_session *session = hold->session;

    forget_untold(hold);
    hold->session = NULL;
    session->holds--;
    drop_session(table, session);
}

/* The claim has its key, and its session is to hear of it. */
void hf_table_grant_untold(struct hf_table *table, struct hf_hold *hold,
                           struct hf_claim *claim)
{
    leave_line(table, claim);
    hf_list_push_back(&claim->session->granted, &claim->of_session);
    hold->untold = claim;
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
    hold->token = ++table->token;
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

    if (HF_MUTANT(4))
        table->token = 0;
    send(table, &event);
    let_go(table, hold);
    if (hf_list_empty(&hold->line) || HF_MUTANT(7)) {
        while (HF_MUTANT(7) && !hf_list_empty(&hold->line))
            withdraw(table,
                     HF_CONTAINER(hold->line.next, struct hf_claim, in_line));
        free_hold(table, hold);
    } else {
        grant_first(table, hold);
    }
}

/* ---- Commands -----------------------------------------------------------*/

static void close_session(struct hf_table *table, struct hf_session *session)
{
    struct hf_list *link;

    while ((link = hf_list_take(&session->waiting))) {
        if (HF_MUTANT(21))
            continue;
        withdraw(table, HF_CONTAINER(link, struct hf_claim, of_session));
    }
    while ((link = hf_list_first(&session->granted)))
        forget_untold(HF_CONTAINER(link, struct hf_claim, of_session)->hold);
    session->ended = true;
    if (HF_MUTANT(21))
        return;
    drop_session(table, session);
}

static bool owns(const struct hf_hold *hold, const struct hf_command *command)
{
    if (HF_MUTANT(1) && command->kind == HF_COMMAND_UNLOCK)
        return true;
    if (HF_MUTANT(2) && command->kind == HF_COMMAND_RENEW)
        return true;
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
    hold = add_hashed(table, command->key, hash, session);
    if (!hold) {
        free(data);
        return HF_ENOMEM;
    }
    hold->nonce = command->nonce;
    hold->token = ++table->token;
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
    claim = hf_table_add_claim(table, hold, session, &command->nonce);
    if (!claim) {
        free(data);
        return HF_ENOMEM;
    }
    claim->sequence = command->sequence;
    claim->lease_ms = command->lease_ms;
    claim->data = data;
    claim->value_size = (uint32_t)command->value.size;
    claim->note_size = (uint8_t)command->note.size;
    result->place = hold->waiters;
    tell(table, HF_EVENT_QUEUED, hold, session);
    return HF_OK;
}

/* Asked again, perhaps from a new session of the same client: who asked last
 * is told, and its kept result is the one that the grant overwrites. */
static void ask_again(struct hf_claim *claim, struct hf_session *session,
                      const struct hf_command *command)
{
    claim->sequence = command->sequence;
    if (claim->session == session)
        return;
    hf_list_remove(&claim->of_session);
    claim->session = session;
    hf_list_push_back(&session->waiting, &claim->of_session);
}

static enum hf_err lock(struct hf_table *table, struct hf_session *session,
                        const struct hf_command *command,
                        struct hf_result *result)
{
    uint64_t hash = hash_key(table, command->key);
    struct hf_hold *hold = find_hashed(table, command->key, hash);
    struct hf_claim *claim;

    if (!hold)
        return grant_new(table, session, command, hash, result);
    if (hf_nonce_equal(&hold->nonce, &command->nonce)) {
        forget_untold(hold);
        result->token = hold->token;
        result->generation = hold->generation;
        return HF_OK;
    }
    result->err = HF_EBUSY;
    claim = hf_table_find_claim(table, hold, &command->nonce);
    if (claim) {
        ask_again(claim, session, command);
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
    else if (!HF_MUTANT(12) && (hold->token != command->token ||
                                hold->generation != command->generation))
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

/* ---- The end ------------------------------------------------------------*/

static void free_line(struct hf_hold *hold)
{
    struct hf_list *link = hold->line.next;

    while (link != &hold->line) {
        struct hf_claim *claim = HF_CONTAINER(link, struct hf_claim, in_line);

        link = link->next;
        free_claim(claim);
    }
    if (hold->untold)
        free_claim(hold->untold);
}

void hf_table_fini(struct hf_table *table)
{
    struct hf_hold *hold = hf_table_next(table, NULL);
    struct hf_map_link *link = hf_map_next(&table->sessions, NULL);

    while (hold) {
        struct hf_hold *next = hf_table_next(table, hold);

        free_line(hold);
        free(hold->data);
        free(hold);
        hold = next;
    }
    while (link) {
        struct hf_map_link *next = hf_map_next(&table->sessions, link);

        hf_session_free(HF_CONTAINER(link, struct hf_session, link));
        link = next;
    }
    hf_map_fini(&table->holds);
    hf_map_fini(&table->sessions);
    hf_map_fini(&table->waiting);
}
