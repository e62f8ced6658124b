/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * Promise 4: the fence holds. */
#include "checker.h"

#include "array.h"

#include <stdlib.h>

struct write {
    uint32_t cell;
    uint32_t nonce;
    uint64_t number; /* token, or the value of an increment */
    uint64_t invoke, answer;
    size_t op;
};

static int compare_writes(const void *left, const void *right)
{
    const struct write *a = left, *b = right;

    if (a->cell != b->cell)
        return a->cell < b->cell ? -1 : 1;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    return a->nonce < b->nonce ? -1 : a->nonce > b->nonce;
}

static bool is_accepted(const struct hf_op *op)
{
    return op->kind == HF_OP_WRITE && hf_checker_result(op) == HF_OP_OK;
}

/* Return the accepted writes, only those that are `fenced` or only those that
 * are not, sorted by cell and number. The caller frees the list. */
static struct write *collect_writes(const struct hf_check_history *h,
                                    bool fenced, size_t *count)
{
    struct write *list = NULL;
    size_t room = 0;

    *count = 0;
    for (size_t i = 0; i < h->op_count; i++) {
        const struct hf_op *op = &h->ops[i];

        if (!is_accepted(op) || op->fenced != fenced)
            continue;
        list = hf_array_grow(list, &room, *count, sizeof *list);
        list[(*count)++] = (struct write){
            .cell = op->cell,
            .nonce = op->nonce,
            .number = fenced ? op->token : op->value,
            .invoke = op->invoke,
            .answer = op->answer,
            .op = i,
        };
    }
    if (list)
        qsort(list, *count, sizeof *list, compare_writes);
    return list;
}

static void check_shared(struct hf_checker *c, const struct write *list,
                         size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (list[i].number == list[i - 1].number &&
            list[i].nonce != list[i - 1].nonce)
            hf_checker_report(c, HF_CHECK_FENCE_SHARED, list[i - 1].op,
                              list[i].op);
    }
}

/* Going down from the largest token, no write may be invoked after the earliest
 * return of a write with a larger token. Writes with the same token are not
 * compared, because a holder may write several times. */
static void check_fence_order(struct hf_checker *c, const struct write *list,
                              size_t count)
{
    const struct write *earliest = NULL, *earliest_here = NULL;

    for (size_t i = count; i-- > 0;) {
        if (i + 1 < count && list[i].number != list[i + 1].number)
            earliest = earliest_here;
        if (earliest && earliest->answer < list[i].invoke)
            hf_checker_report(c, HF_CHECK_FENCE_ORDER, earliest->op,
                              list[i].op);
        if (!earliest_here || list[i].answer < earliest_here->answer)
            earliest_here = &list[i];
    }
}

static void check_fences(struct hf_checker *c)
{
    size_t count, at = 0;
    struct write *list = collect_writes(c->h, true, &count);

    c->report->write_count = count;
    while (at < count) {
        size_t next = at + 1;

        while (next < count && list[next].cell == list[at].cell)
            next++;
        c->key = list[at].cell;
        c->found = 0;
        if (!c->h->no_fence) {
            check_shared(c, list + at, next - at);
            check_fence_order(c, list + at, next - at);
        }
        at = next;
    }
    free(list);
}

static void count_bumps(struct hf_checker *c)
{
    size_t count;
    struct write *list = collect_writes(c->h, false, &count);

    c->report->bump_count = count;
    for (size_t i = 1; i < count; i++) {
        if (list[i].cell == list[i - 1].cell &&
            list[i].number == list[i - 1].number)
            c->report->lost_bump_count++;
    }
    free(list);
}

void hf_cells_check(struct hf_checker *c)
{
    check_fences(c);
    count_bumps(c);
}
