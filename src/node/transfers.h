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
#include "base/limits.h"
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
    bool is_reading;               /* a job uses the file, or opens it */
    uint64_t number; /* different for each transfer of this node */
    uint64_t index, index_term, size;
    uint64_t acked;  /* bytes that the peer has acknowledged */
    bool is_sent;    /* the part at `acked` was sent, or a job reads it */
    hf_time sent_at; /* when it was sent, or could not be read */
};

/* The snapshot that this node receives as a follower, and what its transfers
 * in both directions leave to be cleaned up. */
struct hf_transfers {
    struct hf_snapshot_transfer *file; /* NULL: none, or a job uses it */
    bool is_busy;                      /* a job uses the file */
    uint64_t index;                    /* of the snapshot in `file` */
    uint64_t from, term;    /* the sender of the last part, and its term */
    struct hf_buf part;     /* an encoded part that waits for a job */
    struct hf_store *store; /* complete; will replace the node's store */
    uint64_t store_size;    /* bytes of the snapshot of `store` */
    uint64_t installed;     /* snapshots of other nodes that this process has
                               installed */
    uint64_t last_number;   /* of a transfer to a peer */

    /* What is not used any more. A job frees, closes and removes it, because
     * that may take long: closing a file that was removed frees its blocks. */
    struct hf_store *trash;
    struct hf_snapshot_transfer *dropped;
    struct hf_snapshot_file *closing[HF_RAFT_VOTERS_MAX];
    size_t closing_count;
    uint64_t refused; /* index of a snapshot that the engine has refused; 0:
                         none */
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

/* Let a job close `file`, which may be NULL. */
void hf_transfers_close(struct hf_node *node, struct hf_snapshot_file *file);

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
 * arrived, or frees what is not used any more. NULL if there is no such job, or
 * memory is short. The clean job runs before all others: a later job may write
 * a snapshot with the index of one that is to be removed, or leave another
 * store, and `trash` has room for one. */
struct hf_node_job *hf_transfers_send_job(struct hf_node *node);
struct hf_node_job *hf_transfers_receive_job(struct hf_node *node);
struct hf_node_job *hf_transfers_clean_job(struct hf_node *node);

/* Returns when a part that was not acknowledged is sent again; HF_NEVER if
 * there is none. */
hf_time hf_transfers_deadline(const struct hf_node *node);

#endif
