#include "core/quorum/bids.h"

#include <stdlib.h>

#include "base/assert.h"
#include "core/quorum/record.h"

/* ---- Data of claims -----------------------------------------------------*/

bool hf_claim_copy_init(struct hf_claim_copy *copy,
                        const struct hf_claim_data *data)
{
    size_t size = data->value.size + data->note.size + data->owner.size;
    uint8_t *at;

    HF_ASSERT(data->value.size <= HF_VALUE_MAX);
    HF_ASSERT(data->note.size <= HF_NOTE_MAX);
    HF_ASSERT(data->owner.size <= HF_LABEL_MAX);
    *copy = (struct hf_claim_copy){
        .bytes = size > 0 ? malloc(size) : NULL,
        .value_size = (uint32_t)data->value.size,
        .note_size = (uint8_t)data->note.size,
        .owner_size = (uint8_t)data->owner.size,
    };
    if (size == 0)
        return true;
    if (!copy->bytes)
        return false;
    at = copy->bytes;
    hf_copy(at, data->value.data, data->value.size);
    at += data->value.size;
    hf_copy(at, data->note.data, data->note.size);
    at += data->note.size;
    hf_copy(at, data->owner.data, data->owner.size);
    return true;
}

void hf_claim_copy_fini(struct hf_claim_copy *copy)
{
    free(copy->bytes);
    *copy = (struct hf_claim_copy){0};
}

size_t hf_claim_copy_size(const struct hf_claim_copy *copy)
{
    return (size_t)copy->value_size + copy->note_size + copy->owner_size;
}

struct hf_claim_data hf_claim_copy_data(const struct hf_claim_copy *copy)
{
    const uint8_t *note = copy->bytes ? copy->bytes + copy->value_size : NULL;

    return (struct hf_claim_data){
        .value = {copy->bytes, copy->value_size},
        .note = {note, copy->note_size},
        .owner = {note ? note + copy->note_size : NULL, copy->owner_size},
    };
}

/* ---- Connections --------------------------------------------------------*/

/* The bids of one connection. */
struct hf_bids_conn {
    struct hf_map_link by_number;
    uint64_t number;
    struct hf_dlist bids;
};

static struct hf_bids_conn *find_conn(const struct hf_bids *bids,
                                      uint64_t number)
{
    struct hf_map_link *link =
        hf_map_find(&bids->conns, hf_map_hash_number(number));

    return link ? HF_CONTAINER(link, struct hf_bids_conn, by_number) : NULL;
}

/* Find the connection, or add it. NULL if memory is exhausted. */
static struct hf_bids_conn *open_conn(struct hf_bids *bids, uint64_t number)
{
    struct hf_bids_conn *conn = find_conn(bids, number);

    if (conn)
        return conn;
    conn = calloc(1, sizeof(*conn));
    if (!conn)
        return NULL;
    conn->number = number;
    hf_dlist_init(&conn->bids);
    hf_map_insert(&bids->conns, &conn->by_number, hf_map_hash_number(number));
    return conn;
}

static void close_empty_conn(struct hf_bids *bids, uint64_t number)
{
    struct hf_bids_conn *conn = find_conn(bids, number);

    if (!conn || !hf_dlist_is_empty(&conn->bids))
        return;
    hf_map_remove(&bids->conns, &conn->by_number);
    free(conn);
}

/* Let the bid belong to `conn`; NULL: to none. */
static void move_bid(struct hf_bids *bids, struct hf_bid *bid,
                     struct hf_bids_conn *conn)
{
    if (hf_dlist_is_linked(&bid->in_conn)) {
        hf_dlist_remove(&bid->in_conn);
        if (!conn || conn->number != bid->conn)
            close_empty_conn(bids, bid->conn);
    }
    hf_heap_drop(&bids->leaving, &bid->leaving);
    if (!conn)
        return;
    hf_dlist_insert(&conn->bids, &bid->in_conn);
    bid->conn = conn->number;
    bid->is_gone = false;
}

/* ---- Bids ---------------------------------------------------------------*/

void hf_bids_init(struct hf_bids *bids, const struct hf_seed *seed)
{
    *bids = (struct hf_bids){.seed = *seed};
    hf_map_init(&bids->by_id);
    hf_map_init(&bids->conns);
}

void hf_bids_fini(struct hf_bids *bids)
{
    hf_map_fini(&bids->by_id);
    hf_map_fini(&bids->conns);
    hf_heap_fini(&bids->leaving);
}

/* A hostile client may use one nonce for many keys. */
static uint64_t hash_bid(const struct hf_bids *bids,
                         const struct hf_record *record,
                         const struct hf_claim_id *id)
{
    return hf_siphash(&bids->seed, id, sizeof(*id)) ^ record->by_key.hash;
}

struct hf_bid *hf_bids_find(const struct hf_bids *bids,
                            const struct hf_record *record,
                            const struct hf_claim_id *id)
{
    struct hf_map_link *link =
        hf_map_find(&bids->by_id, hash_bid(bids, record, id));

    for (; link; link = hf_map_find_next(link)) {
        struct hf_bid *bid = HF_CONTAINER(link, struct hf_bid, by_id);

        if (bid->record == record && hf_claim_id_equal(&bid->id, id))
            return bid;
    }
    return NULL;
}

static size_t bid_size(const struct hf_bid *bid)
{
    return sizeof(*bid) + hf_claim_copy_size(&bid->data);
}

/* Any bid may be in the heap `leaving`, so reserve room for all. */
static struct hf_bid *add_bid(struct hf_bids *bids, struct hf_record *record,
                              const struct hf_quorum_request *request,
                              const struct hf_claim_id *id)
{
    struct hf_bid *bid = calloc(1, sizeof(*bid));

    if (!bid || hf_heap_reserve(&bids->leaving, bids->by_id.count + 1) ||
        !hf_claim_copy_init(&bid->data, &request->data)) {
        free(bid);
        return NULL;
    }
    bid->record = record;
    bid->id = *id;
    bid->ticket = request->ticket;
    bids->bytes += bid_size(bid);
    hf_map_insert(&bids->by_id, &bid->by_id, hash_bid(bids, record, id));
    return bid;
}

struct hf_bid *hf_bids_ask(struct hf_bids *bids, struct hf_bid *bid,
                           struct hf_record *record, hf_time now, uint64_t conn,
                           const struct hf_quorum_request *request,
                           const struct hf_claim_id *id)
{
    struct hf_bids_conn *from = open_conn(bids, conn);

    if (from && !bid)
        bid = add_bid(bids, record, request, id);
    if (!from || !bid) {
        close_empty_conn(bids, conn);
        return NULL;
    }
    move_bid(bids, bid, from);
    bid->number = request->number;
    bid->fast = request->fast;
    bid->queue = request->queue;
    bid->serial = request->serial;
    bid->newest = request->serial;
    bid->lease_ms = request->lease_ms;
    bid->is_low = false;
    bid->asked = now;
    return bid;
}

void hf_bids_repeat(struct hf_bids *bids, struct hf_bid *bid, uint64_t conn,
                    uint32_t serial)
{
    struct hf_bids_conn *from =
        serial > bid->newest ? open_conn(bids, conn) : NULL;

    if (!from)
        return;
    bid->newest = serial;
    move_bid(bids, bid, from);
}

void hf_bids_free(struct hf_bids *bids, struct hf_bid *bid)
{
    if (!bid)
        return;
    HF_ASSERT(!hf_dlist_is_linked(&bid->in_queue));
    move_bid(bids, bid, NULL);
    hf_map_remove(&bids->by_id, &bid->by_id);
    bids->bytes -= bid_size(bid);
    hf_claim_copy_fini(&bid->data);
    free(bid);
}

/* ---- Closed connections -------------------------------------------------*/

struct hf_bid *hf_bids_disconnect(struct hf_bids *bids, hf_time now,
                                  uint64_t conn)
{
    struct hf_bids_conn *from = find_conn(bids, conn);
    struct hf_bid *bid;

    if (!from)
        return NULL;
    bid = HF_CONTAINER(from->bids.next, struct hf_bid, in_conn);
    hf_dlist_remove(&bid->in_conn);
    bid->is_gone = true;
    hf_heap_set(&bids->leaving, &bid->leaving,
                hf_time_add(now, HF_QUORUM_GRACE_MS));
    close_empty_conn(bids, conn);
    return bid;
}

struct hf_bid *hf_bids_take_due(struct hf_bids *bids, hf_time now)
{
    struct hf_bid *bid;

    if (hf_bids_deadline(bids) > now)
        return NULL;
    bid = HF_CONTAINER(hf_heap_top(&bids->leaving), struct hf_bid, leaving);
    hf_heap_drop(&bids->leaving, &bid->leaving);
    return bid;
}

hf_time hf_bids_deadline(const struct hf_bids *bids)
{
    return hf_heap_top_key(&bids->leaving);
}
