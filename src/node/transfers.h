/* transfers.h - snapshots on their way from a leader to a follower.
 *
 * The leader sends a snapshot file in parts, the next one when the last one was
 * acknowledged. Files are read and written by jobs. The follower makes the file
 * durable and builds a second store of it, and only then tells the engine; when
 * the engine says so, that store replaces the node's. */
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

/* At the leader, one for each peer. */
struct hf_transfer_out {
    bool is_wanted;                /* the engine has asked for it */
    struct hf_snapshot_file *file; /* NULL: not open; a job has it, perhaps */
    uint64_t number;               /* tells transfers apart */
    uint64_t index, index_term, size;
    uint64_t acked; /* bytes that have arrived */
    bool is_sent;   /* the part at `acked` is on its way, or being read */
    hf_time sent_at;
};

/* At a follower. */
struct hf_transfers {
    struct hf_snapshot_transfer *file; /* NULL: none; a job has it, perhaps */
    bool is_busy;                      /* a job has the file */
    uint64_t index;         /* of the snapshot that is being received */
    uint64_t from, term;    /* the leader, when the last part arrived */
    struct hf_buf part;     /* a packet that waits for a job */
    struct hf_store *store; /* replaces the node's when it is installed */
    struct hf_store *trash; /* is freed by a job, because that takes long */
    uint64_t last_number;
    uint64_t installed; /* snapshots of other nodes, by this process */
};

void hf_transfers_fini(struct hf_node *node);

/* The engine wants a snapshot sent to `peer`. It repeats that. */
void hf_transfers_start(struct hf_node *node, struct hf_peer *peer);
void hf_transfers_stop(struct hf_node *node, struct hf_peer *peer);
void hf_transfers_on_ack(struct hf_node *node, struct hf_peer *peer,
                         const struct hf_packet_snapshot_ack *ack);

/* A part has arrived. */
void hf_transfers_on_part(struct hf_node *node, struct hf_peer *peer,
                          const struct hf_packet_snapshot *part);

/* The snapshot is installed: the node's store is that of the snapshot. */
void hf_transfers_install(struct hf_node *node);

/* Drop a transfer that is not needed any more, because the entries have arrived
 * in another way. */
void hf_transfers_drop_old(struct hf_node *node);

/* The next job, or NULL. */
struct hf_node_job *hf_transfers_send_job(struct hf_node *node);
struct hf_node_job *hf_transfers_receive_job(struct hf_node *node);
struct hf_node_job *hf_transfers_free_job(struct hf_node *node);

/* When a part is sent again. */
hf_time hf_transfers_deadline(const struct hf_node *node);

#endif
