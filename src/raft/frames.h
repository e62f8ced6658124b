/* frames.h - rule 5: frames arrive at most once and in order.
 *
 * The library is safe if messages are lost, but not if they are repeated or
 * overtake each other: a stale rejection lowers the next index of a peer below
 * its match index, and the leader then sends nothing more to that peer. So each
 * frame has a number, and the incarnations of its sender and of its receiver.
 * An incarnation is a number that increases with every start of a node; it is
 * durable before the first frame is sent.
 *
 * A node learns the incarnation of a peer from the peer's frames. Until then it
 * sends 0 as the receiver's incarnation, and the peer answers with a frame that
 * needs no content. */
#ifndef HF_RAFT_FRAMES_H
#define HF_RAFT_FRAMES_H

#include "base/buf.h"

/* What a node remembers about one peer; all zeros at the start. */
struct hf_frames {
    uint64_t incarnation; /* of the peer; 0: unknown */
    uint64_t sent;        /* number of the last frame to this incarnation */
    uint64_t received;    /* last frame accepted from this incarnation */
};

enum hf_frames_verdict {
    HF_FRAMES_ACCEPT,
    HF_FRAMES_DROP,     /* old, repeated or malformed */
    HF_FRAMES_ANNOUNCE, /* drop it, and send a frame: the sender does not know
                           our incarnation */
};

/* Begin a frame to the peer: append the node's own `id` and `incarnation`, the
 * peer's incarnation, and the number of the frame to `buf`. */
void hf_frames_begin(struct hf_frames *frames, uint64_t id,
                     uint64_t incarnation, struct hf_buf *buf);

/* Read the id of the sender, which comes first in a frame. Returns 0 if the
 * frame is too short. */
uint64_t hf_frames_sender(struct hf_reader *reader);

/* Read the rest of what hf_frames_begin() wrote, and decide whether to accept
 * the frame. `frames` are of its sender; `incarnation` is our own. */
enum hf_frames_verdict hf_frames_check(struct hf_frames *frames,
                                       uint64_t incarnation,
                                       struct hf_reader *reader);

#endif
