/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * Histories of services without fencing tokens: replace tokens by ranks.
 * check.h says why the order of the returns is the order of the grants. */
#include "checker.h"

#include "array.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A lock that was ok. Several grants of a key may have one token. */
struct named {
    uint32_t key, nonce;
    uint64_t token;
    size_t op;
    uint64_t answer;
    uint64_t held;        /* latest invocation that needs it held; or 0 */
    uint64_t may_end;     /* it cannot have ended before this */
    uint64_t unclear_end; /* earliest end of it or another with its name */
    uint64_t rank;        /* 0: it may have ended before its return */
};

struct doubt {
    uint32_t key, nonce;
    uint64_t invoke;
};

struct ranks {
    const struct hf_check_history *h;
    struct named *grants; /* sorted by key, token and nonce */
    size_t count;
    struct doubt *doubts; /* sorted by key, nonce and invocation */
    size_t doubt_count;
};

struct range {
    size_t at, end;
};

#define COMPARE(a, b)                                                          \
    if ((a) != (b))                                                            \
    return (a) < (b) ? -1 : 1

static int by_token(const void *left, const void *right)
{
    const struct named *a = left, *b = right;

    COMPARE(a->key, b->key);
    COMPARE(a->token, b->token);
    return 0;
}

static int by_name(const void *left, const void *right)
{
    const struct named *a = left, *b = right;

    COMPARE(a->key, b->key);
    COMPARE(a->token, b->token);
    COMPARE(a->nonce, b->nonce);
    return 0;
}

/* Two grants that held the key after they returned at one instant violate a
 * promise, whatever their order. */
static int by_return(const void *left, const void *right)
{
    const struct named *const *a = left, *const *b = right;

    COMPARE((*a)->answer, (*b)->answer);
    COMPARE((*a)->op, (*b)->op);
    return 0;
}

static int by_doubt(const void *left, const void *right)
{
    const struct doubt *a = left, *b = right;

    COMPARE(a->key, b->key);
    COMPARE(a->nonce, b->nonce);
    COMPARE(a->invoke, b->invoke);
    return 0;
}

/* ---- Names --------------------------------------------------------------*/

static bool is_on_a_grant(const struct hf_op *op)
{
    return op->kind != HF_OP_LOCK && op->kind != HF_OP_WRITE && op->token;
}

static bool names_token_alone(const struct hf_op *op)
{
    return op->kind == HF_OP_READ || op->kind == HF_OP_FORCE;
}

/* Return how many grants precede `wanted`, or also those equal to it. */
static size_t count_before(const struct ranks *r, const struct named *wanted,
                           int (*compare)(const void *, const void *),
                           bool or_equal)
{
    size_t low = 0, high = r->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare(&r->grants[middle], wanted);

        if (order < 0 || (or_equal && order == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Return the grants that `op` may refer to. */
static struct range find_grants(const struct ranks *r, const struct hf_op *op)
{
    struct named wanted = {
        .key = op->key, .token = op->token, .nonce = op->nonce};
    int (*compare)(const void *, const void *) =
        names_token_alone(op) ? by_token : by_name;

    return (struct range){count_before(r, &wanted, compare, false),
                          count_before(r, &wanted, compare, true)};
}

/* Return the first lock of unknown result of `key` with a nonce from `nonce`
 * on, or NULL. */
static const struct doubt *find_doubt(const struct ranks *r, uint32_t key,
                                      uint32_t nonce)
{
    struct doubt wanted = {.key = key, .nonce = nonce};
    size_t low = 0, high = r->doubt_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (by_doubt(&r->doubts[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < r->doubt_count && r->doubts[low].key == key ? &r->doubts[low]
                                                             : NULL;
}

/* A token alone may also be that of any lock of unknown result. */
static bool is_unclear(const struct ranks *r, const struct hf_op *op,
                       struct range range)
{
    return range.end - range.at > 1 ||
           (names_token_alone(op) && find_doubt(r, op->key, 0));
}

static bool may_be_in_doubt(const struct ranks *r, const struct hf_op *op)
{
    const struct doubt *doubt =
        op->nonce ? find_doubt(r, op->key, op->nonce) : NULL;

    return doubt && doubt->nonce == op->nonce && doubt->invoke <= op->answer;
}

/* ---- Collecting ---------------------------------------------------------*/

static struct named new_named(const struct hf_checker *c, size_t i)
{
    const struct hf_op *op = &c->h->ops[i];

    return (struct named){
        .key = op->key,
        .nonce = op->nonce,
        .token = op->token,
        .op = i,
        .answer = op->answer,
        .may_end = least(hf_grants_expiry(op), hf_grants_death(c, op->client)),
        .unclear_end = HF_OP_NEVER,
    };
}

static void collect_locks(struct ranks *r, const struct hf_checker *c)
{
    const struct hf_check_history *h = r->h;

    r->grants = hf_array_new(h->op_count, sizeof *r->grants);
    r->doubts = hf_array_new(h->op_count, sizeof *r->doubts);
    for (size_t i = 0; i < h->op_count; i++) {
        const struct hf_op *op = &h->ops[i];

        if (op->kind != HF_OP_LOCK)
            continue;
        if (op->result == HF_OP_OK)
            r->grants[r->count++] = new_named(c, i);
        else if (op->result == HF_OP_UNKNOWN)
            r->doubts[r->doubt_count++] =
                (struct doubt){op->key, op->nonce, op->invoke};
    }
    qsort(r->grants, r->count, sizeof *r->grants, by_name);
    qsort(r->doubts, r->doubt_count, sizeof *r->doubts, by_doubt);
}

/* `op` may have ended any grant of the range, except those of later locks. */
static void note_unclear_end(struct ranks *r, const struct hf_op *op,
                             struct range range)
{
    for (; range.at < range.end; range.at++) {
        struct named *g = &r->grants[range.at];

        if (op->result == HF_OP_UNKNOWN ||
            op->answer >= r->h->ops[g->op].invoke)
            g->unclear_end = least(g->unclear_end, op->invoke);
    }
}

static void note_use(struct ranks *r, const struct hf_op *op)
{
    struct range range = find_grants(r, op);
    struct named *g = range.at < range.end ? &r->grants[range.at] : NULL;
    bool ends = (op->kind == HF_OP_UNLOCK || op->kind == HF_OP_FORCE) &&
                op->result != HF_OP_FAIL;

    if (!g)
        return;
    if (is_unclear(r, op, range)) {
        if (ends)
            note_unclear_end(r, op, range);
        return;
    }
    if (ends)
        g->may_end = least(g->may_end, op->invoke);
    if (op->result == HF_OP_OK)
        g->held = most(g->held, op->invoke);
}

/* Returns true if the grant held the key when its lock returned, and also
 * beyond that instant. */
static bool held_at_return(const struct named *g)
{
    return least(g->may_end, g->unclear_end) > g->answer || g->held > g->answer;
}

/* Every second number is a rank, so that the model finds a number for a lock of
 * unknown result between any two grants. Grants that nothing distinguishes,
 * although they have a nonce, get one rank, and are reported. */
static void assign_ranks(struct ranks *r)
{
    struct named **order = hf_array_new(r->count, sizeof(struct named *));
    size_t count = 0;

    for (size_t i = 0; i < r->count; i++) {
        if (held_at_return(&r->grants[i]))
            order[count++] = &r->grants[i];
    }
    qsort(order, count, sizeof(struct named *), by_return);
    for (size_t i = 0; i < count; i++)
        order[i]->rank = 2 * (i + 1);
    for (size_t i = 1; i < r->count; i++) {
        struct named *g = &r->grants[i];

        if (g->nonce && g->rank && g[-1].rank && by_name(g, &g[-1]) == 0)
            g->rank = g[-1].rank;
    }
    free(order);
}

/* ---- The copy -----------------------------------------------------------*/

/* Return the token of the copy of `op`: 0 if it is left out. An operation that
 * was ok for a grant that cannot exist keeps a token that no lock has, so that
 * it is reported. */
static uint64_t new_token(const struct ranks *r, const struct hf_op *op)
{
    struct range range = find_grants(r, op);

    if (range.at < range.end)
        return is_unclear(r, op, range) ? 0 : r->grants[range.at].rank;
    if (op->result == HF_OP_OK && !names_token_alone(op) &&
        !may_be_in_doubt(r, op))
        return UINT64_MAX;
    return 0;
}

static void copy_ops(const struct ranks *r, struct hf_check_history *copy)
{
    for (size_t i = 0; i < r->h->op_count; i++) {
        struct hf_op op = r->h->ops[i];

        if (is_on_a_grant(&op)) {
            op.token = new_token(r, &op);
            /* A read without a token would say that the key is free. */
            if (!op.token && op.kind == HF_OP_READ)
                op.result = HF_OP_UNKNOWN;
        }
        hf_check_history_add(copy, &op);
    }
}

static void rank_locks(const struct ranks *r, struct hf_check_history *copy)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct named *g = &r->grants[i];
        struct hf_op *lock;

        assert(g->op < copy->op_count);
        lock = &copy->ops[g->op];
        lock->token = g->rank;
        if (!g->rank) {
            lock->result = HF_OP_UNKNOWN;
            lock->deadline = HF_OP_NEVER;
        } else if (g->unclear_end != HF_OP_NEVER) {
            struct hf_op end =
                hf_op_make(HF_OP_FORCE, lock->client, g->unclear_end);

            end.key = g->key;
            end.token = g->rank;
            hf_check_history_add(copy, &end);
        }
    }
}

static void copy_losts(const struct ranks *r, struct hf_check_history *copy)
{
    for (size_t i = 0; i < r->h->lost_count; i++) {
        struct hf_op_lost lost = r->h->losts[i];
        struct hf_op read = {
            .kind = HF_OP_READ, .key = lost.key, .token = lost.token};
        struct range range = find_grants(r, &read);

        for (; range.at < range.end; range.at++) {
            lost.token = r->grants[range.at].rank;
            hf_check_history_add_lost(copy, lost);
        }
    }
}

struct hf_check_history hf_ranks_copy(const struct hf_checker *c)
{
    const struct hf_check_history *h = c->h;
    struct hf_check_history copy = *h;
    struct ranks r = {.h = h};

    copy.ops = NULL;
    copy.losts = NULL;
    copy.op_count = copy.op_room = copy.lost_count = copy.lost_room = 0;
    collect_locks(&r, c);
    for (size_t i = 0; i < h->op_count; i++) {
        if (is_on_a_grant(&h->ops[i]))
            note_use(&r, &h->ops[i]);
    }
    assign_ranks(&r);
    copy_ops(&r, &copy);
    rank_locks(&r, &copy);
    copy_losts(&r, &copy);
    free(r.grants);
    free(r.doubts);
    return copy;
}
