/* lost.h - agree that the leader's process is gone, before any timeout.
 *
 * When a process dies, its kernel resets its connections. A follower whose
 * connection to the leader was reset and who cannot connect again reports that
 * to all voters: LEADER_LOST{term, end of its log}. If a majority of the voters
 * reports it, the one with the most complete log among them, then with the
 * lowest id, stands for election at once (HF_ENGINE_LEADER_LOST).
 *
 * Without the majority, one broken connection would depose a healthy leader
 * again and again. A report counts for a short time only: connections that broke
 * one after the other in the course of a day are no dead leader. Only liveness
 * depends on this: if a report is lost, the election timeout does the same later.
 *
 * Pure. Reports are of one term; a new term forgets them. */
#ifndef HF_RAFT_LOST_H
#define HF_RAFT_LOST_H

#include "base/time.h"
#include "raft/membership.h"

struct hf_lost_report {
    hf_time until;                  /* it counts until then */
    uint64_t last_term, last_index; /* the end of the voter's log */
};

struct hf_lost {
    struct hf_membership voters;
    uint64_t id;
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

/* Note the report of `voter`, which may be this node. Older terms are
 * ignored. */
void hf_lost_report(struct hf_lost *lost, uint64_t voter, uint64_t term,
                    const struct hf_lost_log *log);

/* This node hears the leader again: its own report is void. */
void hf_lost_clear(struct hf_lost *lost);

/* Whether this node should stand for election, in `term`. */
bool hf_lost_elects(const struct hf_lost *lost, uint64_t term, hf_time now);

#endif
