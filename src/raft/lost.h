/* lost.h - agree that the leader's process is gone, before any timeout.
 *
 * When a process dies, its kernel resets its connections. A follower whose
 * connection to the leader was reset and that cannot connect again reports this
 * to all voters: LEADER_LOST{term, end of its log}. If a majority of the voters
 * reports it, the one with the most complete log among them, then with the
 * lowest id, stands for election at once (HF_ENGINE_LEADER_LOST).
 *
 * Without the majority, one broken connection would depose a healthy leader
 * again and again. A report counts only for a short time: connections that
 * broke one after the other in the course of a day do not mean that the leader
 * is dead. Safety does not depend on reports: if one is lost, the election
 * timeout starts the election later.
 *
 * Pure. All reports are of one term; the first report of a later term removes
 * them. */
#ifndef HF_RAFT_LOST_H
#define HF_RAFT_LOST_H

#include "base/time.h"
#include "raft/membership.h"

struct hf_lost_report {
    hf_time until;                  /* when the report stops counting */
    uint64_t last_term, last_index; /* the end of the voter's log */
};

struct hf_lost {
    struct hf_membership voters;
    uint64_t id;       /* of this node */
    uint32_t valid_ms; /* how long a report counts */
    uint64_t term;     /* of the reports */
    struct hf_lost_report reports[HF_RAFT_VOTERS_MAX]; /* by voter */
};

void hf_lost_init(struct hf_lost *lost, uint64_t id,
                  const struct hf_membership *voters, uint32_t valid_ms);

/* The end of a log, and when it was reported. */
struct hf_lost_log {
    hf_time now;
    uint64_t last_term, last_index;
};

/* Note the report of `voter`, which may be this node. A report of an older
 * term, or of a node that is no voter, is ignored. */
void hf_lost_report(struct hf_lost *lost, uint64_t voter, uint64_t term,
                    const struct hf_lost_log *log);

/* Remove this node's own report, because the leader sends again. */
void hf_lost_clear(struct hf_lost *lost);

/* Returns true if this node should stand for election, to replace the leader of
 * `term`. */
bool hf_lost_elects(const struct hf_lost *lost, uint64_t term, hf_time now);

#endif
