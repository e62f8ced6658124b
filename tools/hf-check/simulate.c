/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "simulate.h"

#include "array.h"
#include "fence.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One key of the service. */
struct slot {
    uint64_t token; /* of the holder; 0 for nobody */
    uint32_t nonce;
    uint32_t client;
    uint64_t may_end; /* the service may end the grant from then on */
    struct hf_fence cell;
};

struct caller {
    uint32_t number; /* the client number; a new one after each death */
    bool calls;      /* `op` has begun and not ended */
    bool applied;    /* `op` has taken effect, and its answer is on the way */
    size_t op;
    uint64_t token; /* of the grant that the client thinks it holds; 0: none */
    uint32_t nonce;
    uint32_t slot;
};

/* The largest number of abandoned calls that may still take effect. */
#define LATE_MAX 8

struct world {
    const struct hf_simulate_opts *opts;
    struct hf_check_history *h;
    uint64_t random, now, token;
    uint32_t client_count;
    struct slot *slots;
    uint32_t *keys, *cells; /* interned strings */
    struct caller *callers;
    size_t late[LATE_MAX];
    size_t late_count;
};

uint64_t hf_simulate_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t random_below(struct world *w, uint64_t limit)
{
    return hf_simulate_random(&w->random) % limit;
}

static bool random_chance(struct world *w, unsigned in_a_thousand)
{
    return random_below(w, 1000) < in_a_thousand;
}

static struct hf_op *op_by_index(struct world *w, size_t op)
{
    return &w->h->ops[op];
}

static uint32_t find_slot(const struct world *w, const struct hf_op *op)
{
    uint32_t slot = 0;

    while (w->keys[slot] != op->key)
        slot++;
    return slot;
}

/* ---- The service --------------------------------------------------------*/

static void release_slot(struct slot *slot)
{
    slot->token = 0;
    slot->may_end = HF_OP_NEVER;
}

static void maybe_expire(struct world *w, struct slot *slot)
{
    if (slot->token && slot->may_end <= w->now && random_chance(w, 500))
        release_slot(slot);
}

static bool is_holder(const struct slot *slot, const struct hf_op *op)
{
    return slot->token && slot->token == op->token && slot->nonce == op->nonce;
}

static void set_answer(struct world *w, struct hf_op *op,
                       enum hf_op_result result, const char *error)
{
    op->result = (uint8_t)result;
    hf_op_set_error(op, &w->h->strings, error, strlen(error));
}

/* Set the lease and the deadline. The deadline counts from a random instant
 * between the invocation and the effect, like that of a real client. */
static void set_lease(struct world *w, struct hf_op *op, struct slot *slot)
{
    uint64_t span =
        (1 + random_below(w, w->opts->lease_max)) * w->opts->unit_ns;
    uint64_t base = op->invoke + random_below(w, w->now - op->invoke + 1);

    op->lease = span;
    op->deadline = base + span - random_below(w, w->opts->unit_ns);
    uint64_t end = op->invoke + span;

    if (end < op->deadline)
        end = op->deadline;
    if (op->kind == HF_OP_LOCK || slot->may_end < end)
        slot->may_end = end;
}

/* Apply a lock. Returns false if the lock keeps waiting. */
static bool apply_lock(struct world *w, struct hf_op *op, struct slot *slot)
{
    maybe_expire(w, slot);
    if (slot->token) {
        if (random_chance(w, 500))
            return false;
        set_answer(w, op, HF_OP_FAIL,
                   random_chance(w, 800) ? "HF_EBUSY" : "HF_ETIMEDOUT");
        return true;
    }
    w->token += 1 + (random_chance(w, 300) ? random_below(w, 3) : 0);
    slot->token = op->token = w->token;
    slot->nonce = op->nonce;
    slot->client = op->client;
    set_lease(w, op, slot);
    set_answer(w, op, HF_OP_OK, "");
    return true;
}

static void apply_to_grant(struct world *w, struct hf_op *op, struct slot *slot)
{
    if (!is_holder(slot, op)) {
        set_answer(w, op, HF_OP_FAIL, "HF_EEXPIRED");
        return;
    }
    set_answer(w, op, HF_OP_OK, "");
    if (op->kind == HF_OP_UNLOCK)
        release_slot(slot);
    else if (op->kind == HF_OP_RENEW)
        set_lease(w, op, slot);
}

static void apply_force(struct world *w, struct hf_op *op, struct slot *slot)
{
    if (slot->token && slot->token == op->token) {
        release_slot(slot);
        set_answer(w, op, HF_OP_OK, "");
    } else {
        set_answer(w, op, HF_OP_FAIL, "HF_ENOTHELD");
    }
}

static void apply_write(struct world *w, struct hf_op *op, struct slot *slot)
{
    char nonce[32];

    snprintf(nonce, sizeof nonce, "%" PRIu32, op->nonce);
    if (hf_fence_write(&slot->cell, op->token, nonce, op->value))
        set_answer(w, op, HF_OP_OK, "");
    else
        set_answer(w, op, HF_OP_FAIL, "HF_EEXPIRED");
}

static bool apply_op(struct world *w, size_t index)
{
    struct hf_op *op = op_by_index(w, index);
    struct slot *slot = &w->slots[find_slot(w, op)];

    if (op->kind == HF_OP_LOCK)
        return apply_lock(w, op, slot);
    if (op->kind == HF_OP_READ) {
        op->token = slot->token;
        set_answer(w, op, HF_OP_OK, "");
    } else if (op->kind == HF_OP_FORCE) {
        apply_force(w, op, slot);
    } else if (op->kind == HF_OP_WRITE) {
        apply_write(w, op, slot);
    } else {
        apply_to_grant(w, op, slot);
    }
    return true;
}

/* ---- The clients --------------------------------------------------------*/

static uint32_t new_nonce(struct world *w)
{
    char text[17];
    int len = snprintf(text, sizeof text, "%016" PRIx64,
                       hf_simulate_random(&w->random));

    return hf_intern_add(&w->h->strings, text, (size_t)len);
}

static enum hf_op_kind choose_kind(struct world *w, const struct caller *caller)
{
    static const enum hf_op_kind idle[] = {HF_OP_LOCK, HF_OP_LOCK, HF_OP_LOCK,
                                           HF_OP_LOCK, HF_OP_LOCK, HF_OP_LOCK,
                                           HF_OP_READ, HF_OP_FORCE};
    static const enum hf_op_kind holding[] = {
        HF_OP_UNLOCK, HF_OP_UNLOCK, HF_OP_UNLOCK, HF_OP_UNLOCK,
        HF_OP_UNLOCK, HF_OP_RENEW,  HF_OP_UPDATE, HF_OP_WRITE};

    return caller->token ? holding[random_below(w, 8)]
                         : idle[random_below(w, 8)];
}

static void begin_call(struct world *w, struct caller *caller)
{
    enum hf_op_kind kind = choose_kind(w, caller);
    struct hf_op op = hf_op_make(kind, caller->number, w->now);

    if (!caller->token)
        caller->slot = (uint32_t)random_below(w, w->opts->keys);
    op.id = w->h->op_count;
    op.key = w->keys[caller->slot];
    if (kind == HF_OP_LOCK)
        op.nonce = new_nonce(w);
    else if (caller->token)
        op.nonce = caller->nonce;
    if (kind == HF_OP_FORCE)
        op.token = w->slots[caller->slot].token;
    else
        op.token = caller->token;
    if (kind == HF_OP_FORCE && !op.token)
        op.kind = HF_OP_READ;
    if (kind == HF_OP_WRITE) {
        op.cell = w->cells[caller->slot];
        op.value = w->h->op_count;
    }
    caller->op = hf_check_history_add(w->h, &op);
    caller->calls = true;
    caller->applied = false;
}

static void forget_grant(struct caller *caller)
{
    caller->token = 0;
    caller->nonce = 0;
}

/* Remove the fields that a caller without an answer cannot know. */
static void make_unknown(struct world *w, size_t index)
{
    struct hf_op *op = op_by_index(w, index);

    op->result = HF_OP_UNKNOWN;
    hf_op_set_error(op, &w->h->strings, "", 0);
    op->deadline = HF_OP_NEVER;
    if (op->kind == HF_OP_LOCK || op->kind == HF_OP_READ)
        op->token = 0;
}

/* Lose the answer. If it was a grant, the service may end the grant at any
 * time, and the caller may use the grant nevertheless. */
static void lose_answer(struct world *w, struct caller *caller, bool dead)
{
    struct hf_op *op = op_by_index(w, caller->op);
    struct slot *slot = &w->slots[find_slot(w, op)];
    bool granted = caller->applied && op->kind == HF_OP_LOCK && op->token &&
                   is_holder(slot, op);

    if (granted)
        slot->may_end = 0;
    forget_grant(caller);
    if (granted && !dead && random_chance(w, 300)) {
        caller->token = op->token;
        caller->nonce = op->nonce;
        caller->slot = find_slot(w, op);
    }
    if (!caller->applied && w->late_count < LATE_MAX && random_chance(w, 500))
        w->late[w->late_count++] = caller->op;
    make_unknown(w, caller->op);
    if (!dead && random_chance(w, 800)) {
        op->answered = true;
        op->answer = w->now;
    }
    caller->calls = false;
}

static void receive_answer(struct world *w, struct caller *caller)
{
    struct hf_op *op = op_by_index(w, caller->op);

    op->answered = true;
    op->answer = w->now;
    caller->calls = false;
    if (op->kind == HF_OP_LOCK && op->result == HF_OP_OK) {
        caller->token = op->token;
        caller->nonce = op->nonce;
    } else if (op->kind == HF_OP_UNLOCK || op->error == HF_OP_ERROR_ENDED) {
        forget_grant(caller);
    }
}

static void kill_client(struct world *w, struct caller *caller)
{
    if (caller->calls)
        lose_answer(w, caller, true);
    hf_check_history_add_death(
        w->h, (struct hf_op_death){.time = w->now, .client = caller->number});
    for (uint32_t i = 0; i < w->opts->keys; i++) {
        if (w->slots[i].token && w->slots[i].client == caller->number &&
            w->slots[i].may_end > w->now && random_chance(w, 500))
            w->slots[i].may_end = w->now;
    }
    forget_grant(caller);
    caller->number = w->client_count++;
}

static void step_client(struct world *w, struct caller *caller, bool may_call)
{
    if (random_chance(w, w->opts->trouble / 4)) {
        kill_client(w, caller);
    } else if (!caller->calls) {
        if (may_call)
            begin_call(w, caller);
    } else if (random_chance(w, w->opts->trouble)) {
        lose_answer(w, caller, false);
    } else if (!caller->applied) {
        caller->applied = apply_op(w, caller->op);
    } else {
        receive_answer(w, caller);
    }
}

/* Let an abandoned call reach the service late. */
static void apply_late_op(struct world *w)
{
    if (!w->late_count || !random_chance(w, 200))
        return;
    size_t index = w->late[--w->late_count];
    struct hf_op *op = op_by_index(w, index);
    struct hf_op before = *op;
    struct slot *slot = &w->slots[find_slot(w, op)];

    if (op->kind == HF_OP_LOCK && slot->token)
        return;
    apply_op(w, index);
    if (op->kind == HF_OP_LOCK)
        slot->may_end = 0;
    *op = before;
}

static void world_init(struct world *w, struct hf_check_history *h,
                       const struct hf_simulate_opts *opts)
{
    *w = (struct world){
        .opts = opts,
        .h = h,
        .random = opts->seed,
        .now = opts->unit_ns,
        .client_count = opts->clients,
        .slots = hf_array_new(opts->keys, sizeof *w->slots),
        .keys = hf_array_new(opts->keys, sizeof *w->keys),
        .cells = hf_array_new(opts->keys, sizeof *w->cells),
        .callers = hf_array_new(opts->clients, sizeof *w->callers),
    };
    for (uint32_t i = 0; i < opts->keys; i++) {
        char text[32];
        int len = snprintf(text, sizeof text, "key-%" PRIu32, i);

        w->keys[i] = hf_intern_add(&h->strings, text, (size_t)len);
        len = snprintf(text, sizeof text, "cell-%" PRIu32, i);
        w->cells[i] = hf_intern_add(&h->strings, text, (size_t)len);
        release_slot(&w->slots[i]);
    }
    for (uint32_t i = 0; i < opts->clients; i++)
        w->callers[i].number = i;
}

static void world_fini(struct world *w)
{
    free(w->slots);
    free(w->keys);
    free(w->cells);
    free(w->callers);
}

void hf_simulate_run(struct hf_check_history *h,
                     const struct hf_simulate_opts *opts)
{
    struct world w;
    size_t grace = 4 * (size_t)opts->clients + 8;

    world_init(&w, h, opts);
    while (h->op_count < opts->ops || grace-- > 0) {
        w.now += random_below(&w, 3) * opts->unit_ns;
        maybe_expire(&w, &w.slots[random_below(&w, opts->keys)]);
        apply_late_op(&w);
        step_client(&w, &w.callers[random_below(&w, opts->clients)],
                    h->op_count < opts->ops);
    }
    for (uint32_t i = 0; i < opts->clients; i++) {
        if (w.callers[i].calls)
            make_unknown(&w, w.callers[i].op);
    }
    world_fini(&w);
}
