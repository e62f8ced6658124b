/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "report.h"

#include "array.h"
#include "encoder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define QUOTED_MAX (6 * HF_OP_TEXT_MAX + 3)
#define AROUND_MAX 24 /* lines of events around a violation */

uint64_t hf_report_origin(const struct hf_check_history *h)
{
    uint64_t origin = HF_OP_NEVER;

    for (size_t i = 0; i < h->op_count; i++) {
        if (h->ops[i].invoke < origin)
            origin = h->ops[i].invoke;
    }
    return origin == HF_OP_NEVER ? 0 : origin;
}

/* Milliseconds with three decimals, as "12.345", or "never". */
struct stamp {
    char text[32];
};

static struct stamp format_time(uint64_t origin, uint64_t time)
{
    struct stamp s;
    const char *sign = time < origin ? "-" : "";
    uint64_t span = time < origin ? origin - time : time - origin;

    if (time == HF_OP_NEVER)
        snprintf(s.text, sizeof s.text, "never");
    else
        snprintf(s.text, sizeof s.text, "%s%" PRIu64 ".%03" PRIu64, sign,
                 span / 1000000, span / 1000 % 1000);
    return s;
}

static bool is_fence_violation(const struct hf_check_violation *v)
{
    return v->kind == HF_CHECK_FENCE_ORDER || v->kind == HF_CHECK_FENCE_SHARED;
}

/* One of the events around a violation. */
struct event {
    uint64_t time;
    const struct hf_op *op; /* invoked, or answered if `returns` */
    bool returns;
    const struct hf_op_death *death;
    const struct hf_op_lost *lost;
    const struct hf_op_note *note;
};

struct event_list {
    const struct hf_check_history *h;
    const struct hf_check_violation *v;
    uint64_t origin;
    struct event *events;
    size_t count, room;
};

static void add_event(struct event_list *s, struct event event)
{
    if (event.time == HF_OP_NEVER)
        return;
    s->events = hf_array_grow(s->events, &s->room, s->count, sizeof *s->events);
    s->events[s->count++] = event;
}

static bool is_related(const struct hf_check_violation *v,
                       const struct hf_op *op)
{
    return is_fence_violation(v) ? op->cell == v->key
                                 : op->key == v->key && op->kind != HF_OP_WRITE;
}

static void collect_events(struct event_list *s)
{
    const struct hf_check_history *h = s->h;

    for (size_t i = 0; i < h->op_count; i++) {
        const struct hf_op *op = &h->ops[i];

        if (!is_related(s->v, op))
            continue;
        add_event(s, (struct event){.time = op->invoke, .op = op});
        add_event(
            s, (struct event){.time = op->answer, .op = op, .returns = true});
    }
    for (size_t i = 0; i < h->lost_count; i++) {
        if (h->losts[i].key == s->v->key && !is_fence_violation(s->v))
            add_event(s, (struct event){.time = h->losts[i].time,
                                        .lost = &h->losts[i]});
    }
    for (size_t i = 0; i < h->death_count; i++)
        add_event(s, (struct event){.time = h->deaths[i].time,
                                    .death = &h->deaths[i]});
    for (size_t i = 0; i < h->note_count; i++)
        add_event(
            s, (struct event){.time = h->notes[i].time, .note = &h->notes[i]});
}

static int compare_events(const void *left, const void *right)
{
    const struct event *a = left, *b = right;

    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return a->returns - b->returns;
}

static void print_nonce(const struct hf_check_history *h, uint32_t nonce,
                        FILE *out)
{
    size_t len;
    const char *text = hf_intern_bytes(&h->strings, nonce, &len);

    if (len)
        fprintf(out, ", nonce %.*s", (int)len, text);
}

static void print_result(const struct event_list *s, const struct hf_op *op,
                         FILE *out)
{
    size_t len;
    const char *error = hf_intern_bytes(&s->h->strings, op->error_name, &len);

    fprintf(out, "%s %s", hf_op_kind_name(op->kind),
            hf_op_result_name(op->result));
    if (len)
        fprintf(out, " %.*s", (int)len, error);
    if (op->token)
        fprintf(out, ", token %" PRIu64, op->token);
    if (op->deadline != HF_OP_NEVER)
        fprintf(out, ", valid until %s",
                format_time(s->origin, op->deadline).text);
}

static void print_op_event(const struct event_list *s, const struct event *e,
                           FILE *out)
{
    bool is_first =
        s->v->first != HF_CHECK_NO_OP && e->op == &s->h->ops[s->v->first];
    bool is_second = e->op == &s->h->ops[s->v->second];

    fprintf(out, "client %-5" PRIu32 " %s ", e->op->client,
            e->returns ? "<-" : "->");
    if (e->returns) {
        print_result(s, e->op, out);
    } else {
        fprintf(out, "%s", hf_op_kind_name(e->op->kind));
        if (e->op->kind != HF_OP_LOCK && e->op->kind != HF_OP_READ &&
            e->op->token)
            fprintf(out, ", token %" PRIu64, e->op->token);
        if (e->op->answer == HF_OP_NEVER)
            fprintf(out, " (never answered)");
    }
    fprintf(out, "%s",
            is_first    ? "   [first]"
            : is_second ? "   [second]"
                        : "");
}

static void print_event(const struct event_list *s, const struct event *e,
                        FILE *out)
{
    char quoted[QUOTED_MAX];

    fprintf(out, "    %12s  ", format_time(s->origin, e->time).text);
    if (e->op) {
        print_op_event(s, e, out);
    } else if (e->death) {
        fprintf(out, "client %-5" PRIu32 " XX dies", e->death->client);
    } else if (e->lost) {
        fprintf(out, "client %-5" PRIu32 " !! lost token %" PRIu64,
                e->lost->client, e->lost->token);
    } else {
        hf_encoder_quote(s->h, e->note->text, quoted);
        fprintf(out, "note %s", quoted);
    }
    fputc('\n', out);
}

/* Print the events closest to the start of the second operation, or of the
 * overlap. */
static void print_events(struct event_list *s, FILE *out)
{
    uint64_t centre = s->v->second_span.from;
    size_t from = 0, until;

    collect_events(s);
    if (s->count)
        qsort(s->events, s->count, sizeof *s->events, compare_events);
    while (from < s->count && s->events[from].time < centre)
        from++;
    from = from > AROUND_MAX / 2 ? from - AROUND_MAX / 2 : 0;
    until = from + AROUND_MAX < s->count ? from + AROUND_MAX : s->count;
    fprintf(out,
            "  around it (ms since the history began; %zu events before, "
            "%zu after these)\n",
            from, s->count - until);
    for (size_t i = from; i < until; i++)
        print_event(s, &s->events[i], out);
}

static void print_side(const struct event_list *s, const char *name,
                       size_t index, struct hf_check_span span, FILE *out)
{
    if (index == HF_CHECK_NO_OP)
        return;
    const struct hf_op *op = &s->h->ops[index];

    fprintf(out, "  %-7s client %" PRIu32 ", %s %s (operation %" PRIu64 ")",
            name, op->client, hf_op_kind_name(op->kind),
            hf_op_result_name(op->result), op->id);
    if (op->token)
        fprintf(out, ", token %" PRIu64, op->token);
    print_nonce(s->h, op->nonce, out);
    fprintf(out, "\n          %s from %s to %s ms\n",
            s->v->kind == HF_CHECK_EXCLUSION ? "valid" : "called",
            format_time(s->origin, span.from).text,
            format_time(s->origin, span.until).text);
}

static void print_overlap(const struct event_list *s, FILE *out)
{
    const struct hf_check_span *a = &s->v->first_span, *b = &s->v->second_span;
    uint64_t until = a->until < b->until ? a->until : b->until;

    if (s->v->kind == HF_CHECK_EXCLUSION)
        fprintf(out, "  both    valid from %s to %s ms, for %s ms\n",
                format_time(s->origin, b->from).text,
                format_time(s->origin, until).text,
                format_time(b->from, until).text);
}

static void print_violation(const struct hf_check_history *h,
                            const struct hf_check_violation *v, FILE *out)
{
    struct event_list list = {.h = h, .v = v, .origin = hf_report_origin(h)};
    char quoted[QUOTED_MAX];

    hf_encoder_quote(h, v->key, quoted);
    fprintf(out, "\nVIOLATION %s: %s\n", hf_check_kind_name(v->kind),
            hf_check_kind_text(v->kind));
    fprintf(out, "  %-7s %s\n", is_fence_violation(v) ? "cell" : "key", quoted);
    print_side(&list, "first", v->first, v->first_span, out);
    print_side(&list, "second", v->second, v->second_span, out);
    print_overlap(&list, out);
    print_events(&list, out);
    free(list.events);
}

static size_t listed_count(const struct hf_check_report *report)
{
    return report->violation_count < HF_CHECK_LIST_MAX ? report->violation_count
                                                       : HF_CHECK_LIST_MAX;
}

void hf_report_text(const struct hf_check_history *h,
                    const struct hf_check_report *report, const char *name,
                    FILE *out)
{
    fprintf(out,
            "%s: %zu operations on %zu keys: %zu grants, %zu busy, "
            "%zu unknown, %zu fenced writes\n",
            name, h->op_count, report->key_count, report->grant_count,
            report->busy_count, report->unknown_count, report->write_count);
    if (report->bump_count)
        fprintf(out, "%s: of %zu unfenced bumps %zu were lost\n", name,
                report->bump_count, report->lost_bump_count);
    for (size_t i = 0; i < listed_count(report); i++)
        print_violation(h, &report->violations[i], out);
    if (report->violation_count)
        fprintf(out, "\n%s: %zu violations%s\n", name, report->violation_count,
                listed_count(report) < report->violation_count
                    ? "; only the first ones are shown"
                    : "");
    else
        fprintf(out, "%s: no violation\n", name);
}

/* ---- JSON ---------------------------------------------------------------*/

static void json_text(const char *text, FILE *out)
{
    fputc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c < 0x20 || c > 0x7e || c == '"' || c == '\\')
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

static void json_side(const struct hf_check_history *h, const char *name,
                      size_t index, struct hf_check_span span, FILE *out)
{
    char quoted[QUOTED_MAX];

    if (index == HF_CHECK_NO_OP) {
        fprintf(out, ",\"%s\":null", name);
        return;
    }
    const struct hf_op *op = &h->ops[index];

    hf_encoder_quote(h, op->nonce, quoted);
    fprintf(out,
            ",\"%s\":{\"client\":%" PRIu32 ",\"op\":%" PRIu64
            ",\"token\":%" PRIu64 ",\"nonce\":%s,\"from\":%" PRIu64,
            name, op->client, op->id, op->token, quoted, span.from);
    if (span.until == HF_OP_NEVER)
        fprintf(out, ",\"until\":null}");
    else
        fprintf(out, ",\"until\":%" PRIu64 "}", span.until);
}

static void json_violation(const struct hf_check_history *h,
                           const struct hf_check_violation *v, FILE *out)
{
    char quoted[QUOTED_MAX];

    hf_encoder_quote(h, v->key, quoted);
    fprintf(out, "{\"kind\":\"%s\",\"text\":\"%s\",\"%s\":%s",
            hf_check_kind_name(v->kind), hf_check_kind_text(v->kind),
            is_fence_violation(v) ? "cell" : "key", quoted);
    json_side(h, "first", v->first, v->first_span, out);
    json_side(h, "second", v->second, v->second_span, out);
    fputc('}', out);
}

void hf_report_json(const struct hf_check_history *h,
                    const struct hf_check_report *report, const char *name,
                    FILE *out)
{
    fputs("{\"history\":", out);
    json_text(name, out);
    fprintf(out,
            ",\"operations\":%zu,\"keys\":%zu,\"grants\":%zu,\"busy\":%zu,"
            "\"unknown\":%zu,\"writes\":%zu,\"bumps\":%zu,\"lost_bumps\":%zu,"
            "\"linearizable\":%s,\"violations\":%zu,\"found\":[",
            h->op_count, report->key_count, report->grant_count,
            report->busy_count, report->unknown_count, report->write_count,
            report->bump_count, report->lost_bump_count,
            report->linearizable ? "true" : "false", report->violation_count);
    for (size_t i = 0; i < listed_count(report); i++) {
        fputs(i ? "," : "", out);
        json_violation(h, &report->violations[i], out);
    }
    fputs("]}\n", out);
}
