#include "node/outbox.h"

#include <stdlib.h>

void hf_outbox_init(struct hf_outbox *outbox)
{
    hf_dlist_init(&outbox->waiting);
}

void hf_outbox_fini(struct hf_outbox *outbox)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&outbox->waiting)))
        free(HF_CONTAINER(link, struct hf_outbox_message, link));
}

enum hf_err hf_outbox_add(struct hf_outbox *outbox, uint64_t after,
                          const struct hf_message *message)
{
    struct hf_outbox_message *kept;
    struct hf_buf bytes = {0};

    hf_message_encode(&bytes, message);
    kept = bytes.failed ? NULL : malloc(sizeof(*kept) + bytes.size);
    if (kept) {
        *kept = (struct hf_outbox_message){
            .after = after,
            .peer = message->peer,
            .size = bytes.size,
        };
        hf_copy(kept->bytes, bytes.data, bytes.size);
        hf_dlist_push_back(&outbox->waiting, &kept->link);
    }
    hf_buf_fini(&bytes);
    return kept ? HF_OK : HF_ENOMEM;
}

struct hf_outbox_message *hf_outbox_take(struct hf_outbox *outbox,
                                         uint64_t durable)
{
    struct hf_dlist *first = hf_dlist_first(&outbox->waiting);
    struct hf_outbox_message *message;

    if (!first)
        return NULL;
    message = HF_CONTAINER(first, struct hf_outbox_message, link);
    if (message->after > durable)
        return NULL;
    hf_dlist_remove(first);
    return message;
}
