/* requests.h - what clients of this node want, until it is answered.
 *
 * A request is sent to the leader, which may be this node, in the order of
 * submission, and again in the same order to each new leader: sessions apply a
 * command once however often it arrives. It is kept through elections until its
 * deadline.
 *
 * The caller embeds the struct and owns it until `done`, which runs inside
 * hf_node_turn(), exactly once, unless the request was abandoned. */
#ifndef HF_NODE_REQUESTS_H
#define HF_NODE_REQUESTS_H

#include "base/dlist.h"
#include "base/heap.h"
#include "base/map.h"
#include "core/command.h"

struct hf_node;
struct hf_node_request;

enum hf_node_request_kind {
    HF_NODE_COMMAND = 1, /* replicate and apply `command` */
    HF_NODE_READ_INDEX,  /* confirm with a majority that this node's table is as
                            new as any answer given before the submission */
};

struct hf_node_outcome {
    /* HF_OK        see `result`, or read the table
     * HF_EUNAVAIL  the deadline has passed, and nothing was sent
     * HF_EINDOUBT  the deadline has passed; the command may take effect
     * HF_ELIMIT    refused by the leader: too much to do, or `no_space` */
    enum hf_err err;
    bool no_space;
    struct hf_result result; /* COMMAND */
    uint64_t index;          /* of the log, at the leader */
    int64_t age_ms; /* LOCK that waited: see attachments.h; -1: unknown */
};

typedef void hf_node_done_fn(struct hf_node_request *request,
                             const struct hf_node_outcome *outcome);

struct hf_node_request {
    enum hf_node_request_kind kind;
    struct hf_bytes command; /* encoded; borrowed until `done` */
    hf_time deadline;
    hf_node_done_fn *done;

    /* Private. */
    struct hf_dlist link;
    struct hf_map_link by_number;
    struct hf_heap_link by_deadline;
    uint64_t number;
    hf_time sent_at;
    bool was_sent;
    bool is_answered;
    struct hf_node_outcome outcome;
};

/* Requests that are not answered. */
struct hf_requests {
    struct hf_map by_number;
    struct hf_heap by_deadline;
    struct hf_dlist unsent;   /* commands, in order */
    struct hf_dlist sent;     /* commands; all are older than the unsent ones */
    struct hf_dlist answered; /* `done` runs in the next turn */
    uint64_t last_number;
    hf_time resend_at; /* a node has answered that it does not lead */
    size_t count;
};

/* Submit a request. HF_ENOMEM, HF_ELIMIT: it was not taken. */
enum hf_err hf_node_submit(struct hf_node *node,
                           struct hf_node_request *request);

/* Forget a request: `done` does not run. A command that was sent may still take
 * effect. */
void hf_node_abandon(struct hf_node *node, struct hf_node_request *request);

/* ---- For the other parts of the node ------------------------------------*/

void hf_requests_init(struct hf_requests *requests);
void hf_requests_fini(struct hf_requests *requests);

/* Send everything that is not answered again: the leader is another one, or may
 * not have received it. */
void hf_requests_resend(struct hf_node *node);

/* Send what was not sent, if there is a leader. */
void hf_requests_dispatch(struct hf_node *node);

/* An outcome arrived. Does nothing for a number that is unknown. */
void hf_requests_answer(struct hf_node *node, uint64_t number,
                        const struct hf_node_outcome *outcome);

/* End what is past its deadline, and run `done` of what has an outcome. */
void hf_requests_finish(struct hf_node *node);

hf_time hf_requests_deadline(const struct hf_node *node);

#endif
