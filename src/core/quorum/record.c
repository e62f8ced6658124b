#include "core/quorum/record.h"

#include <stdlib.h>

#include "base/assert.h"

/* ---- Records ------------------------------------------------------------*/

struct hf_record *hf_record_new(struct hf_key key, uint64_t floor)
{
    struct hf_record *record = calloc(1, sizeof(*record) + key.size);

    if (!record)
        return NULL;
    HF_ASSERT(key.size <= HF_KEY_MAX);
    record->promised = floor;
    record->is_closed = true;
    hf_dlist_init(&record->queue);
    record->key_size = (uint16_t)key.size;
    hf_copy(record->key, key.data, key.size);
    return record;
}

void hf_record_free(struct hf_record *record)
{
    HF_ASSERT(!record->vote);
    HF_ASSERT(record->waiters == 0);
    hf_claim_copy_fini(&record->data);
    free(record);
}

bool hf_record_is_free(const struct hf_record *record)
{
    return record->state != HF_REPORT_HELD && !record->vote;
}

static bool has_lease(const struct hf_record *record,
                      const struct hf_claim_id *id, uint64_t token)
{
    return record->state == HF_REPORT_HELD && record->token == token &&
           hf_claim_id_equal(&record->holder, id);
}

static bool has_vote(const struct hf_record *record,
                     const struct hf_claim_id *id)
{
    return record->vote && hf_claim_id_equal(&record->vote->id, id);
}

bool hf_record_has_token(const struct hf_record *record,
                         const struct hf_claim_id *id, uint64_t token)
{
    return has_lease(record, id, token) ||
           (has_vote(record, id) && record->vote->number == token);
}

bool hf_record_is_holder(const struct hf_record *record,
                         const struct hf_claim_id *id)
{
    return record->state == HF_REPORT_HELD
               ? hf_claim_id_equal(&record->holder, id)
               : has_vote(record, id);
}

/* ---- Numbers ------------------------------------------------------------*/

/* An equal number of another claim is too low. */
static bool is_promised(const struct hf_record *record, uint64_t number,
                        const struct hf_claim_id *id)
{
    return number == record->promised && !record->is_closed &&
           hf_claim_id_equal(&record->promised_to, id);
}

static bool is_allowed(const struct hf_record *record, uint64_t number,
                       const struct hf_claim_id *id)
{
    return number > record->promised || is_promised(record, number, id);
}

static void set_promise(struct hf_record *record, uint64_t number,
                        const struct hf_claim_id *id)
{
    record->promised = number;
    record->promised_to = *id;
    record->is_closed = false;
}

static void raise_seen(struct hf_record *record, uint64_t number)
{
    if (number > record->seen)
        record->seen = number;
}

/* ---- The queue ----------------------------------------------------------*/

static struct hf_bid *bid_at(struct hf_dlist *link)
{
    return HF_CONTAINER(link, struct hf_bid, in_queue);
}

/* Returns true if the claim cannot get the vote now: its connection is closed,
 * or it does not ask again with a higher number. */
static bool is_passed_over(const struct hf_bid *bid, hf_time now)
{
    return bid->is_gone || (bid->is_low && bid->deadline <= now);
}

struct hf_bid *hf_record_first(const struct hf_record *record, hf_time now)
{
    struct hf_dlist *link = record->queue.next;

    for (; link != &record->queue; link = link->next) {
        if (!is_passed_over(bid_at(link), now))
            return bid_at(link);
    }
    return NULL;
}

uint32_t hf_record_position(const struct hf_record *record,
                            const struct hf_bid *bid)
{
    uint64_t ahead = bid->place - bid_at(record->queue.next)->place;

    return ahead < record->waiters ? (uint32_t)ahead + 1 : record->waiters;
}

static bool is_before(const struct hf_bid *a, const struct hf_bid *b)
{
    return a->ticket != b->ticket ? a->ticket < b->ticket
                                  : memcmp(&a->id, &b->id, sizeof(a->id)) < 0;
}

void hf_record_dequeue(struct hf_record *record, struct hf_bid *bid)
{
    if (!hf_dlist_is_linked(&bid->in_queue))
        return;
    hf_dlist_remove(&bid->in_queue);
    record->waiters--;
}

void hf_record_set_ticket(struct hf_record *record, struct hf_bid *bid,
                          uint64_t ticket)
{
    if (bid->ticket == ticket)
        return;
    hf_record_dequeue(record, bid);
    bid->ticket = ticket;
}

void hf_record_enqueue(struct hf_record *record, struct hf_bid *bid)
{
    struct hf_dlist *after = record->queue.prev;

    raise_seen(record, bid->ticket);
    if (hf_dlist_is_linked(&bid->in_queue))
        return;
    while (after != &record->queue && is_before(bid, bid_at(after)))
        after = after->prev;
    bid->place = after != &record->queue ? bid_at(after)->place + 1
                 : hf_dlist_is_empty(&record->queue)
                     ? 0
                     : bid_at(record->queue.next)->place;
    hf_dlist_insert(after->next, &bid->in_queue);
    record->waiters++;
}

/* ---- ASK ----------------------------------------------------------------*/

/* A claim that is new to the queue must have a ticket above those of all claims
 * that were here before it. A claim that a majority has queued keeps its
 * ticket. */
static bool is_ticket_low(const struct hf_record *record,
                          const struct hf_quorum_request *request)
{
    return !request->is_queued && request->ticket <= record->seen;
}

/* Returns true if the key is free, and no claim waits before this one. */
static bool is_first(const struct hf_record *record, hf_time now,
                     const struct hf_claim_id *id)
{
    const struct hf_bid *first = hf_record_first(record, now);

    if (record->state == HF_REPORT_HELD ||
        (record->vote && !has_vote(record, id)))
        return false;
    return has_vote(record, id) || !first || hf_claim_id_equal(&first->id, id);
}

enum hf_record_ask hf_record_ask(const struct hf_record *record, hf_time now,
                                 const struct hf_quorum_request *request,
                                 const struct hf_claim_id *id,
                                 const struct hf_bid *bid)
{
    if (has_lease(record, id, request->number) ||
        (record->state != HF_REPORT_HELD && has_vote(record, id) &&
         record->vote->number == request->number))
        return HF_RECORD_REPEATS;
    if (is_first(record, now, id))
        return request->number > record->promised ? HF_RECORD_VOTES
                                                  : HF_RECORD_IS_ABOVE;
    if (!request->queue || (record->state == HF_REPORT_HELD &&
                            hf_claim_id_equal(&record->holder, id)))
        return HF_RECORD_IS_BUSY;
    if (!bid && is_ticket_low(record, request))
        return HF_RECORD_IS_ABOVE;
    return HF_RECORD_QUEUES;
}

void hf_record_vote(struct hf_record *record, hf_time now, struct hf_bid *bid)
{
    HF_ASSERT(bid->number > record->promised);
    HF_ASSERT(record->state != HF_REPORT_HELD);
    HF_ASSERT(!record->vote || record->vote == bid);
    hf_record_dequeue(record, bid);
    set_promise(record, bid->number, &bid->id);
    raise_seen(record, bid->number);
    record->vote = bid;
    bid->forced = false;
    bid->voted = now;
    bid->deadline = hf_time_add(now, bid->lease_ms);
}

struct hf_bid *hf_record_take_vote(struct hf_record *record)
{
    struct hf_bid *bid = record->vote;

    record->vote = NULL;
    return bid;
}

struct hf_bid *hf_record_confirm_vote(struct hf_record *record)
{
    struct hf_bid *bid = hf_record_take_vote(record);

    record->state = HF_REPORT_HELD;
    record->forced = bid->forced;
    record->ballot = bid->number;
    record->token = bid->number;
    record->holder = bid->id;
    record->since = bid->voted;
    record->deadline = bid->deadline;
    hf_claim_copy_fini(&record->data);
    record->data = bid->data;
    bid->data = (struct hf_claim_copy){0};
    return bid;
}

/* ---- PREPARE, COMMIT ----------------------------------------------------*/

enum hf_quorum_reply_kind hf_record_prepare(struct hf_record *record,
                                            uint64_t number,
                                            const struct hf_claim_id *id)
{
    if (!is_allowed(record, number, id))
        return HF_QUORUM_LOW;
    set_promise(record, number, id);
    return HF_QUORUM_PROMISE;
}

/* An update leaves the deadline as it is, so it may change a broken lock. */
bool hf_record_is_forced(const struct hf_record *record,
                         const struct hf_quorum_request *request,
                         const struct hf_claim_id *id)
{
    if (request->keeps_deadline ||
        !hf_record_has_token(record, id, request->token))
        return false;
    return record->vote ? record->vote->forced : record->forced;
}

bool hf_record_accepts(const struct hf_record *record,
                       const struct hf_quorum_request *request,
                       const struct hf_claim_id *id, bool *repeats)
{
    *repeats = has_lease(record, id, request->token) &&
               record->ballot == request->number;
    return *repeats || is_allowed(record, request->number, id);
}

void hf_record_commit(struct hf_record *record, hf_time now,
                      const struct hf_quorum_request *request,
                      const struct hf_claim_id *id, struct hf_claim_copy *data)
{
    hf_time deadline = hf_time_add(now, request->lease_ms);

    if (!has_lease(record, id, request->token))
        record->forced = false;
    else if (request->keeps_deadline || record->deadline > deadline)
        deadline = record->deadline;
    if (!has_lease(record, id, request->token) ||
        request->number == request->token)
        record->since = now; /* this is the grant */
    set_promise(record, request->number, id);
    raise_seen(record, request->number);
    record->state = HF_REPORT_HELD;
    record->ballot = request->number;
    record->token = request->token;
    record->holder = *id;
    record->deadline = deadline;
    hf_claim_copy_fini(&record->data);
    record->data = *data;
}

/* ---- RENEW, END, FORCE --------------------------------------------------*/

/* A RENEW of a lease ignores promises: a claim that was promised a number since
 * has seen the lease in the report, or was promised it before the lease was
 * accepted, and then the lease could not have been accepted. A vote does not
 * count like a lease in a report, so the RENEW of a vote is void once another
 * claim was promised a number. */
enum hf_quorum_reply_kind hf_record_renew(
    struct hf_record *record, hf_time now,
    const struct hf_quorum_request *request, const struct hf_claim_id *id,
    struct hf_bid **confirmed)
{
    hf_time deadline = hf_time_add(now, request->lease_ms);

    *confirmed = NULL;
    if (has_lease(record, id, request->token)) {
        if (record->forced)
            return HF_QUORUM_FORCED;
        if (deadline > record->deadline)
            record->deadline = deadline;
        return HF_QUORUM_OK;
    }
    if (record->state == HF_REPORT_HELD || !has_vote(record, id) ||
        record->vote->number != request->token ||
        !is_promised(record, request->token, id))
        return HF_QUORUM_MISSING;
    if (record->vote->forced)
        return HF_QUORUM_FORCED;
    *confirmed = hf_record_confirm_vote(record);
    if (deadline > record->deadline)
        record->deadline = deadline;
    return HF_QUORUM_OK;
}

/* Returns the index of the claim in the list of ended ones, or -1. */
static int find_ended(const struct hf_record *record,
                      const struct hf_claim_id *id)
{
    for (int i = 0; i < record->ended_count; i++) {
        if (hf_claim_id_equal(&record->ended[i], id))
            return i;
    }
    return -1;
}

static void remember_ended(struct hf_record *record,
                           const struct hf_claim_id *id, bool was_held)
{
    unsigned bit = 1U << record->ended_next;

    if (find_ended(record, id) >= 0)
        return;
    record->ended[record->ended_next] = *id;
    record->ended_held = (uint8_t)(was_held ? record->ended_held | bit
                                            : record->ended_held & ~bit);
    record->ended_next =
        (uint8_t)((record->ended_next + 1U) % HF_REPORT_ENDED_MAX);
    if (record->ended_count < HF_REPORT_ENDED_MAX)
        record->ended_count++;
}

static bool has_released(const struct hf_record *record,
                         const struct hf_claim_id *id)
{
    return record->state == HF_REPORT_RELEASED &&
           hf_claim_id_equal(&record->holder, id);
}

bool hf_record_has_ended(const struct hf_record *record,
                         const struct hf_claim_id *id)
{
    return has_released(record, id) || find_ended(record, id) >= 0;
}

enum hf_quorum_end hf_record_end_kind(const struct hf_record *record,
                                      const struct hf_claim_id *id)
{
    int i = find_ended(record, id);
    bool was_held = i >= 0 ? record->ended_held >> i & 1
                           : has_released(record, id) && record->was_held;

    if (was_held)
        return HF_QUORUM_END_REPEATED;
    if (hf_record_has_ended(record, id))
        return HF_QUORUM_END_BROKEN;
    return hf_record_is_holder(record, id) ? HF_QUORUM_END_RELEASED
                                           : HF_QUORUM_END_NOTHING;
}

/* The claim was allowed to write at `ballot`, so this master records the
 * release even if the lease never arrived: its COMMIT may still be on the way
 * to this master or another one. A vote that was withdrawn leaves no such
 * record, which would hide an older holder that this master has missed. */
static void release_lease(struct hf_record *record, uint64_t ballot,
                          const struct hf_claim_id *id)
{
    if (record->state == HF_REPORT_HELD &&
        hf_claim_id_equal(&record->holder, id))
        record->state = HF_REPORT_RELEASED;
    if (ballot == 0 || ballot < record->ballot)
        return;
    if (!hf_claim_id_equal(&record->holder, id))
        record->token = ballot;
    record->state = HF_REPORT_RELEASED;
    record->ballot = ballot;
    record->holder = *id;
    hf_claim_copy_fini(&record->data);
}

struct hf_bid *hf_record_end(struct hf_record *record,
                             const struct hf_quorum_request *request,
                             const struct hf_claim_id *id, bool was_held)
{
    struct hf_bid *displaced = NULL;

    if (record->vote && request->ballot >= record->ballot &&
        record->vote->number < request->ballot)
        displaced = hf_record_take_vote(record);
    release_lease(record, request->ballot, id);
    if (has_released(record, id))
        record->was_held = was_held;
    if (!record->is_closed && hf_claim_id_equal(&record->promised_to, id))
        record->is_closed = true;
    if (request->number > record->promised) {
        record->promised = request->number;
        record->is_closed = true;
    }
    remember_ended(record, id, was_held);
    return displaced;
}

/* The votes of a claim that was granted by votes are leases. */
static enum hf_quorum_reply_kind force_vote(struct hf_record *record, bool now,
                                            struct hf_bid **broken)
{
    record->vote->forced = true;
    if (now) {
        *broken = hf_record_take_vote(record);
        remember_ended(record, &(*broken)->id, false);
    }
    return HF_QUORUM_OK;
}

enum hf_quorum_reply_kind hf_record_force(
    struct hf_record *record, const struct hf_quorum_request *request,
    struct hf_bid **broken)
{
    *broken = NULL;
    if (record->state != HF_REPORT_HELD && record->vote &&
        record->vote->number == request->token)
        return force_vote(record, request->now, broken);
    if (record->state != HF_REPORT_HELD || record->token != request->token)
        return HF_QUORUM_MISSING;
    record->forced = true;
    if (request->now) {
        record->state = HF_REPORT_RELEASED;
        record->was_held = false;
        remember_ended(record, &record->holder, false);
    }
    return HF_QUORUM_OK;
}

void hf_record_expire(struct hf_record *record, hf_time now)
{
    if (record->state == HF_REPORT_HELD && record->deadline <= now)
        record->state = HF_REPORT_EXPIRED;
}

/* ---- Reports ------------------------------------------------------------*/

static void report_vote(const struct hf_bid *bid, hf_time now,
                        struct hf_report *report)
{
    report->has_vote = true;
    report->forced = bid->forced;
    report->vote_is_fast = bid->fast;
    report->vote_number = bid->number;
    report->voter = bid->id;
    report->vote_age_ms = hf_time_left(now, bid->voted);
    report->vote_left_ms = hf_time_left(bid->deadline, now);
}

void hf_record_report(const struct hf_record *record, hf_time now,
                      bool with_data, struct hf_report *report)
{
    *report = (struct hf_report){
        .promised = record->promised,
        .state = record->state,
        .ballot = record->ballot,
        .token = record->token,
        .holder = record->holder,
        .forced = record->forced,
        .idle_ms = hf_time_left(now, record->used),
        .waiters = record->waiters,
        .ended_count = record->ended_count,
    };
    memcpy(report->ended, record->ended, sizeof(report->ended));
    if (record->state == HF_REPORT_HELD) {
        report->held_ms = hf_time_left(now, record->since);
        report->left_ms = hf_time_left(record->deadline, now);
    }
    if (record->vote)
        report_vote(record->vote, now, report);
    if (with_data && record->state == HF_REPORT_HELD)
        report->data = hf_claim_copy_data(&record->data);
    else if (with_data && record->vote)
        report->data = hf_claim_copy_data(&record->vote->data);
}
