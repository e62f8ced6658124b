#include "core/quorum/coordinator.h"

#include <stdlib.h>

#include "base/assert.h"
#include "core/quorum/coordinator_steps.h"

#define CHECK_MIN_MS 250 /* until a claim that waits repeats its request */
#define CHECK_MAX_MS 500
#define RACE_MIN_MS 5 /* until a claim that lost a race asks again */
#define RACE_MAX_MS 15
#define SOON_MIN_MS 100
#define SOON_MAX_MS 200
#define RETRY_MIN_MS 20 /* until a PREPARE or COMMIT that failed is retried, */
#define RETRY_MAX_MS 60 /* after the time in which masters reply; doubled by */
                        /* each retry, up to RETRY_DOUBLINGS */
#define RETRY_DOUBLINGS 3

struct hf_coordinator *hf_coordinator_new(struct hf_coordinators *common,
                                          const struct hf_coordinator_ops *ops,
                                          void *arg, struct hf_key key,
                                          const struct hf_nonce *nonce,
                                          const struct hf_claim_data *data)
{
    size_t replies = common->quorum.masters * sizeof(struct hf_quorum_reply);
    struct hf_coordinator *c = calloc(1, sizeof(*c) + replies + key.size);

    if (!c || !hf_claim_copy_init(&c->data, data)) {
        free(c);
        return NULL;
    }
    c->common = common;
    c->ops = ops;
    c->arg = arg;
    c->nonce = *nonce;
    c->id = hf_claim_id_of(nonce);
    c->patience_at = HF_NEVER;
    c->check_at = HF_NEVER;
    c->key = (uint8_t *)(c->replies + common->quorum.masters);
    c->key_size = (uint16_t)key.size;
    hf_copy(c->key, key.data, key.size);
    return c;
}

void hf_coordinator_free(struct hf_coordinator *c)
{
    if (!c)
        return;
    hf_claim_copy_fini(&c->data);
    hf_claim_copy_fini(&c->expected);
    hf_claim_copy_fini(&c->wanted);
    hf_claim_copy_fini(&c->shown);
    free(c);
}

/* ---- Sending ------------------------------------------------------------*/

static const enum hf_quorum_request_kind request_kinds[] = {
    [HF_COORDINATOR_ASK] = HF_QUORUM_ASK,
    [HF_COORDINATOR_WAIT] = HF_QUORUM_ASK,
    [HF_COORDINATOR_PREPARE] = HF_QUORUM_PREPARE,
    [HF_COORDINATOR_COMMIT] = HF_QUORUM_COMMIT,
    [HF_COORDINATOR_RENEW] = HF_QUORUM_RENEW,
    [HF_COORDINATOR_END] = HF_QUORUM_END,
    [HF_COORDINATOR_DONE] = 0,
};

/* Remember when an ASK is sent. */
static void add_anchor(struct hf_coordinator *c, hf_time now)
{
    unsigned i = c->serial % HF_COORDINATOR_ANCHORS;

    c->anchors[i].serial = c->serial;
    c->anchors[i].sent = now;
}

/* An update repeats the note and the owner, as the masters have shown them. */
static struct hf_claim_data commit_data(const struct hf_coordinator *c)
{
    struct hf_claim_data data = hf_claim_copy_data(&c->data);

    if (c->purpose != HF_PURPOSE_LOCK)
        data = hf_claim_copy_data(&c->shown);
    if (c->purpose == HF_PURPOSE_UPDATE)
        data.value = hf_claim_copy_data(&c->wanted).value;
    return data;
}

static void make_request(struct hf_coordinator *c,
                         struct hf_quorum_request *request)
{
    *request = (struct hf_quorum_request){
        .kind = request_kinds[c->state],
        .key = {c->key, c->key_size},
        .nonce = c->nonce,
        .number = c->number,
        .token = c->token,
        .serial = c->serial,
    };
    /* A master that refuses the lease as too long refuses the request, so one
     * that does not need it goes without. */
    if (request->kind != HF_QUORUM_PREPARE && request->kind != HF_QUORUM_END)
        request->lease_ms = c->lease_ms;
    if (request->kind == HF_QUORUM_ASK) {
        request->fast = c->fast;
        request->queue = c->queue;
        request->ticket = c->ticket;
        request->is_queued = c->is_queued;
        request->data = hf_claim_copy_data(&c->data);
    } else if (request->kind == HF_QUORUM_COMMIT) {
        if (c->purpose == HF_PURPOSE_LOCK)
            request->token = c->number;
        request->keeps_deadline = c->purpose == HF_PURPOSE_UPDATE;
        if (request->keeps_deadline)
            request->lease_ms = c->left_ms;
        request->data = commit_data(c);
    } else if (request->kind == HF_QUORUM_RENEW) {
        request->number = 0;
    } else if (request->kind == HF_QUORUM_END) {
        request->number = c->highest_used;
        request->ballot = c->ballot;
    }
}

static void send_request(struct hf_coordinator *c, hf_time now, unsigned master,
                         const struct hf_quorum_request *request)
{
    if (request->kind == HF_QUORUM_ASK)
        add_anchor(c, now);
    c->ops->send(c->arg, c, master, request);
}

void hf_coordinator_start_round(struct hf_coordinator *c, hf_time now)
{
    struct hf_quorum_request request;

    c->replied = 0;
    c->round = ++c->serial;
    c->sent = now;
    make_request(c, &request);
    for (unsigned i = 0; i < c->common->quorum.masters; i++) {
        if (c->common->usable >> i & 1)
            send_request(c, now, i, &request);
    }
}

/* ---- Counting -----------------------------------------------------------*/

/* A random span of `min` to `max` milliseconds. */
static uint32_t draw_span(struct hf_coordinator *c, uint32_t min, uint32_t max)
{
    c->common->chance =
        hf_map_hash_number(c->common->chance + 1) ^ c->common->chance >> 29;
    return min + (uint32_t)(c->common->chance >> 32) % (max - min + 1);
}

void hf_coordinator_set_check(struct hf_coordinator *c, hf_time now)
{
    c->check_at = hf_time_add(now, draw_span(c, CHECK_MIN_MS, CHECK_MAX_MS));
}

void hf_coordinator_check_after_race(struct hf_coordinator *c, hf_time now)
{
    c->check_at = hf_time_add(now, draw_span(c, RACE_MIN_MS, RACE_MAX_MS));
}

void hf_coordinator_check_soon(struct hf_coordinator *c, hf_time now)
{
    hf_time soon = hf_time_add(now, draw_span(c, SOON_MIN_MS, SOON_MAX_MS));

    if (soon < c->check_at)
        c->check_at = soon;
}

unsigned hf_coordinator_count(const struct hf_coordinator *c,
                              enum hf_quorum_reply_kind kind)
{
    unsigned count = 0;

    for (unsigned i = 0; i < c->common->quorum.masters; i++)
        count += (c->replied >> i & 1) && c->replies[i].kind == kind;
    return count;
}

unsigned hf_coordinator_awaited(const struct hf_coordinator *c)
{
    unsigned count = 0;

    for (unsigned i = 0; i < c->common->quorum.masters; i++)
        count += c->common->usable >> i & ~(c->replied >> i) & 1;
    return count;
}

bool hf_coordinator_has_all(const struct hf_coordinator *c)
{
    return hf_coordinator_awaited(c) == 0;
}

bool hf_coordinator_may_reach(const struct hf_coordinator *c,
                              enum hf_quorum_reply_kind kind)
{
    return hf_coordinator_count(c, kind) + hf_coordinator_awaited(c) >=
           c->common->quorum.majority;
}

struct hf_reports hf_coordinator_reports(const struct hf_coordinator *c,
                                         enum hf_quorum_reply_kind kind)
{
    struct hf_reports reports = {.quorum = c->common->quorum};

    for (unsigned i = 0; i < c->common->quorum.masters; i++) {
        if ((c->replied >> i & 1) && (!kind || c->replies[i].kind == kind))
            reports.list[i] = &c->replies[i].report;
    }
    return reports;
}

/* Returns why a repeated request would be refused again; HF_OK if it might not.
 * HF_EUNAVAIL is for a moment: the master raises its mark. */
static enum hf_err final_refusal(const struct hf_coordinator *c,
                                 unsigned master)
{
    const struct hf_quorum_reply *reply = &c->replies[master];

    if (!(c->replied >> master & 1))
        return HF_OK;
    if (reply->kind == HF_QUORUM_ENDED)
        return HF_ECANCELED; /* by another process, or an operator */
    return reply->kind == HF_QUORUM_REFUSED && reply->err != HF_EUNAVAIL
               ? reply->err
               : HF_OK;
}

bool hf_coordinator_is_refused(const struct hf_coordinator *c)
{
    unsigned left = c->common->quorum.masters;

    for (unsigned i = 0; i < c->common->quorum.masters; i++)
        left -= final_refusal(c, i) != HF_OK;
    return left < c->common->quorum.majority;
}

void hf_coordinator_report_refusal(struct hf_coordinator *c)
{
    struct hf_coordinator_event event = {.kind = HF_COORDINATOR_REFUSED};

    for (unsigned i = 0; i < c->common->quorum.masters; i++) {
        if (final_refusal(c, i))
            event.err = final_refusal(c, i);
    }
    c->ops->event(c->arg, c, &event);
}

void hf_coordinator_report(struct hf_coordinator *c,
                           enum hf_coordinator_event_kind kind)
{
    struct hf_coordinator_event event = {.kind = kind};

    c->ops->event(c->arg, c, &event);
}

/* ---- PREPARE and COMMIT -------------------------------------------------*/

/* Claims that race ask again at the same time. If each of them took the next
 * number, they could disturb each other again and again; of different numbers,
 * the highest one is accepted by all masters. */
void hf_coordinator_raise_number(struct hf_coordinator *c)
{
    uint64_t highest = c->common->highest > c->highest_used ? c->common->highest
                                                            : c->highest_used;

    c->number = highest + 1;
    if (c->highest_used > 0 && c->common->spread > 0)
        c->number += draw_span(c, 0, c->common->spread);
    c->highest_used = c->number;
}

/* A retry before the replies can have arrived would void them, again and
 * again. */
static void set_retry(struct hf_coordinator *c, hf_time now)
{
    uint32_t ms = draw_span(c, RETRY_MIN_MS, RETRY_MAX_MS);

    c->check_at = hf_time_add(now, c->common->patience_ms + (ms << c->retries));
    if (c->retries < RETRY_DOUBLINGS)
        c->retries++;
}

void hf_coordinator_prepare(struct hf_coordinator *c, hf_time now,
                            enum hf_coordinator_purpose purpose)
{
    c->state = HF_COORDINATOR_PREPARE;
    c->purpose = purpose;
    c->patience_at = hf_time_add(now, c->common->patience_ms);
    set_retry(c, now);
    hf_claim_copy_fini(&c->shown);
    c->shown_ballot = 0;
    hf_coordinator_raise_number(c);
    hf_coordinator_start_round(c, now);
}

void hf_coordinator_commit(struct hf_coordinator *c, hf_time now)
{
    c->state = HF_COORDINATOR_COMMIT;
    c->patience_at = HF_NEVER;
    set_retry(c, now);
    c->ballot = c->number;
    if (c->purpose == HF_PURPOSE_UPDATE && c->update_ballot == 0)
        c->update_ballot = c->number;
    hf_coordinator_start_round(c, now);
}

/* ---- Replies ------------------------------------------------------------*/

/* Returns true if the reply answers the current request. A vote counts even if
 * a repeated ASK has been sent since. */
static bool is_current(const struct hf_coordinator *c,
                       const struct hf_quorum_reply *reply)
{
    switch (c->state) {
    case HF_COORDINATOR_ASK:
    case HF_COORDINATOR_WAIT:
        return reply->number == c->number && c->number > 0;
    case HF_COORDINATOR_PREPARE:
    case HF_COORDINATOR_COMMIT:
    case HF_COORDINATOR_RENEW:
    case HF_COORDINATOR_END:
        return reply->serial >= c->round;
    case HF_COORDINATOR_IDLE:
    case HF_COORDINATOR_HOLD:
    case HF_COORDINATOR_DONE:
        break;
    }
    return false;
}

/* Returns true if the data of the report is that of the lease, and not of the
 * vote. A lease of this claim that has expired shows what its master has
 * accepted last. If that is an update, the other masters that have it may be
 * silent. */
static bool shows_lease(const struct hf_coordinator *c,
                        const struct hf_report *report)
{
    return report->state == HF_REPORT_HELD ||
           (report->state == HF_REPORT_EXPIRED &&
            hf_claim_id_equal(&report->holder, &c->id));
}

/* Keep a copy of the newest value, because the bytes of the reply are only
 * borrowed. Returns false if memory is exhausted. */
static bool keep_shown(struct hf_coordinator *c,
                       const struct hf_quorum_reply *reply)
{
    const struct hf_report *report = &reply->report;
    bool is_lease = shows_lease(c, report);
    uint64_t ballot = is_lease           ? report->ballot
                      : report->has_vote ? report->vote_number
                                         : 0;
    const struct hf_claim_id *claim =
        is_lease ? &report->holder : &report->voter;
    struct hf_claim_copy copy;

    if (reply->kind != HF_QUORUM_PROMISE || c->purpose == HF_PURPOSE_LOCK ||
        ballot <= c->shown_ballot || !hf_claim_id_equal(claim, &c->id))
        return true;
    if (!hf_claim_copy_init(&copy, &report->data))
        return false;
    hf_claim_copy_fini(&c->shown);
    c->shown = copy;
    c->shown_ballot = ballot;
    return true;
}

static void decide(struct hf_coordinator *c, hf_time now)
{
    switch (c->state) {
    case HF_COORDINATOR_ASK:
        hf_coordinator_decide_ask(c, now, false);
        break;
    case HF_COORDINATOR_PREPARE:
    case HF_COORDINATOR_COMMIT:
        if (c->purpose == HF_PURPOSE_LOCK)
            hf_coordinator_decide_lock(c, now, false);
        else
            hf_coordinator_decide_change(c, now);
        break;
    case HF_COORDINATOR_RENEW:
        hf_coordinator_decide_renew(c, now);
        break;
    case HF_COORDINATOR_END:
        hf_coordinator_decide_end(c, now, false);
        break;
    case HF_COORDINATOR_WAIT:
    case HF_COORDINATOR_IDLE:
    case HF_COORDINATOR_HOLD:
    case HF_COORDINATOR_DONE:
        break;
    }
}

void hf_coordinator_receive(struct hf_coordinator *c, hf_time now,
                            unsigned master,
                            const struct hf_quorum_reply *reply)
{
    HF_ASSERT(master < c->common->quorum.masters);
    if (reply->highest > c->common->highest &&
        reply->highest <= HF_QUORUM_NUMBER_MAX)
        c->common->highest = reply->highest;
    if (!is_current(c, reply) || !keep_shown(c, reply))
        return;
    c->replies[master] = *reply;
    c->replies[master].report.data = (struct hf_claim_data){0};
    c->replied |= 1U << master;
    if (c->state == HF_COORDINATOR_WAIT)
        hf_coordinator_on_push(c, now, reply);
    decide(c, now);
}

/* ---- Masters ------------------------------------------------------------*/

void hf_coordinator_connect(struct hf_coordinator *c, hf_time now,
                            unsigned master)
{
    struct hf_quorum_request request;

    if (!request_kinds[c->state])
        return;
    c->replied &= ~(1U << master);
    c->serial++;
    make_request(c, &request);
    send_request(c, now, master, &request);
}

/* A reply that has arrived still counts: votes and leases outlast the
 * connection. */
void hf_coordinator_disconnect(struct hf_coordinator *c, hf_time now,
                               unsigned master)
{
    if (!(c->replied >> master & 1))
        decide(c, now);
}

/* ---- Time ---------------------------------------------------------------*/

hf_time hf_coordinator_deadline(const struct hf_coordinator *c)
{
    return c->patience_at < c->check_at ? c->patience_at : c->check_at;
}

void hf_coordinator_tick(struct hf_coordinator *c, hf_time now)
{
    if (now >= c->patience_at) {
        c->patience_at = HF_NEVER;
        if (c->state == HF_COORDINATOR_ASK)
            hf_coordinator_decide_ask(c, now, true);
        else if (c->state == HF_COORDINATOR_PREPARE &&
                 c->purpose == HF_PURPOSE_LOCK)
            hf_coordinator_decide_lock(c, now, true);
        else if (c->state == HF_COORDINATOR_END)
            hf_coordinator_decide_end(c, now, true);
    }
    if (now < c->check_at)
        return;
    c->check_at = HF_NEVER;
    if (c->state == HF_COORDINATOR_END)
        hf_coordinator_check_end(c, now);
    else if (c->state == HF_COORDINATOR_ASK ||
             c->state == HF_COORDINATOR_WAIT || c->purpose == HF_PURPOSE_LOCK)
        hf_coordinator_check_lock(c, now);
    else
        hf_coordinator_check_change(c, now);
}
