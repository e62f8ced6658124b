/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "hf-check/tests/planted.h"

#include "hf-check/search.h"
#include "lib/runner.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void plant_field(struct hf_op *op, const char *name, uint64_t number)
{
    if (strcmp(name, "token") == 0)
        op->token = number;
    else if (strcmp(name, "until") == 0)
        op->deadline = number;
    else if (strcmp(name, "lease") == 0)
        op->lease = number;
    else if (strcmp(name, "queued") == 0)
        op->queued = number;
    else if (strcmp(name, "value") == 0)
        op->value = number;
    else if (strcmp(name, "unfenced") == 0)
        op->fenced = false;
    else
        fail_msg("planted field \"%s\" is not known", name);
}

static enum hf_op_kind kind_of(const char *name)
{
    unsigned kind = 0;

    while (kind < HF_OP_KINDS && strcmp(name, hf_op_kind_name(kind)) != 0)
        kind++;
    assert_int_not_equal(kind, HF_OP_KINDS);
    return kind;
}

static void plant_result(struct hf_check_history *h, struct hf_op *op,
                         const char *result, uint64_t answer)
{
    if (strcmp(result, "open") == 0)
        return;
    op->answered = true;
    op->answer = answer;
    if (strcmp(result, "ok") == 0) {
        op->result = HF_OP_OK;
    } else if (strcmp(result, "unknown") != 0) {
        op->result = HF_OP_FAIL;
        hf_op_set_error(op, &h->strings, result, strlen(result));
    }
}

/* All planted lines are in this file, and none of their numbers is out of
 * range.
 * NOLINTBEGIN(cert-err34-c) */
static void plant_op(struct hf_check_history *h, const char *line)
{
    char kind[16], nonce[16], result[16], name[16];
    uint64_t invoke, answer, number;
    uint32_t client;
    int used;

    if (sscanf(line, "%" SCNu32 " %15s %15s %" SCNu64 " %" SCNu64 " %15s%n",
               &client, kind, nonce, &invoke, &answer, result, &used) != 6)
        fail_msg("planted line \"%s\" makes no sense", line);
    struct hf_op op = hf_op_make(kind_of(kind), client, invoke);

    op.id = h->op_count;
    op.key = hf_intern_add(&h->strings, "k", 1);
    if (op.kind == HF_OP_WRITE)
        op.cell = hf_intern_add(&h->strings, "c", 1);
    if (strcmp(nonce, "-") != 0)
        op.nonce = hf_intern_add(&h->strings, nonce, strlen(nonce));
    plant_result(h, &op, result, answer);
    while (line += used,
           sscanf(line, "%15s %" SCNu64 "%n", name, &number, &used) == 2)
        plant_field(&op, name, number);
    if (hf_op_fault(&op))
        fail_msg("planted: %s", hf_op_fault(&op));
    hf_check_history_add(h, &op);
}

static void plant_line(struct hf_check_history *h, const char *line)
{
    struct hf_op_death death;
    struct hf_op_lost lost;

    if (strcmp(line, "fifo") == 0) {
        h->fifo = true;
    } else if (strcmp(line, "no-fence") == 0) {
        h->no_fence = true;
    } else if (sscanf(line, "%" SCNu32 " dies %" SCNu64, &death.client,
                      &death.time) == 2) {
        hf_check_history_add_death(h, death);
    } else if (sscanf(line, "%" SCNu32 " lost %" SCNu64 " %" SCNu64,
                      &lost.client, &lost.token, &lost.time) == 3) {
        lost.key = hf_intern_add(&h->strings, "k", 1);
        hf_check_history_add_lost(h, lost);
    } else {
        plant_op(h, line);
    }
}
/* NOLINTEND(cert-err34-c) */

static void plant_history(struct hf_check_history *h, const char *text)
{
    hf_check_history_init(h, false);
    while (*text) {
        size_t len = strcspn(text, "\n");
        char line[128];

        assert_true(len < sizeof line);
        memcpy(line, text, len);
        line[len] = '\0';
        plant_line(h, line);
        text += len + (text[len] == '\n');
    }
}

void check_planted(const char *text, struct hf_check_report *report)
{
    struct hf_check_history h;

    plant_history(&h, text);
    hf_check_run(&h, report);
    if (!h.no_fence) /* the search knows tokens only */
        assert_int_equal(report->linearizable,
                         hf_search_run(&h) == HF_SEARCH_LINEARIZABLE);
    hf_check_history_fini(&h);
}

void assert_finds(enum hf_check_kind kind, const char *text)
{
    struct hf_check_report report;

    check_planted(text, &report);
    for (size_t i = 0; i < report.violation_count; i++) {
        if (report.violations[i].kind == kind)
            return;
    }
    fail_msg("%s was not found in\n%s", hf_check_kind_name(kind), text);
}

void assert_finds_only(enum hf_check_kind kind, const char *text)
{
    struct hf_check_report report;

    assert_finds(kind, text);
    check_planted(text, &report);
    assert_int_equal(report.violation_count, 1);
}

void assert_good(const char *text)
{
    struct hf_check_report report;

    check_planted(text, &report);
    if (report.violation_count)
        fail_msg("%s was found in\n%s",
                 hf_check_kind_name(report.violations[0].kind), text);
}
