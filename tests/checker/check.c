/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * The whole of the checker, and the promises that need no more than the grants
 * of a key in the order of their tokens. */
#include "check.h"

#include "checker.h"
#include "memory.h"

#include <stdlib.h>

static const char *const names[CHECK_KINDS][2] = {
    [CHECK_EXCLUSION] = {"exclusion",
                         "two grants of one key were valid at one time"},
    [CHECK_TOKEN_REPEATED] = {"token-repeated",
                              "one token was granted twice on one key"},
    [CHECK_TOKEN_ORDER] = {"token-order",
                           "a later lock was granted the smaller token"},
    [CHECK_EARLY_GRANT] = {"early-grant",
                           "granted before the grant before can have ended"},
    [CHECK_NOT_HOLDER] = {"not-holder",
                          "ok for a grant that cannot have held the key then"},
    [CHECK_FALSE_END] = {"false-end",
                         "told that its grant had ended when it cannot have"},
    [CHECK_FALSE_BUSY] = {"false-busy",
                          "told that another held the key when nobody can "
                          "have"},
    [CHECK_FENCE_ORDER] = {"fence-order",
                           "a fenced cell accepted a token after a larger one"},
    [CHECK_FENCE_SHARED] = {"fence-shared",
                            "a fenced cell accepted one token from two nonces"},
    [CHECK_FIFO] = {"fifo", "one that was in line first was granted later"},
};

const char *check_kind_name(enum check_kind kind)
{
    return names[kind][0];
}

const char *check_kind_text(enum check_kind kind)
{
    return names[kind][1];
}

static bool breaks_the_model(enum check_kind kind)
{
    return kind == CHECK_TOKEN_REPEATED || kind == CHECK_EARLY_GRANT ||
           kind == CHECK_NOT_HOLDER || kind == CHECK_FALSE_END ||
           kind == CHECK_FALSE_BUSY;
}

static struct check_span op_span(const struct checker *c, size_t op)
{
    if (op == CHECK_NO_OP)
        return (struct check_span){0, 0};
    return (struct check_span){c->h->ops[op].invoke, c->h->ops[op].answer};
}

void checker_found_spans(struct checker *c, enum check_kind kind, size_t first,
                         size_t second, struct check_span first_span,
                         struct check_span second_span)
{
    struct check_report *report = c->report;

    if (breaks_the_model(kind))
        report->linearizable = false;
    if (c->found & 1u << kind)
        return;
    c->found |= 1u << kind;
    if (report->violation_count < CHECK_LIST_MAX)
        report->violations[report->violation_count] = (struct check_violation){
            .kind = kind,
            .key = c->key,
            .first = first,
            .second = second,
            .first_span = first_span,
            .second_span = second_span,
        };
    report->violation_count++;
}

void checker_found(struct checker *c, enum check_kind kind, size_t first,
                   size_t second)
{
    checker_found_spans(c, kind, first, second, op_span(c, first),
                        op_span(c, second));
}

enum history_result checker_result(const struct history_op *op)
{
    return op->result;
}

/* Promise 1. */

static int by_start(const void *left, const void *right)
{
    const struct check_valid *a = left, *b = right;

    if (a->span.from != b->span.from)
        return a->span.from < b->span.from ? -1 : 1;
    return a->lock < b->lock ? -1 : a->lock > b->lock;
}

static void check_exclusion(struct checker *c)
{
    const struct check_valid *longest = NULL;

    qsort(c->segments, c->segment_count, sizeof *c->segments, by_start);
    for (size_t i = 0; i < c->segment_count; i++) {
        const struct check_valid *segment = &c->segments[i];

        if (longest && segment->span.from < longest->span.until) {
            checker_found_spans(c, CHECK_EXCLUSION, longest->lock,
                                segment->lock, longest->span, segment->span);
            return;
        }
        if (!longest || segment->span.until > longest->span.until)
            longest = segment;
    }
}

/* Promises 2 and 5, by one rule: walking from the largest token down, nobody
 * may be invoked after the earliest return, or queueing, of a larger one. */

static uint64_t returned(const struct history_op *op)
{
    return op->result == HISTORY_OK ? op->answer : HISTORY_NEVER;
}

static uint64_t queued(const struct history_op *op)
{
    return op->queued;
}

static void check_order(struct checker *c, enum check_kind kind,
                        uint64_t (*instant)(const struct history_op *))
{
    uint64_t earliest = HISTORY_NEVER;
    size_t first = CHECK_NO_OP;

    for (size_t i = c->grant_count; i-- > 0;) {
        const struct history_op *op = &c->h->ops[c->grants[i].lock];

        if (earliest < op->invoke) {
            checker_found(c, kind, first, c->grants[i].lock);
            return;
        }
        if (instant(op) < earliest) {
            earliest = instant(op);
            first = c->grants[i].lock;
        }
    }
}

static void check_key(struct checker *c, size_t at, size_t end)
{
    c->key = c->items[at].key;
    c->found = 0;
    checker_gather(c, at, end);
    c->report->key_count++;
    c->report->grant_count += c->grant_count;
    check_exclusion(c);
    check_order(c, CHECK_TOKEN_ORDER, returned);
    if (c->h->fifo)
        check_order(c, CHECK_FIFO, queued);
    checker_check_model(c);
}

static void check_keys(struct checker *c)
{
    size_t next;

    checker_collect(c);
    for (size_t at = 0; at < c->item_count; at = next) {
        next = checker_next_key(c, at);
        check_key(c, at, next);
    }
}

static void count_results(struct checker *c)
{
    for (size_t i = 0; i < c->h->op_count; i++) {
        const struct history_op *op = &c->h->ops[i];

        if (op->result == HISTORY_UNKNOWN)
            c->report->unknown_count++;
        if (op->error == HISTORY_ERROR_BUSY)
            c->report->busy_count++;
    }
}

void checker_init(struct checker *c, const struct history *h,
                  struct check_report *report)
{
    *report = (struct check_report){.linearizable = true};
    *c = (struct checker){.h = h, .report = report};
    c->deaths = history_deaths(h, &c->death_count);
    c->segments = memory_grow(NULL, &c->segment_room, 0, sizeof *c->segments);
    c->doubts = memory_grow(NULL, &c->doubt_room, 0, sizeof *c->doubts);
}

void checker_fini(struct checker *c)
{
    free(c->deaths);
    free(c->items);
    free(c->grants);
    free(c->segments);
    free(c->doubts);
    free(c->busy);
    free(c->renewals);
}

void check_history(const struct history *h, struct check_report *report)
{
    struct checker c;

    checker_init(&c, h, report);
    count_results(&c);
    check_keys(&c);
    checker_check_cells(&c);
    checker_fini(&c);
}

struct check_valid *check_validity(const struct history *h, size_t *count)
{
    struct check_valid *list = NULL;
    struct check_report unused;
    struct checker c;
    size_t room = 0, next;

    *count = 0;
    checker_init(&c, h, &unused);
    checker_collect(&c);
    for (size_t at = 0; at < c.item_count; at = next) {
        next = checker_next_key(&c, at);
        checker_gather(&c, at, next);
        for (size_t i = 0; i < c.segment_count; i++) {
            list = memory_grow(list, &room, *count, sizeof *list);
            list[(*count)++] = c.segments[i];
        }
    }
    checker_fini(&c);
    return list;
}
