/* proposals.h - commands that this node, as the leader, submits to the log.
 *
 * A proposal waits until the end of the turn, when all are submitted at once,
 * and is then in flight until its entry is applied. If the node stops leading,
 * all proposals end: the nodes that sent them send them to the next leader. */
#ifndef HF_NODE_PROPOSALS_H
#define HF_NODE_PROPOSALS_H

#include "node/requests.h"

struct hf_proposal {
    struct hf_dlist link;
    struct hf_map_link by_source;
    uint64_t origin; /* the node that has the client; 0: it does not ask any
                        more */
    uint64_t number; /* of the request, at the origin */
    struct hf_node_request *request; /* of this node; NULL: of another */
    hf_time deadline;
    uint64_t index;          /* in the log; 0: it waits */
    struct hf_bytes command; /* borrowed from `request`, or in `bytes` */
    uint8_t bytes[];
};

/* What was submitted in one turn. */
struct hf_submission {
    uint64_t last; /* index */
    hf_time at;
};

struct hf_proposals {
    struct hf_map by_source;
    struct hf_dlist waiting;
    struct hf_dlist in_flight; /* in order of index */
    size_t count;
    struct hf_submission *submissions; /* that are not applied; a ring */
    size_t head, submission_count, capacity;
    struct hf_bytes *commands; /* of the turn */
    size_t commands_capacity;
    struct hf_buf own; /* EXPIREs, CLOSEs and VERSION, encoded */
    hf_time retry;     /* the log refused; HF_NEVER: it did not */
};

void hf_proposals_init(struct hf_proposals *proposals);
void hf_proposals_fini(struct hf_proposals *proposals);

/* Add a command of `origin`. If it cannot be taken, `origin` gets the outcome;
 * if it is here already, nothing happens. `request` is NULL unless this node is
 * the origin; then `command` is borrowed until the command is submitted. */
void hf_proposals_add(struct hf_node *node, uint64_t origin,
                      const struct hf_node_request *template,
                      struct hf_node_request *request);

/* The request is abandoned or has ended. */
void hf_proposals_abandon(struct hf_node *node,
                          const struct hf_node_request *request);

/* `origin` has forgotten what it asked for. */
void hf_proposals_drop_origin(struct hf_node *node, uint64_t origin);

/* Submit what waits, and what the leader has to propose itself. */
void hf_proposals_submit(struct hf_node *node);

/* The entry `index`, which this node has submitted in this term, is applied. */
void hf_proposals_applied(struct hf_node *node, uint64_t index,
                          const struct hf_result *result);

/* When this leader submitted the entry `index`, which is being applied. */
hf_time hf_proposals_submitted_at(const struct hf_node *node, uint64_t index);

/* The node leads, or does not lead any more. */
void hf_proposals_reset(struct hf_node *node);

#endif
