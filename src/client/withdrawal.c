#include "client/withdrawal.h"

#include <stdlib.h>

#include "client/background.h"
#include "client/client.h"

void hf_withdrawal_free(struct hf_withdrawal *withdrawal)
{
    hf_dlist_remove(&withdrawal->link);
    hf_call_fini(&withdrawal->call);
    free(withdrawal);
}

static void on_withdrawal_settled(struct hf_call *call)
{
    enum hf_err err = call->request.answer.result.err;

    if (err != HF_OK && err != HF_ENOTHELD)
        call->client->unconfirmed = true;
    hf_withdrawal_free(HF_CONTAINER(call, struct hf_withdrawal, call));
}

void hf_withdrawal_start(struct hf_client *client, struct hf_key key,
                         const struct hf_nonce *nonce, hf_time until)
{
    struct hf_withdrawal *withdrawal;

    if (client->closed)
        return;
    withdrawal = calloc(1, sizeof(*withdrawal) + key.size);
    if (!withdrawal ||
        hf_call_init(&withdrawal->call, client, on_withdrawal_settled)) {
        free(withdrawal);
        client->unconfirmed = true;
        return;
    }
    withdrawal->key_size = key.size;
    hf_copy(withdrawal->key, key.data, key.size);
    hf_dlist_push_back(&client->withdrawals, &withdrawal->link);
    withdrawal->call.request.command = (struct hf_command){
        .kind = HF_COMMAND_CANCEL,
        .key = {withdrawal->key, key.size},
        .nonce = *nonce,
    };
    hf_call_start(&withdrawal->call, until);
    /* No caller waits for the answer, so start the client's threads, which
     * retry. */
    if (!withdrawal->call.request.answered)
        (void)hf_background_ensure(client);
}
