#include "verdict.h"

#include "bounds.h"
#include "mutants.h"
#include "value.h"

#include <stddef.h>

/* The reports of some masters. */
struct poll {
    const struct hf_report *reports;
    hf_set set;
    unsigned missing; /* masters that are not in `set` */
};

static bool is_ended(const struct poll *poll, uint8_t claim)
{
    if (is_mutant(NO_LIST_OF_ENDED))
        return false;
    for (unsigned i = 0; i < MASTERS; i++)
        if (contains(poll->set, i) && poll->reports[i].ended >> claim & 1)
            return true;
    return false;
}

/* ---- leases ------------------------------------------------------------- */

static bool is_lease_of(const struct hf_lease *lease, uint8_t claim,
                        uint8_t token)
{
    return lease->state == LEASE_HELD && lease->claim == claim &&
           lease->token == token;
}

static bool is_vote_of(const struct hf_vote *vote, uint8_t claim,
                       uint8_t number)
{
    return vote->claim == claim && vote->number == number;
}

/* Returns true if `a` is the newer content of the lease layer. A repaired lease
 * has an old token and a new ballot, so ballots decide. */
static bool is_newer(const struct hf_lease *a, const struct hf_lease *b)
{
    uint8_t ballot_a = is_mutant(VERDICT_BY_TOKEN) ? a->token : a->ballot;
    uint8_t ballot_b = is_mutant(VERDICT_BY_TOKEN) ? b->token : b->ballot;

    if (ballot_a != ballot_b)
        return ballot_a > ballot_b;
    return a->state > b->state;
}

/* The newest lease layer in `set`; NULL if all of them are empty. */
static const struct hf_lease *newest_lease(const struct poll *poll, hf_set set)
{
    const struct hf_lease *newest = NULL;

    for (unsigned i = 0; i < MASTERS; i++) {
        const struct hf_lease *lease = &poll->reports[i].lease;

        if (!contains(set, i) || lease->state == LEASE_NONE)
            continue;
        if (!newest || is_newer(lease, newest))
            newest = lease;
    }
    return newest;
}

/* Returns true if a majority may have `lease`, as leases or as votes, given the
 * masters that have not reported. */
static bool may_have_majority(const struct poll *poll,
                              const struct hf_lease *lease)
{
    unsigned copies = poll->missing;

    for (unsigned i = 0; i < MASTERS; i++) {
        const struct hf_report *report = &poll->reports[i];

        if (contains(poll->set, i) &&
            (is_lease_of(&report->lease, lease->claim, lease->token) ||
             is_vote_of(&report->vote, lease->claim, lease->token)))
            copies++;
    }
    if (is_mutant(LEASE_ON_FEW_BLOCKS))
        return true;
    if (is_mutant(COPIES_COUNTED_ONE_LESS))
        copies--;
    return copies >= MAJORITY;
}

static hf_set without_lease(const struct poll *poll, hf_set set,
                            const struct hf_lease *lease)
{
    for (unsigned i = 0; i < MASTERS; i++)
        if (is_lease_of(&poll->reports[i].lease, lease->claim, lease->token))
            set &= ~(1u << i);
    return set;
}

/* Returns true if the claim has ended, and an updater has written its lease
 * under a ballot that END did not know. Without updaters, the trace that END
 * leaves must be enough, and the model checks that. */
static bool is_of_ended(const struct poll *poll, const struct hf_lease *lease)
{
    return hf_bounds.updaters > 0 && !is_mutant(LEASE_OF_ENDED_COUNTS) &&
           is_ended(poll, lease->claim);
}

/* Returns true if a claim may hold the key by this lease. */
static bool counts(const struct poll *poll, const struct hf_lease *lease)
{
    return may_have_majority(poll, lease) && !is_of_ended(poll, lease);
}

/* The lease layer that decides: the newest, except that a held lease is passed
 * over if it is on too few masters. It comes from a COMMIT that did not reach a
 * majority, and would otherwise block the key after its client died. */
static const struct hf_lease *current_lease(const struct poll *poll)
{
    hf_set set = poll->set;
    const struct hf_lease *lease = newest_lease(poll, set);

    while (lease && lease->state == LEASE_HELD && !counts(poll, lease)) {
        set = without_lease(poll, set, lease);
        lease = newest_lease(poll, set);
    }
    return lease;
}

/* Mistakes: a held lease is not seen behind an expired one. */
static bool is_overlooked(const struct hf_lease *held,
                          const struct hf_lease *expired)
{
    if (held->ballot == expired->ballot)
        return is_mutant(EXPIRED_BEATS_HELD);
    return is_mutant(EXPIRED_BEATS_OLDER_HELD) ||
           is_mutant(HIGHEST_BALLOT_ALONE);
}

/* Returns true if the lease is held, or if it has expired on one master while
 * others report the same token as held: the first has missed a renewal. The
 * renewal may have been confirmed by masters that have missed a repair, so the
 * expired copy may have the higher ballot. */
static bool is_held_somewhere(const struct poll *poll,
                              const struct hf_lease *lease)
{
    if (lease->state != LEASE_EXPIRED)
        return lease->state == LEASE_HELD;
    for (unsigned i = 0; i < MASTERS; i++) {
        const struct hf_lease *other = &poll->reports[i].lease;

        if (contains(poll->set, i) && !is_overlooked(other, lease) &&
            is_lease_of(other, lease->claim, lease->token))
            return counts(poll, lease);
    }
    return false;
}

/* ---- votes --------------------------------------------------------------- */

/* Returns true if a fast quorum may have cast `vote`, given the masters that
 * have not reported. */
static bool may_have_fast_quorum(const struct poll *poll,
                                 const struct hf_vote *vote)
{
    unsigned votes = poll->missing;

    for (unsigned i = 0; i < MASTERS; i++) {
        const struct hf_vote *other = &poll->reports[i].vote;

        if (contains(poll->set, i) && !other->slow &&
            is_vote_of(other, vote->claim, vote->number))
            votes++;
    }
    return votes >= FAST_QUORUM;
}

/* The vote by which a claim may hold the key, if its number is above `ballot`;
 * NULL if there is none. */
static const struct hf_vote *winning_vote(const struct poll *poll,
                                          uint8_t ballot, uint8_t self)
{
    if (is_mutant(VERDICT_IGNORES_VOTES) || hf_bounds.no_fast)
        return NULL;
    for (unsigned i = 0; i < MASTERS; i++) {
        const struct hf_vote *vote = &poll->reports[i].vote;

        if (!contains(poll->set, i) || vote->claim == NOBODY || vote->slow)
            continue;
        if (vote->claim == self && !is_mutant(OWN_VOTES_HIDE_HOLDER))
            continue;
        if (vote->number > ballot && !is_ended(poll, vote->claim) &&
            may_have_fast_quorum(poll, vote))
            return vote;
    }
    return NULL;
}

/* ---- both ---------------------------------------------------------------- */

struct hf_verdict hf_verdict_reach(const struct hf_report reports[MASTERS],
                                   hf_set set, uint8_t self)
{
    struct poll poll = {
        .reports = reports,
        .set = set,
        .missing = MASTERS - set_size(set),
    };
    const struct hf_lease *lease = current_lease(&poll);
    const struct hf_vote *vote =
        winning_vote(&poll, lease ? lease->ballot : 0, self);
    bool held = lease && is_held_somewhere(&poll, lease);

    /* Possible with five masters: the others decide which one it is. */
    if (vote && held && vote->claim != self)
        return (struct hf_verdict){.claim = UNDECIDED};
    if (vote)
        return (struct hf_verdict){
            .claim = vote->claim,
            .token = vote->number,
            .ballot = vote->number,
            .value = VALUE_FIRST,
        };
    if (held)
        return (struct hf_verdict){
            .claim = lease->claim,
            .token = lease->token,
            .ballot = lease->ballot,
            .value = lease->value,
        };
    return (struct hf_verdict){.claim = NOBODY};
}
