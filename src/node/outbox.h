/* outbox.h - messages of the engine that are sent when a write is durable. */
#ifndef HF_NODE_OUTBOX_H
#define HF_NODE_OUTBOX_H

#include "base/dlist.h"
#include "raft/message.h"

struct hf_outbox {
    struct hf_dlist waiting; /* in the order of their writes */
};

struct hf_outbox_message {
    struct hf_dlist link;
    uint64_t after; /* send it when this write is durable */
    uint64_t peer;
    size_t size;
    uint8_t bytes[]; /* encoded by raft/message */
};

void hf_outbox_init(struct hf_outbox *outbox);
void hf_outbox_fini(struct hf_outbox *outbox);

/* Keep a copy of `message` until the write `after` is durable. HF_ENOMEM: the
 * message is lost, which the engine tolerates. */
enum hf_err hf_outbox_add(struct hf_outbox *outbox, uint64_t after,
                          const struct hf_message *message);

/* Remove and return the first message if its write is durable: `durable` is the
 * number of the last durable write. Otherwise return NULL. The caller frees the
 * message. */
struct hf_outbox_message *hf_outbox_take(struct hf_outbox *outbox,
                                         uint64_t durable);

#endif
