/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * From operations to grants: what was done to each token of a key. */
#include "checker.h"

#include "memory.h"

#include <stdlib.h>

static bool is(const struct history_op *op, enum history_kind kind,
               enum history_result result)
{
    return op->kind == kind && checker_result(op) == result;
}

static bool ends_a_grant(const struct history_op *op)
{
    return op->kind == HISTORY_UNLOCK || op->kind == HISTORY_FORCE;
}

static bool is_ended(const struct history_op *op)
{
    return checker_result(op) == HISTORY_FAIL &&
           op->error == HISTORY_ERROR_ENDED &&
           (op->kind == HISTORY_UNLOCK || op->kind == HISTORY_RENEW ||
            op->kind == HISTORY_UPDATE);
}

/* Whether it shows, by its nonce, that a token was granted. */
static bool proves_a_grant(const struct history_op *op)
{
    return checker_result(op) == HISTORY_OK &&
           (op->kind == HISTORY_UNLOCK || op->kind == HISTORY_RENEW ||
            op->kind == HISTORY_UPDATE);
}

static bool needs_no_nonce(const struct history_op *op)
{
    return op->kind == HISTORY_READ || op->kind == HISTORY_FORCE;
}

static uint64_t death_of(const struct checker *c, uint32_t client)
{
    const struct history_death *death =
        history_find_death(c->deaths, c->death_count, client);

    return death ? death->time : HISTORY_NEVER;
}

/* The spans in which a grant is valid. */

static int by_answer(const void *left, const void *right)
{
    const struct renewal *a = left, *b = right;

    return a->answer < b->answer ? -1 : a->answer > b->answer;
}

static void add_segment(struct checker *c, size_t lock, uint64_t from,
                        uint64_t until)
{
    if (from >= until)
        return;
    c->segments = memory_grow(c->segments, &c->segment_room, c->segment_count,
                              sizeof *c->segments);
    c->segments[c->segment_count++] =
        (struct check_valid){.span = {from, until}, .lock = lock};
}

/* The lock and its renewals, in the order of their returns, each extend the
 * span before, or begin one if that was over: `stop` cuts them all. */
static void add_segments(struct checker *c, size_t lock, uint64_t stop)
{
    const struct history_op *op = &c->h->ops[lock];
    uint64_t from = 0, until = 0;

    if (op->result == HISTORY_OK) {
        from = op->answer;
        until = op->deadline;
    }
    if (c->renewal_count > 1)
        qsort(c->renewals, c->renewal_count, sizeof *c->renewals, by_answer);
    for (size_t i = 0; i < c->renewal_count; i++) {
        const struct renewal *renewal = &c->renewals[i];

        if (renewal->answer > until) {
            add_segment(c, lock, from, least(until, stop));
            from = renewal->answer;
        }
        until = most(until, renewal->deadline);
    }
    add_segment(c, lock, from, least(until, stop));
}

static void add_renewal(struct checker *c, const struct history_op *op)
{
    if (op->deadline == HISTORY_NEVER)
        return;
    c->renewals = memory_grow(c->renewals, &c->renewal_room, c->renewal_count,
                              sizeof *c->renewals);
    c->renewals[c->renewal_count++] =
        (struct renewal){op->answer, op->deadline};
}

/* One grant. */

static struct grant new_grant(const struct history_op *op, size_t lock,
                              uint64_t token)
{
    bool ok = checker_result(op) == HISTORY_OK;

    return (struct grant){
        .token = token,
        .nonce = op->nonce,
        .lock = lock,
        .invoke = op->invoke,
        .answer = ok ? op->answer : HISTORY_NEVER,
        .held_late = CHECK_NO_OP,
        .held_answer = HISTORY_NEVER,
        .held_early = CHECK_NO_OP,
        .release = CHECK_NO_OP,
        .end_answer = HISTORY_NEVER,
        .ended_answer = HISTORY_NEVER,
        .ended = CHECK_NO_OP,
    };
}

static void gather_held(struct grant *g, const struct history_op *op,
                        size_t index)
{
    if (g->held_late == CHECK_NO_OP || op->invoke > g->held_invoke) {
        g->held_invoke = op->invoke;
        g->held_late = index;
    }
    if (g->held_early == CHECK_NO_OP || op->answer < g->held_answer) {
        g->held_answer = op->answer;
        g->held_early = index;
    }
}

static void gather_ended(struct grant *g, const struct history_op *op,
                         size_t index)
{
    if (g->ended == CHECK_NO_OP || op->answer < g->ended_answer) {
        g->ended_answer = op->answer;
        g->ended = index;
    }
}

static void gather_release(struct checker *c, struct grant *g, size_t index)
{
    if (g->release != CHECK_NO_OP)
        checker_found(c, CHECK_NOT_HOLDER, g->release, index);
    g->release = index;
}

/* From when on a lock or renewal that was ok lets its grant expire. */
static uint64_t expiry(const struct history_op *op)
{
    uint64_t end = 0;

    if (op->deadline == HISTORY_NEVER && !op->lease)
        return op->kind == HISTORY_LOCK ? HISTORY_NEVER : 0;
    if (op->deadline != HISTORY_NEVER)
        end = op->deadline;
    if (op->lease)
        end = most(end, op->invoke + op->lease);
    return end;
}

struct ends {
    uint64_t valid;  /* no longer than this */
    uint64_t expiry; /* not before this */
    uint64_t other;  /* not before this, by what may have ended it too */
};

static void gather_op(struct checker *c, struct grant *g, struct ends *ends,
                      size_t index)
{
    const struct history_op *op = &c->h->ops[index];
    bool mine = op->nonce == g->nonce;
    bool ok = checker_result(op) == HISTORY_OK;

    if (op->kind == HISTORY_LOCK)
        return;
    if (ends_a_grant(op) && (mine || needs_no_nonce(op)))
        ends->valid = least(ends->valid, op->invoke);
    if (!mine && !needs_no_nonce(op)) {
        /* If the token was granted twice it may be the other one's. */
        if (ok && !(c->found & 1u << CHECK_TOKEN_REPEATED))
            checker_found(c, CHECK_NOT_HOLDER, g->lock, index);
        return;
    }
    if (is_ended(op))
        gather_ended(g, op, index);
    else if (ends_a_grant(op) && ok)
        gather_release(c, g, index);
    else if (ends_a_grant(op) && checker_result(op) == HISTORY_UNKNOWN)
        ends->other = least(ends->other, op->invoke);
    else if (ok)
        gather_held(g, op, index);
    if (is(op, HISTORY_RENEW, HISTORY_OK)) {
        ends->expiry = most(ends->expiry, expiry(op));
        add_renewal(c, op);
    }
}

static void gather_lost(struct checker *c, const struct grant *g,
                        struct ends *ends, const struct history_lost *lost)
{
    if (lost->client == c->h->ops[g->lock].client)
        ends->valid = least(ends->valid, lost->time);
}

/* When the grant can have ended, by the model. */
static void settle_end(struct checker *c, struct grant *g,
                       const struct ends *ends)
{
    if (g->release != CHECK_NO_OP) {
        g->end_invoke = c->h->ops[g->release].invoke;
        g->end_answer = c->h->ops[g->release].answer;
    } else if (checker_result(&c->h->ops[g->lock]) != HISTORY_OK) {
        g->end_invoke = 0; /* withdrawn, at any time */
    } else {
        g->end_invoke = least(ends->expiry, ends->other);
    }
}

/* Make a grant of `lock` and the run of items from `at` to `end`. */
static void gather(struct checker *c, size_t lock, size_t at, size_t end)
{
    const struct history_op *op = &c->h->ops[lock];
    struct grant g = new_grant(op, lock, c->items[at].token);
    uint64_t death = death_of(c, op->client);
    struct ends ends = {.valid = death, .expiry = expiry(op), .other = death};

    c->renewal_count = 0;
    for (size_t i = at; i < end; i++) {
        size_t index = c->items[i].index;

        if (index < c->h->op_count)
            gather_op(c, &g, &ends, index);
        else
            gather_lost(c, &g, &ends, &c->h->losts[index - c->h->op_count]);
    }
    settle_end(c, &g, &ends);
    add_segments(c, lock, ends.valid);
    c->grants = memory_grow(c->grants, &c->grant_room, c->grant_count,
                            sizeof *c->grants);
    c->grants[c->grant_count++] = g;
}

/* All grants of a key. */

static int by_nonce(const void *left, const void *right)
{
    const struct doubt *a = left, *b = right;

    if (a->nonce != b->nonce)
        return a->nonce < b->nonce ? -1 : 1;
    return a->invoke < b->invoke ? -1 : a->invoke > b->invoke;
}

/* The first lock of unknown result with this nonce that no token has yet. */
static struct doubt *find_doubt(struct checker *c, uint32_t nonce)
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

/* A token that no lock was granted: an operation that was ok for it must be
 * that of a lock of unknown result. */
static void gather_doubtful(struct checker *c, size_t at, size_t end)
{
    for (size_t i = at; i < end; i++) {
        size_t index = c->items[i].index;

        if (index >= c->h->op_count || !proves_a_grant(&c->h->ops[index]))
            continue;
        uint32_t nonce = c->h->ops[index].nonce;
        struct doubt *doubt = nonce ? find_doubt(c, nonce) : NULL;

        if (!doubt) {
            checker_found(c, CHECK_NOT_HOLDER, CHECK_NO_OP, index);
            return;
        }
        doubt->known = true;
        gather(c, doubt->op, at, end);
        return;
    }
}

static bool is_grant(const struct checker *c, size_t item)
{
    size_t index = c->items[item].index;

    return index < c->h->op_count &&
           is(&c->h->ops[index], HISTORY_LOCK, HISTORY_OK);
}

/* One token of one key. Locks sort first. */
static void gather_token(struct checker *c, size_t at, size_t end)
{
    if (!is_grant(c, at)) {
        gather_doubtful(c, at, end);
        return;
    }
    bool repeated = at + 1 < end && is_grant(c, at + 1);

    if (repeated)
        checker_found(c, CHECK_TOKEN_REPEATED, c->items[at].index,
                      c->items[at + 1].index);
    gather(c, c->items[at].index, at, end);
    if (repeated)
        gather(c, c->items[at + 1].index, at, end);
}

static void gather_tokenless(struct checker *c, size_t index)
{
    const struct history_op *op = &c->h->ops[index];

    if (checker_result(op) == HISTORY_UNKNOWN) {
        c->doubts = memory_grow(c->doubts, &c->doubt_room, c->doubt_count,
                                sizeof *c->doubts);
        c->doubts[c->doubt_count++] = (struct doubt){
            .invoke = op->invoke, .nonce = op->nonce, .op = (uint32_t)index};
    } else if (op->error == HISTORY_ERROR_BUSY) {
        c->busy =
            memory_grow(c->busy, &c->busy_room, c->busy_count, sizeof *c->busy);
        c->busy[c->busy_count++] = (uint32_t)index;
    }
}

void checker_gather(struct checker *c, size_t at, size_t end)
{
    c->grant_count = c->segment_count = c->doubt_count = c->busy_count = 0;
    for (; at < end && !c->items[at].token; at++)
        gather_tokenless(c, c->items[at].index);
    qsort(c->doubts, c->doubt_count, sizeof *c->doubts, by_nonce);
    while (at < end) {
        size_t next = at + 1;

        while (next < end && c->items[next].token == c->items[at].token)
            next++;
        gather_token(c, at, next);
        at = next;
    }
}

/* Items. */

static int compare_items(const void *left, const void *right)
{
    const struct item *a = left, *b = right;

    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    if (a->token != b->token)
        return a->token < b->token ? -1 : 1;
    if (a->is_lock != b->is_lock)
        return a->is_lock ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* A lock without a token is there to be explained or to explain; any other
 * operation without one says nothing that could be checked. */
static bool is_item(const struct history_op *op)
{
    return op->kind != HISTORY_WRITE && (op->token || op->kind == HISTORY_LOCK);
}

static void add_item(struct checker *c, struct item item)
{
    c->items =
        memory_grow(c->items, &c->item_room, c->item_count, sizeof *c->items);
    c->items[c->item_count++] = item;
}

static struct item op_item(const struct history *h, size_t i)
{
    return (struct item){
        .key = h->ops[i].key,
        .token = h->ops[i].token,
        .index = (uint32_t)i,
        .is_lock = h->ops[i].kind == HISTORY_LOCK,
    };
}

static struct item lost_item(const struct history *h, size_t i)
{
    return (struct item){
        .key = h->losts[i].key,
        .token = h->losts[i].token,
        .index = (uint32_t)(h->op_count + i),
    };
}

void checker_collect(struct checker *c)
{
    const struct history *h = c->h;

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

size_t checker_next_key(const struct checker *c, size_t at)
{
    uint32_t key = c->items[at].key;

    while (at < c->item_count && c->items[at].key == key)
        at++;
    return at;
}
