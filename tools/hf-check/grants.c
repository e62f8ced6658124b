/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * Convert operations to grants: a grant for each token of a key, with all
 * operations on it. */
#include "checker.h"

#include "array.h"

#include <stdlib.h>

static bool has_outcome(const struct hf_op *op, enum hf_op_kind kind,
                        enum hf_op_result result)
{
    return op->kind == kind && hf_checker_result(op) == result;
}

static bool ends_a_grant(const struct hf_op *op)
{
    return op->kind == HF_OP_UNLOCK || op->kind == HF_OP_FORCE;
}

static bool is_ended(const struct hf_op *op)
{
    return hf_checker_result(op) == HF_OP_FAIL &&
           op->error == HF_OP_ERROR_ENDED &&
           (op->kind == HF_OP_UNLOCK || op->kind == HF_OP_RENEW ||
            op->kind == HF_OP_UPDATE);
}

/* Returns true if `op` proves, by its nonce, that a token was granted. */
static bool proves_a_grant(const struct hf_op *op)
{
    return hf_checker_result(op) == HF_OP_OK &&
           (op->kind == HF_OP_UNLOCK || op->kind == HF_OP_RENEW ||
            op->kind == HF_OP_UPDATE);
}

static bool needs_no_nonce(const struct hf_op *op)
{
    return op->kind == HF_OP_READ || op->kind == HF_OP_FORCE;
}

uint64_t hf_grants_death(const struct hf_checker *c, uint32_t client)
{
    const struct hf_op_death *death =
        hf_check_history_find_death(c->deaths, c->death_count, client);

    return death ? death->time : HF_OP_NEVER;
}

/* ---- Spans of validity --------------------------------------------------*/

static int by_answer(const void *left, const void *right)
{
    const struct hf_check_renewal *a = left, *b = right;

    return a->answer < b->answer ? -1 : a->answer > b->answer;
}

static void add_segment(struct hf_checker *c, size_t lock, uint64_t from,
                        uint64_t until)
{
    if (from >= until)
        return;
    c->segments = hf_array_grow(c->segments, &c->segment_room, c->segment_count,
                                sizeof *c->segments);
    c->segments[c->segment_count++] =
        (struct hf_check_valid){.span = {from, until}, .lock = lock};
}

/* The lock and its renewals, in the order of their returns, each extend the
 * previous span, or begin a new span if the previous one has ended. No span
 * extends beyond `stop`. */
static void add_segments(struct hf_checker *c, size_t lock, uint64_t stop)
{
    const struct hf_op *op = &c->h->ops[lock];
    uint64_t from = 0, until = 0;

    if (op->result == HF_OP_OK) {
        from = op->answer;
        until = op->deadline;
    }
    if (c->renewal_count > 1)
        qsort(c->renewals, c->renewal_count, sizeof *c->renewals, by_answer);
    for (size_t i = 0; i < c->renewal_count; i++) {
        const struct hf_check_renewal *renewal = &c->renewals[i];

        if (renewal->answer > until) {
            add_segment(c, lock, from, least(until, stop));
            from = renewal->answer;
        }
        until = most(until, renewal->deadline);
    }
    add_segment(c, lock, from, least(until, stop));
}

static void add_renewal(struct hf_checker *c, const struct hf_op *op)
{
    if (op->deadline == HF_OP_NEVER)
        return;
    c->renewals = hf_array_grow(c->renewals, &c->renewal_room, c->renewal_count,
                                sizeof *c->renewals);
    c->renewals[c->renewal_count++] =
        (struct hf_check_renewal){op->answer, op->deadline};
}

/* ---- One grant ----------------------------------------------------------*/

static struct hf_check_grant new_grant(const struct hf_op *op, size_t lock,
                                       uint64_t token)
{
    bool ok = hf_checker_result(op) == HF_OP_OK;

    return (struct hf_check_grant){
        .token = token,
        .nonce = op->nonce,
        .lock = lock,
        .invoke = op->invoke,
        .answer = ok ? op->answer : HF_OP_NEVER,
        .held_late = HF_CHECK_NO_OP,
        .held_answer = HF_OP_NEVER,
        .held_early = HF_CHECK_NO_OP,
        .release = HF_CHECK_NO_OP,
        .end_answer = HF_OP_NEVER,
        .ended_answer = HF_OP_NEVER,
        .ended = HF_CHECK_NO_OP,
    };
}

static void note_held(struct hf_check_grant *g, const struct hf_op *op,
                      size_t index)
{
    if (g->held_late == HF_CHECK_NO_OP || op->invoke > g->held_invoke) {
        g->held_invoke = op->invoke;
        g->held_late = index;
    }
    if (g->held_early == HF_CHECK_NO_OP || op->answer < g->held_answer) {
        g->held_answer = op->answer;
        g->held_early = index;
    }
}

static void note_ended(struct hf_check_grant *g, const struct hf_op *op,
                       size_t index)
{
    if (g->ended == HF_CHECK_NO_OP || op->answer < g->ended_answer) {
        g->ended_answer = op->answer;
        g->ended = index;
    }
}

static void note_release(struct hf_checker *c, struct hf_check_grant *g,
                         size_t index)
{
    if (g->release != HF_CHECK_NO_OP)
        hf_checker_report(c, HF_CHECK_NOT_HOLDER, g->release, index);
    g->release = index;
}

uint64_t hf_grants_expiry(const struct hf_op *op)
{
    uint64_t end = 0;

    if (op->deadline == HF_OP_NEVER && !op->lease)
        return op->kind == HF_OP_LOCK ? HF_OP_NEVER : 0;
    if (op->deadline != HF_OP_NEVER)
        end = op->deadline;
    if (op->lease)
        end = most(end, op->invoke + op->lease);
    return end;
}

struct ends {
    uint64_t valid;  /* the grant is not valid after this */
    uint64_t expiry; /* the grant cannot expire before this */
    uint64_t other;  /* no other cause can end the grant before this */
};

static void note_op(struct hf_checker *c, struct hf_check_grant *g,
                    struct ends *ends, size_t index)
{
    const struct hf_op *op = &c->h->ops[index];
    bool mine = op->nonce == g->nonce;
    bool ok = hf_checker_result(op) == HF_OP_OK;

    if (op->kind == HF_OP_LOCK)
        return;
    if (ends_a_grant(op) && (mine || needs_no_nonce(op)))
        ends->valid = least(ends->valid, op->invoke);
    if (!mine && !needs_no_nonce(op)) {
        /* If the token was granted twice, the operation may belong to the other
         * grant. */
        if (ok && !(c->found & 1u << HF_CHECK_TOKEN_REPEATED))
            hf_checker_report(c, HF_CHECK_NOT_HOLDER, g->lock, index);
        return;
    }
    if (is_ended(op))
        note_ended(g, op, index);
    else if (ends_a_grant(op) && ok)
        note_release(c, g, index);
    else if (ends_a_grant(op) && hf_checker_result(op) == HF_OP_UNKNOWN)
        ends->other = least(ends->other, op->invoke);
    else if (ok)
        note_held(g, op, index);
    if (has_outcome(op, HF_OP_RENEW, HF_OP_OK)) {
        ends->expiry = most(ends->expiry, hf_grants_expiry(op));
        add_renewal(c, op);
    }
}

static void note_lost(struct hf_checker *c, const struct hf_check_grant *g,
                      struct ends *ends, const struct hf_op_lost *lost)
{
    if (lost->client == c->h->ops[g->lock].client)
        ends->valid = least(ends->valid, lost->time);
}

/* Set the instants between which the model allows the grant to end. */
static void settle_end(struct hf_checker *c, struct hf_check_grant *g,
                       const struct ends *ends)
{
    if (g->release != HF_CHECK_NO_OP) {
        g->end_invoke = c->h->ops[g->release].invoke;
        g->end_answer = c->h->ops[g->release].answer;
    } else if (hf_checker_result(&c->h->ops[g->lock]) != HF_OP_OK) {
        g->end_invoke = 0; /* the lock may be withdrawn at any time */
    } else {
        g->end_invoke = least(ends->expiry, ends->other);
    }
}

/* Add the grant of `lock` with the items from `at` to `end`. */
static void add_grant(struct hf_checker *c, size_t lock, size_t at, size_t end)
{
    const struct hf_op *op = &c->h->ops[lock];
    struct hf_check_grant g = new_grant(op, lock, c->items[at].token);
    uint64_t death = hf_grants_death(c, op->client);
    struct ends ends = {
        .valid = death, .expiry = hf_grants_expiry(op), .other = death};

    c->renewal_count = 0;
    for (size_t i = at; i < end; i++) {
        size_t index = c->items[i].index;

        if (index < c->h->op_count)
            note_op(c, &g, &ends, index);
        else
            note_lost(c, &g, &ends, &c->h->losts[index - c->h->op_count]);
    }
    settle_end(c, &g, &ends);
    add_segments(c, lock, ends.valid);
    c->grants = hf_array_grow(c->grants, &c->grant_room, c->grant_count,
                              sizeof *c->grants);
    c->grants[c->grant_count++] = g;
}

/* ---- All grants of a key ------------------------------------------------*/

static int by_nonce(const void *left, const void *right)
{
    const struct hf_check_doubt *a = left, *b = right;

    if (a->nonce != b->nonce)
        return a->nonce < b->nonce ? -1 : 1;
    return a->invoke < b->invoke ? -1 : a->invoke > b->invoke;
}

/* Return the first lock of unknown result with this nonce whose token is not
 * known yet, or NULL. */
static struct hf_check_doubt *find_unknown_lock(struct hf_checker *c,
                                                uint32_t nonce)
{
    size_t low = 0, high = c->doubt_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (c->doubts[middle].nonce < nonce)
            low = middle + 1;
        else
            high = middle;
    }
    while (low < c->doubt_count && c->doubts[low].nonce == nonce &&
           c->doubts[low].known)
        low++;
    if (low == c->doubt_count || c->doubts[low].nonce != nonce)
        return NULL;
    return &c->doubts[low];
}

/* No successful lock has this token: a successful operation on it must belong
 * to a lock of unknown result. */
static void gather_unknown_lock(struct hf_checker *c, size_t at, size_t end)
{
    for (size_t i = at; i < end; i++) {
        size_t index = c->items[i].index;

        if (index >= c->h->op_count || !proves_a_grant(&c->h->ops[index]))
            continue;
        uint32_t nonce = c->h->ops[index].nonce;
        struct hf_check_doubt *doubt =
            nonce ? find_unknown_lock(c, nonce) : NULL;

        if (!doubt) {
            hf_checker_report(c, HF_CHECK_NOT_HOLDER, HF_CHECK_NO_OP, index);
            return;
        }
        doubt->known = true;
        add_grant(c, doubt->op, at, end);
        return;
    }
}

static bool is_grant(const struct hf_checker *c, size_t item)
{
    size_t index = c->items[item].index;

    return index < c->h->op_count &&
           has_outcome(&c->h->ops[index], HF_OP_LOCK, HF_OP_OK);
}

/* Gather the items of one token. Locks sort first, so the first item shows
 * whether a lock with this token was ok. */
static void gather_token(struct hf_checker *c, size_t at, size_t end)
{
    if (!is_grant(c, at)) {
        gather_unknown_lock(c, at, end);
        return;
    }
    bool repeated = at + 1 < end && is_grant(c, at + 1);

    if (repeated)
        hf_checker_report(c, HF_CHECK_TOKEN_REPEATED, c->items[at].index,
                          c->items[at + 1].index);
    add_grant(c, c->items[at].index, at, end);
    if (repeated)
        add_grant(c, c->items[at + 1].index, at, end);
}

static uint32_t *add_index(uint32_t *list, size_t *room, size_t *count,
                           size_t index)
{
    list = hf_array_grow(list, room, *count, sizeof *list);
    list[(*count)++] = (uint32_t)index;
    return list;
}

static void gather_without_token(struct hf_checker *c, size_t index)
{
    const struct hf_op *op = &c->h->ops[index];

    if (op->kind == HF_OP_READ) {
        c->vacant =
            add_index(c->vacant, &c->vacant_room, &c->vacant_count, index);
    } else if (hf_checker_result(op) == HF_OP_UNKNOWN) {
        c->doubts = hf_array_grow(c->doubts, &c->doubt_room, c->doubt_count,
                                  sizeof *c->doubts);
        c->doubts[c->doubt_count++] = (struct hf_check_doubt){
            .invoke = op->invoke, .nonce = op->nonce, .op = (uint32_t)index};
    } else if (op->error == HF_OP_ERROR_BUSY) {
        c->busy = add_index(c->busy, &c->busy_room, &c->busy_count, index);
    }
}

void hf_grants_gather(struct hf_checker *c, size_t at, size_t end)
{
    c->grant_count = c->segment_count = c->doubt_count = c->busy_count = 0;
    c->vacant_count = 0;
    for (; at < end && !c->items[at].token; at++)
        gather_without_token(c, c->items[at].index);
    qsort(c->doubts, c->doubt_count, sizeof *c->doubts, by_nonce);
    while (at < end) {
        size_t next = at + 1;

        while (next < end && c->items[next].token == c->items[at].token)
            next++;
        gather_token(c, at, next);
        at = next;
    }
}

/* ---- Items --------------------------------------------------------------*/

static int compare_items(const void *left, const void *right)
{
    const struct hf_check_item *a = left, *b = right;

    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    if (a->token != b->token)
        return a->token < b->token ? -1 : 1;
    if (a->is_lock != b->is_lock)
        return a->is_lock ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Returns true if the checker needs `op`. A lock without a token matters if it
 * was busy, which needs an explanation, or if its result is unknown, so that it
 * may be the explanation. A read without a token saw that the key is free. Any
 * other operation without a token cannot be checked. */
static bool is_item(const struct hf_op *op)
{
    return op->kind != HF_OP_WRITE && (op->token || op->kind == HF_OP_LOCK ||
                                       has_outcome(op, HF_OP_READ, HF_OP_OK));
}

static void add_item(struct hf_checker *c, struct hf_check_item item)
{
    c->items =
        hf_array_grow(c->items, &c->item_room, c->item_count, sizeof *c->items);
    c->items[c->item_count++] = item;
}

static struct hf_check_item op_item(const struct hf_check_history *h, size_t i)
{
    return (struct hf_check_item){
        .key = h->ops[i].key,
        .token = h->ops[i].token,
        .index = (uint32_t)i,
        .is_lock = h->ops[i].kind == HF_OP_LOCK,
    };
}

static struct hf_check_item lost_item(const struct hf_check_history *h,
                                      size_t i)
{
    return (struct hf_check_item){
        .key = h->losts[i].key,
        .token = h->losts[i].token,
        .index = (uint32_t)(h->op_count + i),
    };
}

void hf_grants_collect(struct hf_checker *c)
{
    const struct hf_check_history *h = c->h;

    for (size_t i = 0; i < h->op_count; i++) {
        if (is_item(&h->ops[i]))
            add_item(c, op_item(h, i));
    }
    for (size_t i = 0; i < h->lost_count; i++) {
        if (h->losts[i].token)
            add_item(c, lost_item(h, i));
    }
    if (c->item_count)
        qsort(c->items, c->item_count, sizeof *c->items, compare_items);
}

size_t hf_grants_next_key(const struct hf_checker *c, size_t at)
{
    uint32_t key = c->items[at].key;

    while (at < c->item_count && c->items[at].key == key)
        at++;
    return at;
}
