/* requests.h - requests of this node's clients, until they are answered.
 *
 * Requests are sent to the leader, which may be this node, in the order of
 * submission. They are sent again in the same order to each new leader:
 * sessions apply a command once however often it arrives. A request is kept
 * through elections until its deadline.
 *
 * The caller embeds the struct, and must keep it until `done` runs or it
 * abandons the request. `done` runs inside hf_node_turn(), once. */
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
     * HF_EUNAVAIL  the deadline has passed; a command was not sent
     * HF_EINDOUBT  the deadline has passed, or one of several copies of the
     *              command was refused; the command may take effect
     * HF_ELIMIT    the leader has too many commands or is short of memory; the
     *              command is too long; `no_space`: disks are nearly full; or
     *              `is_full`: the table has reached its limit
     * HF_EPROTO, HF_EUNSUPPORTED, HF_EDENIED
     *              the leader cannot decode the command; the version of the
     *              command is newer than that of the table; or only leaders
     *              propose such a command
     * After all errors but HF_EINDOUBT the command has no effect. */
    enum hf_err err;
    bool no_space, is_full;
    struct hf_result result; /* of a COMMAND */
    uint64_t index; /* of its entry; READ_INDEX: of the last entry that is
                       applied here */
    int64_t age_ms; /* of a LOCK: 0 if it was granted at once; -1 if it was not
                       granted, or if this copy has not made the grant, which
                       may be much older */
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
    uint32_t copies; /* of the command: sent to a leader, or submitted here */
    bool is_answered;
    struct hf_node_outcome outcome;
};

/* The requests of this node whose `done` has not run. */
struct hf_requests {
    struct hf_map by_number;
    struct hf_heap by_deadline;
    struct hf_dlist unsent;   /* commands, in the order of submission */
    struct hf_dlist sent;     /* commands; all are older than the unsent ones */
    struct hf_dlist answered; /* `done` runs in hf_requests_finish() */
    uint64_t last_number;
    hf_time resend_at; /* when to send again, because a node has answered that
                          it does not lead; HF_NEVER: none has */
    size_t count;
};

/* Submit a request. After HF_ENOMEM or HF_ELIMIT it was not taken, and `done`
 * does not run. */
enum hf_err hf_requests_submit(struct hf_node *node,
                               struct hf_node_request *request);

/* Forget a request: `done` does not run. A command that was sent may still take
 * effect. */
void hf_requests_abandon(struct hf_node *node, struct hf_node_request *request);

/* ---- For the other parts of the node ------------------------------------*/

void hf_requests_init(struct hf_requests *requests);
void hf_requests_fini(struct hf_requests *requests);

/* Let hf_requests_dispatch() and hf_reads_turn() send all unanswered requests
 * once more: there is another leader, or the leader may not have received
 * them. */
void hf_requests_resend(struct hf_node *node);

/* Send the commands that were not sent, and those whose answer is late, if this
 * node leads or is connected to the leader. */
void hf_requests_dispatch(struct hf_node *node);

/* The request `number` has an outcome: this node, as the leader, has applied
 * its command or refused to submit it, or this node has confirmed its read.
 * Does nothing if the request has ended. */
void hf_requests_answer(struct hf_node *node, uint64_t number,
                        const struct hf_node_outcome *outcome);

/* The leader to which the command `number` was sent has answered. Does nothing
 * if the request has ended. */
void hf_requests_on_reply(struct hf_node *node, uint64_t number,
                          const struct hf_node_outcome *outcome);

/* A node to which the command `number` was sent does not lead, or cannot take
 * it yet: the request, unless it has ended, is sent again later. */
void hf_requests_on_refused(struct hf_node *node, uint64_t number);

/* End requests whose deadline has passed, and run `done` of all requests that
 * have an outcome. */
void hf_requests_finish(struct hf_node *node);

hf_time hf_requests_deadline(const struct hf_node *node);

#endif
