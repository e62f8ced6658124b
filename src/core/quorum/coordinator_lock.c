/* coordinator_lock.c - acquire a key. */
#include "base/assert.h"
#include "core/quorum/coordinator_steps.h"

#define STUCK_MS 250 /* a claim whose vote is older has probably failed */
#define RACES_MAX 40 /* how often a claim that does not wait asks again */

/* ---- ASK ----------------------------------------------------------------*/

static void start_ask(struct hf_coordinator *c, hf_time now)
{
    unsigned usable = 0;

    for (unsigned i = 0; i < c->common->quorum.masters; i++)
        usable += c->common->usable >> i & 1;
    c->state = HF_COORDINATOR_ASK;
    c->is_pushed = false;
    c->fast = usable >= c->common->quorum.fast;
    c->patience_at = hf_time_add(now, c->common->patience_ms);
    hf_coordinator_set_check(c, now);
    hf_coordinator_start_round(c, now);
}

/* Ask with a new number. A claim that a majority has queued keeps its
 * ticket. */
void hf_coordinator_ask(struct hf_coordinator *c, hf_time now)
{
    hf_coordinator_raise_number(c);
    if (!c->is_queued)
        c->ticket = c->number;
    c->number_sent = now;
    c->retries = 0;
    start_ask(c, now);
}

void hf_coordinator_lock(struct hf_coordinator *c, hf_time now,
                         uint32_t lease_ms, bool queue)
{
    HF_ASSERT(c->state == HF_COORDINATOR_IDLE);
    c->lease_ms = lease_ms;
    c->queue = queue;
    c->purpose = HF_PURPOSE_LOCK;
    hf_coordinator_ask(c, now);
}

/* ---- Grants -------------------------------------------------------------*/

/* When the ASK with this serial was sent. If that was too long ago to be known,
 * returns HF_NEVER. */
static hf_time anchor_sent(const struct hf_coordinator *c, uint32_t serial)
{
    unsigned i = serial % HF_COORDINATOR_ANCHORS;

    return serial > 0 && c->anchors[i].serial == serial ? c->anchors[i].sent
                                                        : HF_NEVER;
}

/* The lease of this vote started no earlier than the returned instant plus
 * `*age_ms`. Without an anchor, it is when this number was first sent. */
static hf_time vote_base(const struct hf_coordinator *c,
                         const struct hf_quorum_reply *reply, uint32_t *age_ms)
{
    hf_time sent = anchor_sent(c, reply->anchor);

    *age_ms = sent != HF_NEVER ? reply->age_ms : 0;
    return sent != HF_NEVER ? sent : c->number_sent;
}

/* Set `sent` and `age_ms` of the event from the vote whose lease may have
 * started first: the grant is valid only while none of its leases has
 * expired. */
static void set_vote_base(const struct hf_coordinator *c,
                          struct hf_coordinator_event *event)
{
    hf_time earliest = HF_NEVER;

    for (unsigned i = 0; i < c->common->quorum.masters; i++) {
        uint32_t age_ms;
        hf_time sent;

        if (!(c->replied >> i & 1) || c->replies[i].kind != HF_QUORUM_VOTE)
            continue;
        sent = vote_base(c, &c->replies[i], &age_ms);
        if (hf_time_add(sent, age_ms) >= earliest)
            continue;
        earliest = hf_time_add(sent, age_ms);
        event->sent = sent;
        event->age_ms = age_ms;
    }
}

/* Report the grant. In state ASK, a fast quorum of votes has granted the key,
 * so each vote counts as a lease; in state COMMIT, a majority of OKs has. */
static void grant_key(struct hf_coordinator *c)
{
    struct hf_coordinator_event event = {
        .kind = HF_COORDINATOR_GRANTED,
        .token = c->number,
        .sent = c->sent,
        .needed = c->common->quorum.majority,
        .votes = hf_coordinator_count(c, HF_QUORUM_VOTE),
        .commits = hf_coordinator_count(c, HF_QUORUM_OK),
    };

    if (c->state == HF_COORDINATOR_ASK) {
        set_vote_base(c, &event);
        event.commits = event.votes;
    }
    c->token = c->number;
    c->ballot = c->number;
    c->state = HF_COORDINATOR_HOLD;
    c->patience_at = HF_NEVER;
    c->check_at = HF_NEVER;
    c->ops->event(c->arg, c, &event);
}

/* Returns true if a vote was given long before the others, so that its lease
 * ends soon, or has ended. */
static bool has_old_vote(const struct hf_coordinator *c)
{
    hf_time earliest = HF_NEVER, latest = 0;

    for (unsigned i = 0; i < c->common->quorum.masters; i++) {
        uint32_t age_ms;
        hf_time base;

        if (!(c->replied >> i & 1) || c->replies[i].kind != HF_QUORUM_VOTE)
            continue;
        base = vote_base(c, &c->replies[i], &age_ms);
        base = hf_time_add(base, age_ms);
        if (base < earliest)
            earliest = base;
        if (base > latest)
            latest = base;
    }
    return latest - earliest > c->lease_ms / 2;
}

/* ---- Decisions ----------------------------------------------------------*/

/* Returns true if a master keeps the key, which is free, for a claim that is
 * first in its queue. */
static bool is_reserved(const struct hf_coordinator *c)
{
    for (unsigned i = 0; i < c->common->quorum.masters; i++) {
        const struct hf_quorum_reply *reply = &c->replies[i];

        if ((c->replied >> i & 1) && reply->kind == HF_QUORUM_BUSY &&
            !reply->report.has_vote && reply->report.state != HF_REPORT_HELD)
            return true;
    }
    return false;
}

/* The masters have split their votes between claims, and no claim can get the
 * key by votes. Of all these claims, the one with the most votes, then with the
 * highest number, then with the highest id, goes on. */
static bool wins_split(const struct hf_coordinator *c, unsigned votes)
{
    if (votes == 0 || is_reserved(c))
        return false;
    for (unsigned i = 0; i < c->common->quorum.masters; i++) {
        const struct hf_report *report = &c->replies[i].report;
        unsigned others = 0;

        if (!(c->replied >> i & 1) || !report->has_vote ||
            hf_claim_id_equal(&report->voter, &c->id))
            continue;
        for (unsigned j = 0; j < c->common->quorum.masters; j++)
            others +=
                (c->replied >> j & 1) && c->replies[j].report.has_vote &&
                hf_claim_id_equal(&c->replies[j].report.voter, &report->voter);
        if (others != votes ? others > votes
            : report->vote_number != c->number
                ? report->vote_number > c->number
                : memcmp(&report->voter, &c->id, sizeof(c->id)) > 0)
            return false;
    }
    return true;
}

static uint32_t highest_position(const struct hf_coordinator *c)
{
    uint32_t position = 0;

    for (unsigned i = 0; i < c->common->quorum.masters; i++) {
        if ((c->replied >> i & 1) && c->replies[i].position > position)
            position = c->replies[i].position;
    }
    return position;
}

/* A claim counts as queued where it has a position, or has the vote. */
static unsigned count_queued(const struct hf_coordinator *c)
{
    unsigned count = hf_coordinator_count(c, HF_QUORUM_VOTE);

    for (unsigned i = 0; i < c->common->quorum.masters; i++)
        count += (c->replied >> i & 1) && c->replies[i].position > 0;
    return count;
}

static void report_queued(struct hf_coordinator *c)
{
    struct hf_coordinator_event event = {
        .kind = HF_COORDINATOR_QUEUED,
        .position = highest_position(c),
    };

    if (event.position == 0)
        event.position = 1;
    c->is_queue_reported = true;
    c->ops->event(c->arg, c, &event);
}

/* A majority has queued the claim, so its ticket is final. The others may have
 * found it too low, because of claims that race with this one: ask again, so
 * that it waits at all masters before it is reported. Otherwise a claim that
 * comes later could be the first one there. */
static bool join_all_queues(struct hf_coordinator *c, hf_time now)
{
    if (c->is_queued || count_queued(c) < c->common->quorum.majority)
        return false;
    c->is_queued = true;
    if (hf_coordinator_count(c, HF_QUORUM_LOW) == 0)
        return false;
    start_ask(c, now);
    return true;
}

/* The claim loses a race that nobody has won yet. It is busy only if another
 * claim wins, so ask again, when that should be decided. */
static void await_winner(struct hf_coordinator *c, hf_time now)
{
    if (++c->races > RACES_MAX) {
        hf_coordinator_report(c, HF_COORDINATOR_BUSY);
        hf_coordinator_end_quietly(c, now);
        return;
    }
    c->state = HF_COORDINATOR_WAIT;
    c->patience_at = HF_NEVER;
    c->was_free = true;
    hf_coordinator_check_after_race(c, now);
}

/* The claim cannot get the key now. If nobody can hold it, ask again soon. */
static void wait_or_give_up(struct hf_coordinator *c, hf_time now, bool is_free)
{
    if (!c->queue && !is_free) {
        hf_coordinator_report(c, HF_COORDINATOR_BUSY);
        hf_coordinator_end_quietly(c, now);
        return;
    }
    if (!c->queue) {
        await_winner(c, now);
        return;
    }
    if (join_all_queues(c, now))
        return;
    c->state = HF_COORDINATOR_WAIT;
    c->patience_at = HF_NEVER;
    c->was_free = is_free;
    if (is_free)
        hf_coordinator_check_soon(c, now);
    if (c->is_queued && !c->is_queue_reported)
        report_queued(c);
}

static void report_refusal(struct hf_coordinator *c, hf_time now)
{
    hf_coordinator_report_refusal(c);
    hf_coordinator_end_quietly(c, now);
}

/* Returns true if this claim may take the key: nobody else can hold it. A
 * COMMIT of this claim that reached too few masters is no obstacle. */
static bool may_take(const struct hf_coordinator *c,
                     const struct hf_verdict *verdict)
{
    return verdict->kind == HF_VERDICT_FREE ||
           (verdict->kind == HF_VERDICT_HELD &&
            hf_claim_id_equal(&verdict->holder, &c->id));
}

static bool is_key_free(const struct hf_coordinator *c)
{
    struct hf_reports reports = hf_coordinator_reports(c, 0);
    struct hf_verdict verdict = hf_verdict_of(&reports, &c->id);

    return may_take(c, &verdict);
}

/* Returns true if the key is held, and no further reply can change that. */
static bool is_certainly_held(const struct hf_coordinator *c)
{
    struct hf_reports reports = hf_coordinator_reports(c, 0);

    return hf_verdict_read(&reports).kind == HF_VERDICT_HELD;
}

/* Returns true if other claims have had their votes for so long that they have
 * probably failed. An old vote next to a young one proves nothing: a claim that
 * has lost a split keeps its votes while it waits, and the masters may be
 * handing the key over to the claim with the young one. */
static bool sees_stuck_votes(const struct hf_coordinator *c)
{
    bool found = false;

    for (unsigned i = 0; i < c->common->quorum.masters; i++) {
        const struct hf_report *report = &c->replies[i].report;

        if (!(c->replied >> i & 1) || !report->has_vote ||
            hf_claim_id_equal(&report->voter, &c->id))
            continue;
        if (report->vote_age_ms < STUCK_MS)
            return false;
        found = true;
    }
    return found;
}

/* Returns true if no other claim waits for the key. */
static bool is_alone(const struct hf_coordinator *c)
{
    for (unsigned i = 0; i < c->common->quorum.masters; i++) {
        const struct hf_quorum_reply *reply = &c->replies[i];

        if ((c->replied >> i & 1) &&
            reply->report.waiters > (reply->position > 0 ? 1U : 0U))
            return false;
    }
    return true;
}

/* Called if nobody can hold the key. Returns true if this claim should take it:
 * it wins a split, or a claim that has a vote has probably failed. If other
 * claims wait, the old vote may belong to a live one, to which the masters are
 * handing the key over; so the key must have been free at the last ASK, too. */
static bool can_take_over(const struct hf_coordinator *c, unsigned votes)
{
    return wins_split(c, votes) ||
           (sees_stuck_votes(c) && (c->was_free || is_alone(c)));
}

static void decide_without_more(struct hf_coordinator *c, hf_time now,
                                unsigned votes)
{
    unsigned majority = c->common->quorum.majority;
    unsigned low = hf_coordinator_count(c, HF_QUORUM_LOW);
    unsigned busy = hf_coordinator_count(c, HF_QUORUM_BUSY);
    bool is_free = is_key_free(c);

    if (votes >= majority)
        hf_coordinator_commit(c, now);
    else if (hf_coordinator_is_refused(c))
        report_refusal(c, now);
    else if (low > 0 && (votes + low >= majority || (c->queue && is_free)))
        hf_coordinator_ask(c, now); /* a master may keep the key for it */
    else if (is_free && can_take_over(c, votes))
        hf_coordinator_prepare(c, now, HF_PURPOSE_LOCK);
    else if (busy + votes + low >= majority)
        wait_or_give_up(c, now, is_free);
    else if (c->is_pushed)
        start_ask(c, now); /* the other masters have chosen other claims */
}

/* A vote is fast only if its master has recorded it as fast: an earlier ASK
 * with the same number may have asked for a slow one. */
static bool is_fast_vote(const struct hf_coordinator *c,
                         const struct hf_quorum_reply *reply)
{
    return reply->kind == HF_QUORUM_VOTE && reply->report.has_vote &&
           reply->report.vote_is_fast &&
           hf_claim_id_equal(&reply->report.voter, &c->id);
}

void hf_coordinator_decide_ask(struct hf_coordinator *c, hf_time now, bool last)
{
    const struct hf_quorum *quorum = &c->common->quorum;
    unsigned votes = hf_coordinator_count(c, HF_QUORUM_VOTE);
    unsigned fast = 0, others = 0;

    for (unsigned i = 0; i < quorum->masters; i++) {
        bool is_fast = is_fast_vote(c, &c->replies[i]);

        fast += (c->replied >> i & 1) && is_fast;
        others += (c->replied >> i & 1) && !is_fast;
    }
    if (fast >= quorum->fast) {
        if (has_old_vote(c))
            hf_coordinator_commit(c, now); /* all leases start again */
        else
            grant_key(c);
        return;
    }
    /* Without a chance for a fast quorum, a majority need not wait. */
    if (votes >= quorum->majority &&
        (!c->fast || quorum->masters - others < quorum->fast))
        last = true;
    if (hf_coordinator_count(c, HF_QUORUM_BUSY) >= quorum->majority &&
        is_certainly_held(c))
        last = true;
    if (last || hf_coordinator_has_all(c))
        decide_without_more(c, now, votes);
}

/* The claim waits, and a master has given it the vote, or reports that its
 * number has become too low. If the vote was pushed, the key was freed since
 * the last ASK, so the replies to that ASK are out of date, except votes. */
void hf_coordinator_on_push(struct hf_coordinator *c, hf_time now,
                            const struct hf_quorum_reply *reply)
{
    if (reply->kind == HF_QUORUM_LOW) {
        hf_coordinator_ask(c, now);
        return;
    }
    if (reply->kind != HF_QUORUM_VOTE)
        return;
    for (unsigned i = 0; i < c->common->quorum.masters; i++) {
        if (reply->serial == 0 && c->replies[i].kind != HF_QUORUM_VOTE)
            c->replied &= ~(1U << i);
    }
    c->state = HF_COORDINATOR_ASK;
    c->is_pushed = reply->serial == 0;
    c->patience_at = hf_time_add(now, c->common->patience_ms);
}

/* ---- PREPARE, COMMIT ----------------------------------------------------*/

static void decide_prepare(struct hf_coordinator *c, hf_time now, bool last)
{
    struct hf_reports reports = hf_coordinator_reports(c, HF_QUORUM_PROMISE);
    struct hf_verdict verdict = hf_verdict_of(&reports, &c->id);
    bool has_majority =
        hf_reports_count(&reports) >= c->common->quorum.majority;

    if (may_take(c, &verdict))
        hf_coordinator_commit(c, now);
    else if (hf_coordinator_is_refused(c))
        report_refusal(c, now);
    else if (has_majority && (last || hf_coordinator_has_all(c)))
        wait_or_give_up(c, now, false);
}

void hf_coordinator_decide_lock(struct hf_coordinator *c, hf_time now,
                                bool last)
{
    if (c->state == HF_COORDINATOR_PREPARE)
        decide_prepare(c, now, last);
    else if (hf_coordinator_count(c, HF_QUORUM_OK) >=
             c->common->quorum.majority)
        grant_key(c);
    else if (hf_coordinator_is_refused(c))
        report_refusal(c, now);
}

/* ---- Checks -------------------------------------------------------------*/

/* Pushes and replies may be lost, and other claims may fail or be faster. After
 * a PREPARE, ask again, because the masters may wait for that. But if a COMMIT
 * was sent, it may have reached some masters, which only a PREPARE shows. */
void hf_coordinator_check_lock(struct hf_coordinator *c, hf_time now)
{
    bool is_phase =
        c->state == HF_COORDINATOR_PREPARE || c->state == HF_COORDINATOR_COMMIT;

    if (is_phase && c->ballot > 0)
        hf_coordinator_prepare(c, now, HF_PURPOSE_LOCK);
    else if (is_phase)
        hf_coordinator_ask(c, now);
    else
        start_ask(c, now);
}
