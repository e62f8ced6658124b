/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * The entry point of the checker, and promises 1, 2 and 5. */
#include "check.h"

#include "array.h"
#include "checker.h"

#include <stdlib.h>

static const char *const names[HF_CHECK_KINDS][2] = {
    [HF_CHECK_EXCLUSION] = {"exclusion",
                            "two grants of one key were valid at one time"},
    [HF_CHECK_TOKEN_REPEATED] = {"token-repeated",
                                 "one token was granted twice on one key"},
    [HF_CHECK_TOKEN_ORDER] = {"token-order",
                              "a later lock was granted the smaller token"},
    [HF_CHECK_EARLY_GRANT] =
        {"early-grant", "granted before the previous grant can have ended"},
    [HF_CHECK_NOT_HOLDER] =
        {"not-holder", "ok for a grant that cannot have held the key then"},
    [HF_CHECK_FALSE_END] =
        {"false-end", "reported as ended, but the grant cannot have ended"},
    [HF_CHECK_FALSE_BUSY] =
        {"false-busy", "reported as busy, but nobody can have held the key"},
    [HF_CHECK_FALSE_FREE] =
        {"false-free", "read as free, but a grant must have held the key"},
    [HF_CHECK_FENCE_ORDER] =
        {"fence-order", "a fenced cell accepted a token after a larger one"},
    [HF_CHECK_FENCE_SHARED] =
        {"fence-shared", "a fenced cell accepted one token from two nonces"},
    [HF_CHECK_FIFO] = {"fifo",
                       "a lock that was queued first was granted later"},
};

const char *hf_check_kind_name(enum hf_check_kind kind)
{
    return names[kind][0];
}

const char *hf_check_kind_text(enum hf_check_kind kind)
{
    return names[kind][1];
}

static bool breaks_linearizability(enum hf_check_kind kind)
{
    return kind == HF_CHECK_TOKEN_REPEATED || kind == HF_CHECK_EARLY_GRANT ||
           kind == HF_CHECK_NOT_HOLDER || kind == HF_CHECK_FALSE_END ||
           kind == HF_CHECK_FALSE_BUSY || kind == HF_CHECK_FALSE_FREE;
}

static struct hf_check_span op_span(const struct hf_checker *c, size_t op)
{
    if (op == HF_CHECK_NO_OP)
        return (struct hf_check_span){0, 0};
    return (struct hf_check_span){c->h->ops[op].invoke, c->h->ops[op].answer};
}

void hf_checker_report_spans(struct hf_checker *c, enum hf_check_kind kind,
                             size_t first, size_t second,
                             struct hf_check_span first_span,
                             struct hf_check_span second_span)
{
    struct hf_check_report *report = c->report;

    if (breaks_linearizability(kind))
        report->linearizable = false;
    if (c->found & 1u << kind)
        return;
    c->found |= 1u << kind;
    if (report->violation_count < HF_CHECK_LIST_MAX)
        report->violations[report->violation_count] =
            (struct hf_check_violation){
                .kind = kind,
                .key = c->key,
                .first = first,
                .second = second,
                .first_span = first_span,
                .second_span = second_span,
            };
    report->violation_count++;
}

void hf_checker_report(struct hf_checker *c, enum hf_check_kind kind,
                       size_t first, size_t second)
{
    hf_checker_report_spans(c, kind, first, second, op_span(c, first),
                            op_span(c, second));
}

enum hf_op_result hf_checker_result(const struct hf_op *op)
{
    return op->result;
}

/* ---- Promise 1 ----------------------------------------------------------*/

static int by_start(const void *left, const void *right)
{
    const struct hf_check_valid *a = left, *b = right;

    if (a->span.from != b->span.from)
        return a->span.from < b->span.from ? -1 : 1;
    return a->lock < b->lock ? -1 : a->lock > b->lock;
}

static void check_exclusion(struct hf_checker *c)
{
    const struct hf_check_valid *longest = NULL;

    qsort(c->segments, c->segment_count, sizeof *c->segments, by_start);
    for (size_t i = 0; i < c->segment_count; i++) {
        const struct hf_check_valid *segment = &c->segments[i];

        if (longest && segment->span.from < longest->span.until) {
            hf_checker_report_spans(c, HF_CHECK_EXCLUSION, longest->lock,
                                    segment->lock, longest->span,
                                    segment->span);
            return;
        }
        if (!longest || segment->span.until > longest->span.until)
            longest = segment;
    }
}

/* Promises 2 and 5 both demand an order, by one rule: going down from the
 * largest token, no lock may be invoked after the earliest return (or queueing)
 * of a lock with a larger token. */

static uint64_t return_time(const struct hf_op *op)
{
    return op->result == HF_OP_OK ? op->answer : HF_OP_NEVER;
}

static uint64_t queued_time(const struct hf_op *op)
{
    return op->queued;
}

static void check_order(struct hf_checker *c, enum hf_check_kind kind,
                        uint64_t (*instant)(const struct hf_op *))
{
    uint64_t earliest = HF_OP_NEVER;
    size_t first = HF_CHECK_NO_OP;

    for (size_t i = c->grant_count; i-- > 0;) {
        const struct hf_op *op = &c->h->ops[c->grants[i].lock];

        if (earliest < op->invoke) {
            hf_checker_report(c, kind, first, c->grants[i].lock);
            return;
        }
        if (instant(op) < earliest) {
            earliest = instant(op);
            first = c->grants[i].lock;
        }
    }
}

static void check_key(struct hf_checker *c, size_t at, size_t end)
{
    c->key = c->items[at].key;
    c->found = 0;
    hf_grants_gather(c, at, end);
    c->report->key_count++;
    c->report->grant_count += c->grant_count;
    check_exclusion(c);
    check_order(c, HF_CHECK_TOKEN_ORDER, return_time);
    if (c->h->fifo)
        check_order(c, HF_CHECK_FIFO, queued_time);
    hf_model_check(c);
}

static void check_keys(struct hf_checker *c)
{
    size_t next;

    hf_grants_collect(c);
    for (size_t at = 0; at < c->item_count; at = next) {
        next = hf_grants_next_key(c, at);
        check_key(c, at, next);
    }
}

static void count_results(const struct hf_check_history *h,
                          struct hf_check_report *report)
{
    for (size_t i = 0; i < h->op_count; i++) {
        const struct hf_op *op = &h->ops[i];

        if (op->result == HF_OP_UNKNOWN)
            report->unknown_count++;
        if (op->error == HF_OP_ERROR_BUSY)
            report->busy_count++;
    }
}

void hf_checker_init(struct hf_checker *c, const struct hf_check_history *h,
                     struct hf_check_report *report)
{
    *report = (struct hf_check_report){.linearizable = true};
    *c = (struct hf_checker){.h = h, .report = report};
    c->deaths = hf_check_history_deaths(h, &c->death_count);
    if (h->no_fence) {
        c->ranked = hf_ranks_copy(c);
        c->h = &c->ranked;
    }
    c->segments = hf_array_grow(NULL, &c->segment_room, 0, sizeof *c->segments);
    c->doubts = hf_array_grow(NULL, &c->doubt_room, 0, sizeof *c->doubts);
}

void hf_checker_fini(struct hf_checker *c)
{
    free(c->ranked.ops);
    free(c->ranked.losts);
    free(c->deaths);
    free(c->items);
    free(c->grants);
    free(c->segments);
    free(c->doubts);
    free(c->busy);
    free(c->vacant);
    free(c->renewals);
}

void hf_check_run(const struct hf_check_history *h,
                  struct hf_check_report *report)
{
    struct hf_checker c;

    hf_checker_init(&c, h, report);
    count_results(h, report);
    check_keys(&c);
    hf_cells_check(&c);
    hf_checker_fini(&c);
}

struct hf_check_valid *hf_check_validity(const struct hf_check_history *h,
                                         size_t *count)
{
    struct hf_check_valid *list = NULL;
    struct hf_check_report unused;
    struct hf_checker c;
    size_t room = 0, next;

    *count = 0;
    hf_checker_init(&c, h, &unused);
    hf_grants_collect(&c);
    for (size_t at = 0; at < c.item_count; at = next) {
        next = hf_grants_next_key(&c, at);
        hf_grants_gather(&c, at, next);
        for (size_t i = 0; i < c.segment_count; i++) {
            list = hf_array_grow(list, &room, *count, sizeof *list);
            list[(*count)++] = c.segments[i];
        }
    }
    hf_checker_fini(&c);
    return list;
}
