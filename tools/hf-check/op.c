/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "op.h"

#include <string.h>

static const char *const kind_names[HF_OP_KINDS] = {
    [HF_OP_LOCK] = "lock",   [HF_OP_UNLOCK] = "unlock",
    [HF_OP_RENEW] = "renew", [HF_OP_UPDATE] = "update",
    [HF_OP_READ] = "read",   [HF_OP_WRITE] = "write",
    [HF_OP_FORCE] = "force",
};

static const char *const result_names[HF_OP_RESULTS] = {
    [HF_OP_UNKNOWN] = "unknown",
    [HF_OP_OK] = "ok",
    [HF_OP_FAIL] = "fail",
};

struct hf_op hf_op_make(enum hf_op_kind kind, uint32_t client, uint64_t invoke)
{
    return (struct hf_op){
        .kind = (uint8_t)kind,
        .client = client,
        .invoke = invoke,
        .answer = HF_OP_NEVER,
        .deadline = HF_OP_NEVER,
        .queued = HF_OP_NEVER,
        .fenced = true,
    };
}

static enum hf_op_error decode_error(const char *name, size_t len)
{
    static const struct {
        const char *name;
        enum hf_op_error error;
    } known[] = {
        {"HF_EBUSY", HF_OP_ERROR_BUSY},
        {"HF_EEXPIRED", HF_OP_ERROR_ENDED},
        {"HF_ENOTOWNER", HF_OP_ERROR_ENDED},
        {"HF_ENOTHELD", HF_OP_ERROR_ENDED},
    };

    if (!len)
        return HF_OP_ERROR_NONE;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].name) == len && !memcmp(known[i].name, name, len))
            return known[i].error;
    }
    return HF_OP_ERROR_OTHER;
}

void hf_op_set_error(struct hf_op *op, struct hf_intern *strings,
                     const char *name, size_t len)
{
    op->error = (uint8_t)decode_error(name, len);
    op->error_name = hf_intern_add(strings, name, len);
}

static bool is_time(uint64_t time)
{
    return time <= HF_OP_TIME_MAX || time == HF_OP_NEVER;
}

static const char *time_fault(const struct hf_op *op)
{
    if (op->invoke > HF_OP_TIME_MAX || op->lease > HF_OP_TIME_MAX ||
        !is_time(op->answer) || !is_time(op->deadline) || !is_time(op->queued))
        return "a time beyond 2^63 - 1 ns";
    if (op->answer < op->invoke)
        return "it returns before its invocation";
    if (op->queued < op->invoke)
        return "it is queued before its invocation";
    if (op->queued != HF_OP_NEVER && op->queued > op->answer)
        return "it is queued after its return";
    return NULL;
}

static const char *result_fault(const struct hf_op *op)
{
    bool returns = op->answer != HF_OP_NEVER;

    if (returns && !op->answered)
        return "a return without a result";
    if (!returns && op->result != HF_OP_UNKNOWN)
        return "a result that is not unknown, without a return";
    if (op->result == HF_OP_OK && op->error != HF_OP_ERROR_NONE)
        return "an error on an operation that is ok";
    return NULL;
}

static const char *lock_fault(const struct hf_op *op)
{
    bool ok = op->result == HF_OP_OK;

    if (ok && !op->token)
        return "a granted lock without a token";
    if (!ok && op->token)
        return "a token on a lock that was not granted";
    if (!ok && op->deadline != HF_OP_NEVER)
        return "a deadline on a lock that was not granted";
    if (ok && op->lease && op->deadline == HF_OP_NEVER)
        return "a granted lock with a lease but no deadline";
    return NULL;
}

static const char *kind_fault(const struct hf_op *op)
{
    bool ok = op->result == HF_OP_OK;

    if (op->kind == HF_OP_LOCK)
        return lock_fault(op);
    if (op->queued != HF_OP_NEVER)
        return "only a lock can be queued";
    if (op->kind != HF_OP_RENEW && (op->deadline != HF_OP_NEVER || op->lease))
        return "only a lock or a renewal has a deadline or a lease";
    if (op->kind != HF_OP_READ && ok && !op->token)
        return "an operation on a grant that is ok, without a token";
    return NULL;
}

const char *hf_op_fault(const struct hf_op *op)
{
    const char *fault = time_fault(op);

    if (!fault)
        fault = result_fault(op);
    if (!fault)
        fault = kind_fault(op);
    if (fault)
        return fault;
    if (!op->key)
        return "an empty key";
    if ((op->kind == HF_OP_WRITE) != (op->cell != 0))
        return "a write has a cell, and nothing else has";
    return NULL;
}

const char *hf_op_kind_name(enum hf_op_kind kind)
{
    return kind_names[kind];
}

const char *hf_op_result_name(enum hf_op_result result)
{
    return result_names[result];
}
