#include "reader.h"

#include "bounds.h"
#include "invariants.h"
#include "mutants.h"
#include "verdict.h"

#include <string.h>

/* Copies of one token. */
struct tally {
    unsigned leases;
    unsigned fast_votes;
};

/* ---- counting ----------------------------------------------------------- */

static bool is_lease_of(const struct hf_lease *lease,
                        const struct hf_lease *wanted)
{
    return lease->state == LEASE_HELD && lease->claim == wanted->claim &&
           lease->token == wanted->token;
}

/* Count the copies of the token of `wanted`, or only those under the ballot of
 * `wanted`. The ballot of a vote is its own number. */
static struct tally count_copies(const struct hf_reader *reader,
                                 const struct hf_lease *wanted,
                                 bool same_ballot)
{
    uint8_t vote_number = same_ballot ? wanted->ballot : wanted->token;
    struct tally tally = {0, 0};

    for (unsigned i = 0; i < MASTERS; i++) {
        const struct hf_reading *reading = &reader->readings[i];

        if (!reading->reported)
            continue;
        if (is_lease_of(&reading->lease, wanted) &&
            (reading->lease.ballot == wanted->ballot || !same_ballot))
            tally.leases++;
        if (reading->vote.claim == wanted->claim &&
            reading->vote.number == vote_number)
            tally.fast_votes++;
    }
    return tally;
}

static bool is_enough(struct tally tally, unsigned missing)
{
    if (is_mutant(READ_COUNTS_VOTES_AS_LEASES))
        return tally.leases + tally.fast_votes + missing >= MAJORITY;
    return tally.leases + missing >= MAJORITY ||
           tally.leases + tally.fast_votes + missing >= FAST_QUORUM;
}

static unsigned count_missing(const struct hf_reader *reader)
{
    unsigned count = 0;

    for (unsigned i = 0; i < MASTERS; i++)
        count += !reader->readings[i].reported;
    return count;
}

/* The copy that master `i` has reported: a lease, or a vote as a lease. */
static bool find_copy(const struct hf_reader *reader, unsigned i,
                      struct hf_lease *copy)
{
    const struct hf_reading *reading = &reader->readings[i];

    *copy = reading->lease;
    if (!reading->reported || reading->lease.state == LEASE_HELD)
        return reading->reported;
    *copy = (struct hf_lease){
        .claim = reading->vote.claim,
        .token = reading->vote.number,
        .ballot = reading->vote.number,
    };
    return reading->vote.claim != NOBODY;
}

/* ---- late COMMITs ------------------------------------------------------- */

/* Returns true if a claim that has ended on one master may still get leases on
 * a majority. On the others, its END and its COMMIT may arrive in any order, so
 * that the number of its leases may rise after its END was sent. The claim may
 * have been held: "free" would turn into "held" and back. */
static bool may_return(const struct hf_reader *reader)
{
    if (is_mutant(READ_IGNORES_LATE_COMMITS))
        return false;
    for (unsigned i = 0; i < MASTERS; i++) {
        const struct hf_lease *released = &reader->readings[i].lease;
        unsigned count = MASTERS;

        if (released->state != LEASE_RELEASED)
            continue;
        for (unsigned j = 0; j < MASTERS; j++)
            if (reader->readings[j].ended >> released->claim & 1)
                count--;
        if (count >= MAJORITY)
            return true;
    }
    return false;
}

/* Returns true if all reports were true at one instant, the beginning of the
 * read. Otherwise a lease may have moved, by a repair, from a master that was
 * asked later to one that was asked before. */
static bool is_snapshot(const struct hf_reader *reader)
{
    if (is_mutant(READ_WITHOUT_SNAPSHOT))
        return true;
    for (unsigned i = 0; i < MASTERS; i++)
        if (reader->readings[i].reported && reader->readings[i].changed)
            return false;
    return true;
}

/* ---- the decision ------------------------------------------------------- */

/* Decide what the reports mean. Returns false if they are not enough. On true,
 * `held` is the lease that is held; its claim is NOBODY if the key is free. */
static bool decide(const struct hf_reader *reader, struct hf_lease *held)
{
    unsigned missing = count_missing(reader);
    bool may_be_held = is_enough((struct tally){0, 0}, missing);
    bool same_ballot =
        hf_bounds.updaters > 0 && !is_mutant(READ_VALUE_BY_TOKEN);
    struct hf_lease copy;

    if (is_mutant(READ_IGNORES_MISSING) && missing < MAJORITY)
        missing = 0;
    for (unsigned i = 0; i < MASTERS; i++) {
        if (!find_copy(reader, i, &copy))
            continue;
        if (is_enough(count_copies(reader, &copy, same_ballot), 0)) {
            *held = copy;
            return true;
        }
        if (is_enough(count_copies(reader, &copy, false), missing))
            may_be_held = true;
    }
    *held = (struct hf_lease){.claim = NOBODY};
    return !may_be_held && is_snapshot(reader) && !may_return(reader);
}

/* ---- steps -------------------------------------------------------------- */

static void begin_read(struct hf_steps *steps)
{
    struct hf_state *next = hf_steps_begin(steps);

    if (next->reader.reads == hf_bounds.reads)
        return;
    next->reader.reading = true;
    next->reader.reads++;
    hf_invariants_on_read_begin(next);
    hf_steps_take(steps, (struct hf_step){.kind = STEP_READ});
}

/* What the reader uses of a report, and nothing else: fewer states differ. */
static struct hf_reading report_to_reader(const struct hf_master *master,
                                          bool changed)
{
    struct hf_reading reading = {
        .reported = true,
        .changed = changed,
        .lease = {.claim = NOBODY},
        .vote = {.claim = NOBODY},
        .ended = master->ended,
    };

    if (is_held(master)) {
        reading.lease = master->lease;
        reading.lease.send = 0;
    }
    if (master->lease.state == LEASE_RELEASED) {
        reading.lease.state = LEASE_RELEASED;
        reading.lease.claim = master->lease.claim;
    }
    if (has_vote(master) && !master->vote.slow) {
        reading.vote.claim = master->vote.claim;
        reading.vote.number = master->vote.number;
    }
    return reading;
}

static void end_read(struct hf_reader *reader)
{
    reader->reading = false;
    memset(reader->readings, 0, sizeof reader->readings);
}

/* A read is answered in the step that decides it. If all masters have reported
 * and it is undecided, it ends without an answer. */
static void receive_report(struct hf_steps *steps, uint8_t i)
{
    struct hf_state *next = hf_steps_begin(steps);
    struct hf_reader *reader = &next->reader;
    struct hf_step step = {.kind = STEP_REPORT, .master = i};
    struct hf_lease held;

    if (next->masters[i].quiet || reader->readings[i].reported)
        return;
    reader->readings[i] =
        report_to_reader(&next->masters[i], reader->readings[i].changed);
    if (decide(reader, &held)) {
        step.kind = held.claim == NOBODY ? STEP_READ_FREE : STEP_READ_HELD;
        step.client = held.claim;
        step.number = held.token;
        step.value = held.value;
        hf_invariants_on_read_end(next, &held);
        end_read(reader);
    } else if (count_missing(reader) == 0) {
        step.kind = STEP_READ_UNDECIDED;
        hf_invariants_on_read_end(next, NULL);
        end_read(reader);
    }
    hf_steps_take(steps, step);
}

void hf_reader_steps(struct hf_steps *steps)
{
    if (!steps->from->reader.reading) {
        begin_read(steps);
        return;
    }
    for (uint8_t i = 0; i < MASTERS; i++)
        receive_report(steps, i);
}

static bool is_same_record(const struct hf_master *a, const struct hf_master *b)
{
    return memcmp(&a->promise, &b->promise, sizeof a->promise) == 0 &&
           memcmp(&a->lease, &b->lease, sizeof a->lease) == 0 &&
           memcmp(&a->vote, &b->vote, sizeof a->vote) == 0 &&
           a->ended == b->ended && a->quiet == b->quiet;
}

void hf_reader_on_step(const struct hf_state *from, struct hf_state *next)
{
    for (unsigned i = 0; i < MASTERS; i++)
        if (!next->reader.readings[i].reported &&
            !is_same_record(&from->masters[i], &next->masters[i]))
            next->reader.readings[i].changed = true;
    hf_invariants_on_read_step(next);
}
