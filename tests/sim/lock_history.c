#include "sim/lock_history.h"

#include <stdio.h>
#include <string.h>

#include "hf-check/check.h"
#include "hf-check/report.h"
#include "lib/runner.h"

const char *const lock_keys[LOCK_KEYS_MAX] = {"a", "b", "c"};

uint64_t lock_history_now(struct lock_clients *clients)
{
    uint64_t now = (uint64_t)clients->nodes->schedule.now * 1000000;

    if (now <= clients->last_ns)
        now = clients->last_ns + 1;
    clients->last_ns = now;
    return now;
}

/* Convert an instant of the client's clock to simulated time, rounded down. */
static uint64_t global_ns(const struct lock_client *client, hf_time local)
{
    return (uint64_t)local * 1000000 / (uint64_t)(1000000 + client->drift) *
           1000000;
}

static void nonce_text(const struct lock_client *client, char text[33])
{
    for (unsigned i = 0; i < HF_NONCE_SIZE; i++)
        (void)snprintf(text + 2 * (size_t)i, 3, "%02x", client->nonce.bytes[i]);
}

void lock_history_begin(struct lock_client *client, enum hf_op_kind kind)
{
    char nonce[33];
    size_t op;

    nonce_text(client, nonce);
    op = hf_recorder_begin(&client->all->recorder,
                           &(struct hf_recorder_call){
                               .kind = kind,
                               .client = client->number + 1,
                               .key = lock_keys[client->key],
                               .key_len = strlen(lock_keys[client->key]),
                               .nonce = nonce,
                               .token = kind == HF_OP_LOCK ? 0 : client->token,
                               .now = lock_history_now(client->all),
                           });
    if (kind == HF_OP_LOCK)
        client->lock_op = op;
    else
        client->op = op;
}

void lock_history_end(struct lock_client *client, enum hf_op_kind kind,
                      enum hf_err err)
{
    size_t op = kind == HF_OP_LOCK ? client->lock_op : client->op;
    bool grants = !err && kind != HF_OP_UNLOCK;

    if (kind == HF_OP_LOCK)
        client->has_lock_op = false;
    hf_recorder_end(
        &client->all->recorder, op,
        &(struct hf_recorder_answer){
            .result = err ? HF_OP_FAIL : HF_OP_OK,
            .error = err ? hf_err_name(err) : NULL,
            .token = grants ? client->token : 0,
            .deadline = grants ? global_ns(client, client->valid_until) : 0,
            .now = lock_history_now(client->all),
        });
}

void lock_history_check(struct lock_clients *clients)
{
    const struct hf_check_history *history =
        hf_recorder_history(&clients->recorder);
    struct hf_check_report report;

    hf_check_run(history, &report);
    if (report.violation_count == 0)
        return;
    hf_report_text(history, &report, "simulation", stdout);
    (void)fflush(stdout);
    fail();
}
