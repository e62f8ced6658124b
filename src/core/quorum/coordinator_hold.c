/* coordinator_hold.c - renew, repair, update and end a claim that is held. */
#include "base/assert.h"
#include "core/quorum/coordinator_steps.h"

/* ---- Holding ------------------------------------------------------------*/

static void start_renew(struct hf_coordinator *c, hf_time now)
{
    c->wants_renew = false;
    c->is_reported = false;
    c->state = HF_COORDINATOR_RENEW;
    c->patience_at = HF_NEVER;
    c->check_at = HF_NEVER;
    hf_coordinator_start_round(c, now);
}

void hf_coordinator_hold(struct hf_coordinator *c, hf_time now)
{
    c->state = HF_COORDINATOR_HOLD;
    c->patience_at = HF_NEVER;
    c->check_at = HF_NEVER;
    c->retries = 0;
    if (c->wants_renew)
        start_renew(c, now);
    else if (c->wants_update)
        hf_coordinator_prepare(c, now, HF_PURPOSE_UPDATE);
}

void hf_coordinator_adopt(struct hf_coordinator *c, uint64_t token)
{
    HF_ASSERT(c->state == HF_COORDINATOR_IDLE);
    c->number = token;
    c->highest_used = token;
    c->ballot = token;
    c->token = token;
    c->state = HF_COORDINATOR_HOLD;
}

static bool is_held(const struct hf_coordinator *c)
{
    return c->state == HF_COORDINATOR_HOLD ||
           c->state == HF_COORDINATOR_RENEW ||
           ((c->state == HF_COORDINATOR_PREPARE ||
             c->state == HF_COORDINATOR_COMMIT) &&
            c->purpose != HF_PURPOSE_LOCK);
}

/* The claim is no longer held by a majority. */
static void lose_claim(struct hf_coordinator *c)
{
    c->wants_renew = false;
    c->wants_update = false;
    c->state = HF_COORDINATOR_HOLD; /* END is still possible, and useful */
    c->patience_at = HF_NEVER;
    c->check_at = HF_NEVER;
    hf_coordinator_report(c, HF_COORDINATOR_LOST);
}

/* ---- RENEW --------------------------------------------------------------*/

void hf_coordinator_renew(struct hf_coordinator *c, hf_time now,
                          uint32_t lease_ms)
{
    HF_ASSERT(is_held(c));
    c->lease_ms = lease_ms;
    c->wants_renew = true;
    /* An update continues after the renewal, unless its COMMIT was sent. */
    if (c->state != HF_COORDINATOR_COMMIT || c->purpose != HF_PURPOSE_UPDATE)
        start_renew(c, now);
}

static void report_renewed(struct hf_coordinator *c, unsigned commits)
{
    struct hf_coordinator_event event = {
        .kind = HF_COORDINATOR_RENEWED,
        .sent = c->sent,
        .needed = c->common->quorum.majority,
        .commits = commits,
    };

    c->is_reported = true;
    c->ops->event(c->arg, c, &event);
}

/* A claim that was adopted learns its ballot from the masters. */
static void learn_ballot(struct hf_coordinator *c, uint64_t ballot)
{
    if (ballot > c->ballot)
        c->ballot = ballot;
    if (ballot > c->highest_used)
        c->highest_used = ballot;
}

/* The masters that have renewed the lease at its highest ballot. A copy with a
 * lower one does not count: a repair or an update has missed it, and a claim
 * with a ballot in between may still replace it. */
static unsigned count_renewed(struct hf_coordinator *c)
{
    unsigned count = 0;

    for (unsigned i = 0; i < c->common->quorum.masters; i++) {
        if ((c->replied >> i & 1) && c->replies[i].kind == HF_QUORUM_OK)
            learn_ballot(c, c->replies[i].report.ballot);
    }
    for (unsigned i = 0; i < c->common->quorum.masters; i++)
        count += (c->replied >> i & 1) && c->replies[i].kind == HF_QUORUM_OK &&
                 c->replies[i].report.ballot == c->ballot;
    return count;
}

static void fail_renewal(struct hf_coordinator *c, hf_time now, bool lacks)
{
    if (hf_coordinator_count(c, HF_QUORUM_FORCED) > 0) {
        hf_coordinator_report(c, HF_COORDINATOR_FORCED);
        hf_coordinator_hold(c, now);
    } else if (hf_coordinator_count(c, HF_QUORUM_ENDED) > 0) {
        lose_claim(c);
    } else if (hf_coordinator_is_refused(c)) {
        hf_coordinator_report_refusal(c);
        hf_coordinator_hold(c, now);
    } else if (lacks) {
        hf_coordinator_prepare(c, now, HF_PURPOSE_RENEW);
    }
}

void hf_coordinator_decide_renew(struct hf_coordinator *c, hf_time now)
{
    unsigned majority = c->common->quorum.majority;
    unsigned renewed = count_renewed(c);
    unsigned stale = hf_coordinator_count(c, HF_QUORUM_OK) - renewed;
    bool lacks = hf_coordinator_count(c, HF_QUORUM_MISSING) + stale > 0;

    if (renewed >= majority && !c->is_reported)
        report_renewed(c, renewed);
    if (c->is_reported && hf_coordinator_has_all(c)) {
        if (lacks)
            hf_coordinator_prepare(c, now, HF_PURPOSE_REPAIR);
        else
            hf_coordinator_hold(c, now);
    } else if (!c->is_reported &&
               renewed + hf_coordinator_awaited(c) < majority) {
        fail_renewal(c, now, lacks);
    }
}

/* ---- UPDATE -------------------------------------------------------------*/

enum hf_err hf_coordinator_update(struct hf_coordinator *c, hf_time now,
                                  const struct hf_bytes *expected,
                                  struct hf_bytes value)
{
    struct hf_claim_data old_data = {
        .value = expected ? *expected : (struct hf_bytes){0},
    };
    struct hf_claim_data new_data = {.value = value};

    HF_ASSERT(is_held(c));
    HF_ASSERT(!c->wants_update);
    hf_claim_copy_fini(&c->expected);
    hf_claim_copy_fini(&c->wanted);
    if (!hf_claim_copy_init(&c->expected, &old_data) ||
        !hf_claim_copy_init(&c->wanted, &new_data)) {
        hf_claim_copy_fini(&c->expected);
        return HF_ENOMEM;
    }
    c->has_expected = expected != NULL;
    c->wants_update = true;
    c->update_ballot = 0;
    /* If an update that was abandoned is in progress, its replies must not
     * count for this one. */
    if (c->state == HF_COORDINATOR_HOLD ||
        (c->state != HF_COORDINATOR_RENEW && c->purpose == HF_PURPOSE_UPDATE))
        hf_coordinator_hold(c, now);
    return HF_OK;
}

void hf_coordinator_abandon_update(struct hf_coordinator *c)
{
    c->wants_update = false;
}

/* The value also matches if it is the new one, and a COMMIT of this update has
 * written it: an earlier attempt may have reached some masters. */
static bool matches_expected(const struct hf_coordinator *c)
{
    struct hf_bytes shown = hf_claim_copy_data(&c->shown).value;

    return !c->has_expected ||
           hf_bytes_equal(hf_claim_copy_data(&c->expected).value, shown) ||
           (c->update_ballot > 0 && c->shown_ballot >= c->update_ballot &&
            hf_bytes_equal(hf_claim_copy_data(&c->wanted).value, shown));
}

/* ---- PREPARE, COMMIT ----------------------------------------------------*/

/* Where a master lacks the lease, an update gives it the longest time that
 * another master has left. */
static void set_lease_left(struct hf_coordinator *c)
{
    uint32_t left = 1;

    for (unsigned i = 0; i < c->common->quorum.masters; i++) {
        const struct hf_report *report = &c->replies[i].report;
        uint32_t span = report->state == HF_REPORT_HELD ? report->left_ms
                                                        : report->vote_left_ms;

        if ((c->replied >> i & 1) && span > left)
            left = span;
    }
    c->left_ms = left;
}

static void decide_change_prepare(struct hf_coordinator *c, hf_time now)
{
    struct hf_reports reports = hf_coordinator_reports(c, HF_QUORUM_PROMISE);
    struct hf_verdict verdict = hf_verdict_of(&reports, NULL);
    bool is_mine = verdict.kind == HF_VERDICT_HELD &&
                   verdict.token == c->token &&
                   hf_claim_id_equal(&verdict.holder, &c->id);

    if (is_mine && c->purpose == HF_PURPOSE_UPDATE && !matches_expected(c)) {
        c->wants_update = false;
        hf_coordinator_report(c, HF_COORDINATOR_MISMATCH);
        hf_coordinator_hold(c, now);
    } else if (is_mine) {
        if (c->purpose == HF_PURPOSE_UPDATE)
            set_lease_left(c);
        hf_coordinator_commit(c, now);
    } else if (verdict.kind != HF_VERDICT_UNDECIDED ||
               (hf_coordinator_count(c, HF_QUORUM_ENDED) > 0 &&
                !hf_coordinator_may_reach(c, HF_QUORUM_PROMISE))) {
        lose_claim(c);
    }
}

static void complete_change(struct hf_coordinator *c, hf_time now)
{
    if (c->purpose == HF_PURPOSE_RENEW) {
        report_renewed(c, hf_coordinator_count(c, HF_QUORUM_OK));
    } else if (c->purpose == HF_PURPOSE_UPDATE && c->wants_update) {
        c->wants_update = false;
        hf_coordinator_report(c, HF_COORDINATOR_UPDATED);
    }
    hf_coordinator_hold(c, now);
}

/* An operator has broken the lock. A repair in the background reports nothing:
 * the next renewal will. */
static void give_up_extension(struct hf_coordinator *c, hf_time now)
{
    if (c->purpose == HF_PURPOSE_RENEW)
        hf_coordinator_report(c, HF_COORDINATOR_FORCED);
    hf_coordinator_hold(c, now);
}

void hf_coordinator_decide_change(struct hf_coordinator *c, hf_time now)
{
    if (c->state == HF_COORDINATOR_PREPARE)
        decide_change_prepare(c, now);
    else if (hf_coordinator_count(c, HF_QUORUM_OK) >=
             c->common->quorum.majority)
        complete_change(c, now);
    else if (hf_coordinator_count(c, HF_QUORUM_FORCED) > 0 &&
             !hf_coordinator_may_reach(c, HF_QUORUM_OK))
        give_up_extension(c, now);
}

/* The PREPARE or COMMIT has not succeeded in time. */
void hf_coordinator_check_change(struct hf_coordinator *c, hf_time now)
{
    if (c->state != HF_COORDINATOR_PREPARE && c->state != HF_COORDINATOR_COMMIT)
        return;
    if (c->wants_renew || c->purpose == HF_PURPOSE_REPAIR ||
        (c->purpose == HF_PURPOSE_UPDATE && !c->wants_update))
        hf_coordinator_hold(c, now);
    else
        hf_coordinator_prepare(c, now, c->purpose);
}

/* ---- END ----------------------------------------------------------------*/

void hf_coordinator_end(struct hf_coordinator *c, hf_time now)
{
    if (c->state == HF_COORDINATOR_END || c->state == HF_COORDINATOR_DONE)
        return;
    c->state = HF_COORDINATOR_END;
    c->is_reported = false;
    c->patience_at = HF_NEVER;
    c->check_at = HF_NEVER;
    c->wants_renew = false;
    c->wants_update = false;
    hf_coordinator_start_round(c, now);
}

void hf_coordinator_end_quietly(struct hf_coordinator *c, hf_time now)
{
    c->is_silent = true;
    hf_coordinator_end(c, now);
}

/* A claim that was adopted does not know at which number it was last accepted.
 * If a master shows a higher one, repeat the END with it. */
static bool learns_ballot(struct hf_coordinator *c)
{
    uint64_t ballot = c->ballot;

    for (unsigned i = 0; i < c->common->quorum.masters; i++) {
        const struct hf_report *report = &c->replies[i].report;

        if ((c->replied >> i & 1) && report->state == HF_REPORT_RELEASED &&
            hf_claim_id_equal(&report->holder, &c->id) &&
            report->ballot > ballot)
            ballot = report->ballot;
    }
    if (ballot == c->ballot)
        return false;
    c->ballot = ballot;
    if (c->highest_used < ballot)
        c->highest_used = ballot;
    return true;
}

/* How many masters have ended the claim and found this. */
static unsigned count_end(const struct hf_coordinator *c,
                          enum hf_quorum_end end)
{
    unsigned count = 0;

    for (unsigned i = 0; i < c->common->quorum.masters; i++)
        count += (c->replied >> i & 1) &&
                 c->replies[i].kind == HF_QUORUM_ENDED &&
                 c->replies[i].end == end;
    return count;
}

static unsigned count_released(const struct hf_coordinator *c)
{
    return count_end(c, HF_QUORUM_END_RELEASED) +
           count_end(c, HF_QUORUM_END_REPEATED);
}

/* The claim was held if a majority may have released it. */
static bool was_held(const struct hf_coordinator *c)
{
    unsigned others = count_end(c, HF_QUORUM_END_NOTHING) +
                      count_end(c, HF_QUORUM_END_BROKEN);

    return c->common->quorum.masters - others >= c->common->quorum.majority;
}

/* As soon as one master has released the claim, another claim may get the key
 * at the other masters, before this END arrives there. */
static bool was_released(const struct hf_coordinator *c)
{
    return count_released(c) > 0 && count_end(c, HF_QUORUM_END_BROKEN) == 0;
}

/* Returns true if a further reply cannot change was_held(). */
static bool is_end_certain(const struct hf_coordinator *c)
{
    return !was_held(c) || count_released(c) >= c->common->quorum.majority ||
           hf_coordinator_has_all(c);
}

static bool is_refused_end(const struct hf_coordinator *c, unsigned master)
{
    return (c->replied >> master & 1) &&
           c->replies[master].kind == HF_QUORUM_REFUSED;
}

/* A master that is full, or raises its mark, accepts the END later. */
void hf_coordinator_check_end(struct hf_coordinator *c, hf_time now)
{
    for (unsigned i = 0; i < c->common->quorum.masters; i++) {
        if (is_refused_end(c, i) && c->common->usable >> i & 1)
            hf_coordinator_connect(c, now, i);
    }
}

/* If the replies contradict each other, for example because an operator breaks
 * the lock at the same time, the other masters are awaited for a moment. */
void hf_coordinator_decide_end(struct hf_coordinator *c, hf_time now, bool last)
{
    struct hf_coordinator_event event = {.kind = HF_COORDINATOR_ENDED};

    if (hf_coordinator_count(c, HF_QUORUM_REFUSED) > 0 &&
        c->check_at == HF_NEVER)
        hf_coordinator_set_check(c, now);
    if (hf_coordinator_count(c, HF_QUORUM_ENDED) < c->common->quorum.majority)
        return;
    if (!c->is_reported && learns_ballot(c)) {
        hf_coordinator_start_round(c, c->sent);
        return;
    }
    if (!c->is_reported && !last && !is_end_certain(c)) {
        if (c->patience_at == HF_NEVER)
            c->patience_at = hf_time_add(now, c->common->patience_ms);
        return;
    }
    c->patience_at = HF_NEVER;
    if (!c->is_reported && !c->is_silent) {
        c->is_reported = true;
        event.was_held = was_held(c);
        event.was_released = was_released(c);
        c->ops->event(c->arg, c, &event);
    }
    if (hf_coordinator_has_all(c) &&
        hf_coordinator_count(c, HF_QUORUM_REFUSED) == 0) {
        c->state = HF_COORDINATOR_DONE;
        c->check_at = HF_NEVER;
    }
}
