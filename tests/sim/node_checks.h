/* node_checks.h - what must be true of simulated nodes.
 *
 * After every turn:
 *   - nodes apply equal entries at equal indexes, before and after restarts;
 *   - nodes that have applied the same entries have equal tables, also after a
 *     restart, and the same events (node_events.h);
 *   - the token counter of a table never falls from one entry to the next, also
 *     over a restart or the installation of a snapshot, and tokens of grants
 *     rise;
 *   - what was durable at a node is there after a restart (node_durable.h);
 *   - a majority of the nodes has each entry durable whose result a client may
 *     have got;
 *   - a message is sent after what it depends on is durable
 *     (node_messages.h);
 *   - a session ends by a CLOSE that is not too late (node_sessions.h);
 *   - a term has at most one leader;
 *   - no node stops by itself;
 *   - log, sessions, waiters, the bytes of the table and those on the disk,
 *     requests, proposals and output have limits.
 * At the end, nodes that have applied the same entries have equal tables. */
#ifndef HF_TESTS_SIM_NODE_CHECKS_H
#define HF_TESTS_SIM_NODE_CHECKS_H

#include "sim/node_durable.h"
#include "sim/node_events.h"
#include "sim/node_messages.h"
#include "sim/node_sessions.h"

struct node_checks {
    uint64_t *entries; /* hashes of committed entries, by index */
    uint64_t *tables;  /* hashes of tables, by index; 0: not known */
    uint64_t *tokens;  /* token counters + 1, by index; 0: not known */
    size_t capacity;
    uint64_t newest; /* the highest index of a known token counter */
    struct node_events events;
    struct node_messages messages;
    struct node_sessions sessions;
    struct node_durable durable[SIM_NODES];
    uint64_t acknowledged; /* the last entry that a leader has applied; it has
                              answered the client */
    uint64_t applied[SIM_NODES];
    uint64_t leader_of[4096]; /* by term */
    uint64_t leaders;
    uint64_t compared; /* tables that were compared at the same index */
};

void node_checks_init(struct node_checks *checks);
void node_checks_fini(struct node_checks *checks);

void node_checks_on_start(struct node_checks *checks, struct sim_node *node);
void node_checks_on_turn(struct node_checks *checks, struct sim_node *node);

/* Call this before the node goes down. If it goes down after a turn, that turn
 * is checked, too. */
void node_checks_on_down(struct node_checks *checks, struct sim_node *node);

/* Run until no key is held, and all nodes have applied the same entries. No
 * client may hold or claim a key any more. Grants of clients that died end one
 * after the other: fail if none ends `ms` after the shortest lease of those
 * that are held, or if `ms` after the last one a node still lacks entries. */
void node_checks_await_free(struct sim_nodes *nodes, uint32_t ms);

/* Check that all tables are equal. All nodes must run, and must have applied
 * the same entries. */
void node_checks_equal(struct node_checks *checks, struct sim_nodes *nodes);

#endif
