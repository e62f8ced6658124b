/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "search.h"

#include "array.h"

#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 64

enum action {
    GRANT,        /* a lock that was ok */
    GRANT_UNSEEN, /* a lock of unknown result, with the next token */
    GRANT_KNOWN,  /* a lock of unknown result, with its known token */
    BUSY,
    END,   /* the grant of the holder ends: by unlock, force, expiry or death */
    HOLDS, /* renew, update, read of a holder */
    ENDED,
    VACANT /* read of no holder */
};

/* A step takes effect at one instant of its span. An optional step may be left
 * out. */
struct step {
    enum action action;
    uint64_t invoke, answer;
    uint64_t token;
    uint32_t nonce;
    bool any_nonce;
    size_t lock; /* for grants: only one step of a lock may take effect */
    bool optional;
};

struct state {
    uint64_t taken; /* bits of the steps that took effect */
    uint64_t top;
    uint64_t token; /* of the holder; 0 for nobody */
    uint32_t nonce;
    bool may_withdraw; /* the result of the holder's lock is unknown */
    bool unseen;       /* no operation names the holder's token */
};

struct search {
    const struct hf_check_history *h;
    uint32_t key;
    struct step steps[STEPS_MAX];
    size_t step_count;
    bool too_large;
    /* The states that were visited: a hash table whose size is a power of two.
     * `used` marks the slots that are in use. */
    struct state *seen;
    bool *used;
    size_t seen_count, seen_room;
};

/* ---- From operations to steps -------------------------------------------*/

static void add_step(struct search *s, struct step step)
{
    if (s->step_count == STEPS_MAX) {
        s->too_large = true;
        return;
    }
    s->steps[s->step_count++] = step;
}

static struct step make_step(const struct hf_op *op, enum action action)
{
    return (struct step){
        .action = action,
        .invoke = op->invoke,
        .answer = op->result == HF_OP_UNKNOWN ? HF_OP_NEVER : op->answer,
        .token = op->token,
        .nonce = op->nonce,
        .any_nonce = op->kind == HF_OP_READ || op->kind == HF_OP_FORCE,
        .optional = op->result == HF_OP_UNKNOWN,
    };
}

static bool names_by_nonce(const struct hf_op *op)
{
    return op->kind == HF_OP_UNLOCK || op->kind == HF_OP_RENEW ||
           op->kind == HF_OP_UPDATE;
}

static bool is_on_key(const struct search *s, const struct hf_op *op)
{
    return op->key == s->key && op->kind != HF_OP_WRITE;
}

/* Returns true if an operation proves that `token` was granted, to `nonce`
 * unless `any_nonce`. */
static bool is_grant_shown(const struct search *s, uint64_t token,
                           uint32_t nonce, bool any_nonce)
{
    for (size_t i = 0; i < s->h->op_count; i++) {
        const struct hf_op *op = &s->h->ops[i];

        if (is_on_key(s, op) && op->result == HF_OP_OK && op->token == token &&
            (any_nonce || op->nonce == nonce) &&
            (op->kind == HF_OP_LOCK || names_by_nonce(op)))
            return true;
    }
    return false;
}

static bool is_renewal_of(const struct search *s, const struct hf_op *op,
                          const struct hf_op *lock)
{
    return is_on_key(s, op) && op->kind == HF_OP_RENEW &&
           op->result == HF_OP_OK && op->token == lock->token &&
           op->nonce == lock->nonce;
}

static uint64_t later_end(uint64_t end, const struct hf_op *op)
{
    if (op->deadline != HF_OP_NEVER && op->deadline > end)
        end = op->deadline;
    if (op->lease && op->invoke + op->lease > end)
        end = op->invoke + op->lease;
    return end;
}

static void add_end_from(struct search *s, const struct hf_op *lock,
                         uint64_t from)
{
    add_step(s, (struct step){
                    .action = END,
                    .invoke = from,
                    .answer = HF_OP_NEVER,
                    .token = lock->token,
                    .nonce = lock->nonce,
                    .optional = true,
                });
}

static void add_expiry(struct search *s, const struct hf_op *lock)
{
    uint64_t end = later_end(0, lock);

    if (lock->deadline == HF_OP_NEVER && !lock->lease)
        return;
    for (size_t i = 0; i < s->h->op_count; i++) {
        if (is_renewal_of(s, &s->h->ops[i], lock))
            end = later_end(end, &s->h->ops[i]);
    }
    add_end_from(s, lock, end);
}

static void add_death(struct search *s, const struct hf_op *lock)
{
    uint64_t death = HF_OP_NEVER;

    for (size_t i = 0; i < s->h->death_count; i++) {
        if (s->h->deaths[i].client == lock->client &&
            s->h->deaths[i].time < death)
            death = s->h->deaths[i].time;
    }
    if (death == HF_OP_NEVER)
        return;
    for (size_t i = 0; i < s->h->op_count; i++) {
        const struct hf_op *op = &s->h->ops[i];

        if (op->client != lock->client)
            continue;
        if (op->invoke > death)
            death = op->invoke;
        if (op->answer != HF_OP_NEVER && op->answer > death)
            death = op->answer;
    }
    add_end_from(s, lock, death);
}

static void add_unknown_lock(struct search *s, const struct hf_op *lock,
                             size_t index)
{
    struct step step = make_step(lock, GRANT_UNSEEN);

    step.lock = index;
    add_step(s, step);
    for (size_t i = 0; i < s->h->op_count; i++) {
        const struct hf_op *op = &s->h->ops[i];

        if (!is_on_key(s, op) || op->result != HF_OP_OK || !lock->nonce ||
            op->nonce != lock->nonce || !names_by_nonce(op))
            continue;
        step.action = GRANT_KNOWN;
        step.token = op->token;
        add_step(s, step);
    }
}

static void add_lock(struct search *s, const struct hf_op *op, size_t i)
{
    if (op->result == HF_OP_UNKNOWN) {
        add_unknown_lock(s, op, i);
    } else if (op->result == HF_OP_OK) {
        struct step step = make_step(op, GRANT);

        step.lock = i;
        add_step(s, step);
        add_expiry(s, op);
        add_death(s, op);
    } else if (op->error == HF_OP_ERROR_BUSY) {
        add_step(s, make_step(op, BUSY));
    }
}

static bool proves_its_grant(const struct hf_op *op)
{
    return op->result == HF_OP_OK && names_by_nonce(op);
}

static void add_other(struct search *s, const struct hf_op *op)
{
    bool ends = op->kind == HF_OP_UNLOCK || op->kind == HF_OP_FORCE;
    bool any_nonce = op->kind == HF_OP_READ || op->kind == HF_OP_FORCE;

    if (op->kind == HF_OP_READ && op->result == HF_OP_OK && !op->token)
        add_step(s, make_step(op, VACANT));
    if (!op->token || (!proves_its_grant(op) &&
                       !is_grant_shown(s, op->token, op->nonce, any_nonce)))
        return;
    if (op->result == HF_OP_FAIL) {
        if (op->error == HF_OP_ERROR_ENDED && names_by_nonce(op))
            add_step(s, make_step(op, ENDED));
    } else if (ends) {
        add_step(s, make_step(op, END));
    } else if (op->result == HF_OP_OK) {
        add_step(s, make_step(op, HOLDS));
    }
}

static void add_steps(struct search *s)
{
    for (size_t i = 0; i < s->h->op_count; i++) {
        const struct hf_op *op = &s->h->ops[i];

        if (!is_on_key(s, op))
            continue;
        if (op->kind == HF_OP_LOCK)
            add_lock(s, op, i);
        else
            add_other(s, op);
    }
}

/* ---- The model ----------------------------------------------------------*/

static bool is_holder(const struct state *state, const struct step *step)
{
    return state->token && !state->unseen && state->token == step->token &&
           (step->any_nonce || state->nonce == step->nonce);
}

static bool grant_key(struct state *state, const struct step *step,
                      uint64_t token)
{
    if (state->token || token <= state->top)
        return false;
    state->top = state->token = token;
    state->nonce = step->nonce;
    state->may_withdraw = step->optional;
    state->unseen = step->action == GRANT_UNSEEN;
    return true;
}

static void release_key(struct state *state)
{
    state->token = 0;
    state->nonce = 0;
    state->may_withdraw = false;
    state->unseen = false;
}

/* Apply `step`. Returns false if the model does not allow it. */
static bool apply_step(struct state *state, const struct step *step)
{
    switch (step->action) {
    case GRANT:
    case GRANT_KNOWN:
        return grant_key(state, step, step->token);
    case GRANT_UNSEEN:
        /* After the largest token, top + 1 is 0, which grant_key() refuses. */
        return grant_key(state, step, state->top + 1);
    case BUSY:
        return state->token != 0;
    case END:
        if (!is_holder(state, step))
            return false;
        release_key(state);
        return true;
    case HOLDS:
        return is_holder(state, step);
    case ENDED:
        return !is_holder(state, step) && state->top >= step->token;
    case VACANT:
        return state->token == 0;
    }
    return false;
}

/* ---- The search ---------------------------------------------------------*/

static uint64_t state_hash(const struct state *state)
{
    uint64_t hash = state->taken * UINT64_C(0x9e3779b97f4a7c15);

    hash = (hash ^ state->top ^ hash >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    hash = (hash ^ state->token ^ hash >> 32) * UINT64_C(0x94d049bb133111eb);
    return hash ^ state->nonce ^ hash >> 31;
}

static bool is_same_state(const struct state *a, const struct state *b)
{
    return a->taken == b->taken && a->top == b->top && a->token == b->token &&
           a->nonce == b->nonce && a->may_withdraw == b->may_withdraw &&
           a->unseen == b->unseen;
}

static size_t find_state_slot(const struct search *s, const struct state *state)
{
    size_t mask = s->seen_room - 1, at = (size_t)state_hash(state) & mask;

    while (s->used[at] && !is_same_state(&s->seen[at], state))
        at = (at + 1) & mask;
    return at;
}

static void grow_states(struct search *s)
{
    struct search old = *s;

    s->seen_room = old.seen_room ? old.seen_room * 2 : 64;
    s->seen = hf_array_new(s->seen_room, sizeof *s->seen);
    s->used = hf_array_new(s->seen_room, sizeof *s->used);
    for (size_t i = 0; i < old.seen_room; i++) {
        if (!old.used[i])
            continue;
        size_t at = find_state_slot(s, &old.seen[i]);

        s->seen[at] = old.seen[i];
        s->used[at] = true;
    }
    free(old.seen);
    free(old.used);
}

/* Add a state to the cache. Returns false if it was visited before. */
static bool remember_state(struct search *s, const struct state *state)
{
    if (s->seen_count * 2 >= s->seen_room)
        grow_states(s);
    size_t at = find_state_slot(s, state);

    if (s->used[at])
        return false;
    s->seen[at] = *state;
    s->used[at] = true;
    s->seen_count++;
    return true;
}

static bool has_step(const struct state *state, size_t step)
{
    return state->taken >> step & 1;
}

/* Return the earliest return of a step that must still take effect: a step that
 * is invoked later cannot be next. HF_OP_NEVER if only optional steps
 * remain. */
static uint64_t earliest_return(const struct search *s,
                                const struct state *state)
{
    uint64_t earliest = HF_OP_NEVER;

    for (size_t i = 0; i < s->step_count; i++) {
        const struct step *step = &s->steps[i];

        if (!step->optional && !has_step(state, i) && step->answer < earliest)
            earliest = step->answer;
    }
    return earliest;
}

static bool is_grant(const struct step *step)
{
    return step->action == GRANT || step->action == GRANT_UNSEEN ||
           step->action == GRANT_KNOWN;
}

/* Return the bits of `step` and of the steps that it excludes: a lock of
 * unknown result has several steps, and at most one of them takes effect. */
static uint64_t alternatives_of(const struct search *s, size_t step)
{
    uint64_t bits = UINT64_C(1) << step;

    for (size_t i = 0; i < s->step_count && is_grant(&s->steps[step]); i++) {
        if (is_grant(&s->steps[i]) && s->steps[i].lock == s->steps[step].lock)
            bits |= UINT64_C(1) << i;
    }
    return bits;
}

/* Try all orders of the remaining steps. Returns true if the model allows one
 * of them. The depth is bounded: each call applies a step or withdraws a grant,
 * and each withdrawal follows a grant. */
static bool search_orders(struct search *s, const struct state *state)
{
    uint64_t limit = earliest_return(s, state);

    if (limit == HF_OP_NEVER)
        return true;
    if (!remember_state(s, state))
        return false;
    for (size_t i = 0; i < s->step_count; i++) {
        struct state next = *state;

        if (has_step(state, i) || s->steps[i].invoke > limit ||
            !apply_step(&next, &s->steps[i]))
            continue;
        next.taken |= alternatives_of(s, i);
        if (search_orders(s, &next))
            return true;
    }
    if (!state->may_withdraw)
        return false;
    struct state next = *state;

    release_key(&next);
    return search_orders(s, &next);
}

static enum hf_search_verdict search_key(const struct hf_check_history *h,
                                         uint32_t key)
{
    struct search s = {.h = h, .key = key};
    struct state start = {0};
    bool answer = false;

    add_steps(&s);
    if (!s.too_large)
        answer = search_orders(&s, &start);
    free(s.seen);
    free(s.used);
    if (s.too_large)
        return HF_SEARCH_TOO_LARGE;
    return answer ? HF_SEARCH_LINEARIZABLE : HF_SEARCH_NOT_LINEARIZABLE;
}

static bool is_first_of_key(const struct hf_check_history *h, size_t op)
{
    for (size_t i = 0; i < op; i++) {
        if (h->ops[i].key == h->ops[op].key)
            return false;
    }
    return true;
}

enum hf_search_verdict hf_search_run(const struct hf_check_history *h)
{
    enum hf_search_verdict verdict = HF_SEARCH_LINEARIZABLE;

    for (size_t i = 0; i < h->op_count; i++) {
        if (!is_first_of_key(h, i))
            continue;
        enum hf_search_verdict one = search_key(h, h->ops[i].key);

        if (one > verdict)
            verdict = one;
    }
    return verdict;
}
