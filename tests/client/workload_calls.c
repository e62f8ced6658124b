/* workload_calls.c - the calls of a simulation, recorded in its history. */
#include "client/workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"

static uint64_t nanoseconds(hf_time at)
{
    return at <= HF_WORLD_START ? 1
                                : (uint64_t)(at - HF_WORLD_START) * 1000000 + 1;
}

uint64_t sim_now(const struct sim *sim)
{
    return nanoseconds(sim->world.now);
}

void sim_nonce_text(const struct hf_lock *lock, char *text)
{
    uint8_t nonce[HF_NONCE_SIZE];

    hf_lock_nonce(lock, nonce);
    hf_hex_encode(text, nonce, sizeof(nonce));
}

struct call *sim_call_new(struct sim *sim, struct claim *claim, unsigned client)
{
    struct call *call = calloc(1, sizeof(*call));

    assert_non_null(call);
    call->sim = sim;
    call->claim = claim;
    call->client = client;
    return call;
}

void sim_call_started(struct call *call)
{
    call->sim->started++;
    if (call->claim)
        call->claim->open++;
}

void sim_call_begin(struct call *call, enum hf_op_kind kind, unsigned key)
{
    struct sim *sim = call->sim;
    bool has_claim = kind != HF_OP_LOCK && kind != HF_OP_READ;

    call->kind = kind;
    call->recorded = true;
    call->op = hf_recorder_begin(&sim->recorder,
                                 &(struct hf_recorder_call){
                                     .kind = kind,
                                     .client = call->client + 1,
                                     .key = sim_keys[key],
                                     .key_len = strlen(sim_keys[key]),
                                     .nonce = has_claim ? call->nonce : NULL,
                                     .token = has_claim ? call->token : 0,
                                     .now = sim_now(sim),
                                 });
}

/* Convert an error code to a result for the history. A call that was given up
 * has the result HF_OP_UNKNOWN, because the server may have executed it. */
static enum hf_op_result result_of(enum hf_err err)
{
    switch (err) {
    case HF_OK:
        return HF_OP_OK;
    case HF_ETIMEDOUT:
    case HF_EINDOUBT:
    case HF_ECANCELED:
    case HF_ECLOSED:
        return HF_OP_UNKNOWN;
    default:
        return HF_OP_FAIL;
    }
}

void sim_call_end(struct call *call, enum hf_err err, hf_time deadline)
{
    struct sim *sim = call->sim;
    enum hf_op_result result = result_of(err);
    bool grants = err == HF_OK && call->kind != HF_OP_UNLOCK;
    bool timed =
        grants && (call->kind == HF_OP_LOCK || call->kind == HF_OP_RENEW);

    if (!call->recorded)
        return;
    /* A renewal or an update whose reply was too late for the client may have
     * been in time at the server, so its effect is unknown. */
    if (err == HF_EEXPIRED && call->kind != HF_OP_UNLOCK)
        result = HF_OP_UNKNOWN;
    /* If the lock was lost before `done` ran, its deadline is not known any
     * more, so record an unknown result. */
    if (timed && deadline <= sim->world.now)
        result = HF_OP_UNKNOWN;
    grants = grants && result == HF_OP_OK;
    hf_recorder_end(&sim->recorder, call->op,
                    &(struct hf_recorder_answer){
                        .result = result,
                        .error = result == HF_OP_FAIL ? hf_err_name(err) : NULL,
                        .nonce = call->nonce[0] ? call->nonce : NULL,
                        .token = grants ? call->token : 0,
                        .deadline = timed && grants ? nanoseconds(deadline) : 0,
                        .now = sim_now(sim),
                    });
}

void sim_call_complete(struct call *call, enum hf_err err)
{
    struct sim *sim = call->sim;

    sim_check_lost_first(sim, call->client);
    sim->completed++;
    if (call->claim) {
        assert_true(call->claim->open > 0);
        call->claim->open--;
    }
    hf_world_note(&sim->world, (uint64_t)(-err) * 16 + call->kind);
    free(call);
}

void sim_record_background_release(struct claim *claim)
{
    struct call release = {
        .sim = claim->sim,
        .client = claim->client,
        .token = claim->token,
    };

    if (!claim->granted)
        return;
    sim_nonce_text(claim->lock, release.nonce);
    sim_call_begin(&release, HF_OP_UNLOCK, claim->key);
}

void sim_record_missed_grants(struct claim *claim)
{
    struct sim *sim = claim->sim;
    hf_time waited = sim->world.now - claim->claimed_at;

    for (hf_time i = waited / claim->lease_ms; i > 0; i--)
        (void)hf_recorder_begin(&sim->recorder,
                                &(struct hf_recorder_call){
                                    .kind = HF_OP_LOCK,
                                    .client = claim->client + 1,
                                    .key = sim_keys[claim->key],
                                    .key_len = strlen(sim_keys[claim->key]),
                                    .now = nanoseconds(claim->claimed_at),
                                });
}
