/* outbox.h - messages of the engine that wait until a write is durable. */
#ifndef HF_NODE_OUTBOX_H
#define HF_NODE_OUTBOX_H

#include "base/dlist.h"
#include "raft/message.h"

struct hf_outbox {
    struct hf_dlist waiting; /* in order */
};

struct hf_outbox_message {
    struct hf_dlist link;
    uint64_t after; /* number of the write */
    uint64_t peer;
    size_t size;
    uint8_t bytes[]; /* raft/message */
};

void hf_outbox_init(struct hf_outbox *outbox);
void hf_outbox_fini(struct hf_outbox *outbox);

/* Keep a copy. HF_ENOMEM: the message is lost, which the engine tolerates. */
enum hf_err hf_outbox_add(struct hf_outbox *outbox, uint64_t after,
                          const struct hf_message *message);

/* Remove the first message if write `durable` releases it; NULL otherwise. The
 * caller frees it. */
struct hf_outbox_message *hf_outbox_take(struct hf_outbox *outbox,
                                         uint64_t durable);

#endif
