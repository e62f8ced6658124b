/* verdict.h - which claim may hold the key, as the reports of a majority show.
 *
 * Always true in the correct protocol: while a claim is valid, the verdict of
 * every majority that answers names this claim, or is undecided. */
#ifndef HF_MODEL_QUORUM_VERDICT_H
#define HF_MODEL_QUORUM_VERDICT_H

#include "state.h"

/* A set of masters, one bit each. */
typedef uint32_t hf_set;

enum {
    UNDECIDED = NOBODY - 1, /* in place of a claim: more masters must report */
};

struct hf_verdict {
    uint8_t claim;  /* NOBODY, UNDECIDED, or the claim that may hold the key */
    uint8_t token;  /* of this claim; the rest is 0 without a claim */
    uint8_t ballot; /* the highest number under which it was written */
    uint8_t value;  /* under that ballot */
};

static inline bool contains(hf_set set, unsigned master)
{
    return set >> master & 1;
}

static inline unsigned set_size(hf_set set)
{
    return (unsigned)__builtin_popcount(set);
}

/* The verdict of the reports of the masters in `set`, at least a majority.
 * `self` is the claim that asks, if it knows that votes have not made it the
 * holder; its votes are ignored. NOBODY: all votes count. */
struct hf_verdict hf_verdict_reach(const struct hf_report reports[MASTERS],
                                   hf_set set, uint8_t self);

#endif
