/* proposals.h - commands that this node, as the leader, submits to the log.
 *
 * Proposals wait until the node submits them, one batch in each turn. A
 * submitted proposal is in flight until its entry is applied. If the node stops
 * leading, all proposals end: the nodes that sent them send them to the next
 * leader. */
#ifndef HF_NODE_PROPOSALS_H
#define HF_NODE_PROPOSALS_H

#include "base/ring.h"
#include "node/requests.h"

struct hf_proposal {
    struct hf_dlist link;
    struct hf_map_link by_source;
    uint64_t origin; /* the node whose client sent it, and which gets the
                        answer; 0: abandoned, nobody waits for the answer */
    uint64_t number; /* of the request, at the origin */
    struct hf_node_request *request; /* NULL: from another node, or abandoned */
    hf_time deadline;
    uint64_t index;          /* in the log; 0: not submitted yet */
    struct hf_bytes command; /* borrowed from `request`, or in `bytes` */
    uint8_t bytes[];
};

/* The entries that were submitted in one turn. */
struct hf_submission {
    uint64_t last; /* index of the last entry */
    hf_time at;
};

struct hf_proposals {
    struct hf_map by_source;
    struct hf_dlist waiting;
    struct hf_dlist in_flight; /* in order of index */
    size_t count;
    size_t bytes;               /* of all proposals and their commands */
    struct hf_ring submissions; /* of struct hf_submission; not applied yet */
    struct hf_bytes *commands;  /* what this turn submits */
    size_t commands_capacity;
    struct hf_buf own; /* EXPIREs, CLOSEs and VERSION, encoded */
    hf_time retry; /* when to submit again after a failure; HF_NEVER: none */
};

/* The memory of a proposal with this command. */
static inline size_t hf_proposal_size(struct hf_bytes command)
{
    return sizeof(struct hf_proposal) + command.size;
}

void hf_proposals_init(struct hf_proposals *proposals);
void hf_proposals_fini(struct hf_proposals *proposals);

/* Add a command of the node `origin`. `template` has its number, deadline and
 * command. If the command is refused, `origin` gets the outcome; if it was
 * added before, nothing happens.
 *
 * If this node is the origin, `request` is the request, and its command is
 * borrowed until it is submitted. Otherwise `request` is NULL, and the command
 * is copied. */
void hf_proposals_add(struct hf_node *node, uint64_t origin,
                      const struct hf_node_request *template,
                      struct hf_node_request *request);

/* This node does not lead, or no longer, or not yet in office: let the node
 * `origin` send its command `number` again, to the leader. */
void hf_proposals_refuse(struct hf_node *node, uint64_t origin,
                         uint64_t number);

/* Returns the outcome of a command of a client that this leader refuses; its
 * `err` is HF_OK if the command can be submitted. See proposals_check.c. */
struct hf_node_outcome hf_proposals_check(const struct hf_node *node,
                                          struct hf_bytes bytes);

/* `request`, of this node, has ended: nobody waits for the answer any more. */
void hf_proposals_abandon(struct hf_node *node,
                          const struct hf_node_request *request);

/* The node `origin` was restarted, and waits for none of its answers any
 * more. */
void hf_proposals_drop_origin(struct hf_node *node, uint64_t origin);

/* Submit the proposals that wait, within the limits of one turn, and what the
 * leader itself has to propose: EXPIRE, CLOSE and VERSION. If that fails,
 * `retry` is when to try again. */
void hf_proposals_submit(struct hf_node *node);

/* Returns false while hf_proposals_submit() does nothing: this node does not
 * lead or is shutting down, too many bytes wait for a flush, or `retry` is in
 * the future. */
bool hf_proposals_can_submit(const struct hf_node *node);

/* The entry `index`, which this node has submitted in this term, is applied:
 * send `result` to its origin. */
void hf_proposals_applied(struct hf_node *node, uint64_t index,
                          const struct hf_result *result);

/* Returns when this leader submitted the entry `index`, which is being applied;
 * HF_NEVER if it did not. */
hf_time hf_proposals_submitted_at(const struct hf_node *node, uint64_t index);

/* The node has become the leader, or has stopped leading: end all proposals. */
void hf_proposals_reset(struct hf_node *node);

#endif
