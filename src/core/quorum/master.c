#include "core/quorum/master.h"

#include <stdlib.h>

#include "base/assert.h"

void hf_master_init(struct hf_master *master, const struct hf_master_opts *opts,
                    const struct hf_master_ops *ops, void *arg)
{
    *master = (struct hf_master){
        .opts = *opts,
        .ops = ops,
        .arg = arg,
        .mark = opts->mark,
        .floor = opts->floor,
        .highest = opts->floor,
    };
    hf_map_init(&master->records);
    hf_bids_init(&master->bids, &opts->seed);
    hf_dlist_init(&master->all);
    hf_dlist_init(&master->walks);
}

/* ---- Bids ---------------------------------------------------------------*/

/* Take the bid from the record, whether it waits or has the vote. */
static void remove_bid(struct hf_master *master, struct hf_bid *bid)
{
    struct hf_record *record = bid->record;

    if (record->vote == bid)
        (void)hf_record_take_vote(record);
    hf_record_dequeue(record, bid);
    hf_bids_free(&master->bids, bid);
}

/* A bid has lost its vote to another claim: it waits again, or is freed. */
static void displace_bid(struct hf_master *master, struct hf_bid *bid)
{
    if (!bid)
        return;
    if (bid->queue && !bid->is_gone)
        hf_record_enqueue(bid->record, bid);
    else
        hf_bids_free(&master->bids, bid);
}

/* ---- Records ------------------------------------------------------------*/

struct hf_record *hf_master_find(const struct hf_master *master,
                                 struct hf_key key)
{
    struct hf_map_link *link = hf_map_find(
        &master->records, hf_siphash(&master->opts.seed, key.data, key.size));

    for (; link; link = hf_map_find_next(link)) {
        struct hf_record *record = HF_CONTAINER(link, struct hf_record, by_key);

        if (hf_key_equal(hf_record_key(record), key))
            return record;
    }
    return NULL;
}

static size_t record_size(const struct hf_record *record)
{
    return sizeof(*record) + record->key_size;
}

static struct hf_record *add_master_record(struct hf_master *master,
                                           struct hf_key key)
{
    struct hf_record *record;

    if (hf_heap_reserve(&master->timers, master->records.count + 1))
        return NULL;
    record = hf_record_new(key, master->floor);
    if (!record)
        return NULL;
    record->used = master->now;
    record->order = ++master->created;
    master->bytes += record_size(record);
    hf_dlist_insert(&master->all, &record->link);
    hf_map_insert(&master->records, &record->by_key,
                  hf_siphash(&master->opts.seed, key.data, key.size));
    return record;
}

/* Move each walk whose next record is `record` on to the one after it. */
static void advance_record_walks(const struct hf_master *master,
                                 const struct hf_record *record)
{
    struct hf_dlist *link = master->walks.next;

    for (; link != &master->walks; link = link->next) {
        struct hf_master_walk *walk =
            HF_CONTAINER(link, struct hf_master_walk, link);

        if (walk->next == record)
            walk->next = hf_master_next(master, record);
    }
}

static void remove_record(struct hf_master *master, struct hf_record *record)
{
    advance_record_walks(master, record);
    if (record->promised > master->floor)
        master->floor = record->promised;
    hf_map_remove(&master->records, &record->by_key);
    hf_dlist_remove(&record->link);
    hf_heap_drop(&master->timers, &record->timer);
    master->bytes -= record_size(record) + hf_claim_copy_size(&record->data);
    hf_record_free(record);
}

struct hf_record *hf_master_next(const struct hf_master *master,
                                 const struct hf_record *record)
{
    struct hf_dlist *next = record ? record->link.next : master->all.next;

    return next != &master->all ? HF_CONTAINER(next, struct hf_record, link)
                                : NULL;
}

void hf_master_walk_begin(struct hf_master *master, struct hf_master_walk *walk)
{
    *walk = (struct hf_master_walk){.next = hf_master_next(master, NULL)};
    hf_dlist_push_back(&master->walks, &walk->link);
}

struct hf_record *hf_master_walk_next(const struct hf_master *master,
                                      struct hf_master_walk *walk)
{
    struct hf_record *record = walk->next;

    if (record)
        walk->next = hf_master_next(master, record);
    return record;
}

void hf_master_walk_end(struct hf_master_walk *walk)
{
    hf_dlist_remove(&walk->link);
}

void hf_master_report(const struct hf_master *master, struct hf_key key,
                      bool with_data, struct hf_report *report)
{
    const struct hf_record *record = hf_master_find(master, key);

    if (record)
        hf_record_report(record, master->now, with_data, report);
    else
        *report = (struct hf_report){.promised = master->floor,
                                     .idle_ms = UINT32_MAX};
}

/* ---- Time ---------------------------------------------------------------*/

/* When something has to be done for the record: a lease or a vote expires, a
 * claim has not asked again, or the record is no longer needed. */
static hf_time record_deadline(const struct hf_record *record, hf_time now)
{
    const struct hf_bid *first = hf_record_first(record, now);

    if (record->state == HF_REPORT_HELD)
        return record->deadline;
    if (record->vote)
        return record->vote->deadline;
    if (first)
        return first->deadline;
    if (record->waiters > 0)
        return HF_NEVER; /* when they leave, the record is settled again */
    return hf_time_add(record->used, HF_QUORUM_IDLE_MS);
}

static void announce_change(const struct hf_master *master,
                            const struct hf_record *record)
{
    if (master->ops->changing)
        master->ops->changing(master->arg, record);
}

static void report_change(const struct hf_master *master,
                          const struct hf_record *record)
{
    if (master->ops->changed)
        master->ops->changed(master->arg, record);
}

static void push_reply(struct hf_master *master, const struct hf_record *record,
                       const struct hf_bid *bid, enum hf_quorum_reply_kind kind)
{
    struct hf_quorum_reply reply = {
        .kind = kind,
        .number = bid->number,
        .highest = master->highest,
        .anchor = bid->serial,
        .age_ms = hf_time_left(master->now, bid->asked),
    };

    hf_record_report(record, master->now, false, &reply.report);
    master->ops->push(master->arg, bid->conn, &bid->id, &reply);
}

/* If the key is free, give the vote to the first claim that waits. A claim
 * whose number is too low keeps its position, and the key is kept for it while
 * it asks again. */
static void pass_on(struct hf_master *master, struct hf_record *record)
{
    struct hf_bid *bid = hf_record_first(record, master->now);

    if (!bid || !hf_record_is_free(record))
        return;
    if (bid->number > record->promised) {
        announce_change(master, record);
        hf_record_vote(record, master->now, bid);
        push_reply(master, record, bid, HF_QUORUM_VOTE);
        report_change(master, record);
    } else if (!bid->is_low) {
        bid->is_low = true;
        bid->deadline = hf_time_add(master->now, HF_QUORUM_LOW_MS);
        push_reply(master, record, bid, HF_QUORUM_LOW);
    }
}

/* Call this after every change of a record. */
static void settle_record(struct hf_master *master, struct hf_record *record)
{
    pass_on(master, record);
    if (record->promised > master->highest)
        master->highest = record->promised;
    if (record->seen > master->highest)
        master->highest = record->seen;
    hf_heap_set(&master->timers, &record->timer,
                record_deadline(record, master->now));
}

static void expire_record(struct hf_master *master, struct hf_record *record)
{
    enum hf_report_state state = record->state;

    announce_change(master, record);
    hf_record_expire(record, master->now);
    if (record->vote && record->state != HF_REPORT_HELD &&
        record->vote->deadline <= master->now) {
        hf_bids_free(&master->bids, hf_record_take_vote(record));
        report_change(master, record);
    } else if (record->state != state) {
        report_change(master, record);
    } else if (hf_record_is_free(record) && record->waiters == 0) {
        remove_record(master, record);
        return;
    }
    record->used = master->now;
    settle_record(master, record);
}

/* The connection of the bid was closed some time ago. A vote stays until its
 * deadline: it may be part of a grant. */
static void drop_leaving_bid(struct hf_master *master, struct hf_bid *bid)
{
    struct hf_record *record = bid->record;

    if (record->vote == bid)
        return;
    remove_bid(master, bid);
    record->used = master->now;
    settle_record(master, record);
}

void hf_master_advance(struct hf_master *master, hf_time now)
{
    struct hf_bid *bid;

    if (now > master->now)
        master->now = now;
    while (hf_heap_top_key(&master->timers) <= master->now)
        expire_record(master, HF_CONTAINER(hf_heap_top(&master->timers),
                                           struct hf_record, timer));
    while ((bid = hf_bids_take_due(&master->bids, master->now)))
        drop_leaving_bid(master, bid);
}

hf_time hf_master_deadline(const struct hf_master *master)
{
    hf_time timer = hf_heap_top_key(&master->timers);
    hf_time leaving = hf_bids_deadline(&master->bids);

    return timer < leaving ? timer : leaving;
}

void hf_master_disconnect(struct hf_master *master, hf_time now, uint64_t conn)
{
    struct hf_bid *bid;

    hf_master_advance(master, now);
    while ((bid = hf_bids_disconnect(&master->bids, master->now, conn))) {
        if (bid->is_low)
            settle_record(master, bid->record); /* it will not ask again */
    }
}

/* ---- Marks --------------------------------------------------------------*/

uint64_t hf_master_wanted_mark(const struct hf_master *master)
{
    uint64_t highest =
        master->refused > master->highest ? master->refused : master->highest;

    if (highest + HF_QUORUM_MARK_STEP / 2 < master->mark)
        return 0;
    return highest + HF_QUORUM_MARK_STEP;
}

void hf_master_set_mark(struct hf_master *master, uint64_t mark)
{
    if (mark > master->mark)
        master->mark = mark;
}

/* ---- Requests -----------------------------------------------------------
 *
 * Each function returns the kind of the reply. */

static enum hf_quorum_reply_kind refuse(struct hf_quorum_reply *reply,
                                        enum hf_err err)
{
    reply->err = err;
    return HF_QUORUM_REFUSED;
}

static bool is_full(const struct hf_master *master,
                    const struct hf_quorum_request *request)
{
    size_t used = master->bytes + master->bids.bytes;
    size_t size = sizeof(struct hf_record) + sizeof(struct hf_bid) +
                  request->key.size + request->data.value.size +
                  request->data.note.size + request->data.owner.size;

    return master->records.count >= HF_HOLDS_MAX ||
           used > master->opts.bytes_max ||
           size > master->opts.bytes_max - used;
}

/* The vote is as old as it was: the reply names the ASK that it followed. */
static enum hf_quorum_reply_kind repeat_vote(const struct hf_record *record,
                                             const struct hf_bid *bid,
                                             struct hf_quorum_reply *reply)
{
    if (record->state != HF_REPORT_HELD) {
        HF_ASSERT(bid); /* it has the vote */
        reply->anchor = bid->serial;
        reply->age_ms = hf_time_left(bid->voted, bid->asked);
    }
    return HF_QUORUM_VOTE;
}

/* A late copy of an earlier ASK changes nothing. */
static enum hf_quorum_reply_kind repeat_position(const struct hf_record *record,
                                                 const struct hf_bid *bid,
                                                 struct hf_quorum_reply *reply)
{
    if (record->vote == bid)
        return HF_QUORUM_LOW;
    reply->position = hf_record_position(record, bid);
    return HF_QUORUM_BUSY;
}

/* Give the claim the vote, or put it into the queue. */
static enum hf_quorum_reply_kind accept_ask(struct hf_master *master,
                                            struct hf_record *record,
                                            struct hf_bid *bid, bool votes,
                                            struct hf_quorum_reply *reply)
{
    if (votes) {
        hf_record_vote(record, master->now, bid);
        reply->anchor = bid->serial;
        report_change(master, record);
        return HF_QUORUM_VOTE;
    }
    hf_record_enqueue(record, bid);
    reply->position = hf_record_position(record, bid);
    return HF_QUORUM_BUSY;
}

static enum hf_quorum_reply_kind handle_ask(
    struct hf_master *master, struct hf_record *record, uint64_t conn,
    const struct hf_quorum_request *request, const struct hf_claim_id *id,
    struct hf_quorum_reply *reply)
{
    struct hf_bid *bid = hf_bids_find(&master->bids, record, id);
    enum hf_record_ask ask =
        hf_record_ask(record, master->now, request, id, bid);

    if (ask == HF_RECORD_IS_BUSY)
        return HF_QUORUM_BUSY;
    if (ask == HF_RECORD_IS_ABOVE)
        return HF_QUORUM_LOW;
    if (bid && ask == HF_RECORD_REPEATS)
        hf_bids_repeat(&master->bids, bid, conn, request->serial);
    if (ask == HF_RECORD_REPEATS)
        return repeat_vote(record, bid, reply);
    if (bid && request->serial <= bid->newest)
        return repeat_position(record, bid, reply);
    if (!bid && (is_full(master, request) || record->waiters >= HF_WAITERS_MAX))
        return refuse(reply, HF_ELIMIT);
    bid =
        hf_bids_ask(&master->bids, bid, record, master->now, conn, request, id);
    if (!bid)
        return refuse(reply, HF_ENOMEM);
    hf_record_set_ticket(record, bid, request->ticket);
    return accept_ask(master, record, bid, ask == HF_RECORD_VOTES, reply);
}

/* If a vote becomes a lease, its data moves from the bid to the record. */
static void free_confirmed(struct hf_master *master, struct hf_bid *bid,
                           size_t old_size)
{
    size_t size = hf_claim_copy_size(&bid->record->data);

    master->bytes += size;
    master->bytes -= old_size;
    master->bids.bytes -= size;
    hf_bids_free(&master->bids, bid);
}

/* Before a COMMIT: no claim has the vote. The vote of the claim itself is its
 * lease, with a deadline that a COMMIT does not shorten. */
static void replace_vote(struct hf_master *master, struct hf_record *record,
                         const struct hf_quorum_request *request,
                         const struct hf_claim_id *id)
{
    struct hf_bid *bid = hf_bids_find(&master->bids, record, id);
    size_t size = hf_claim_copy_size(&record->data);

    if (bid && bid == record->vote && bid->number == request->token)
        free_confirmed(master, hf_record_confirm_vote(record), size);
    else if (bid)
        remove_bid(master, bid);
    displace_bid(master, hf_record_take_vote(record));
}

static enum hf_quorum_reply_kind handle_commit(
    struct hf_master *master, struct hf_record *record,
    const struct hf_quorum_request *request, const struct hf_claim_id *id,
    struct hf_quorum_reply *reply)
{
    struct hf_claim_copy data;
    bool repeats;

    if (!hf_record_accepts(record, request, id, &repeats))
        return HF_QUORUM_LOW;
    if (repeats)
        return HF_QUORUM_OK;
    if (hf_record_is_forced(record, request, id))
        return HF_QUORUM_FORCED;
    if (is_full(master, request))
        return refuse(reply, HF_ELIMIT);
    if (!hf_claim_copy_init(&data, &request->data))
        return refuse(reply, HF_ENOMEM);
    replace_vote(master, record, request, id);
    master->bytes += hf_claim_copy_size(&data);
    master->bytes -= hf_claim_copy_size(&record->data);
    hf_record_commit(record, master->now, request, id, &data);
    report_change(master, record);
    return HF_QUORUM_OK;
}

static enum hf_quorum_reply_kind handle_renew(
    struct hf_master *master, struct hf_record *record,
    const struct hf_quorum_request *request, const struct hf_claim_id *id)
{
    size_t size = hf_claim_copy_size(&record->data);
    struct hf_bid *confirmed;
    enum hf_quorum_reply_kind kind =
        hf_record_renew(record, master->now, request, id, &confirmed);

    if (confirmed)
        free_confirmed(master, confirmed, size);
    if (kind == HF_QUORUM_OK)
        report_change(master, record);
    return kind;
}

static enum hf_quorum_reply_kind handle_end(
    struct hf_master *master, struct hf_record *record,
    const struct hf_quorum_request *request, const struct hf_claim_id *id,
    struct hf_quorum_reply *reply)
{
    struct hf_bid *bid = hf_bids_find(&master->bids, record, id);
    size_t size = hf_claim_copy_size(&record->data);

    reply->end = hf_record_end_kind(record, id);
    if (bid)
        remove_bid(master, bid);
    displace_bid(master, hf_record_end(record, request, id,
                                       reply->end >= HF_QUORUM_END_RELEASED));
    master->bytes -= size - hf_claim_copy_size(&record->data);
    report_change(master, record);
    return HF_QUORUM_ENDED;
}

static enum hf_quorum_reply_kind handle_force(
    struct hf_master *master, struct hf_record *record,
    const struct hf_quorum_request *request)
{
    struct hf_bid *broken;
    enum hf_quorum_reply_kind kind = hf_record_force(record, request, &broken);

    hf_bids_free(&master->bids, broken);
    if (kind == HF_QUORUM_OK)
        report_change(master, record);
    return kind;
}

/* Handle a request of a claim. */
static enum hf_quorum_reply_kind handle_claim(
    struct hf_master *master, struct hf_record *record, uint64_t conn,
    const struct hf_quorum_request *request, struct hf_quorum_reply *reply)
{
    struct hf_claim_id id = hf_claim_id_of(&request->nonce);

    if (request->kind == HF_QUORUM_END)
        return handle_end(master, record, request, &id, reply);
    if (hf_record_has_ended(record, &id))
        return HF_QUORUM_ENDED;
    if (request->kind == HF_QUORUM_ASK)
        return handle_ask(master, record, conn, request, &id, reply);
    if (request->kind == HF_QUORUM_PREPARE)
        return hf_record_prepare(record, request->number, &id);
    if (request->kind == HF_QUORUM_COMMIT)
        return handle_commit(master, record, request, &id, reply);
    return handle_renew(master, record, request, &id);
}

/* RENEW, READ and FORCE have no effect on a key without a record. */
static bool needs_record(enum hf_quorum_request_kind kind)
{
    return kind != HF_QUORUM_RENEW && kind != HF_QUORUM_READ &&
           kind != HF_QUORUM_FORCE;
}

static enum hf_quorum_reply_kind handle_request(
    struct hf_master *master, uint64_t conn,
    const struct hf_quorum_request *request, struct hf_quorum_reply *reply)
{
    struct hf_record *record = hf_master_find(master, request->key);
    bool is_new = !record;
    enum hf_quorum_reply_kind kind;

    if (request->kind == HF_QUORUM_READ)
        return HF_QUORUM_REPORT;
    if (is_new && !needs_record(request->kind))
        return HF_QUORUM_MISSING;
    if (is_new && is_full(master, request))
        return refuse(reply, HF_ELIMIT);
    if (is_new)
        record = add_master_record(master, request->key);
    if (!record)
        return refuse(reply, HF_ENOMEM);
    announce_change(master, record);
    kind = request->kind == HF_QUORUM_FORCE
               ? handle_force(master, record, request)
               : handle_claim(master, record, conn, request, reply);
    if (is_new && kind == HF_QUORUM_REFUSED) {
        remove_record(master, record);
        return kind;
    }
    if (kind != HF_QUORUM_MISSING)
        record->used = master->now;
    settle_record(master, record);
    return kind;
}

/* The data of a report is that of the holder, or else of the claim with the
 * vote. But a claim whose lease has expired here may hold it at other masters,
 * and must not miss the last value that this one has accepted. */
static void report_reply(const struct hf_master *master,
                         const struct hf_quorum_request *request,
                         struct hf_quorum_reply *reply)
{
    bool is_promise = reply->kind == HF_QUORUM_PROMISE;
    struct hf_claim_id id;

    hf_master_report(master, request->key,
                     is_promise || reply->kind == HF_QUORUM_REPORT,
                     &reply->report);
    if (!is_promise || reply->report.state != HF_REPORT_EXPIRED)
        return;
    id = hf_claim_id_of(&request->nonce);
    if (hf_claim_id_equal(&reply->report.holder, &id))
        reply->report.data =
            hf_claim_copy_data(&hf_master_find(master, request->key)->data);
}

/* Returns HF_OK if the request may reach its record. */
static enum hf_err check_request(struct hf_master *master,
                                 const struct hf_quorum_request *request)
{
    if (request->lease_ms > master->opts.lease_max_ms)
        return HF_EINVAL;
    if (request->number > HF_QUORUM_NUMBER_MAX ||
        (request->number > master->highest &&
         request->number - master->highest > HF_QUORUM_JUMP_MAX))
        return HF_EINVAL;
    if (request->number <= master->mark)
        return HF_OK;
    if (request->number > master->refused)
        master->refused = request->number;
    return HF_EUNAVAIL;
}

void hf_master_receive(struct hf_master *master, hf_time now, uint64_t conn,
                       const struct hf_quorum_request *request,
                       struct hf_quorum_reply *reply)
{
    enum hf_err err = check_request(master, request);

    hf_master_advance(master, now);
    *reply = (struct hf_quorum_reply){
        .number = request->number,
        .serial = request->serial,
    };
    if (master->now < master->opts.quiet_until) {
        reply->kind = HF_QUORUM_QUIET;
        reply->quiet_ms = hf_time_left(master->opts.quiet_until, master->now);
    } else if (err) {
        reply->kind = refuse(reply, err);
    } else {
        reply->kind = handle_request(master, conn, request, reply);
        report_reply(master, request, reply);
    }
    reply->highest = master->highest;
}

/* ---- Other --------------------------------------------------------------*/

void hf_master_summarize(const struct hf_master *master,
                         struct hf_master_summary *summary)
{
    struct hf_record *record = NULL;

    *summary = (struct hf_master_summary){.records = master->records.count};
    while ((record = hf_master_next(master, record))) {
        summary->held += record->state == HF_REPORT_HELD;
        summary->votes += record->vote != NULL;
        summary->waiters += record->waiters;
    }
}

static void free_record_and_bids(struct hf_master *master,
                                 struct hf_record *record)
{
    if (record->vote)
        remove_bid(master, record->vote);
    while (!hf_dlist_is_empty(&record->queue))
        remove_bid(master,
                   HF_CONTAINER(record->queue.next, struct hf_bid, in_queue));
    remove_record(master, record);
}

void hf_master_fini(struct hf_master *master)
{
    struct hf_record *record;

    while ((record = hf_master_next(master, NULL)))
        free_record_and_bids(master, record);
    HF_ASSERT(hf_dlist_is_empty(&master->walks));
    hf_map_fini(&master->records);
    hf_bids_fini(&master->bids);
    hf_heap_fini(&master->timers);
}
