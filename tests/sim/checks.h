/* checks.h - what must hold in every simulated cluster, after every step.
 *
 *   1. A term has at most one leader.
 *   2. Entries of equal index and term are equal, and so are all entries before
 *      them.
 *   3. A new leader has all entries that were committed in earlier terms.
 *   4. What is committed is durable on a majority, and never changes.
 *   5. A node's commit index never decreases while it runs.
 *   6. Nodes that have applied the same index have equal states.
 *   7. A node votes for one candidate in a term.
 *   8. A linearizable read sees everything that was acknowledged before it
 *      started.
 *
 * A violation is a failed assertion. */
#ifndef HF_TESTS_SIM_CHECKS_H
#define HF_TESTS_SIM_CHECKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_node;

/* One of the entries that were ever at an index. */
struct sim_seen {
    uint64_t term, hash, prev_term;
    struct sim_seen *next;
};

struct sim_history {
    struct sim_seen *seen;
    uint64_t committed_term; /* of the entry; 0: not committed */
    uint64_t committed_in;   /* term in which the entry was committed */
    uint64_t state;          /* hash of the state after it; 0: not applied */
};

struct sim_term {
    uint64_t leader;
    uint64_t votes[16]; /* by number of the node; 0: none */
};

struct sim_checks {
    struct sim_node *nodes;
    unsigned count;
    struct sim_history *history; /* by index */
    size_t history_capacity;
    uint64_t committed;     /* highest index that is committed */
    struct sim_term *terms; /* by term */
    size_t term_capacity;
    uint64_t acknowledged; /* highest index that a client was answered for */
    uint64_t leaders, commits, reads, installs, restarts;
};

void sim_checks_fini(struct sim_checks *checks);

/* Check the entries first..last of the node's log. */
void sim_checks_entries(struct sim_checks *checks, struct sim_node *node,
                        uint64_t first, uint64_t last);
void sim_checks_leader(struct sim_checks *checks, struct sim_node *node);
void sim_checks_commit(struct sim_checks *checks, struct sim_node *node,
                       uint64_t before, uint64_t commit);
void sim_checks_applied(struct sim_checks *checks, const struct sim_node *node);
void sim_checks_vote(struct sim_checks *checks, const struct sim_node *node,
                     uint64_t term, uint64_t candidate);
/* Check a read at the time of its answer: it must see the entries up to
 * `acknowledged`. */
void sim_checks_read(struct sim_checks *checks, const struct sim_node *node,
                     uint64_t acknowledged);

/* Mix `value` into a hash. */
uint64_t sim_mix(uint64_t hash, uint64_t value);

#endif
