/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "simulate.h"

#include "fence.h"
#include "memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One key of the service. */
struct slot {
    uint64_t token; /* of the holder; 0 for nobody */
    uint32_t nonce;
    uint32_t client;
    uint64_t may_end; /* it may lawfully be taken away from then on */
    struct fence cell;
};

struct caller {
    uint32_t number; /* a new one after each death */
    bool calls;      /* `op` is under way... */
    bool applied;    /* ...and has taken effect; its answer is on the way */
    size_t op;
    uint64_t token; /* of the grant it believes to hold; 0 for none */
    uint32_t nonce;
    uint32_t slot;
};

/* Nobody waits for the answers of these; they may take effect all the same. */
#define LATE_MAX 8

struct world {
    const struct simulate_opts *opts;
    struct history *h;
    uint64_t random, now, token;
    uint32_t client_count;
    struct slot *slots;
    uint32_t *keys, *cells; /* words */
    struct caller *callers;
    size_t late[LATE_MAX];
    size_t late_count;
};

uint64_t simulate_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t below(struct world *w, uint64_t limit)
{
    return simulate_random(&w->random) % limit;
}

static bool chance(struct world *w, unsigned in_a_thousand)
{
    return below(w, 1000) < in_a_thousand;
}

static struct history_op *op_at(struct world *w, size_t op)
{
    return &w->h->ops[op];
}

static uint32_t slot_of(const struct world *w, const struct history_op *op)
{
    uint32_t slot = 0;

    while (w->keys[slot] != op->key)
        slot++;
    return slot;
}

/* The service. */

static void let_go(struct slot *slot)
{
    slot->token = 0;
    slot->may_end = HISTORY_NEVER;
}

static void expire(struct world *w, struct slot *slot)
{
    if (slot->token && slot->may_end <= w->now && chance(w, 500))
        let_go(slot);
}

static bool is_holder(const struct slot *slot, const struct history_op *op)
{
    return slot->token && slot->token == op->token && slot->nonce == op->nonce;
}

static void answer(struct world *w, struct history_op *op,
                   enum history_result result, const char *error)
{
    op->result = (uint8_t)result;
    history_set_error(w->h, op, error, strlen(error));
}

/* A deadline counts from some instant before the effect. */
static void lease(struct world *w, struct history_op *op, struct slot *slot)
{
    uint64_t span = (1 + below(w, w->opts->lease_max)) * w->opts->unit_ns;
    uint64_t base = op->invoke + below(w, w->now - op->invoke + 1);

    op->lease = span;
    op->deadline = base + span - below(w, w->opts->unit_ns);
    uint64_t end = op->invoke + span;

    if (end < op->deadline)
        end = op->deadline;
    if (op->kind == HISTORY_LOCK || slot->may_end < end)
        slot->may_end = end;
}

/* False if it goes on waiting. */
static bool apply_lock(struct world *w, struct history_op *op,
                       struct slot *slot)
{
    expire(w, slot);
    if (slot->token) {
        if (chance(w, 500))
            return false;
        answer(w, op, HISTORY_FAIL,
               chance(w, 800) ? "HF_EBUSY" : "HF_ETIMEDOUT");
        return true;
    }
    w->token += 1 + (chance(w, 300) ? below(w, 3) : 0);
    slot->token = op->token = w->token;
    slot->nonce = op->nonce;
    slot->client = op->client;
    lease(w, op, slot);
    answer(w, op, HISTORY_OK, "");
    return true;
}

static void apply_to_grant(struct world *w, struct history_op *op,
                           struct slot *slot)
{
    if (!is_holder(slot, op)) {
        answer(w, op, HISTORY_FAIL, "HF_EEXPIRED");
        return;
    }
    answer(w, op, HISTORY_OK, "");
    if (op->kind == HISTORY_UNLOCK)
        let_go(slot);
    else if (op->kind == HISTORY_RENEW)
        lease(w, op, slot);
}

static void apply_force(struct world *w, struct history_op *op,
                        struct slot *slot)
{
    if (slot->token && slot->token == op->token) {
        let_go(slot);
        answer(w, op, HISTORY_OK, "");
    } else {
        answer(w, op, HISTORY_FAIL, "HF_ENOTHELD");
    }
}

static void apply_write(struct world *w, struct history_op *op,
                        struct slot *slot)
{
    char nonce[32];

    snprintf(nonce, sizeof nonce, "%" PRIu32, op->nonce);
    if (fence_write(&slot->cell, op->token, nonce, op->value))
        answer(w, op, HISTORY_OK, "");
    else
        answer(w, op, HISTORY_FAIL, "HF_EEXPIRED");
}

static bool apply(struct world *w, size_t index)
{
    struct history_op *op = op_at(w, index);
    struct slot *slot = &w->slots[slot_of(w, op)];

    if (op->kind == HISTORY_LOCK)
        return apply_lock(w, op, slot);
    if (op->kind == HISTORY_READ) {
        op->token = slot->token;
        answer(w, op, HISTORY_OK, "");
    } else if (op->kind == HISTORY_FORCE) {
        apply_force(w, op, slot);
    } else if (op->kind == HISTORY_WRITE) {
        apply_write(w, op, slot);
    } else {
        apply_to_grant(w, op, slot);
    }
    return true;
}

/* The clients. */

static uint32_t new_nonce(struct world *w)
{
    char text[17];
    int len =
        snprintf(text, sizeof text, "%016" PRIx64, simulate_random(&w->random));

    return words_add(&w->h->words, text, (size_t)len);
}

static enum history_kind choose_kind(struct world *w,
                                     const struct caller *caller)
{
    static const enum history_kind idle[] = {
        HISTORY_LOCK, HISTORY_LOCK, HISTORY_LOCK, HISTORY_LOCK,
        HISTORY_LOCK, HISTORY_LOCK, HISTORY_READ, HISTORY_FORCE};
    static const enum history_kind holding[] = {
        HISTORY_UNLOCK, HISTORY_UNLOCK, HISTORY_UNLOCK, HISTORY_UNLOCK,
        HISTORY_UNLOCK, HISTORY_RENEW,  HISTORY_UPDATE, HISTORY_WRITE};

    return caller->token ? holding[below(w, 8)] : idle[below(w, 8)];
}

static void call(struct world *w, struct caller *caller)
{
    enum history_kind kind = choose_kind(w, caller);
    struct history_op op = history_op(kind, caller->number, w->now);

    if (!caller->token)
        caller->slot = (uint32_t)below(w, w->opts->keys);
    op.id = w->h->op_count;
    op.key = w->keys[caller->slot];
    if (kind == HISTORY_LOCK)
        op.nonce = new_nonce(w);
    else if (caller->token)
        op.nonce = caller->nonce;
    if (kind == HISTORY_FORCE)
        op.token = w->slots[caller->slot].token;
    else
        op.token = caller->token;
    if (kind == HISTORY_FORCE && !op.token)
        op.kind = HISTORY_READ;
    if (kind == HISTORY_WRITE) {
        op.cell = w->cells[caller->slot];
        op.value = w->h->op_count;
    }
    caller->op = history_add(w->h, &op);
    caller->calls = true;
    caller->applied = false;
}

static void forget_grant(struct caller *caller)
{
    caller->token = 0;
    caller->nonce = 0;
}

/* What a caller does not hear, the history does not tell. */
static void make_unknown(struct world *w, size_t index)
{
    struct history_op *op = op_at(w, index);

    op->result = HISTORY_UNKNOWN;
    history_set_error(w->h, op, "", 0);
    op->deadline = HISTORY_NEVER;
    if (op->kind == HISTORY_LOCK || op->kind == HISTORY_READ)
        op->token = 0;
}

/* The answer is lost. A grant is given back some time, or found again by its
 * nonce. */
static void lose_answer(struct world *w, struct caller *caller, bool dead)
{
    struct history_op *op = op_at(w, caller->op);
    struct slot *slot = &w->slots[slot_of(w, op)];
    bool granted = caller->applied && op->kind == HISTORY_LOCK && op->token &&
                   is_holder(slot, op);

    if (granted)
        slot->may_end = 0;
    forget_grant(caller);
    if (granted && !dead && chance(w, 300)) {
        caller->token = op->token;
        caller->nonce = op->nonce;
        caller->slot = slot_of(w, op);
    }
    if (!caller->applied && w->late_count < LATE_MAX && chance(w, 500))
        w->late[w->late_count++] = caller->op;
    make_unknown(w, caller->op);
    if (!dead && chance(w, 800)) {
        op->answered = true;
        op->answer = w->now;
    }
    caller->calls = false;
}

static void hear_answer(struct world *w, struct caller *caller)
{
    struct history_op *op = op_at(w, caller->op);

    op->answered = true;
    op->answer = w->now;
    caller->calls = false;
    if (op->kind == HISTORY_LOCK && op->result == HISTORY_OK) {
        caller->token = op->token;
        caller->nonce = op->nonce;
    } else if (op->kind == HISTORY_UNLOCK || op->error == HISTORY_ERROR_ENDED) {
        forget_grant(caller);
    }
}

static void die(struct world *w, struct caller *caller)
{
    if (caller->calls)
        lose_answer(w, caller, true);
    history_add_death(
        w->h, (struct history_death){.time = w->now, .client = caller->number});
    for (uint32_t i = 0; i < w->opts->keys; i++) {
        if (w->slots[i].token && w->slots[i].client == caller->number &&
            w->slots[i].may_end > w->now && chance(w, 500))
            w->slots[i].may_end = w->now;
    }
    forget_grant(caller);
    caller->number = w->client_count++;
}

static void act(struct world *w, struct caller *caller, bool may_call)
{
    if (chance(w, w->opts->trouble / 4)) {
        die(w, caller);
    } else if (!caller->calls) {
        if (may_call)
            call(w, caller);
    } else if (chance(w, w->opts->trouble)) {
        lose_answer(w, caller, false);
    } else if (!caller->applied) {
        caller->applied = apply(w, caller->op);
    } else {
        hear_answer(w, caller);
    }
}

/* A call that nobody waits for reaches the service after all. */
static void apply_late(struct world *w)
{
    if (!w->late_count || !chance(w, 200))
        return;
    size_t index = w->late[--w->late_count];
    struct history_op *op = op_at(w, index);
    struct history_op before = *op;
    struct slot *slot = &w->slots[slot_of(w, op)];

    if (op->kind == HISTORY_LOCK && slot->token)
        return;
    apply(w, index);
    if (op->kind == HISTORY_LOCK)
        slot->may_end = 0;
    *op = before;
}

static void world_init(struct world *w, struct history *h,
                       const struct simulate_opts *opts)
{
    *w = (struct world){
        .opts = opts,
        .h = h,
        .random = opts->seed,
        .now = opts->unit_ns,
        .client_count = opts->clients,
        .slots = memory_new(opts->keys, sizeof *w->slots),
        .keys = memory_new(opts->keys, sizeof *w->keys),
        .cells = memory_new(opts->keys, sizeof *w->cells),
        .callers = memory_new(opts->clients, sizeof *w->callers),
    };
    for (uint32_t i = 0; i < opts->keys; i++) {
        char text[32];
        int len = snprintf(text, sizeof text, "key-%" PRIu32, i);

        w->keys[i] = words_add(&h->words, text, (size_t)len);
        len = snprintf(text, sizeof text, "cell-%" PRIu32, i);
        w->cells[i] = words_add(&h->words, text, (size_t)len);
        let_go(&w->slots[i]);
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

void simulate_good(struct history *h, const struct simulate_opts *opts)
{
    struct world w;
    size_t grace = 4 * (size_t)opts->clients + 8;

    world_init(&w, h, opts);
    while (h->op_count < opts->ops || grace-- > 0) {
        w.now += below(&w, 3) * opts->unit_ns;
        expire(&w, &w.slots[below(&w, opts->keys)]);
        apply_late(&w);
        act(&w, &w.callers[below(&w, opts->clients)], h->op_count < opts->ops);
    }
    for (uint32_t i = 0; i < opts->clients; i++) {
        if (w.callers[i].calls)
            make_unknown(&w, w.callers[i].op);
    }
    world_fini(&w);
}
