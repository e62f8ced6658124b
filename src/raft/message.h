/* message.h - what the nodes of a cluster send to each other, as bytes.
 *
 * HELLO belongs to frames.h, ROUND and ECHO to rounds.h, LEADER_LOST to lost.h;
 * all others are of the engine. Messages are sent in frames, which begin with
 * the numbers of frames.h.
 *
 * Decoding is safe for any input: it accepts only what encoding can produce,
 * and the engine relies on that (terms and kinds of entries, for example). */
#ifndef HF_RAFT_MESSAGE_H
#define HF_RAFT_MESSAGE_H

#include <stdbool.h>

#include "base/buf.h"
#include "raft/entries.h"

enum hf_message_kind {
    HF_MESSAGE_HELLO = 1, /* no content; sent for the numbers of its frame */
    HF_MESSAGE_APPEND,
    HF_MESSAGE_APPEND_RESULT,
    HF_MESSAGE_VOTE,
    HF_MESSAGE_VOTE_RESULT,
    HF_MESSAGE_TIMEOUT_NOW,
    HF_MESSAGE_ROUND,
    HF_MESSAGE_ECHO,
    HF_MESSAGE_LEADER_LOST,
};

/* Entries after `prev_index`. */
struct hf_message_append {
    uint64_t prev_index, prev_term;
    uint64_t commit;
    const struct hf_entry *entries;
    uint32_t count;
};

struct hf_message_append_result {
    uint64_t rejected; /* prev_index of a rejected append; 0: accepted */
    uint64_t last_index;
    uint16_t features, capacity;
};

/* TIMEOUT_NOW and LEADER_LOST use only the first two members: the end of the
 * sender's log. */
struct hf_message_vote {
    uint64_t last_index, last_term;
    bool pre_vote;
    bool disrupt; /* vote even if a leader is known: that leader has asked
                     for the election, or is lost */
};

struct hf_message_vote_result {
    bool granted, pre_vote;
    uint16_t features, capacity;
};

struct hf_message {
    enum hf_message_kind kind;
    uint64_t peer; /* the receiver or the sender; not encoded */
    uint64_t term;
    uint8_t version; /* libraft's version of this kind of message */
    union {
        struct hf_message_append append;
        struct hf_message_append_result append_result;
        struct hf_message_vote vote;
        struct hf_message_vote_result vote_result;
        uint64_t round; /* ROUND, ECHO */
    };
};

/* Append the bytes of `message` to `buf`. */
void hf_message_encode(struct hf_buf *buf, const struct hf_message *message);

/* Decode the rest of `reader`. The entries of `*message` point into the input;
 * call hf_message_fini() in the end. Returns HF_EPROTO if the bytes are not a
 * message, or HF_ENOMEM. */
enum hf_err hf_message_decode(struct hf_reader *reader,
                              struct hf_message *message);
void hf_message_fini(struct hf_message *message);

#endif
