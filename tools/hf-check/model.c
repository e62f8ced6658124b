/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * Promise 3: the lock is linearizable. check.h describes the model, and why no
 * search is needed. */
#include "checker.h"

#include "array.h"

#include <stdlib.h>

/* Place the lock of grant `g`, the operations that need it held, and its end as
 * early as possible, but not before `from`. `before` is the previous grant, or
 * NULL. Returns false, and reports a violation, if they do not fit. */
static bool place_grant(struct hf_checker *c, struct hf_check_grant *g,
                        const struct hf_check_grant *before, uint64_t from)
{
    g->lock_least = most(g->invoke, from);
    if (before && g->lock_least > g->answer) {
        hf_checker_report(c, HF_CHECK_EARLY_GRANT, before->lock, g->lock);
        return false;
    }
    if (g->lock_least > g->held_answer) {
        hf_checker_report(c, HF_CHECK_NOT_HOLDER, g->lock, g->held_early);
        return false;
    }
    g->end_least = most(g->lock_least, g->end_invoke);
    g->end_least = most(g->end_least, g->held_invoke);
    g->end_most = least(g->end_answer, g->ended_answer);
    if (g->end_least <= g->end_most)
        return true;
    if (g->end_least <= g->end_answer) {
        hf_checker_report(c, HF_CHECK_FALSE_END, g->lock, g->ended);
    } else if (g->held_invoke > g->end_answer) {
        hf_checker_report(c, HF_CHECK_NOT_HOLDER, g->release, g->held_late);
    } else {
        hf_checker_report(c, HF_CHECK_NOT_HOLDER, g->lock, g->release);
    }
    return false;
}

static bool place_grants(struct hf_checker *c)
{
    const struct hf_check_grant *before = NULL;

    for (size_t i = 0; i < c->grant_count; i++) {
        struct hf_check_grant *g = &c->grants[i];

        if (before && before->end_least == HF_OP_NEVER) {
            hf_checker_report(c, HF_CHECK_EARLY_GRANT, before->lock, g->lock);
            return false;
        }
        if (!place_grant(c, g, before, before ? before->end_least : 0))
            return false;
        before = g;
    }
    return true;
}

/* Return the number of grants before the gap that `busy` lies in, or SIZE_MAX
 * if `busy` overlaps a span in which the key can be held. The grant after the
 * gap begins after `busy` has returned, even at its earliest, so it does not
 * limit how late the grant before the gap ends. */
static size_t gap_of(const struct hf_checker *c, const struct hf_op *busy)
{
    size_t low = 0, high = c->grant_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (c->grants[middle].lock_least <= busy->answer)
            low = middle + 1;
        else
            high = middle;
    }
    if (low && c->grants[low - 1].end_most >= busy->invoke)
        return SIZE_MAX;
    return low;
}

/* Returns true if a token is free between the grants on both sides of a gap. */
static bool has_free_token(const struct hf_checker *c, size_t gap)
{
    uint64_t below = gap ? c->grants[gap - 1].token : 0;
    uint64_t above = gap < c->grant_count ? c->grants[gap].token : UINT64_MAX;

    if (gap == c->grant_count)
        return below < UINT64_MAX;
    return above - below >= 2;
}

static int by_invoke(const void *left, const void *right)
{
    const struct hf_check_doubt *a = left, *b = right;

    return a->invoke < b->invoke ? -1 : a->invoke > b->invoke;
}

/* Keep only the locks that can explain a gap, the earliest first. */
static void sort_unknown_locks(struct hf_checker *c)
{
    size_t kept = 0;

    for (size_t i = 0; i < c->doubt_count; i++) {
        if (!c->doubts[i].known)
            c->doubts[kept++] = c->doubts[i];
    }
    c->doubt_count = kept;
    qsort(c->doubts, kept, sizeof *c->doubts, by_invoke);
}

struct unexplained {
    size_t gap;
    uint64_t answer;
    uint32_t op;
};

static int by_gap(const void *left, const void *right)
{
    const struct unexplained *a = left, *b = right;

    if (a->gap != b->gap)
        return a->gap < b->gap ? -1 : 1;
    return a->answer < b->answer ? -1 : a->answer > b->answer;
}

/* In each gap, only the "busy" that returned first needs an explanation: a lock
 * that took the key before this return may have kept it for the others, too.
 * Gaps follow one another in time, so the earliest locks serve the earliest
 * gaps. */
static void explain_busy(struct hf_checker *c, struct unexplained *list,
                         size_t count)
{
    size_t used = 0, gap = SIZE_MAX;

    qsort(list, count, sizeof *list, by_gap);
    sort_unknown_locks(c);
    for (size_t i = 0; i < count; i++) {
        if (list[i].gap == gap)
            continue;
        gap = list[i].gap;
        if (!has_free_token(c, gap) || used == c->doubt_count ||
            c->doubts[used].invoke > list[i].answer) {
            hf_checker_report(c, HF_CHECK_FALSE_BUSY,
                              gap ? c->grants[gap - 1].lock : HF_CHECK_NO_OP,
                              list[i].op);
            return;
        }
        used++;
    }
}

static void check_busy(struct hf_checker *c)
{
    struct unexplained *list = hf_array_new(c->busy_count, sizeof *list);
    size_t count = 0;

    for (size_t i = 0; i < c->busy_count; i++) {
        const struct hf_op *op = &c->h->ops[c->busy[i]];
        size_t gap = gap_of(c, op);

        if (gap != SIZE_MAX)
            list[count++] = (struct unexplained){gap, op->answer, c->busy[i]};
    }
    if (count)
        explain_busy(c, list, count);
    free(list);
}

/* Compute the latest instant at which each lock can take effect: its operations
 * and its end need it before their returns, and so do all later grants. */
static void place_late(struct hf_checker *c)
{
    uint64_t next = HF_OP_NEVER;

    for (size_t i = c->grant_count; i-- > 0;) {
        struct hf_check_grant *g = &c->grants[i];

        next = least(next, least(g->answer, g->held_answer));
        next = least(next, g->end_most);
        g->lock_most = next;
    }
}

/* Return the grant that holds the key from before `read` until after it in
 * every placement, or NULL. Both instants increase from grant to grant, so the
 * last grant that begins before `read` decides. */
static const struct hf_check_grant *find_holder(const struct hf_checker *c,
                                                const struct hf_op *read)
{
    size_t low = 0, high = c->grant_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (c->grants[middle].lock_most < read->invoke)
            low = middle + 1;
        else
            high = middle;
    }
    return low && c->grants[low - 1].end_least > read->answer
               ? &c->grants[low - 1]
               : NULL;
}

static void check_vacant(struct hf_checker *c)
{
    place_late(c);
    for (size_t i = 0; i < c->vacant_count; i++) {
        const struct hf_check_grant *holder =
            find_holder(c, &c->h->ops[c->vacant[i]]);

        if (holder) {
            hf_checker_report(c, HF_CHECK_FALSE_FREE, holder->lock,
                              c->vacant[i]);
            return;
        }
    }
}

void hf_model_check(struct hf_checker *c)
{
    if (c->found & 1u << HF_CHECK_TOKEN_REPEATED || !place_grants(c))
        return;
    check_vacant(c);
    check_busy(c);
}
