/* mutants.h - the mistakes that the model can make.
 *
 * A mutant is the protocol with one mistake. The model must find a violation
 * for each of them; otherwise it does not check what the mistake breaks. A
 * number is never used again for another mistake; 15 is not used. */
#ifndef HF_MODEL_QUORUM_MUTANTS_H
#define HF_MODEL_QUORUM_MUTANTS_H

#include <stdbool.h>

enum hf_mutant {
    CORRECT = 0,
    COMMIT_IGNORES_BALLOTS = 1,
    NO_QUIET_PERIOD = 2,
    HELD_BELOW_FAST_QUORUM = 3,
    COMMIT_AFTER_ONE_VOTE = 4,
    LATE_COMMIT_APPLIED = 5,
    END_FREES_OTHERS = 6,
    MARK_NOT_SYNCED = 7,
    PROMISE_TIMES_OUT = 8,
    VOTE_DROPPED_EARLY = 9,
    VERDICT_IGNORES_VOTES = 10,
    VOTE_WITHDRAWN_AS_RELEASED = 11,
    RENEW_CREATES = 12,
    EQUAL_NUMBERS_PASS = 13,
    VALID_FROM_ANSWER = 14,
    VERDICT_BY_TOKEN = 16,
    HELD_BELOW_MAJORITY = 17,
    REPAIR_WITHOUT_PREPARE = 18,
    END_LEAVES_NO_TRACE = 19,
    END_DOES_NOT_CLOSE = 20,
    EXPIRED_BEATS_HELD = 21,
    OWN_VOTES_HIDE_HOLDER = 22,
    NO_LIST_OF_ENDED = 23,
    LEASE_ON_FEW_BLOCKS = 24,
    COPIES_COUNTED_ONE_LESS = 25,
    SLOW_VOTES_HELD_AS_FAST = 26,
    RENEW_OF_VOTE_AFTER_PROMISE = 27,
    DROP_FORGETS_PROMISE = 28,
    READ_IGNORES_MISSING = 29,
    READ_COUNTS_VOTES_AS_LEASES = 30,
    READ_VALUE_BY_TOKEN = 31,
    UPDATERS_SHARE_BALLOTS = 32,
    FAILED_COMPARE_NOT_CONFIRMED = 33,
    UPDATE_REPEATED_IN_DOUBT = 34,
    REPAIR_WRITES_FIRST_VALUE = 35,
    DROPPED_EARLY = 36,
    READ_IGNORES_LATE_COMMITS = 37,
    EXPIRED_BEATS_OLDER_HELD = 38,
    LEASE_OF_ENDED_COUNTS = 39,
    READ_WITHOUT_SNAPSHOT = 40,
    RENEWED_UNDER_SEVERAL_BALLOTS = 41,
    HIGHEST_BALLOT_ALONE = 42,
    MUTANTS_END,
};

struct hf_mutant_info {
    enum hf_mutant mutant;
    const char *text;
    unsigned masters;   /* of the cluster in which the model finds it */
    const char *bounds; /* within which it does, as options */
};

/* The mistake of this run. Set once, before the first state. */
extern enum hf_mutant hf_mutant;

static inline bool is_mutant(enum hf_mutant mutant)
{
    return hf_mutant == mutant;
}

/* The mutant with this number, or NULL. */
const struct hf_mutant_info *hf_mutants_find(unsigned number);

#endif
