#include "core/quorum/verdict.h"

unsigned hf_reports_count(const struct hf_reports *reports)
{
    unsigned count = 0;

    for (unsigned i = 0; i < reports->quorum.masters; i++)
        count += reports->list[i] != NULL;
    return count;
}

/* ---- Copies of a claim --------------------------------------------------*/

static bool shows_lease(const struct hf_report *report,
                        const struct hf_claim_id *holder, uint64_t token)
{
    return report && report->state == HF_REPORT_HELD &&
           report->token == token && hf_claim_id_equal(&report->holder, holder);
}

static bool shows_vote(const struct hf_report *report,
                       const struct hf_claim_id *voter, uint64_t number)
{
    return report && report->has_vote && report->vote_number == number &&
           hf_claim_id_equal(&report->voter, voter);
}

/* The masters that have a lease of the claim, or a vote for it. */
static unsigned count_copies(const struct hf_reports *reports,
                             const struct hf_claim_id *holder, uint64_t token)
{
    unsigned count = 0;

    for (unsigned i = 0; i < reports->quorum.masters; i++)
        count += shows_lease(reports->list[i], holder, token) ||
                 shows_vote(reports->list[i], holder, token);
    return count;
}

static unsigned count_leases(const struct hf_reports *reports,
                             const struct hf_claim_id *holder, uint64_t token)
{
    unsigned count = 0;

    for (unsigned i = 0; i < reports->quorum.masters; i++)
        count += shows_lease(reports->list[i], holder, token);
    return count;
}

static unsigned count_fast_votes(const struct hf_reports *reports,
                                 const struct hf_claim_id *voter,
                                 uint64_t number)
{
    unsigned count = 0;

    for (unsigned i = 0; i < reports->quorum.masters; i++) {
        const struct hf_report *report = reports->list[i];

        count += shows_vote(report, voter, number) && report->vote_is_fast;
    }
    return count;
}

static bool shows_end(const struct hf_reports *reports,
                      const struct hf_claim_id *id)
{
    for (unsigned i = 0; i < reports->quorum.masters; i++) {
        const struct hf_report *report = reports->list[i];

        for (unsigned j = 0; report && j < report->ended_count; j++) {
            if (hf_claim_id_equal(&report->ended[j], id))
                return true;
        }
    }
    return false;
}

/* ---- The newest lease ---------------------------------------------------*/

/* The highest ballot of a lease. The masters that renew it in place may have it
 * with different ballots, if a repair or an update has reached only some of
 * them. A copy with a higher ballot that has missed the renewals, and expired,
 * does not make the lease an older one. */
static uint64_t ballot_of(const struct hf_reports *reports,
                          const struct hf_report *lease)
{
    uint64_t ballot = lease->ballot;

    if (lease->state != HF_REPORT_HELD)
        return ballot;
    for (unsigned i = 0; i < reports->quorum.masters; i++) {
        const struct hf_report *report = reports->list[i];

        if (report && report->state != HF_REPORT_RELEASED &&
            report->token == lease->token && report->ballot > ballot &&
            hf_claim_id_equal(&report->holder, &lease->holder))
            ballot = report->ballot;
    }
    return ballot;
}

static bool is_newer_report(const struct hf_reports *reports,
                            const struct hf_report *a,
                            const struct hf_report *b)
{
    uint64_t ballot_a = ballot_of(reports, a);
    uint64_t ballot_b = ballot_of(reports, b);

    return ballot_a != ballot_b ? ballot_a > ballot_b : a->state > b->state;
}

/* Returns the report with the newest lease, by ballot: not by token, because a
 * repaired lease has an old token and a new ballot. NULL if there is none.
 *
 * It decides about all leases with lower ballots, in whatever state it is: they
 * are over. Before its COMMIT was sent, a majority had promised its number, and
 * had shown that no other claim can hold the key; since then, that majority
 * accepts no lower number. What these masters knew of the lower ones, such as
 * their release, may be lost, because a COMMIT replaces it. */
static const struct hf_report *newest_lease(const struct hf_reports *reports)
{
    const struct hf_report *newest = NULL;

    for (unsigned i = 0; i < reports->quorum.masters; i++) {
        const struct hf_report *report = reports->list[i];

        if (!report || report->state == HF_REPORT_NONE)
            continue;
        if (!newest || is_newer_report(reports, report, newest))
            newest = report;
    }
    return newest;
}

/* Returns false for a lease on too few masters: its COMMIT has reached only
 * them, and if these are promises, it will reach no others. And for a claim
 * that has ended: END names the highest ballot that its process knows, and
 * another process with the nonce may have updated the lease since. */
static bool may_be_held(const struct hf_reports *reports,
                        const struct hf_report *lease)
{
    unsigned silent = reports->quorum.masters - hf_reports_count(reports);

    return lease && lease->state == HF_REPORT_HELD &&
           !shows_end(reports, &lease->holder) &&
           count_copies(reports, &lease->holder, lease->token) + silent >=
               reports->quorum.majority;
}

/* ---- Votes --------------------------------------------------------------*/

/* Returns true if the claim with this vote may have been granted the key by
 * fast votes. */
static bool may_be_granted_by_votes(const struct hf_reports *reports,
                                    const struct hf_report *report,
                                    const struct hf_claim_id *self)
{
    unsigned silent = reports->quorum.masters - hf_reports_count(reports);

    if (!report || !report->has_vote || !report->vote_is_fast ||
        (self && hf_claim_id_equal(&report->voter, self)) ||
        shows_end(reports, &report->voter))
        return false;
    return count_fast_votes(reports, &report->voter, report->vote_number) +
               silent >=
           reports->quorum.fast;
}

static const struct hf_report *deciding_vote(const struct hf_reports *reports,
                                             const struct hf_report *lease,
                                             const struct hf_claim_id *self)
{
    for (unsigned i = 0; i < reports->quorum.masters; i++) {
        const struct hf_report *report = reports->list[i];

        if (may_be_granted_by_votes(reports, report, self) &&
            (!lease || report->vote_number > ballot_of(reports, lease)))
            return report;
    }
    return NULL;
}

/* ---- Verdicts -----------------------------------------------------------*/

static struct hf_verdict held_by_lease(const struct hf_report *report)
{
    return (struct hf_verdict){
        .kind = HF_VERDICT_HELD,
        .token = report->token,
        .holder = report->holder,
        .source = report,
    };
}

static struct hf_verdict held_by_vote(const struct hf_report *report)
{
    return (struct hf_verdict){
        .kind = HF_VERDICT_HELD,
        .token = report->vote_number,
        .holder = report->voter,
        .source = report,
    };
}

struct hf_verdict hf_verdict_of(const struct hf_reports *reports,
                                const struct hf_claim_id *self)
{
    const struct hf_report *lease, *vote;
    bool is_held;

    if (hf_reports_count(reports) < reports->quorum.majority)
        return (struct hf_verdict){.kind = HF_VERDICT_UNDECIDED};
    lease = newest_lease(reports);
    vote = deciding_vote(reports, lease, self);
    is_held = may_be_held(reports, lease);
    if (vote && is_held) /* only with five masters and more */
        return (struct hf_verdict){.kind = HF_VERDICT_UNDECIDED};
    if (vote)
        return held_by_vote(vote);
    if (is_held)
        return held_by_lease(lease);
    return (struct hf_verdict){.kind = HF_VERDICT_FREE};
}

/* ---- Reads --------------------------------------------------------------*/

/* Returns true if the copies of a claim, and `more` that are not known, make it
 * the holder. */
static bool is_granted(const struct hf_reports *reports,
                       const struct hf_claim_id *id, uint64_t token,
                       unsigned more)
{
    unsigned leases = count_leases(reports, id, token);
    unsigned votes = count_fast_votes(reports, id, token);

    return leases + more >= reports->quorum.majority ||
           leases + votes + more >= reports->quorum.fast;
}

/* The ballot of a copy of the claim, or 0. */
static uint64_t copy_ballot(const struct hf_report *report,
                            const struct hf_claim_id *id, uint64_t token)
{
    if (shows_lease(report, id, token))
        return report->ballot;
    return shows_vote(report, id, token) ? token : 0;
}

/* The highest ballot at which the master has accepted the claim, or 0. A copy
 * that has ended shows it, too. The lease may still be held at other masters:
 * this one may have missed renewals, and an update leaves its deadline as it
 * is; or an END has reached few masters. */
static uint64_t accepted_ballot(const struct hf_report *report,
                                const struct hf_claim_id *id, uint64_t token)
{
    if (report && report->state != HF_REPORT_NONE && report->token == token &&
        hf_claim_id_equal(&report->holder, id))
        return report->ballot;
    return shows_vote(report, id, token) ? token : 0;
}

/* The masters that have accepted the claim at exactly this ballot. */
static unsigned count_accepted(const struct hf_reports *reports,
                               const struct hf_claim_id *id, uint64_t token,
                               uint64_t ballot)
{
    unsigned count = 0;

    for (unsigned i = 0; i < reports->quorum.masters; i++)
        count += accepted_ballot(reports->list[i], id, token) == ballot;
    return count;
}

/* A copy that a majority has accepted; then no higher ballot can be on a
 * majority. A master with a higher ballot does not count: its update may not
 * have seen this one, which then was never on a majority, and is lost. NULL if
 * there is none: an update is in progress, or was cut off. */
static const struct hf_report *accepted_copy(const struct hf_reports *reports,
                                             const struct hf_claim_id *id,
                                             uint64_t token)
{
    for (unsigned i = 0; i < reports->quorum.masters; i++) {
        uint64_t ballot = copy_ballot(reports->list[i], id, token);

        if (ballot > 0 && count_accepted(reports, id, token, ballot) >=
                              reports->quorum.majority)
            return reports->list[i];
    }
    return NULL;
}

static struct hf_verdict read_holder(const struct hf_reports *reports,
                                     const struct hf_claim_id *id,
                                     uint64_t token)
{
    return (struct hf_verdict){
        .kind = HF_VERDICT_HELD,
        .token = token,
        .holder = *id,
        .source = accepted_copy(reports, id, token),
    };
}

/* The instants of a master are those of its turns, which take a moment. */
#define TURN_MS 2

bool hf_reports_may_mix(const struct hf_reports *reports, uint32_t elapsed_ms)
{
    for (unsigned i = 0; i < reports->quorum.masters; i++) {
        const struct hf_report *report = reports->list[i];

        if (report && report->idle_ms <= (uint64_t)elapsed_ms + TURN_MS)
            return true;
    }
    return false;
}

/* Returns true if the claim has ended at this master, and cannot get a lease
 * there any more. */
static bool has_ended_at(const struct hf_report *report,
                         const struct hf_claim_id *id)
{
    if (!report)
        return false;
    for (unsigned i = 0; i < report->ended_count; i++) {
        if (hf_claim_id_equal(&report->ended[i], id))
            return true;
    }
    return (report->state == HF_REPORT_RELEASED ||
            report->state == HF_REPORT_EXPIRED) &&
           hf_claim_id_equal(&report->holder, id);
}

/* Returns true if a claim that one master has released may still get leases at a
 * majority: its COMMIT may arrive there after this report, and before its END.
 * The key would be free, held, and free again. */
static bool may_return(const struct hf_reports *reports)
{
    for (unsigned i = 0; i < reports->quorum.masters; i++) {
        const struct hf_report *released = reports->list[i];
        unsigned left = reports->quorum.masters;

        if (!released || released->state != HF_REPORT_RELEASED)
            continue;
        for (unsigned j = 0; j < reports->quorum.masters; j++)
            left -= has_ended_at(reports->list[j], &released->holder);
        if (left >= reports->quorum.majority)
            return true;
    }
    return false;
}

/* The key is free only if no claim can hold it at the instant of the reports, or
 * get it later by a message that is under way; see "Reads" in
 * model/quorum/README.md. */
struct hf_verdict hf_verdict_read(const struct hf_reports *reports)
{
    unsigned silent = reports->quorum.masters - hf_reports_count(reports);
    bool is_possible = silent >= reports->quorum.majority;

    for (unsigned i = 0; i < reports->quorum.masters; i++) {
        const struct hf_report *report = reports->list[i];
        const struct hf_claim_id *id;
        uint64_t token;

        if (!report || (report->state != HF_REPORT_HELD &&
                        !(report->has_vote && report->vote_is_fast)))
            continue;
        id = report->state == HF_REPORT_HELD ? &report->holder : &report->voter;
        token = report->state == HF_REPORT_HELD ? report->token
                                                : report->vote_number;
        if (is_granted(reports, id, token, 0))
            return read_holder(reports, id, token);
        is_possible |= is_granted(reports, id, token, silent);
    }
    is_possible |= reports->is_mixed || may_return(reports);
    return (struct hf_verdict){.kind = is_possible ? HF_VERDICT_UNDECIDED
                                                   : HF_VERDICT_FREE};
}
