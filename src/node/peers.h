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
    uint64_t link;     /* to the peer; 0: not connected */
    uint64_t incoming; /* from the peer, after its HELLO; 0: none */
    struct hf_frames frames;
    struct hf_buf out; /* for `link` */
    size_t frame;      /* where the open frame starts in `out` */
    bool has_frame;    /* there is an open one */
    bool low_space;    /* as the peer has reported */
    uint32_t version;  /* table version of the peer; 0: unknown */
    bool was_appended; /* an append goes out in this turn */
    struct hf_transfer_out transfer;
};

/* An incoming connection. */
struct hf_link {
    uint64_t id;          /* 0: unused */
    struct hf_peer *peer; /* NULL: no HELLO yet */
    struct hf_buf in;
};

struct hf_peers {
    struct hf_peer list[HF_RAFT_VOTERS_MAX];
    size_t count;
    struct hf_link links[HF_NODE_LINKS_MAX];
    struct hf_buf scratch; /* a message that is being encoded */
};

struct hf_node;

void hf_peers_init(struct hf_node *node);
void hf_peers_fini(struct hf_peers *peers);

/* NULL if there is no such member, or it is this node. */
struct hf_peer *hf_peers_find(struct hf_node *node, uint64_t id);

/* The peer that leads, if it is connected; NULL otherwise. */
struct hf_peer *hf_peers_leader(struct hf_node *node);

/* Whether there is a leader that can be asked: this node, or a connected one. */
bool hf_peers_can_ask(const struct hf_node *node);

/* Begin a message: encode it into the result, then call hf_peers_send(). */
struct hf_buf *hf_peers_message(struct hf_node *node);

/* Send the message. False if the peer is not connected. */
bool hf_peers_send(struct hf_node *node, struct hf_peer *peer,
                   enum hf_packet_kind kind);

/* Send a message of the engine. */
void hf_peers_send_raft(struct hf_node *node, const struct hf_message *message);

/* Handle what has arrived since the last turn. */
void hf_peers_read(struct hf_node *node);

/* Write what was collected in this turn to the connections. */
void hf_peers_flush(struct hf_node *node);

#endif
