#include "core/table_links.h"

#include <stdlib.h>

/* ---- Finding ------------------------------------------------------------*/

uint64_t hf_table_hash_key(const struct hf_table *table, struct hf_key key)
{
    return hf_siphash(&table->seed, key.data, key.size);
}

static uint64_t hash_table_nonce(const struct hf_table *table,
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
    return hf_table_find_hashed(table, key, hf_table_hash_key(table, key));
}

struct hf_hold *hf_table_next_hold(const struct hf_table *table,
                                   const struct hf_hold *hold)
{
    const struct hf_dlist *at = hold ? &hold->by_token : &table->by_token;

    if (at->next == &table->by_token)
        return NULL;
    return HF_CONTAINER(at->next, struct hf_hold, by_token);
}

struct hf_session *hf_table_find_session(const struct hf_table *table,
                                         uint64_t id)
{
    struct hf_map_link *link = hf_map_find(&table->sessions, id);

    return link ? HF_CONTAINER(link, struct hf_session, link) : NULL;
}

struct hf_session *hf_table_find_secret(const struct hf_table *table,
                                        const struct hf_nonce *secret)
{
    struct hf_map_link *link =
        hf_map_find(&table->secrets, hash_table_nonce(table, secret));

    for (; link; link = hf_map_find_next(link)) {
        struct hf_session *session =
            HF_CONTAINER(link, struct hf_session, by_secret);

        if (hf_nonce_equal(&session->secret, secret))
            return session;
    }
    return NULL;
}

void hf_table_walk_begin(struct hf_table *table, struct hf_table_walk *walk)
{
    *walk = (struct hf_table_walk){.next = hf_table_next_hold(table, NULL)};
    hf_dlist_push_back(&table->walks, &walk->link);
}

struct hf_hold *hf_table_walk_next(const struct hf_table *table,
                                   struct hf_table_walk *walk)
{
    struct hf_hold *hold = walk->next;

    if (hold)
        walk->next = hf_table_next_hold(table, hold);
    return hold;
}

void hf_table_walk_end(struct hf_table_walk *walk)
{
    hf_dlist_remove(&walk->link);
}

/* Move each walk whose next hold is `hold` on to the hold after it. Call this
 * before `hold` is moved or removed. */
static void advance_walks(const struct hf_table *table,
                          const struct hf_hold *hold)
{
    for (struct hf_dlist *link = table->walks.next; link != &table->walks;
         link = link->next) {
        struct hf_table_walk *walk =
            HF_CONTAINER(link, struct hf_table_walk, link);

        if (walk->next == hold)
            walk->next = hf_table_next_hold(table, hold);
    }
}

struct hf_session *hf_table_next_session(const struct hf_table *table,
                                         const struct hf_session *session)
{
    const struct hf_dlist *at =
        session ? &session->in_table : &table->all_sessions;

    if (at->next == &table->all_sessions)
        return NULL;
    return HF_CONTAINER(at->next, struct hf_session, in_table);
}

struct hf_table_waiter *hf_table_find_waiter(const struct hf_table *table,
                                             const struct hf_hold *hold,
                                             const struct hf_nonce *nonce)
{
    struct hf_map_link *link = NULL;

    if (!hf_dlist_is_empty(&hold->queue))
        link = hf_map_find(&table->waiting, hash_table_nonce(table, nonce));
    for (; link; link = hf_map_find_next(link)) {
        struct hf_table_waiter *waiter =
            HF_CONTAINER(link, struct hf_table_waiter, by_nonce);

        if (waiter->hold == hold && hf_nonce_equal(&waiter->nonce, nonce))
            return waiter;
    }
    return NULL;
}

/* ---- Sessions -----------------------------------------------------------*/

void hf_table_add_session(struct hf_table *table, struct hf_session *session)
{
    /* The table assigns the ids, so they can serve as hashes: users cannot
     * choose ids that collide. */
    hf_map_insert(&table->sessions, &session->link, session->id);
    if (!session->ended)
        hf_map_insert(&table->secrets, &session->by_secret,
                      hash_table_nonce(table, &session->secret));
    hf_dlist_push_back(&table->all_sessions, &session->in_table);
    table->bytes += session->label_size;
    hf_table_results_resized(table, session, 0);
}

void hf_table_results_resized(struct hf_table *table,
                              const struct hf_session *session,
                              uint32_t capacity)
{
    table->bytes += session->capacity * sizeof(*session->results);
    table->bytes -= capacity * sizeof(*session->results);
}

void hf_table_end_session(struct hf_table *table, struct hf_session *session)
{
    uint32_t capacity = session->capacity;

    hf_map_remove(&table->secrets, &session->by_secret);
    hf_session_end(session);
    hf_table_results_resized(table, session, capacity);
    hf_table_drop_session(table, session);
}

void hf_table_drop_session(struct hf_table *table, struct hf_session *session)
{
    if (!session->ended || session->holds > 0)
        return;
    hf_map_remove(&table->sessions, &session->link);
    hf_dlist_remove(&session->in_table);
    table->bytes -= session->label_size;
    hf_session_free(session);
}

/* ---- Waiters ------------------------------------------------------------*/

void hf_table_waiter_set_session(struct hf_table_waiter *waiter,
                                 struct hf_session *session, uint64_t sequence)
{
    struct hf_dlist *before = &session->waiting;

    hf_dlist_remove(&waiter->in_session);
    if (waiter->session)
        waiter->session->waiters--;
    session->waiters++;
    waiter->session = session;
    waiter->sequence = sequence;
    while (before->prev != &session->waiting &&
           HF_CONTAINER(before->prev, struct hf_table_waiter, in_session)
                   ->sequence > sequence)
        before = before->prev;
    hf_dlist_insert(before, &waiter->in_session);
}

struct hf_table_waiter *hf_table_add_waiter(struct hf_table *table,
                                            struct hf_hold *hold,
                                            struct hf_session *session,
                                            const struct hf_nonce *nonce,
                                            uint64_t sequence)
{
    struct hf_table_waiter *waiter = calloc(1, sizeof(*waiter));
    struct hf_dlist *last = hold->queue.prev;

    if (!waiter)
        return NULL;
    waiter->hold = hold;
    waiter->nonce = *nonce;
    waiter->arrival = 1;
    if (!hf_dlist_is_empty(&hold->queue))
        waiter->arrival +=
            HF_CONTAINER(last, struct hf_table_waiter, in_queue)->arrival;
    hf_dlist_push_back(&hold->queue, &waiter->in_queue);
    hf_table_waiter_set_session(waiter, session, sequence);
    hf_map_insert(&table->waiting, &waiter->by_nonce,
                  hash_table_nonce(table, nonce));
    hold->waiters++;
    return waiter;
}

uint32_t hf_table_waiter_position(const struct hf_table_waiter *waiter)
{
    const struct hf_dlist *first = waiter->hold->queue.next;
    uint64_t ahead =
        waiter->arrival -
        HF_CONTAINER(first, struct hf_table_waiter, in_queue)->arrival;

    /* Waiters that left the middle of the queue are still counted, so `ahead`
     * may be too large, but never too small. */
    if (ahead >= waiter->hold->waiters)
        ahead = waiter->hold->waiters - 1;
    return (uint32_t)ahead + 1;
}

struct hf_lookup hf_table_lookup(const struct hf_table *table,
                                 struct hf_key key,
                                 const struct hf_nonce *nonce)
{
    const struct hf_hold *hold = hf_table_find(table, key);
    const struct hf_table_waiter *waiter;

    if (!hold)
        return (struct hf_lookup){.state = HF_LOOKUP_UNKNOWN};
    if (hf_nonce_equal(&hold->nonce, nonce))
        return (struct hf_lookup){
            .state = HF_LOOKUP_HELD,
            .generation = hold->generation,
            .token = hold->token,
        };
    waiter = hf_table_find_waiter(table, hold, nonce);
    if (!waiter)
        return (struct hf_lookup){.state = HF_LOOKUP_UNKNOWN};
    return (struct hf_lookup){
        .state = HF_LOOKUP_QUEUED,
        .position = hf_table_waiter_position(waiter),
    };
}

void hf_table_set_waiter_data(struct hf_table *table,
                              struct hf_table_waiter *waiter, uint8_t *data,
                              size_t value_size, size_t note_size)
{
    waiter->data = data;
    waiter->value_size = (uint32_t)value_size;
    waiter->note_size = (uint8_t)note_size;
    table->bytes += value_size + note_size;
}

void hf_table_remove_waiter(struct hf_table *table,
                            struct hf_table_waiter *waiter)
{
    table->bytes -= waiter->value_size + waiter->note_size;
    hf_map_remove(&table->waiting, &waiter->by_nonce);
    hf_dlist_remove(&waiter->in_queue);
    hf_dlist_remove(&waiter->in_session);
    waiter->session->waiters--;
    waiter->hold->waiters--;
}

void hf_table_waiter_free(struct hf_table_waiter *waiter)
{
    if (!waiter)
        return;
    free(waiter->data);
    free(waiter);
}

struct hf_table_waiter *hf_table_take_waiter(const struct hf_table_event *event)
{
    struct hf_table_waiter *waiter = event->waiter ? *event->waiter : NULL;

    if (waiter)
        *event->waiter = NULL;
    return waiter;
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
    hf_dlist_init(&hold->queue);
    hf_copy(hold->key, key.data, key.size);
    hf_map_insert(&table->holds, &hold->link, hash);
    hf_dlist_push_back(&table->by_token, &hold->by_token);
    session->holds++;
    table->bytes += key.size;
    return hold;
}

struct hf_hold *hf_table_add_hold(struct hf_table *table, struct hf_key key,
                                  struct hf_session *session)
{
    return hf_table_add_hashed(table, key, hf_table_hash_key(table, key),
                               session);
}

void hf_table_assign_token(struct hf_table *table, struct hf_hold *hold)
{
    hold->token = ++table->token;
    if (table->by_token.prev == &hold->by_token)
        return; /* the hold is already the last */
    advance_walks(table, hold);
    hf_dlist_remove(&hold->by_token);
    hf_dlist_push_back(&table->by_token, &hold->by_token);
}

void hf_table_set_hold_data(struct hf_table *table, struct hf_hold *hold,
                            uint8_t *data, size_t value_size, size_t note_size)
{
    table->bytes -= hold->value_size + hold->note_size;
    free(hold->data);
    hold->data = data;
    hold->value_size = (uint32_t)value_size;
    hold->note_size = (uint8_t)note_size;
    table->bytes += value_size + note_size;
}

void hf_table_remove_hold(struct hf_table *table, struct hf_hold *hold)
{
    advance_walks(table, hold);
    hf_map_remove(&table->holds, &hold->link);
    hf_dlist_remove(&hold->by_token);
    hf_table_set_hold_data(table, hold, NULL, 0, 0);
    table->bytes -= hold->key_size;
    free(hold);
}

size_t hf_table_bytes(const struct hf_table *table)
{
    return table->bytes + table->holds.count * sizeof(struct hf_hold) +
           table->waiting.count * sizeof(struct hf_table_waiter) +
           table->sessions.count * sizeof(struct hf_session);
}

enum hf_err hf_table_pack_data(struct hf_bytes value, struct hf_bytes note,
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

/* ---- Init and fini ------------------------------------------------------*/

void hf_table_init(struct hf_table *table, const struct hf_seed *seed,
                   hf_table_event_fn *event, void *arg)
{
    *table = (struct hf_table){
        .seed = *seed,
        .event = event,
        .arg = arg,
        .version = HF_VERSION_FIRST,
    };
    hf_map_init(&table->holds);
    hf_map_init(&table->sessions);
    hf_map_init(&table->secrets);
    hf_map_init(&table->waiting);
    hf_dlist_init(&table->by_token);
    hf_dlist_init(&table->all_sessions);
    hf_dlist_init(&table->walks);
}

static void free_queue(struct hf_hold *hold)
{
    struct hf_dlist *link = hold->queue.next;

    while (link != &hold->queue) {
        struct hf_table_waiter *waiter =
            HF_CONTAINER(link, struct hf_table_waiter, in_queue);

        link = link->next;
        hf_table_waiter_free(waiter);
    }
}

static void break_walks(struct hf_table *table)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&table->walks))) {
        struct hf_table_walk *walk =
            HF_CONTAINER(link, struct hf_table_walk, link);

        walk->next = NULL;
        walk->broken = true;
    }
}

void hf_table_fini(struct hf_table *table)
{
    struct hf_hold *hold = hf_table_next_hold(table, NULL);
    struct hf_session *session = hf_table_next_session(table, NULL);

    while (hold) {
        struct hf_hold *next = hf_table_next_hold(table, hold);

        free_queue(hold);
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
    hf_map_fini(&table->secrets);
    hf_map_fini(&table->waiting);
}
