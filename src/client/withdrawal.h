/* withdrawal.h - canceling a claim in the background.
 *
 * The client withdraws a claim in the background when no caller waits for the
 * cancellation, for example because the claim was completed with HF_EINDOUBT,
 * its handle was freed, or the client is closing. CANCEL ends the claim whether
 * it is queued or holds the key. It is retried until the server confirms it or
 * its deadline has passed. All functions require the client's mutex. */
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

/* Cancel the claim with `nonce`, and retry until `until`. Does nothing if the
 * client is closed. If memory is short, this sends nothing, and a held lock
 * ends when its lease expires. */
void hf_withdrawal_start(struct hf_client *client, struct hf_key key,
                         const struct hf_nonce *nonce, hf_time until);

/* Free a withdrawal, which may be open. */
void hf_withdrawal_free(struct hf_withdrawal *withdrawal);

#endif
