/* bids.h - the bids at a master: claims that wait for a key, or have its vote.
 *
 * A bid belongs to the connection over which its claim asked last, where pushes
 * go. When that connection is closed, a bid that waits is kept for
 * HF_QUORUM_GRACE_MS, in case the claim asks again over another one.
 *
 * The record of the key (record.h) says whether a bid waits or has the vote. */
#ifndef HF_CORE_QUORUM_BIDS_H
#define HF_CORE_QUORUM_BIDS_H

#include "base/dlist.h"
#include "base/heap.h"
#include "base/map.h"
#include "base/siphash.h"
#include "core/quorum/quorum.h"

/* ---- Data of claims -----------------------------------------------------*/

/* A copy of struct hf_claim_data. */
struct hf_claim_copy {
    uint8_t *bytes; /* value, note, owner; NULL if all are empty */
    uint32_t value_size;
    uint8_t note_size;
    uint8_t owner_size;
};

_Static_assert(HF_FITS(HF_NOTE_MAX, uint8_t), "note_size is too small");
_Static_assert(HF_FITS(HF_LABEL_MAX, uint8_t), "owner_size is too small");

/* Copy `data`. Returns false if memory is exhausted. */
bool hf_claim_copy_init(struct hf_claim_copy *copy,
                        const struct hf_claim_data *data);
void hf_claim_copy_fini(struct hf_claim_copy *copy);
size_t hf_claim_copy_size(const struct hf_claim_copy *copy);
struct hf_claim_data hf_claim_copy_data(const struct hf_claim_copy *copy);

/* ---- Bids ---------------------------------------------------------------*/

struct hf_record;

struct hf_bid {
    struct hf_map_link by_id;
    struct hf_record *record;
    struct hf_dlist in_queue;    /* unlinked: the bid has the vote */
    struct hf_dlist in_conn;     /* in the list of its connection */
    struct hf_heap_link leaving; /* set: the connection was closed */
    uint64_t conn;               /* where pushes go */
    bool is_gone;                /* the connection was closed */
    bool fast;
    bool queue;
    bool forced; /* an operator has broken the lock */
    bool is_low; /* its number was too low, and it has not asked again */
    struct hf_claim_id id;
    uint64_t number;
    uint64_t ticket;
    uint64_t place;  /* rises along the queue, perhaps with gaps */
    uint32_t serial; /* of the last ASK that changed the bid */
    uint32_t newest; /* serial, also of those that repeated it */
    uint32_t lease_ms;
    hf_time asked;    /* when the ASK with `serial` was received */
    hf_time voted;    /* when the bid got the vote */
    hf_time deadline; /* of the vote; is_low: the key is kept until then */
    struct hf_claim_copy data;
};

struct hf_bids {
    struct hf_seed seed;
    struct hf_map by_id;
    struct hf_map conns;    /* connections that have bids */
    struct hf_heap leaving; /* bids whose connection was closed */
    size_t bytes;           /* memory of the bids, roughly */
};

void hf_bids_init(struct hf_bids *bids, const struct hf_seed *seed);

/* Every bid was freed. */
void hf_bids_fini(struct hf_bids *bids);

/* The bid of the claim `id` for the key of `record`, or NULL. */
struct hf_bid *hf_bids_find(const struct hf_bids *bids,
                            const struct hf_record *record,
                            const struct hf_claim_id *id);

/* An ASK with a new serial was received over the connection `conn`: update the
 * bid of its claim, or add one if `bid` is NULL. NULL if memory is exhausted;
 * then nothing has changed. */
struct hf_bid *hf_bids_ask(struct hf_bids *bids, struct hf_bid *bid,
                           struct hf_record *record, hf_time now, uint64_t conn,
                           const struct hf_quorum_request *request,
                           const struct hf_claim_id *id);

/* An ASK that changes nothing was received over `conn`: let the bid belong to
 * that, unless the ASK is a late one, or memory is exhausted. */
void hf_bids_repeat(struct hf_bids *bids, struct hf_bid *bid, uint64_t conn,
                    uint32_t serial);

/* Free a bid that neither waits nor has the vote. NULL does nothing. */
void hf_bids_free(struct hf_bids *bids, struct hf_bid *bid);

/* The connection is closed: take a bid from it, which becomes due after
 * HF_QUORUM_GRACE_MS, and return it. NULL if there are no more. */
struct hf_bid *hf_bids_disconnect(struct hf_bids *bids, hf_time now,
                                  uint64_t conn);

/* Take a bid that is due; NULL if there is none. hf_bids_deadline() returns
 * when the next one will be due. */
struct hf_bid *hf_bids_take_due(struct hf_bids *bids, hf_time now);
hf_time hf_bids_deadline(const struct hf_bids *bids);

#endif
