#include "core/entries.h"

#include <stdlib.h>

/* ---- Finding ------------------------------------------------------------*/

uint64_t hf_table_hash(const struct hf_table *table, struct hf_key key)
{
    return hf_siphash(&table->seed, key.data, key.size);
}

static uint64_t hash_nonce(const struct hf_table *table,
                           const struct hf_nonce *nonce)
{
    return hf_siphash(&table->seed, nonce->bytes, sizeof(nonce->bytes));
}

struct hf_hold *hf_table_find_hashed(const struct hf_table *table,
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
    return hf_table_find_hashed(table, key, hf_table_hash(table, key));
}

struct hf_hold *hf_table_next(const struct hf_table *table,
                              const struct hf_hold *hold)
{
    const struct hf_list *at = hold ? &hold->by_token : &table->by_token;

    if (at->next == &table->by_token)
        return NULL;
    return HF_CONTAINER(at->next, struct hf_hold, by_token);
}

struct hf_session *hf_table_session(const struct hf_table *table, uint64_t id)
{
    struct hf_map_link *link = hf_map_find(&table->sessions, id);

    return link ? HF_CONTAINER(link, struct hf_session, link) : NULL;
}

void hf_table_walk(struct hf_table *table, struct hf_walk *walk)
{
    *walk = (struct hf_walk){.next = hf_table_next(table, NULL)};
    hf_list_push_back(&table->walks, &walk->link);
}

struct hf_hold *hf_walk_next(const struct hf_table *table, struct hf_walk *walk)
{
    struct hf_hold *hold = walk->next;

    if (hold)
        walk->next = hf_table_next(table, hold);
    return hold;
}

void hf_walk_end(struct hf_walk *walk)
{
    hf_list_remove(&walk->link);
}

/* `hold` is about to leave its place: no walk may stand there. */
static void pass_over(const struct hf_table *table, const struct hf_hold *hold)
{
    for (struct hf_list *link = table->walks.next; link != &table->walks;
         link = link->next) {
        struct hf_walk *walk = HF_CONTAINER(link, struct hf_walk, link);

        if (walk->next == hold)
            walk->next = hf_table_next(table, hold);
    }
}

struct hf_session *hf_table_next_session(const struct hf_table *table,
                                         const struct hf_session *session)
{
    const struct hf_list *at =
        session ? &session->in_table : &table->all_sessions;

    if (at->next == &table->all_sessions)
        return NULL;
    return HF_CONTAINER(at->next, struct hf_session, in_table);
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
    hf_list_push_back(&table->all_sessions, &session->in_table);
}

void hf_table_drop_session(struct hf_table *table, struct hf_session *session)
{
    if (!session->ended || session->holds > 0)
        return;
    hf_map_remove(&table->sessions, &session->link);
    hf_list_remove(&session->in_table);
    hf_session_free(session);
}

/* ---- Claims that wait ---------------------------------------------------*/

void hf_claim_join_session(struct hf_claim *claim, struct hf_session *session,
                           uint64_t sequence)
{
    struct hf_list *before = &session->waiting;

    hf_list_remove(&claim->of_session);
    claim->session = session;
    claim->sequence = sequence;
    while (before->prev != &session->waiting &&
           HF_CONTAINER(before->prev, struct hf_claim, of_session)->sequence >
               sequence)
        before = before->prev;
    hf_list_insert(before, &claim->of_session);
}

struct hf_claim *hf_table_add_claim(struct hf_table *table,
                                    struct hf_hold *hold,
                                    struct hf_session *session,
                                    const struct hf_nonce *nonce,
                                    uint64_t sequence)
{
    struct hf_claim *claim = calloc(1, sizeof(*claim));
    struct hf_list *last = hold->line.prev;

    if (!claim)
        return NULL;
    claim->hold = hold;
    claim->nonce = *nonce;
    claim->arrival = 1;
    if (!hf_list_empty(&hold->line))
        claim->arrival += HF_CONTAINER(last, struct hf_claim, in_line)->arrival;
    hf_list_push_back(&hold->line, &claim->in_line);
    hf_claim_join_session(claim, session, sequence);
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

void hf_table_leave_line(struct hf_table *table, struct hf_claim *claim)
{
    hf_map_remove(&table->waiting, &claim->by_nonce);
    hf_list_remove(&claim->in_line);
    hf_list_remove(&claim->of_session);
    claim->hold->waiters--;
}

void hf_claim_free(struct hf_claim *claim)
{
    free(claim->data);
    free(claim);
}

void hf_table_grant_untold(struct hf_table *table, struct hf_hold *hold,
                           struct hf_claim *claim)
{
    hf_table_leave_line(table, claim);
    hf_list_push_back(&claim->session->granted, &claim->of_session);
    hold->untold = claim;
}

void hf_hold_forget_untold(struct hf_hold *hold)
{
    if (!hold->untold)
        return;
    hf_list_remove(&hold->untold->of_session);
    hf_claim_free(hold->untold);
    hold->untold = NULL;
}

/* ---- Holds --------------------------------------------------------------*/

struct hf_hold *hf_table_add_hashed(struct hf_table *table, struct hf_key key,
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
    hf_list_push_back(&table->by_token, &hold->by_token);
    session->holds++;
    return hold;
}

struct hf_hold *hf_table_add_hold(struct hf_table *table, struct hf_key key,
                                  struct hf_session *session)
{
    return hf_table_add_hashed(table, key, hf_table_hash(table, key), session);
}

void hf_table_give_token(struct hf_table *table, struct hf_hold *hold)
{
    hold->token = ++table->token;
    if (table->by_token.prev == &hold->by_token)
        return; /* already the last */
    pass_over(table, hold);
    hf_list_remove(&hold->by_token);
    hf_list_push_back(&table->by_token, &hold->by_token);
}

void hf_table_remove_hold(struct hf_table *table, struct hf_hold *hold)
{
    pass_over(table, hold);
    hf_map_remove(&table->holds, &hold->link);
    hf_list_remove(&hold->by_token);
    free(hold->data);
    free(hold);
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

/* ---- Beginning and end --------------------------------------------------*/

void hf_table_init(struct hf_table *table, const struct hf_seed *seed,
                   hf_table_event_fn *event, void *arg)
{
    *table = (struct hf_table){.seed = *seed, .event = event, .arg = arg};
    hf_map_init(&table->holds);
    hf_map_init(&table->sessions);
    hf_map_init(&table->waiting);
    hf_list_init(&table->by_token);
    hf_list_init(&table->all_sessions);
    hf_list_init(&table->walks);
}

static void free_line(struct hf_hold *hold)
{
    struct hf_list *link = hold->line.next;

    while (link != &hold->line) {
        struct hf_claim *claim = HF_CONTAINER(link, struct hf_claim, in_line);

        link = link->next;
        hf_claim_free(claim);
    }
    if (hold->untold)
        hf_claim_free(hold->untold);
}

static void break_walks(struct hf_table *table)
{
    struct hf_list *link;

    while ((link = hf_list_take(&table->walks))) {
        struct hf_walk *walk = HF_CONTAINER(link, struct hf_walk, link);

        walk->next = NULL;
        walk->broken = true;
    }
}

void hf_table_fini(struct hf_table *table)
{
    struct hf_hold *hold = hf_table_next(table, NULL);
    struct hf_session *session = hf_table_next_session(table, NULL);

    while (hold) {
        struct hf_hold *next = hf_table_next(table, hold);

        free_line(hold);
        free(hold->data);
        free(hold);
        hold = next;
    }
    while (session) {
        struct hf_session *next = hf_table_next_session(table, session);

        hf_session_free(session);
        session = next;
    }
    break_walks(table);
    hf_map_fini(&table->holds);
    hf_map_fini(&table->sessions);
    hf_map_fini(&table->waiting);
}
