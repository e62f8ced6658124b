/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * Histories that no good lock makes: simulate.h. */
#include "simulate.h"

#include <stdio.h>
#include <string.h>

static void shift(uint64_t *time, uint64_t *random, uint64_t unit)
{
    uint64_t by = (simulate_random(random) % 8 + 1) * unit;

    if (*time == HISTORY_NEVER)
        return;
    if (simulate_random(random) & 1)
        *time += by;
    else
        *time -= *time < by ? *time : by;
}

static void damage_result(struct history *h, struct history_op *op,
                          uint64_t *random)
{
    static const char *const errors[] = {"HF_EBUSY", "HF_EEXPIRED",
                                         "HF_ENOTOWNER", "HF_ENOTHELD",
                                         "HF_ETIMEDOUT"};
    const char *error = errors[simulate_random(random) % 5];

    op->result = (uint8_t)(simulate_random(random) % HISTORY_RESULTS);
    history_set_error(h, op, "", 0);
    if (op->result == HISTORY_FAIL)
        history_set_error(h, op, error, strlen(error));
    if (op->kind != HISTORY_LOCK)
        return;
    if (op->result == HISTORY_OK) {
        op->token = simulate_random(random) % 16 + 1;
        op->deadline = op->answer + op->lease;
    } else {
        op->token = 0;
        op->deadline = HISTORY_NEVER;
    }
}

static void damage_op(struct history *h, struct history_op *op,
                      struct history_op *other, uint64_t *random)
{
    uint64_t kept;

    switch (simulate_random(random) % 10) {
    case 0: /* tokens swapped */
        kept = op->token;
        op->token = other->token;
        other->token = kept;
        break;
    case 1: /* all of it earlier or later */
        kept = op->invoke;
        shift(&op->invoke, random, 1000);
        if (op->answer != HISTORY_NEVER)
            op->answer += op->invoke - kept;
        break;
    case 2:
        shift(&op->answer, random, 1000);
        break;
    case 3:
        shift(&op->invoke, random, 1000);
        break;
    case 4:
        shift(&op->deadline, random, 1000);
        break;
    case 5:
        op->lease = op->lease ? simulate_random(random) % 8 * 1000 : 0;
        break;
    case 6:
        op->token += op->token ? simulate_random(random) % 3 - 1 : 0;
        break;
    case 7:
        op->nonce = other->nonce;
        break;
    default:
        damage_result(h, op, random);
    }
}

static void drop(struct history *h, size_t op)
{
    h->ops[op] = h->ops[--h->op_count];
}

static void repeat(struct history *h, size_t op, uint64_t *random)
{
    struct history_op copy = h->ops[op];

    copy.id = h->op_count;
    copy.client += simulate_random(random) % 2 ? 100 : 0;
    /* Granted twice, with one token or with two. */
    if (copy.kind == HISTORY_LOCK && simulate_random(random) % 4)
        copy.token += copy.token ? simulate_random(random) % 3 : 0;
    if (copy.kind != HISTORY_LOCK || copy.result != HISTORY_UNKNOWN)
        history_add(h, &copy);
}

static void damage_once(struct history *h, uint64_t *random)
{
    size_t a = simulate_random(random) % h->op_count;
    size_t b = simulate_random(random) % h->op_count;
    uint64_t what = simulate_random(random) % 8;

    if (what == 0) {
        drop(h, a);
    } else if (what == 1) {
        repeat(h, a, random);
    } else {
        struct history_op op = h->ops[a], other = h->ops[b];

        damage_op(h, &op, &other, random);
        /* Only what could be written down. */
        if (history_op_fault(&op) || history_op_fault(&other))
            return;
        h->ops[b] = other;
        h->ops[a] = op;
    }
}

void simulate_damage(struct history *h, uint64_t seed)
{
    uint64_t random = seed;

    for (uint64_t i = simulate_random(&random) % 5 + 1; i-- > 0;) {
        if (h->op_count)
            damage_once(h, &random);
    }
}

/* Noise. */

static void noise_lock(struct history *h, struct history_op *op,
                       uint64_t *random, uint64_t *token)
{
    uint64_t what = simulate_random(random) % 8;
    char nonce[17];
    int len = snprintf(nonce, sizeof nonce, "%zx", h->op_count + 1);

    op->nonce = words_add(&h->words, nonce, (size_t)len);
    if (what < 3) {
        op->result = HISTORY_OK;
        *token += 1 + simulate_random(random) % 2;
        op->token = *token;
        op->deadline = op->invoke + simulate_random(random) % 8;
    } else if (what < 6) {
        op->result = HISTORY_FAIL;
        history_set_error(h, op, "HF_EBUSY", 8);
    } else {
        op->result = HISTORY_UNKNOWN;
    }
}

/* Something about the grant of an earlier operation. */
static void noise_other(struct history *h, struct history_op *op,
                        uint64_t *random)
{
    static const enum history_kind kinds[] = {HISTORY_UNLOCK, HISTORY_UNLOCK,
                                              HISTORY_RENEW, HISTORY_READ,
                                              HISTORY_FORCE};
    const struct history_op *lock =
        &h->ops[simulate_random(random) % h->op_count];

    op->kind = (uint8_t)kinds[simulate_random(random) % 5];
    op->token = lock->token;
    op->nonce = lock->nonce;
    op->result = (uint8_t)(simulate_random(random) % HISTORY_RESULTS);
    if (op->result == HISTORY_FAIL)
        history_set_error(h, op, "HF_EEXPIRED", 11);
}

void simulate_noise(struct history *h, uint64_t seed, size_t ops)
{
    uint64_t random = seed, now = 0, token = 0;

    for (size_t i = 0; i < ops; i++) {
        now += simulate_random(&random) % 4;
        struct history_op op = history_op(HISTORY_LOCK, (uint32_t)i, now);

        op.id = i;
        op.key = words_add(&h->words, "key", 3);
        op.answered = true;
        op.answer = now + simulate_random(&random) % 4;
        if (!h->op_count || simulate_random(&random) % 3)
            noise_lock(h, &op, &random, &token);
        else
            noise_other(h, &op, &random);
        if (!history_op_fault(&op))
            history_add(h, &op);
    }
}
