/* packet.h - what nodes send to each other besides the engine's messages, as
 * bytes.
 *
 * A connection begins with a HELLO. Then frames follow, each a u32 size, the
 * header of raft/frames, a byte of flags, and messages: a kind, a u32 size and
 * the bytes of the message. A frame is dropped as a whole if its header shows
 * that it is old or repeated.
 *
 * Decoding is safe for any input. */
#ifndef HF_NODE_PACKET_H
#define HF_NODE_PACKET_H

#include "base/buf.h"
#include "log/identity.h"
#include "node/attachments.h"
#include "node/requests.h"

#define HF_PACKET_PROTOCOL 1 /* the only version of this protocol so far */

enum hf_packet_kind {
    HF_PACKET_RAFT = 1,     /* a message of the engine, see raft/message */
    HF_PACKET_FORWARD,      /* a command for the leader */
    HF_PACKET_REPLY,        /* the outcome of a FORWARD */
    HF_PACKET_READ,         /* ask the leader for an index to read at */
    HF_PACKET_READ_REPLY,   /* the index for a READ */
    HF_PACKET_ATTACH,       /* sessions whose clients are at the sender */
    HF_PACKET_DETACH,       /* sessions whose clients have left the sender */
    HF_PACKET_PUSH,         /* a grant for a session at the receiver */
    HF_PACKET_SNAPSHOT,     /* a part of a snapshot file */
    HF_PACKET_SNAPSHOT_ACK, /* how much of that file has arrived */
    HF_PACKET_DETACH_ALL,   /* forget the sender's ATTACHs; those of all its
                               sessions follow */
    HF_PACKET_KINDS,
};

/* A bit in the byte of flags of a frame: the sender is low on disk space. */
enum {
    HF_PACKET_LOW_SPACE = 1
};

struct hf_packet_hello {
    uint32_t protocol_min, protocol_max;
    struct hf_log_cluster cluster;
    uint64_t from, to;
    uint64_t incarnation;
    uint32_t version; /* highest table version that the sender knows */
};

struct hf_packet_reply {
    uint64_t number;
    bool is_leader; /* false: the FORWARD is refused, and there is no outcome */
    struct hf_node_outcome outcome;
};

struct hf_packet_forward {
    uint64_t number;
    uint32_t remaining_ms;
    struct hf_bytes command;
};

struct hf_packet_read_reply {
    uint64_t number;
    bool is_leader;
    uint64_t index;
};

struct hf_packet_snapshot {
    uint64_t term; /* in which the sender leads */
    uint64_t index, index_term;
    uint64_t size; /* of the file */
    uint64_t offset;
    struct hf_bytes data;
};

struct hf_packet_snapshot_ack {
    uint64_t index;
    uint64_t have;
};

void hf_packet_encode_hello(struct hf_buf *buf,
                            const struct hf_packet_hello *hello);
enum hf_err hf_packet_decode_hello(struct hf_reader *reader,
                                   struct hf_packet_hello *hello);

void hf_packet_encode_forward(struct hf_buf *buf,
                              const struct hf_packet_forward *forward);
enum hf_err hf_packet_decode_forward(struct hf_reader *reader,
                                     struct hf_packet_forward *forward);

void hf_packet_encode_reply(struct hf_buf *buf,
                            const struct hf_packet_reply *reply);
enum hf_err hf_packet_decode_reply(struct hf_reader *reader,
                                   struct hf_packet_reply *reply);

void hf_packet_encode_read_reply(struct hf_buf *buf,
                                 const struct hf_packet_read_reply *reply);
enum hf_err hf_packet_decode_read_reply(struct hf_reader *reader,
                                        struct hf_packet_read_reply *reply);

void hf_packet_encode_push(struct hf_buf *buf,
                           const struct hf_node_grant *grant);
enum hf_err hf_packet_decode_push(struct hf_reader *reader,
                                  struct hf_node_grant *grant);

void hf_packet_encode_snapshot(struct hf_buf *buf,
                               const struct hf_packet_snapshot *part);
enum hf_err hf_packet_decode_snapshot(struct hf_reader *reader,
                                      struct hf_packet_snapshot *part);

void hf_packet_encode_ack(struct hf_buf *buf,
                          const struct hf_packet_snapshot_ack *ack);
enum hf_err hf_packet_decode_ack(struct hf_reader *reader,
                                 struct hf_packet_snapshot_ack *ack);

#endif
