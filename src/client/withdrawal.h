/* withdrawal.h - canceling a claim in the background.
 *
 * Used if the caller does not wait for the cancellation: a claim was completed
 * with HF_EINDOUBT, a held handle was freed, or the client is closing. A CANCEL
 * ends the nonce whether it is queued or holds the key. It is repeated until it
 * is confirmed, or until the lease of the claim has expired in any case. All
 * functions require the client's mutex. */
#ifndef HF_CLIENT_WITHDRAWAL_H
#define HF_CLIENT_WITHDRAWAL_H

#include "base/bytes.h"
#include "client/call.h"

struct hf_withdrawal {
    struct hf_dlist link; /* in client->withdrawals */
    struct hf_call call;
    size_t key_size;
    uint8_t key[];
};

/* Cancel the claim with `nonce`, and retry until `until`. Without memory this
 * does nothing: then a held lock ends when its lease expires. */
void hf_withdrawal_start(struct hf_client *client, struct hf_key key,
                         const struct hf_nonce *nonce, hf_time until);

/* Free a withdrawal, which may be open. */
void hf_withdrawal_free(struct hf_withdrawal *withdrawal);

#endif
