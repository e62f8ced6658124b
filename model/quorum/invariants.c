#include "invariants.h"

#include "bounds.h"
#include "master.h"
#include "verdict.h"

#include <stddef.h>

/* What the masters would report to a client that asks all of them now. */
struct snapshot {
    const struct hf_state *state;
    struct hf_report reports[MASTERS];
    hf_set awake;
};

static void take_snapshot(struct snapshot *snapshot,
                          const struct hf_state *state)
{
    snapshot->state = state;
    snapshot->awake = 0;
    for (unsigned i = 0; i < MASTERS; i++) {
        snapshot->reports[i] = hf_master_report(&state->masters[i]);
        if (!state->masters[i].quiet)
            snapshot->awake |= 1u << i;
    }
}

/* ---- holders ------------------------------------------------------------ */

static bool has_one_holder(const struct hf_state *state)
{
    unsigned count = 0;

    for (unsigned c = 0; c < hf_bounds.claims; c++)
        count += is_valid(&state->clients[c]);
    return count <= 1;
}

static bool names_holder(const struct snapshot *snapshot,
                         struct hf_verdict verdict)
{
    for (uint8_t c = 0; c < hf_bounds.claims; c++) {
        const struct hf_client *client = &snapshot->state->clients[c];

        if (is_valid(client) && verdict.claim != UNDECIDED &&
            (verdict.claim != c || verdict.token != client->token))
            return false;
    }
    return true;
}

/* After a restart, a COMMIT that comes later than the whole quiet period may
 * show its ended claim on one master until that copy expires. In the product,
 * requests end with their connection. The exception does not extend to a lease
 * that has not lapsed. */
static bool is_late_copy(const struct snapshot *snapshot, hf_set set, uint8_t c)
{
    const struct hf_state *state = snapshot->state;

    if (state->restarts == 0 && state->drops == 0)
        return false;
    for (unsigned i = 0; i < MASTERS; i++) {
        const struct hf_lease *lease = &snapshot->state->masters[i].lease;

        if (contains(set, i) && lease->state == LEASE_HELD &&
            lease->claim == c && lease->send > state->clients[c].lapsed)
            return false;
    }
    return true;
}

static bool names_ended(const struct snapshot *snapshot, hf_set set,
                        struct hf_verdict verdict)
{
    return verdict.claim < hf_bounds.claims &&
           snapshot->state->clients[verdict.claim].phase == ENDED &&
           !is_late_copy(snapshot, set, verdict.claim);
}

static enum hf_invariant check_majorities(const struct snapshot *snapshot)
{
    hf_set awake = snapshot->awake;

    for (hf_set set = awake; set != 0; set = (set - 1) & awake) {
        struct hf_verdict verdict;

        if (set_size(set) < MAJORITY)
            continue;
        verdict = hf_verdict_reach(snapshot->reports, set, NOBODY);
        if (!names_holder(snapshot, verdict))
            return HOLDER_IS_KNOWN;
        if (names_ended(snapshot, set, verdict))
            return ENDED_STAYS_ENDED;
    }
    return INVARIANT_NONE;
}

/* ---- masters ------------------------------------------------------------ */

static bool has_ended(const struct hf_master *master, uint8_t claim)
{
    return master->ended >> claim & 1;
}

static bool has_revived(const struct hf_state *state)
{
    for (unsigned i = 0; i < MASTERS; i++) {
        const struct hf_master *master = &state->masters[i];

        if (is_held(master) && has_ended(master, master->lease.claim))
            return true;
        if (has_vote(master) && has_ended(master, master->vote.claim))
            return true;
    }
    return false;
}

/* ---- newcomers ---------------------------------------------------------- */

static unsigned count_leases(const struct hf_state *state, uint8_t claim,
                             uint8_t token)
{
    unsigned count = 0;

    for (unsigned i = 0; i < MASTERS; i++) {
        const struct hf_lease *lease = &state->masters[i].lease;

        count += lease->state == LEASE_HELD && lease->claim == claim &&
                 lease->token == token;
    }
    return count;
}

static unsigned count_votes(const struct hf_state *state, uint8_t claim,
                            uint8_t number, bool fast_only)
{
    unsigned count = 0;

    for (unsigned i = 0; i < MASTERS; i++) {
        const struct hf_vote *vote = &state->masters[i].vote;

        count += vote->claim == claim && vote->number == number &&
                 !(vote->slow && fast_only);
    }
    return count;
}

/* Returns true if some claim may hold the key, as far as the masters that
 * answer know. Those that are quiet may have held a copy of anything. */
static bool may_be_held(const struct snapshot *snapshot)
{
    const struct hf_state *state = snapshot->state;
    unsigned missing = MASTERS - set_size(snapshot->awake);

    for (unsigned i = 0; i < MASTERS; i++) {
        const struct hf_lease *lease = &state->masters[i].lease;
        const struct hf_vote *vote = &state->masters[i].vote;

        if (is_held(&state->masters[i]) &&
            count_leases(state, lease->claim, lease->token) +
                    count_votes(state, lease->claim, lease->token, false) +
                    missing >=
                MAJORITY)
            return true;
        if (has_vote(&state->masters[i]) &&
            count_votes(state, vote->claim, vote->number, true) + missing >=
                FAST_QUORUM)
            return true;
    }
    return false;
}

static unsigned send_to_all(struct hf_state *state,
                            const struct hf_message *message)
{
    unsigned positive = 0;

    for (unsigned i = 0; i < MASTERS; i++)
        if (!state->masters[i].quiet)
            positive += hf_master_receive(&state->masters[i], message);
    return positive;
}

/* Run PREPARE and COMMIT of a new claim, without other events, and see whether
 * it is granted the key. */
static bool newcomer_wins(struct hf_state state)
{
    struct hf_message message = {
        .type = PREPARE,
        .claim = CLIENTS_MAX,
        .client = CLIENTS_MAX,
    };
    struct snapshot snapshot;

    for (unsigned i = 0; i < MASTERS; i++)
        if (state.masters[i].promise.number >= message.number)
            message.number = (uint8_t)(state.masters[i].promise.number + 1);
    if (send_to_all(&state, &message) < MAJORITY)
        return false;
    take_snapshot(&snapshot, &state);
    if (hf_verdict_reach(snapshot.reports, snapshot.awake, message.claim)
            .claim != NOBODY)
        return false;
    message.type = COMMIT;
    message.token = message.number;
    return send_to_all(&state, &message) >= MAJORITY;
}

static bool newcomer_wins_now(const struct snapshot *snapshot)
{
    return set_size(snapshot->awake) < MAJORITY || may_be_held(snapshot) ||
           newcomer_wins(*snapshot->state);
}

static bool newcomer_wins_later(const struct hf_state *state)
{
    struct hf_state later = *state;

    for (unsigned i = 0; i < MASTERS; i++) {
        if (later.masters[i].quiet)
            hf_master_wake(&later.masters[i]);
        if (is_held(&later.masters[i]))
            hf_master_expire_lease(&later.masters[i]);
        hf_master_expire_vote(&later.masters[i]);
    }
    return newcomer_wins(later);
}

/* ---- all of them -------------------------------------------------------- */

enum hf_invariant hf_invariants_check(const struct hf_state *state)
{
    struct snapshot snapshot;
    enum hf_invariant broken;

    if (state->broken != INVARIANT_NONE)
        return state->broken;
    if (!has_one_holder(state))
        return ONE_HOLDER;
    if (hf_bounds.outcome)
        return INVARIANT_NONE;
    take_snapshot(&snapshot, state);
    broken = check_majorities(&snapshot);
    if (broken != INVARIANT_NONE)
        return broken;
    if (has_revived(state))
        return NOTHING_REVIVES;
    if (!newcomer_wins_now(&snapshot) || !newcomer_wins_later(state))
        return NEWCOMER_WINS;
    return INVARIANT_NONE;
}

const char *hf_invariants_text(enum hf_invariant invariant)
{
    switch (invariant) {
    case INVARIANT_NONE:
        return "nothing is violated";
    case ONE_HOLDER:
        return "two claims are valid";
    case TOKENS_RISE:
        return "a token does not rise";
    case HOLDER_IS_KNOWN:
        return "a majority does not know the valid holder";
    case ENDED_STAYS_ENDED:
        return "a majority names a claim that has ended";
    case NOTHING_REVIVES:
        return "a late request revives an ended claim on a master";
    case NEWCOMER_WINS:
        return "a newcomer does not get a free key";
    case READ_FREE_IS_FREE:
        return "a read answers that the key is free, but it is held";
    case READ_HELD_IS_HELD:
        return "a read names a claim that does not hold the key";
    case FREE_STAYS_FREE:
        return "a read names a claim that had ended before an earlier read";
    case VALUES_IN_ORDER:
        return "an update is lost, or an older value is observed";
    case UPDATED_ONCE:
        return "an update is applied twice";
    }
    return "?";
}
