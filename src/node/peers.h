/* peers.h - the other nodes, and the connections to and from them. */
#ifndef HF_NODE_PEERS_H
#define HF_NODE_PEERS_H

#include "base/limits.h"
#include "node/packet.h"
#include "node/transfers.h"
#include "raft/frames.h"
#include "raft/message.h"

struct hf_peer {
    uint64_t id;
    uint64_t link;     /* outgoing connection; 0: not connected */
    uint64_t incoming; /* the connection of its last accepted frame; 0: none */
    struct hf_frames frames;
    struct hf_buf out;  /* output for `link`, sent at the end of the turn */
    size_t frame;       /* where the open frame starts in `out` */
    bool has_frame;     /* a frame is open, and takes more messages */
    bool low_space;     /* the peer has reported that its space is low */
    uint32_t version;   /* highest table version it knows; 0: unknown */
    bool was_appended;  /* this turn sends an APPEND to the peer */
    bool awaits_commit; /* a read of the peer waits for the commit index */
    struct hf_transfer_out transfer;
};

/* An incoming connection. */
struct hf_link {
    uint64_t id;          /* 0: unused */
    struct hf_peer *peer; /* NULL: no HELLO yet */
    uint64_t incarnation; /* of its process, as in its HELLO */
    uint64_t touched;     /* order in which links were opened, or sent after
                             their HELLO; the latest has the highest number */
    hf_time hello_until;  /* when it is closed without a HELLO */
    hf_time heard_at;     /* when it was opened, or last received bytes */
    struct hf_buf in;
};

struct hf_peers {
    struct hf_peer list[HF_RAFT_VOTERS_MAX];
    size_t count;
    struct hf_link links[HF_NODE_LINKS_MAX];
    uint64_t touches;      /* the highest hf_link.touched */
    uint64_t refused;      /* incoming connections that were refused */
    struct hf_buf scratch; /* a message that is being encoded */
};

struct hf_node;

void hf_peers_init(struct hf_node *node);
void hf_peers_fini(struct hf_peers *peers);

/* Returns the peer with this id; NULL if `id` is not a member, or is this
 * node. */
struct hf_peer *hf_peers_find(struct hf_node *node, uint64_t id);

/* Returns the leader if it is a connected peer; NULL otherwise. */
struct hf_peer *hf_peers_leader(struct hf_node *node);

/* Returns true if this node leads, or is connected to the leader. */
bool hf_peers_can_ask(const struct hf_node *node);

/* Begin a message: encode it into the returned buffer, then call
 * hf_peers_send(). */
struct hf_buf *hf_peers_message(struct hf_node *node);

/* Send the message that was encoded last. Returns false if it is dropped: the
 * peer is not connected, too much output waits for it, or memory is short. */
bool hf_peers_send(struct hf_node *node, struct hf_peer *peer,
                   enum hf_packet_kind kind);

/* Send a message of the engine to its `peer`, or drop it like
 * hf_peers_send(). */
void hf_peers_send_raft(struct hf_node *node, const struct hf_message *message);

/* Handle the frames that have arrived since the last turn. */
void hf_peers_read(struct hf_node *node);

/* Close the connections that should have sent a HELLO by now. */
void hf_peers_drop_strangers(struct hf_node *node);

/* As the leader, close the connections of peers that have sent nothing for
 * HF_NODE_SILENT_MS, although they received heartbeats. A leader has a turn for
 * each heartbeat, so this needs no deadline. */
void hf_peers_drop_silent(struct hf_node *node);

/* Returns when hf_peers_drop_strangers() has something to do. */
hf_time hf_peers_deadline(const struct hf_node *node);

/* Write the output of this turn to the connections. */
void hf_peers_flush(struct hf_node *node);

#endif
