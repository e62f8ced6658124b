/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "timeline.h"

#include "picture.h"
#include "report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The window and the lanes -------------------------------------------*/

static struct hf_check_span join_spans(struct hf_check_span a,
                                       struct hf_check_span b)
{
    if (a.until == HF_OP_NEVER)
        a.until = a.from;
    if (b.until == HF_OP_NEVER)
        b.until = b.from;
    return (struct hf_check_span){a.from < b.from ? a.from : b.from,
                                  a.until > b.until ? a.until : b.until};
}

static uint64_t subtract_time(uint64_t time, uint64_t span)
{
    return time < span ? 0 : time - span;
}

/* Show `seen`, with a margin of a sixth and a microsecond on both sides. */
static void set_window(struct hf_picture *p, struct hf_check_span seen)
{
    uint64_t margin = (seen.until - seen.from) / 6 + 1000;

    p->from = subtract_time(seen.from, margin);
    p->until = seen.until + margin;
}

/* One grant may last for minutes and the other for a millisecond: crop the
 * longer one so that the shorter one remains visible. */
static struct hf_check_span crop_window(struct hf_check_span all,
                                        struct hf_check_span a,
                                        struct hf_check_span b)
{
    struct hf_check_span core = {a.from > b.from ? a.from : b.from,
                                 a.until < b.until ? a.until : b.until};

    if (core.until == HF_OP_NEVER || core.from >= core.until)
        return all;
    uint64_t room = 6 * (core.until - core.from);

    if (subtract_time(core.from, room) > all.from)
        all.from = core.from - room;
    if (all.until - core.until > room)
        all.until = core.until + room;
    return all;
}

static void add_lane(struct hf_picture *p, uint32_t client)
{
    if (hf_picture_has_lane(p, client))
        return;
    if (p->lane_count == HF_TIMELINE_LANES_MAX)
        p->lanes_left_out = true;
    else
        p->lanes[p->lane_count++] = client;
}

static int compare_clients(const void *left, const void *right)
{
    const uint32_t *a = left, *b = right;

    return *a < *b ? -1 : *a > *b;
}

/* The highlighted operations come first, so they always have a lane. */
static void choose_lanes(struct hf_picture *p)
{
    if (p->first != HF_CHECK_NO_OP)
        add_lane(p, p->h->ops[p->first].client);
    if (p->second != HF_CHECK_NO_OP)
        add_lane(p, p->h->ops[p->second].client);
    for (size_t i = 0; i < p->h->op_count; i++) {
        const struct hf_op *op = &p->h->ops[i];

        if (hf_picture_shows(p, op->invoke, op->answer))
            add_lane(p, op->client);
    }
    for (size_t i = 0; i < p->valid_count; i++) {
        const struct hf_check_valid *valid = &p->valid[i];

        if (hf_picture_shows(p, valid->span.from, valid->span.until))
            add_lane(p, p->h->ops[valid->lock].client);
    }
    qsort(p->lanes, p->lane_count, sizeof *p->lanes, compare_clients);
}

/* ---- Bars ---------------------------------------------------------------*/

static void draw_bar(const struct hf_picture *p, double y, double height,
                     struct hf_check_span span, const char *style)
{
    double from = hf_picture_clamp(hf_picture_x(p, span.from)),
           until = hf_picture_clamp(hf_picture_x(p, span.until));
    double width = until - from < 2 ? 2 : until - from;

    hf_picture_draw(
        p,
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
        "rx=\"2\" %s/>\n",
        from, y - height / 2, width, height, style);
}

/* Draw the label of a bar if it fits inside. */
static void label_bar(const struct hf_picture *p, double y,
                      struct hf_check_span span, uint64_t token)
{
    static const char style[] = "fill=\"#ffffff\" font-weight=\"bold\"";
    double from = hf_picture_clamp(hf_picture_x(p, span.from)),
           until = hf_picture_clamp(hf_picture_x(p, span.until));
    char text[48];

    snprintf(text, sizeof text, "token %" PRIu64, token);
    if (hf_picture_text_width(text) + 8 > until - from)
        snprintf(text, sizeof text, "%" PRIu64, token);
    if (hf_picture_text_width(text) + 4 <= until - from)
        hf_picture_text(p, (from + until) / 2, y + PICTURE_FONT * 0.36,
                        PICTURE_MIDDLE, style, text);
}

static bool is_highlighted(const struct hf_picture *p, size_t op)
{
    return op == p->first || op == p->second;
}

/* Returns true if the labels of the highlighted operations do not fit side by
 * side. */
static bool is_label_crowded(const struct hf_picture *p)
{
    if (p->first == HF_CHECK_NO_OP)
        return false;
    const struct hf_op *first = &p->h->ops[p->first];
    const struct hf_op *second = &p->h->ops[p->second];

    return first->client == second->client &&
           fabs(hf_picture_x(p, first->invoke) -
                hf_picture_x(p, second->invoke)) < 60;
}

/* Draw the label above the lane. If there is no room for both labels, the
 * second label is below the lane. */
static void label_side(const struct hf_picture *p, size_t op,
                       struct hf_check_span span)
{
    static const char style[] =
        "fill=\"" PICTURE_ALARM "\" font-weight=\"bold\" font-size=\"12\" "
        "stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\"";
    size_t lane = hf_picture_lane(p, p->h->ops[op].client);
    double x = hf_picture_clamp(hf_picture_x(p, span.from));
    bool first = op == p->first;
    double y =
        hf_picture_lane_y(p, lane) + (first || !is_label_crowded(p) ? -20 : 30);
    const char *text = first ? "first" : "second";

    if (x + hf_picture_text_width(text) > PICTURE_RIGHT)
        hf_picture_text(p, PICTURE_RIGHT, y, PICTURE_END, style, text);
    else
        hf_picture_text(p, x, y, PICTURE_START, style, text);
}

static void draw_validity(const struct hf_picture *p,
                          const struct hf_check_valid *valid)
{
    const struct hf_op *op = &p->h->ops[valid->lock];
    double y = hf_picture_valid_y(p, hf_picture_lane(p, op->client));
    bool alarm = p->spans_stand_out && is_highlighted(p, valid->lock);

    draw_bar(p, y, PICTURE_BAR, valid->span,
             alarm ? "fill=\"" PICTURE_ALARM "\""
                   : "fill=\"" PICTURE_VALID "\"");
    label_bar(p, y, valid->span, op->token);
    if (alarm)
        label_side(p, valid->lock, valid->span);
}

static const char *call_colour(const struct hf_op *op)
{
    switch (op->kind) {
    case HF_OP_LOCK:
        return PICTURE_PENDING;
    case HF_OP_UNLOCK:
        return PICTURE_UNLOCK;
    case HF_OP_RENEW:
        return PICTURE_RENEW;
    default:
        return PICTURE_OTHER;
    }
}

/* Draw "busy" and the like after a failed call, if there is room. */
static void label_failure(const struct hf_picture *p, const struct hf_op *op)
{
    double y = hf_picture_call_y(p, hf_picture_lane(p, op->client));
    double x = hf_picture_x(p, op->answer);
    const char *text = op->error == HF_OP_ERROR_BUSY    ? "busy"
                       : op->error == HF_OP_ERROR_ENDED ? "ended"
                                                        : "fail";
    uint64_t next = HF_OP_NEVER;

    for (size_t i = 0; i < p->h->op_count; i++) {
        const struct hf_op *other = &p->h->ops[i];

        if (other->client == op->client && other != op &&
            other->invoke >= op->invoke && other->invoke < next)
            next = other->invoke;
    }
    if (x + 4 + hf_picture_text_width(text) <
        hf_picture_clamp(hf_picture_x(p, next)))
        hf_picture_text(p, x + 4, y + 4, PICTURE_START,
                        "fill=\"" PICTURE_FAINT "\" font-size=\"11\"", text);
}

static void draw_call(const struct hf_picture *p, size_t index)
{
    const struct hf_op *op = &p->h->ops[index];
    struct hf_check_span span = {op->invoke, op->answer};
    bool alarm = !p->spans_stand_out && is_highlighted(p, index);
    char style[160];

    snprintf(style, sizeof style, "fill=\"%s\"%s%s", call_colour(op),
             op->result == HF_OP_UNKNOWN
                 ? " fill-opacity=\"0.35\" stroke=\"" PICTURE_FAINT
                   "\" stroke-dasharray=\"3 2\""
                 : "",
             alarm ? " stroke=\"" PICTURE_ALARM "\" stroke-width=\"2.5\"" : "");
    if (alarm && op->result == HF_OP_UNKNOWN)
        snprintf(style, sizeof style,
                 "fill=\"%s\" stroke=\"" PICTURE_ALARM
                 "\" stroke-width=\"2.5\"",
                 call_colour(op));
    draw_bar(p, hf_picture_call_y(p, hf_picture_lane(p, op->client)),
             alarm ? PICTURE_THIN + 6 : PICTURE_THIN, span, style);
    if (alarm)
        label_side(p, index, span);
    else if (op->result == HF_OP_FAIL)
        label_failure(p, op);
}

static void draw_bars(const struct hf_picture *p)
{
    for (size_t i = 0; i < p->valid_count; i++) {
        const struct hf_check_valid *valid = &p->valid[i];

        if (hf_picture_has_lane(p, p->h->ops[valid->lock].client) &&
            hf_picture_shows(p, valid->span.from, valid->span.until))
            draw_validity(p, valid);
    }
    for (size_t i = 0; i < p->h->op_count; i++) {
        const struct hf_op *op = &p->h->ops[i];

        if (hf_picture_has_lane(p, op->client) &&
            hf_picture_shows(p, op->invoke, op->answer))
            draw_call(p, i);
    }
}

/* ---- Marks --------------------------------------------------------------*/

static void draw_deaths(const struct hf_picture *p)
{
    for (size_t i = 0; i < p->h->death_count; i++) {
        const struct hf_op_death *death = &p->h->deaths[i];

        if (!hf_picture_has_lane(p, death->client) ||
            !hf_picture_shows(p, death->time, death->time))
            continue;
        hf_picture_draw(
            p,
            "<path d=\"M%.1f %.1f m-7 -7 l14 14 m0 -14 l-14 14\" "
            "stroke=\"" PICTURE_INK "\" stroke-width=\"3\" fill=\"none\"/>\n",
            hf_picture_x(p, death->time),
            hf_picture_valid_y(p, hf_picture_lane(p, death->client)));
    }
}

static void draw_losts(const struct hf_picture *p)
{
    for (size_t i = 0; i < p->h->lost_count; i++) {
        const struct hf_op_lost *lost = &p->h->losts[i];

        if (hf_picture_has_lane(p, lost->client) &&
            hf_picture_shows(p, lost->time, lost->time))
            hf_picture_draw(
                p,
                "<path d=\"M%.1f %.1f m0 -8 l8 8 l-8 8 l-8 -8 z\" "
                "fill=\"#ffffff\" stroke=\"" PICTURE_INK
                "\" stroke-width=\"2\"/>\n",
                hf_picture_x(p, lost->time),
                hf_picture_valid_y(p, hf_picture_lane(p, lost->client)));
    }
}

/* Shade the span in which both grants were valid. */
static void draw_overlap(const struct hf_picture *p,
                         const struct hf_check_violation *v)
{
    const struct hf_check_span *a = &v->first_span, *b = &v->second_span;
    uint64_t until = a->until < b->until ? a->until : b->until;
    double left = hf_picture_clamp(hf_picture_x(p, b->from)),
           right = hf_picture_clamp(hf_picture_x(p, until));
    char text[64] = "both valid", span[40];

    if (until != HF_OP_NEVER) {
        hf_picture_print_ms(span, sizeof span, b->from, until, 3);
        snprintf(text, sizeof text, "both valid for %s ms", span);
    }
    hf_picture_draw(
        p,
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
        "fill=\"" PICTURE_ALARM "\" fill-opacity=\"0.13\"/>\n",
        left, p->top, right - left < 2 ? 2 : right - left,
        hf_picture_bottom(p) - p->top);
    double x = (left + right) / 2, half = hf_picture_text_width(text) / 2;

    x = x - half < PICTURE_LEFT    ? PICTURE_LEFT + half
        : x + half > PICTURE_RIGHT ? PICTURE_RIGHT - half
                                   : x;
    hf_picture_text(p, x, p->top - 38, PICTURE_MIDDLE,
                    "fill=\"" PICTURE_ALARM "\" font-weight=\"bold\"", text);
}

static int draw_all(struct hf_picture *p, const char *title, uint32_t key,
                    const char *what, const struct hf_check_violation *v)
{
    double bottom, height;
    size_t notes = hf_picture_count_notes(p);

    choose_lanes(p);
    p->top =
        PICTURE_LANES_TOP + (notes || p->spans_stand_out ? PICTURE_MARKS : 0);
    bottom = hf_picture_bottom(p) + 62;
    height = bottom + 30 + (notes ? 14 + 19 * (double)notes : 0);
    hf_picture_draw(
        p,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
        "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" font-family=\"DejaVu Sans, "
        "Verdana, Helvetica, sans-serif\" font-size=\"%.0f\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
        PICTURE_WIDTH, height, PICTURE_WIDTH, height, PICTURE_FONT);
    hf_picture_title(p, title, key, what);
    hf_picture_lanes(p);
    hf_picture_axis(p);
    if (v && p->spans_stand_out)
        draw_overlap(p, v);
    hf_picture_notes(p);
    draw_bars(p);
    draw_losts(p);
    draw_deaths(p);
    hf_picture_legend(p, bottom);
    hf_picture_list_notes(p, bottom + 16);
    if (p->lanes_left_out)
        hf_picture_text(p, PICTURE_LEFT, hf_picture_bottom(p) + 38,
                        PICTURE_START,
                        "fill=\"" PICTURE_FAINT "\" font-size=\"12\"",
                        "operations of other clients are left out");
    hf_picture_draw(p, "</svg>\n");
    return fflush(p->out) || ferror(p->out) ? -1 : 0;
}

/* Return a copy of `h` with only this key or cell. Set `p->first` and
 * `p->second` to the operations of `v`, if it is not NULL, in the copy. The
 * copy owns its lists of operations, deaths and losses, and borrows the
 * rest. */
static struct hf_check_history make_view(const struct hf_check_history *h,
                                         uint32_t string, bool is_cell,
                                         struct hf_picture *p,
                                         const struct hf_check_violation *v)
{
    struct hf_check_history view = *h;

    view.ops = NULL;
    view.losts = NULL;
    view.op_count = view.op_room = view.lost_count = view.lost_room = 0;
    view.deaths = hf_check_history_deaths(h, &view.death_count);
    for (size_t i = 0; i < h->op_count; i++) {
        const struct hf_op *op = &h->ops[i];
        bool here = is_cell ? op->cell == string
                            : op->key == string && op->kind != HF_OP_WRITE;

        if (v && i == v->first)
            p->first = view.op_count;
        if (v && i == v->second)
            p->second = view.op_count;
        if (here)
            hf_check_history_add(&view, op);
    }
    for (size_t i = 0; i < h->lost_count; i++) {
        if (h->losts[i].key == string && !is_cell)
            hf_check_history_add_lost(&view, h->losts[i]);
    }
    return view;
}

static void free_view(struct hf_picture *p, struct hf_check_history *view)
{
    free(p->valid);
    free(view->ops);
    free(view->losts);
    free(view->deaths);
}

int hf_timeline_draw_violation(const struct hf_check_history *h,
                               const struct hf_check_violation *v, FILE *out)
{
    bool is_cell =
        v->kind == HF_CHECK_FENCE_ORDER || v->kind == HF_CHECK_FENCE_SHARED;
    struct hf_picture p = {
        .out = out,
        .origin = hf_report_origin(h),
        .first = HF_CHECK_NO_OP,
        .second = HF_CHECK_NO_OP,
        .spans_stand_out = v->kind == HF_CHECK_EXCLUSION,
    };
    struct hf_check_history view = make_view(h, v->key, is_cell, &p, v);
    struct hf_check_span seen = v->second_span;
    char title[160];

    p.h = &view;
    p.valid = hf_check_validity(&view, &p.valid_count);
    if (v->first != HF_CHECK_NO_OP)
        seen = join_spans(v->first_span, v->second_span);
    if (p.spans_stand_out)
        seen = crop_window(seen, v->first_span, v->second_span);
    set_window(&p, seen);
    snprintf(title, sizeof title, "%s: %s", hf_check_kind_name(v->kind),
             hf_check_kind_text(v->kind));
    int answer = draw_all(&p, title, v->key, is_cell ? "cell" : "key", v);

    free_view(&p, &view);
    return answer;
}

int hf_timeline_draw_key(const struct hf_check_history *h, uint32_t key,
                         FILE *out)
{
    struct hf_picture p = {
        .out = out,
        .origin = hf_report_origin(h),
        .first = HF_CHECK_NO_OP,
        .second = HF_CHECK_NO_OP,
    };
    struct hf_check_history view = make_view(h, key, false, &p, NULL);
    struct hf_check_span seen = {HF_OP_NEVER, 0};

    p.h = &view;
    p.valid = hf_check_validity(&view, &p.valid_count);
    for (size_t i = 0; i < view.op_count; i++) {
        struct hf_check_span span = {view.ops[i].invoke, view.ops[i].answer};

        seen = i ? join_spans(seen, span) : join_spans(span, span);
    }
    if (!view.op_count)
        seen = (struct hf_check_span){p.origin, p.origin};
    set_window(&p, seen);
    int answer = draw_all(&p, "history", key, "key", NULL);

    free_view(&p, &view);
    return answer;
}
