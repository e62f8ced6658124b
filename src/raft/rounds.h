/* rounds.h - linearizable reads without a log entry (ReadIndex).
 *
 * A leader may have been replaced without knowing it. So before it answers a
 * read, it starts a round after the read has arrived: it sends the voters
 * ROUND{term, number}, which a node echoes only while it is in that term. If a
 * majority has echoed it, no later term had a leader when the round started. So
 * the commit index that the leader noted for the read covers every write that
 * was acknowledged before the read arrived. One round serves all reads that
 * wait. Ongaro's dissertation describes this in section 6.4.
 *
 * Pure. The caller sends ROUND to the voters, and calls hf_rounds_echo() for
 * each ECHO. */
#ifndef HF_RAFT_ROUNDS_H
#define HF_RAFT_ROUNDS_H

#include "base/ring.h"
#include "raft/membership.h"

/* A read that waits: answer it when a majority has echoed round `round` or a
 * later one, and entry `index` is applied. */
struct hf_read {
    uint64_t round;
    uint64_t index;
    uint64_t tag; /* chosen by the caller, to identify the read */
};

struct hf_rounds {
    struct hf_membership voters;
    uint64_t id;
    uint64_t term;   /* in which this node leads; 0: it does not */
    uint64_t number; /* of the last round that was started */
    uint64_t echoed[HF_RAFT_VOTERS_MAX]; /* highest round, by voter */
    bool wanted;          /* a read arrived after the last round was started */
    struct hf_ring reads; /* of struct hf_read, in order of arrival */
};

void hf_rounds_init(struct hf_rounds *rounds, uint64_t id,
                    const struct hf_membership *voters);
void hf_rounds_fini(struct hf_rounds *rounds);

/* Note that this node leads in `term`, or that it does not lead (0). All reads
 * that wait are dropped: the caller sends them to the next leader. */
void hf_rounds_lead(struct hf_rounds *rounds, uint64_t term);

/* Add a read. `commit` is the commit index of a leader that has committed an
 * entry of its term (hf_engine_can_read()). Returns HF_ESTATE if this node does
 * not lead, HF_ELIMIT if too many reads wait, or HF_ENOMEM. */
enum hf_err hf_rounds_add(struct hf_rounds *rounds, uint64_t commit,
                          uint64_t tag);

/* Start a round if a read has arrived since the last round was started. Returns
 * the number of the new round, which the caller sends to all other voters, or
 * 0. Echoes may be lost: after a while, call this with `again`, to start a
 * round if any read still waits. */
uint64_t hf_rounds_start(struct hf_rounds *rounds, bool again);

/* Count an ECHO{term, number} of `voter`. An ECHO of another term is
 * ignored. */
void hf_rounds_echo(struct hf_rounds *rounds, uint64_t voter, uint64_t term,
                    uint64_t number);

/* Remove the first read, if its round is complete and its index is at most
 * `applied`, the last index that was applied. Returns false if it still waits,
 * or there is none. */
bool hf_rounds_take(struct hf_rounds *rounds, uint64_t applied,
                    struct hf_read *read);

#endif
