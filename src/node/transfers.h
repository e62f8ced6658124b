/* transfers.h - snapshots that a leader sends to a follower.
 *
 * The leader sends a snapshot file in parts, each after the part before it was
 * acknowledged. Jobs read and write the files. The follower makes the file
 * durable, builds a second store from it, and only then reports the snapshot to
 * the engine. When the engine has installed it, the second store replaces the
 * node's. */
#ifndef HF_NODE_TRANSFERS_H
#define HF_NODE_TRANSFERS_H

#include "base/buf.h"
#include "base/time.h"

struct hf_node;
struct hf_node_job;
struct hf_packet_snapshot;
struct hf_packet_snapshot_ack;
struct hf_peer;
struct hf_snapshot_file;
struct hf_snapshot_transfer;
struct hf_store;

/* At the leader: the transfer to one peer. */
struct hf_transfer_out {
    bool is_wanted;                /* a transfer is in progress */
    struct hf_snapshot_file *file; /* NULL: not open, or a job uses it */
    uint64_t number; /* different for each transfer of this node */
    uint64_t index, index_term, size;
    uint64_t acked; /* bytes that the peer has acknowledged */
    bool is_sent;   /* the part at `acked` was sent, or a job reads it */
    hf_time sent_at;
};

/* At a follower: the snapshot that is being received. */
struct hf_transfers {
    struct hf_snapshot_transfer *file; /* NULL: none, or a job uses it */
    bool is_busy;                      /* a job uses the file */
    uint64_t index;                    /* of the snapshot in `file` */
    uint64_t from, term;    /* the sender of the last part, and its term */
    struct hf_buf part;     /* an encoded part that waits for a job */
    struct hf_store *store; /* complete; will replace the node's store */
    struct hf_store *trash; /* the replaced store; freed by a job, because that
                               takes long */
    uint64_t last_number;
    uint64_t installed; /* snapshots of other nodes that this process has
                           installed */
};

void hf_transfers_fini(struct hf_node *node);

/* Send the newest snapshot to `peer`. Does nothing if a transfer is in
 * progress. */
void hf_transfers_start(struct hf_node *node, struct hf_peer *peer);
/* End the transfer to `peer`. */
void hf_transfers_stop(struct hf_node *node, struct hf_peer *peer);
/* `peer` has acknowledged bytes: send the next part, or end the transfer. */
void hf_transfers_on_ack(struct hf_node *node, struct hf_peer *peer,
                         const struct hf_packet_snapshot_ack *ack);

/* A part of a snapshot has arrived from `peer`. */
void hf_transfers_on_part(struct hf_node *node, struct hf_peer *peer,
                          const struct hf_packet_snapshot *part);

/* The engine has installed the snapshot that was received: replace the node's
 * store by the store that was built from it. */
void hf_transfers_install(struct hf_node *node);

/* Drop a snapshot that is being received if this node has meanwhile applied the
 * entries up to its index. */
void hf_transfers_drop_old(struct hf_node *node);

/* Return the next job, which reads and sends a part, writes a part that has
 * arrived, or frees a replaced store. NULL if there is no such job, or memory
 * is short. */
struct hf_node_job *hf_transfers_send_job(struct hf_node *node);
struct hf_node_job *hf_transfers_receive_job(struct hf_node *node);
struct hf_node_job *hf_transfers_free_job(struct hf_node *node);

/* Returns when a part that was not acknowledged is sent again; HF_NEVER if
 * there is none. */
hf_time hf_transfers_deadline(const struct hf_node *node);

#endif
