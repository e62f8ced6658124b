/* record.h - what a master knows of one key.
 *
 * A record has three layers:
 *
 *     promised   the highest number that was promised, and to which claim. It
 *                never falls, and no timer ends it.
 *     lease      the content that was accepted last, by COMMIT: which claim
 *                held the key, at which number, and how that ended
 *     vote       given to one claim while the lease is not held. It ends by
 *                COMMIT, END or its deadline, and never changes the lease that
 *                is below it.
 *
 * Claims that found the key busy wait in the queue, by ticket. In the step that
 * frees the key, the first of them gets the vote.
 *
 * A claim that waits or has the vote is a bid (bids.h). The functions change
 * the record only; the master (master.h) keeps the timers, and frees the bids
 * that they return. */
#ifndef HF_CORE_QUORUM_RECORD_H
#define HF_CORE_QUORUM_RECORD_H

#include "core/quorum/bids.h"

struct hf_record {
    struct hf_map_link by_key;
    struct hf_dlist link; /* in the list of all records */
    uint64_t order;       /* of its creation, from 1 */
    struct hf_heap_link timer;

    uint64_t promised;
    bool is_closed; /* nobody may use the number `promised` */
    struct hf_claim_id promised_to;

    enum hf_report_state state;
    bool forced;
    bool was_held; /* RELEASED: by an END that found the claim as holder */
    uint64_t ballot;
    uint64_t token;
    struct hf_claim_id holder;
    hf_time since;
    hf_time deadline;
    struct hf_claim_copy data;

    struct hf_bid *vote;
    struct hf_dlist queue; /* by ticket, then by id */
    uint32_t waiters;
    uint64_t seen; /* the highest ticket in the queue, or number of a vote or
                      COMMIT, so far: a new ticket must be higher */

    uint8_t ended_count;
    uint8_t ended_next; /* where the next one is stored */
    uint8_t ended_held; /* bits of the list: an END found it as holder */
    struct hf_claim_id ended[HF_REPORT_ENDED_MAX];

    hf_time used; /* when a request last changed the record */
    uint16_t key_size;
    uint8_t key[];
};

_Static_assert(HF_FITS(HF_KEY_MAX, uint16_t), "key_size is too small");
_Static_assert(HF_REPORT_ENDED_MAX <= 8, "ended_held is too small");

static inline struct hf_key hf_record_key(const struct hf_record *record)
{
    return (struct hf_key){record->key, record->key_size};
}

/* A new record without a lease, in which `floor` is promised to nobody. NULL if
 * memory is exhausted. */
struct hf_record *hf_record_new(struct hf_key key, uint64_t floor);

/* Free a record without bids. */
void hf_record_free(struct hf_record *record);

bool hf_record_has_ended(const struct hf_record *record,
                         const struct hf_claim_id *id);

/* Returns true if the claim has the lease or the vote. */
bool hf_record_is_holder(const struct hf_record *record,
                         const struct hf_claim_id *id);

/* Returns true if the claim has the lease with this token, or the vote with
 * this number. */
bool hf_record_has_token(const struct hf_record *record,
                         const struct hf_claim_id *id, uint64_t token);

/* Returns true if neither a lease nor a vote is in force. */
bool hf_record_is_free(const struct hf_record *record);

/* ---- Requests -----------------------------------------------------------
 *
 * Each returns the kind of the reply. `id` is the claim, which has not ended
 * here. */

/* What an ASK would do, so that the master can allocate a bid first. `bid` is
 * that of the claim, or NULL. */
enum hf_record_ask {
    HF_RECORD_VOTES,    /* gives the claim the vote */
    HF_RECORD_REPEATS,  /* the claim has the vote, or the lease, already */
    HF_RECORD_IS_BUSY,  /* another claim is first, and `queue` is not set */
    HF_RECORD_QUEUES,   /* puts the claim into the queue, or leaves it there */
    HF_RECORD_IS_ABOVE, /* the number, or the ticket, is too low */
};
enum hf_record_ask hf_record_ask(const struct hf_record *record, hf_time now,
                                 const struct hf_quorum_request *request,
                                 const struct hf_claim_id *id,
                                 const struct hf_bid *bid);

/* Give the vote to `bid`, which is in no queue or in the queue of the
 * record. */
void hf_record_vote(struct hf_record *record, hf_time now, struct hf_bid *bid);

/* Put `bid` into the queue, in order of tickets; it may be there already. */
void hf_record_enqueue(struct hf_record *record, struct hf_bid *bid);
void hf_record_dequeue(struct hf_record *record, struct hf_bid *bid);

/* The claim has asked with this ticket. If it is a new one, the bid leaves the
 * queue. All masters must use the ticket that becomes final: with different
 * ones, they would give their votes to different claims. */
void hf_record_set_ticket(struct hf_record *record, struct hf_bid *bid,
                          uint64_t ticket);

/* The position of a bid in the queue, from 1. It may be too large after bids
 * have left the middle of the queue. */
uint32_t hf_record_position(const struct hf_record *record,
                            const struct hf_bid *bid);

enum hf_quorum_reply_kind hf_record_prepare(struct hf_record *record,
                                            uint64_t number,
                                            const struct hf_claim_id *id);

/* Returns true if a COMMIT with this number would be accepted, also if it is a
 * repeated one (`*repeats`). */
bool hf_record_accepts(const struct hf_record *record,
                       const struct hf_quorum_request *request,
                       const struct hf_claim_id *id, bool *repeats);

/* Returns true if a COMMIT would extend a lock that an operator has broken. */
bool hf_record_is_forced(const struct hf_record *record,
                         const struct hf_quorum_request *request,
                         const struct hf_claim_id *id);

/* The vote becomes a lease at its own number, with its deadline. Returns its
 * bid, whose data was moved, and which the caller frees. */
struct hf_bid *hf_record_confirm_vote(struct hf_record *record);

/* Accept a COMMIT. Takes the contents of `data`. No claim has the vote. */
void hf_record_commit(struct hf_record *record, hf_time now,
                      const struct hf_quorum_request *request,
                      const struct hf_claim_id *id, struct hf_claim_copy *data);

/* `*confirmed` is set to the bid whose vote became a lease, and which the
 * caller frees; otherwise to NULL. */
enum hf_quorum_reply_kind hf_record_renew(
    struct hf_record *record, hf_time now,
    const struct hf_quorum_request *request, const struct hf_claim_id *id,
    struct hf_bid **confirmed);

/* What an END of the claim would find. A repeated END finds the same again. */
enum hf_quorum_end hf_record_end_kind(const struct hf_record *record,
                                      const struct hf_claim_id *id);

/* End the claim. `was_held`: this END, or an earlier one, has found it as
 * holder. The caller has removed its bid, if it had one. Returns the bid of
 * another claim that loses the vote, or NULL. */
struct hf_bid *hf_record_end(struct hf_record *record,
                             const struct hf_quorum_request *request,
                             const struct hf_claim_id *id, bool was_held);

/* `*broken` is set to the bid that loses the vote, and which the caller frees;
 * otherwise to NULL. */
enum hf_quorum_reply_kind hf_record_force(
    struct hf_record *record, const struct hf_quorum_request *request,
    struct hf_bid **broken);

/* End the lease if it is due. */
void hf_record_expire(struct hf_record *record, hf_time now);

/* Take the vote from the claim that has it, and return its bid. */
struct hf_bid *hf_record_take_vote(struct hf_record *record);

/* The first bid of the queue that can get the vote at `now`, or will ask again
 * with a higher number; NULL if there is none. */
struct hf_bid *hf_record_first(const struct hf_record *record, hf_time now);

void hf_record_report(const struct hf_record *record, hf_time now,
                      bool with_data, struct hf_report *report);

#endif
