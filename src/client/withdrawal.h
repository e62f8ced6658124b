/* withdrawal.h - taking a claim back, behind the caller's back.
 *
 * Nobody waits for it: a call was answered in doubt, a held handle was freed,
 * a client closes. The nonce is canceled, whether it waits or holds, and this
 * is repeated until it is confirmed or, where the lease ends the claim anyway,
 * until that must have happened. */
#ifndef HF_CLIENT_WITHDRAWAL_H
#define HF_CLIENT_WITHDRAWAL_H

#include "base/bytes.h"
#include "client/call.h"

struct hf_withdrawal {
    struct hf_dlist link; /* in the client */
    struct hf_call call;
    size_t key_size;
    uint8_t key[];
};

/* Without memory there is no withdrawal: the lease ends the claim. */
void hf_withdrawal_start(struct hf_client *client, struct hf_key key,
                         const struct hf_nonce *nonce, hf_time until);

/* Drop one that is still open: the client goes. */
void hf_withdrawal_free(struct hf_withdrawal *withdrawal);

#endif
