/* state.h - struct hf_node and its functions, for the sources of the node
 * only. */
#ifndef HF_NODE_STATE_H
#define HF_NODE_STATE_H

#include "node/attachments.h"
#include "node/compaction.h"
#include "node/hooks.h"
#include "node/jobs.h"
#include "node/journal.h"
#include "node/node.h"
#include "node/outbox.h"
#include "node/peers.h"
#include "node/proposals.h"
#include "node/reads.h"
#include "node/requests.h"
#include "node/sessions.h"
#include "node/state_machine.h"
#include "node/transfers.h"
#include "raft/engine.h"
#include "raft/lost.h"

struct hf_clients; /* clients.h */

struct hf_node {
    struct hf_node_opts opts;
    struct hf_node_member members[HF_RAFT_VOTERS_MAX];
    const struct hf_node_ops *ops;
    void *arg;
    struct hf_node_hooks hooks;
    void *hooks_arg;
    struct hf_clients *clients;
    struct hf_disk *disk;
    uint64_t incarnation;

    hf_time now;     /* the time of the last turn or hf_node_set_time() */
    hf_time timeout; /* when the engine needs the next TICK */
    bool has_failed;
    bool is_leaving; /* hf_node_shutdown() was called */
    hf_time leave_until;
    /* When to repeat a flush or an upkeep that has failed; HF_NEVER: none is to
     * be repeated. */
    hf_time flush_retry, upkeep_retry;

    struct hf_engine engine;
    struct hf_journal journal;
    struct hf_outbox outbox;
    struct hf_state_machine machine;
    uint64_t commit;
    uint64_t commit_seen;   /* `commit` at the end of the last turn */
    hf_time send_commit_at; /* when to send `commit` without an append */
    uint64_t submitted;     /* index of the first command of the last SUBMIT */
    uint64_t leader;        /* 0: unknown */
    uint64_t leader_term;   /* the term in which `leader` became known */
    uint64_t leading_term;  /* 0: this node does not lead */
    hf_time leading_since;  /* when leading_term last changed */
    bool in_office;         /* an entry of leading_term is applied */

    struct hf_peers peers;
    struct hf_lost lost;
    struct hf_requests requests;
    struct hf_proposals proposals;
    struct hf_reads reads;
    struct hf_attachments attachments;
    struct hf_sessions sessions;
    bool has_job; /* a job is running */
    struct hf_compaction compaction;
    struct hf_transfers transfers;

    uint64_t version_term; /* term in which `version_proposed` was proposed */
    uint8_t version_proposed;
    uint64_t flushes, elections, forwarded;
};

static inline bool hf_node_leads(const struct hf_node *node)
{
    return node->leading_term != 0;
}

/* The node cannot continue: call ops->stop, once, and ignore all further input.
 * hf_node_fail_code() makes the error from `code` and the text `what`, such as
 * "cannot append to the log". */
void hf_node_fail(struct hf_node *node, const struct hf_error *error);
void hf_node_fail_code(struct hf_node *node, enum hf_err code,
                       const char *what);

/* Step the engine, and do what its update asks for. HF_ESYSTEM: the node has
 * failed. Other errors: see hf_engine_step(). */
enum hf_err hf_consensus_step(struct hf_node *node,
                              struct hf_engine_event event);

/* Send a message that does not come from the engine, an ECHO or a LEADER_LOST,
 * as soon as its term is durable. Like all messages, it may be lost. */
void hf_consensus_send(struct hf_node *node, const struct hf_message *message);

/* Store, send and install what an update of the engine asks for. */
void hf_consensus_do_update(struct hf_node *node,
                            const struct hf_engine_update *update);

/* Apply committed entries; see apply.c. */
void hf_apply_entries(struct hf_node *node);

/* Handle a message from a peer; see receive.c. */
void hf_receive_message(struct hf_node *node, struct hf_peer *peer,
                        enum hf_packet_kind kind, struct hf_reader *reader);

/* Fill in the VERSION command that raises the table to the newest version that
 * all members know. Returns false if the table has it, or if it was proposed in
 * this term already. */
bool hf_versions_raise(struct hf_node *node, struct hf_command *command);

/* Return HF_EUNSUPPORTED, with a text, if the command of entry `index`, or the
 * snapshot that ends with it, has a newer table version than `known`. */
enum hf_err hf_versions_check_entry(uint32_t known, uint64_t index,
                                    struct hf_bytes data,
                                    struct hf_error *error);
enum hf_err hf_versions_check_snapshot(uint32_t known, uint64_t index,
                                       struct hf_bytes data,
                                       struct hf_error *error);

/* Returns true if the disk is nearly full here, or on so many other nodes that
 * no majority has space. */
bool hf_consensus_is_low_on_space(const struct hf_node *node);

#endif
