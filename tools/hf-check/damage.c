/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * Wrong histories, made from correct ones or at random. */
#include "damage.h"

#include "simulate.h"

#include <stdio.h>
#include <string.h>

static void shift_time(uint64_t *time, uint64_t *random, uint64_t unit)
{
    uint64_t by = (hf_simulate_random(random) % 8 + 1) * unit;

    if (*time == HF_OP_NEVER)
        return;
    if (hf_simulate_random(random) & 1)
        *time += by;
    else
        *time -= *time < by ? *time : by;
}

static void damage_result(struct hf_check_history *h, struct hf_op *op,
                          uint64_t *random)
{
    static const char *const errors[] = {"HF_EBUSY", "HF_EEXPIRED",
                                         "HF_ENOTOWNER", "HF_ENOTHELD",
                                         "HF_ETIMEDOUT"};
    const char *error = errors[hf_simulate_random(random) % 5];

    op->result = (uint8_t)(hf_simulate_random(random) % HF_OP_RESULTS);
    hf_op_set_error(op, &h->strings, "", 0);
    if (op->result == HF_OP_FAIL)
        hf_op_set_error(op, &h->strings, error, strlen(error));
    if (op->kind != HF_OP_LOCK)
        return;
    if (op->result == HF_OP_OK) {
        op->token = hf_simulate_random(random) % 16 + 1;
        op->deadline = op->answer + op->lease;
    } else {
        op->token = 0;
        op->deadline = HF_OP_NEVER;
    }
}

static void damage_op(struct hf_check_history *h, struct hf_op *op,
                      struct hf_op *other, uint64_t *random)
{
    uint64_t kept;

    switch (hf_simulate_random(random) % 10) {
    case 0: /* swap the tokens */
        kept = op->token;
        op->token = other->token;
        other->token = kept;
        break;
    case 1: /* shift the whole call */
        kept = op->invoke;
        shift_time(&op->invoke, random, 1000);
        if (op->answer != HF_OP_NEVER)
            op->answer += op->invoke - kept;
        break;
    case 2:
        shift_time(&op->answer, random, 1000);
        break;
    case 3:
        shift_time(&op->invoke, random, 1000);
        break;
    case 4:
        shift_time(&op->deadline, random, 1000);
        break;
    case 5:
        op->lease = op->lease ? hf_simulate_random(random) % 8 * 1000 : 0;
        break;
    case 6:
        op->token += op->token ? hf_simulate_random(random) % 3 - 1 : 0;
        break;
    case 7:
        op->nonce = other->nonce;
        break;
    default:
        damage_result(h, op, random);
    }
}

static void drop_op(struct hf_check_history *h, size_t op)
{
    h->ops[op] = h->ops[--h->op_count];
}

static void repeat_op(struct hf_check_history *h, size_t op, uint64_t *random)
{
    struct hf_op copy = h->ops[op];

    copy.id = h->op_count;
    copy.client += hf_simulate_random(random) % 2 ? 100 : 0;
    /* The copy grants the lock a second time, with the same token or
     * another. */
    if (copy.kind == HF_OP_LOCK && hf_simulate_random(random) % 4)
        copy.token += copy.token ? hf_simulate_random(random) % 3 : 0;
    if (copy.kind != HF_OP_LOCK || copy.result != HF_OP_UNKNOWN)
        hf_check_history_add(h, &copy);
}

static void damage_once(struct hf_check_history *h, uint64_t *random)
{
    size_t a = hf_simulate_random(random) % h->op_count;
    size_t b = hf_simulate_random(random) % h->op_count;
    uint64_t what = hf_simulate_random(random) % 8;

    if (what == 0) {
        drop_op(h, a);
    } else if (what == 1) {
        repeat_op(h, a, random);
    } else {
        struct hf_op op = h->ops[a], other = h->ops[b];

        damage_op(h, &op, &other, random);
        /* Discard a change that the file format cannot express. */
        if (hf_op_fault(&op) || hf_op_fault(&other))
            return;
        h->ops[b] = other;
        h->ops[a] = op;
    }
}

void hf_damage_history(struct hf_check_history *h, uint64_t seed)
{
    uint64_t random = seed;

    for (uint64_t i = hf_simulate_random(&random) % 5 + 1; i-- > 0;) {
        if (h->op_count)
            damage_once(h, &random);
    }
}

/* ---- Noise --------------------------------------------------------------*/

static void add_noise_lock(struct hf_check_history *h, struct hf_op *op,
                           uint64_t *random, uint64_t *token)
{
    uint64_t what = hf_simulate_random(random) % 8;
    char nonce[17];
    int len = snprintf(nonce, sizeof nonce, "%zx", h->op_count + 1);

    op->nonce = hf_intern_add(&h->strings, nonce, (size_t)len);
    if (what < 3) {
        op->result = HF_OP_OK;
        *token += 1 + hf_simulate_random(random) % 2;
        op->token = *token;
        op->deadline = op->invoke + hf_simulate_random(random) % 8;
    } else if (what < 6) {
        op->result = HF_OP_FAIL;
        hf_op_set_error(op, &h->strings, "HF_EBUSY", 8);
    } else {
        op->result = HF_OP_UNKNOWN;
    }
}

/* Add an operation on the grant of an earlier operation. */
static void add_noise_op(struct hf_check_history *h, struct hf_op *op,
                         uint64_t *random)
{
    static const enum hf_op_kind kinds[] = {
        HF_OP_UNLOCK, HF_OP_UNLOCK, HF_OP_RENEW, HF_OP_READ, HF_OP_FORCE};
    const struct hf_op *lock =
        &h->ops[hf_simulate_random(random) % h->op_count];

    op->kind = (uint8_t)kinds[hf_simulate_random(random) % 5];
    op->token = lock->token;
    op->nonce = lock->nonce;
    op->result = (uint8_t)(hf_simulate_random(random) % HF_OP_RESULTS);
    if (op->result == HF_OP_FAIL)
        hf_op_set_error(op, &h->strings, "HF_EEXPIRED", 11);
}

void hf_damage_noise(struct hf_check_history *h, uint64_t seed, size_t ops)
{
    uint64_t random = seed, now = 0, token = 0;

    for (size_t i = 0; i < ops; i++) {
        now += hf_simulate_random(&random) % 4;
        struct hf_op op = hf_op_make(HF_OP_LOCK, (uint32_t)i, now);

        op.id = i;
        op.key = hf_intern_add(&h->strings, "key", 3);
        op.answered = true;
        op.answer = now + hf_simulate_random(&random) % 4;
        if (!h->op_count || hf_simulate_random(&random) % 3)
            add_noise_lock(h, &op, &random, &token);
        else
            add_noise_op(h, &op, &random);
        if (!hf_op_fault(&op))
            hf_check_history_add(h, &op);
    }
}
