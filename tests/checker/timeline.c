/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "timeline.h"

#include "picture.h"
#include "report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The window and the lanes. */

static struct check_span join(struct check_span a, struct check_span b)
{
    if (a.until == HISTORY_NEVER)
        a.until = a.from;
    if (b.until == HISTORY_NEVER)
        b.until = b.from;
    return (struct check_span){a.from < b.from ? a.from : b.from,
                               a.until > b.until ? a.until : b.until};
}

static uint64_t minus(uint64_t time, uint64_t span)
{
    return time < span ? 0 : time - span;
}

/* A sixth of room on both sides of what is to be seen. */
static void set_window(struct picture *p, struct check_span seen)
{
    uint64_t margin = (seen.until - seen.from) / 6 + 1000;

    p->from = minus(seen.from, margin);
    p->until = seen.until + margin;
}

/* One grant may have lasted for minutes and the other for a millisecond: no
 * more of the longer is shown than leaves the shorter to be seen. */
static struct check_span crop(struct check_span all, struct check_span a,
                              struct check_span b)
{
    struct check_span core = {a.from > b.from ? a.from : b.from,
                              a.until < b.until ? a.until : b.until};

    if (core.until == HISTORY_NEVER || core.from >= core.until)
        return all;
    uint64_t room = 6 * (core.until - core.from);

    if (minus(core.from, room) > all.from)
        all.from = core.from - room;
    if (all.until - core.until > room)
        all.until = core.until + room;
    return all;
}

static void add_lane(struct picture *p, uint32_t client)
{
    if (picture_has_lane(p, client))
        return;
    if (p->lane_count == TIMELINE_LANES_MAX)
        p->lanes_left_out = true;
    else
        p->lanes[p->lane_count++] = client;
}

static int by_number(const void *left, const void *right)
{
    const uint32_t *a = left, *b = right;

    return *a < *b ? -1 : *a > *b;
}

/* Those that stand out come first, so that they are never left out. */
static void choose_lanes(struct picture *p)
{
    if (p->first != CHECK_NO_OP)
        add_lane(p, p->h->ops[p->first].client);
    if (p->second != CHECK_NO_OP)
        add_lane(p, p->h->ops[p->second].client);
    for (size_t i = 0; i < p->h->op_count; i++) {
        const struct history_op *op = &p->h->ops[i];

        if (picture_shows(p, op->invoke, op->answer))
            add_lane(p, op->client);
    }
    for (size_t i = 0; i < p->valid_count; i++) {
        const struct check_valid *valid = &p->valid[i];

        if (picture_shows(p, valid->span.from, valid->span.until))
            add_lane(p, p->h->ops[valid->lock].client);
    }
    qsort(p->lanes, p->lane_count, sizeof *p->lanes, by_number);
}

/* Bars. */

static void draw_bar(const struct picture *p, double y, double height,
                     struct check_span span, const char *style)
{
    double from = picture_clamp(picture_x(p, span.from)),
           until = picture_clamp(picture_x(p, span.until));
    double width = until - from < 2 ? 2 : until - from;

    picture_draw(p,
                 "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                 "rx=\"2\" %s/>\n",
                 from, y - height / 2, width, height, style);
}

/* The label of the bar, if there is room for it inside. */
static void label_bar(const struct picture *p, double y, struct check_span span,
                      uint64_t token)
{
    static const char style[] = "fill=\"#ffffff\" font-weight=\"bold\"";
    double from = picture_clamp(picture_x(p, span.from)),
           until = picture_clamp(picture_x(p, span.until));
    char text[48];

    snprintf(text, sizeof text, "token %" PRIu64, token);
    if (picture_text_width(text) + 8 > until - from)
        snprintf(text, sizeof text, "%" PRIu64, token);
    if (picture_text_width(text) + 4 <= until - from)
        picture_text(p, (from + until) / 2, y + FONT * 0.36, MIDDLE, style,
                     text);
}

static bool stands_out(const struct picture *p, size_t op)
{
    return op == p->first || op == p->second;
}

/* Whether the two that stand out are too near for two labels side by side. */
static bool is_crowded(const struct picture *p)
{
    if (p->first == CHECK_NO_OP)
        return false;
    const struct history_op *first = &p->h->ops[p->first];
    const struct history_op *second = &p->h->ops[p->second];

    return first->client == second->client &&
           fabs(picture_x(p, first->invoke) - picture_x(p, second->invoke)) <
               60;
}

/* At the top of the lane, or at its bottom if there is no room for both. */
static void label_side(const struct picture *p, size_t op,
                       struct check_span span)
{
    static const char style[] =
        "fill=\"" ALARM "\" font-weight=\"bold\" font-size=\"12\" "
        "stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\"";
    size_t lane = picture_lane(p, p->h->ops[op].client);
    double x = picture_clamp(picture_x(p, span.from));
    bool first = op == p->first;
    double y = picture_lane_y(p, lane) + (first || !is_crowded(p) ? -20 : 30);
    const char *text = first ? "first" : "second";

    if (x + picture_text_width(text) > RIGHT)
        picture_text(p, RIGHT, y, END, style, text);
    else
        picture_text(p, x, y, START, style, text);
}

static void draw_validity(const struct picture *p,
                          const struct check_valid *valid)
{
    const struct history_op *op = &p->h->ops[valid->lock];
    double y = picture_valid_y(p, picture_lane(p, op->client));
    bool alarm = p->spans_stand_out && stands_out(p, valid->lock);

    draw_bar(p, y, BAR, valid->span,
             alarm ? "fill=\"" ALARM "\"" : "fill=\"" VALID "\"");
    label_bar(p, y, valid->span, op->token);
    if (alarm)
        label_side(p, valid->lock, valid->span);
}

static const char *call_colour(const struct history_op *op)
{
    switch (op->kind) {
    case HISTORY_LOCK:
        return PENDING;
    case HISTORY_UNLOCK:
        return UNLOCK;
    case HISTORY_RENEW:
        return RENEW;
    default:
        return OTHER;
    }
}

/* "busy" and the like, behind a call that failed, where nothing is near. */
static void label_failure(const struct picture *p, const struct history_op *op)
{
    double y = picture_call_y(p, picture_lane(p, op->client));
    double x = picture_x(p, op->answer);
    const char *text = op->error == HISTORY_ERROR_BUSY    ? "busy"
                       : op->error == HISTORY_ERROR_ENDED ? "ended"
                                                          : "fail";
    uint64_t next = HISTORY_NEVER;

    for (size_t i = 0; i < p->h->op_count; i++) {
        const struct history_op *other = &p->h->ops[i];

        if (other->client == op->client && other != op &&
            other->invoke >= op->invoke && other->invoke < next)
            next = other->invoke;
    }
    if (x + 4 + picture_text_width(text) < picture_clamp(picture_x(p, next)))
        picture_text(p, x + 4, y + 4, START,
                     "fill=\"" FAINT "\" font-size=\"11\"", text);
}

static void draw_call(const struct picture *p, size_t index)
{
    const struct history_op *op = &p->h->ops[index];
    struct check_span span = {op->invoke, op->answer};
    bool alarm = !p->spans_stand_out && stands_out(p, index);
    char style[160];

    snprintf(style, sizeof style, "fill=\"%s\"%s%s", call_colour(op),
             op->result == HISTORY_UNKNOWN
                 ? " fill-opacity=\"0.35\" stroke=\"" FAINT
                   "\" stroke-dasharray=\"3 2\""
                 : "",
             alarm ? " stroke=\"" ALARM "\" stroke-width=\"2.5\"" : "");
    if (alarm && op->result == HISTORY_UNKNOWN)
        snprintf(style, sizeof style,
                 "fill=\"%s\" stroke=\"" ALARM "\" stroke-width=\"2.5\"",
                 call_colour(op));
    draw_bar(p, picture_call_y(p, picture_lane(p, op->client)),
             alarm ? THIN + 6 : THIN, span, style);
    if (alarm)
        label_side(p, index, span);
    else if (op->result == HISTORY_FAIL)
        label_failure(p, op);
}

static void draw_bars(const struct picture *p)
{
    for (size_t i = 0; i < p->valid_count; i++) {
        const struct check_valid *valid = &p->valid[i];

        if (picture_has_lane(p, p->h->ops[valid->lock].client) &&
            picture_shows(p, valid->span.from, valid->span.until))
            draw_validity(p, valid);
    }
    for (size_t i = 0; i < p->h->op_count; i++) {
        const struct history_op *op = &p->h->ops[i];

        if (picture_has_lane(p, op->client) &&
            picture_shows(p, op->invoke, op->answer))
            draw_call(p, i);
    }
}

/* Marks. */

static void draw_deaths(const struct picture *p)
{
    for (size_t i = 0; i < p->h->death_count; i++) {
        const struct history_death *death = &p->h->deaths[i];

        if (!picture_has_lane(p, death->client) ||
            !picture_shows(p, death->time, death->time))
            continue;
        picture_draw(p,
                     "<path d=\"M%.1f %.1f m-7 -7 l14 14 m0 -14 l-14 14\" "
                     "stroke=\"" INK "\" stroke-width=\"3\" fill=\"none\"/>\n",
                     picture_x(p, death->time),
                     picture_valid_y(p, picture_lane(p, death->client)));
    }
}

static void draw_losts(const struct picture *p)
{
    for (size_t i = 0; i < p->h->lost_count; i++) {
        const struct history_lost *lost = &p->h->losts[i];

        if (picture_has_lane(p, lost->client) &&
            picture_shows(p, lost->time, lost->time))
            picture_draw(p,
                         "<path d=\"M%.1f %.1f m0 -8 l8 8 l-8 8 l-8 -8 z\" "
                         "fill=\"#ffffff\" stroke=\"" INK
                         "\" stroke-width=\"2\"/>\n",
                         picture_x(p, lost->time),
                         picture_valid_y(p, picture_lane(p, lost->client)));
    }
}

/* A band behind the lanes where both were valid at once. */
static void draw_overlap(const struct picture *p,
                         const struct check_violation *v)
{
    const struct check_span *a = &v->first_span, *b = &v->second_span;
    uint64_t until = a->until < b->until ? a->until : b->until;
    double left = picture_clamp(picture_x(p, b->from)),
           right = picture_clamp(picture_x(p, until));
    char text[64] = "both valid", span[40];

    if (until != HISTORY_NEVER) {
        picture_print_ms(span, sizeof span, b->from, until, 3);
        snprintf(text, sizeof text, "both valid for %s ms", span);
    }
    picture_draw(p,
                 "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                 "fill=\"" ALARM "\" fill-opacity=\"0.13\"/>\n",
                 left, p->top, right - left < 2 ? 2 : right - left,
                 picture_bottom(p) - p->top);
    double x = (left + right) / 2, half = picture_text_width(text) / 2;

    x = x - half < LEFT ? LEFT + half : x + half > RIGHT ? RIGHT - half : x;
    picture_text(p, x, p->top - 38, MIDDLE,
                 "fill=\"" ALARM "\" font-weight=\"bold\"", text);
}

static int draw_all(struct picture *p, const char *title, uint32_t key,
                    const char *what, const struct check_violation *v)
{
    double bottom, height;
    size_t notes = picture_count_notes(p);

    choose_lanes(p);
    p->top = LANES_TOP + (notes || p->spans_stand_out ? MARKS : 0);
    bottom = picture_bottom(p) + 62;
    height = bottom + 30 + (notes ? 14 + 19 * (double)notes : 0);
    picture_draw(
        p,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
        "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" font-family=\"DejaVu Sans, "
        "Verdana, Helvetica, sans-serif\" font-size=\"%.0f\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
        WIDTH, height, WIDTH, height, FONT);
    picture_title(p, title, key, what);
    picture_lanes(p);
    picture_axis(p);
    if (v && p->spans_stand_out)
        draw_overlap(p, v);
    picture_notes(p);
    draw_bars(p);
    draw_losts(p);
    draw_deaths(p);
    picture_legend(p, bottom);
    picture_list_notes(p, bottom + 16);
    if (p->lanes_left_out)
        picture_text(p, LEFT, picture_bottom(p) + 38, START,
                     "fill=\"" FAINT "\" font-size=\"12\"",
                     "operations of other clients are left out");
    picture_draw(p, "</svg>\n");
    return fflush(p->out) || ferror(p->out) ? -1 : 0;
}

/* A view of `h` with what concerns this key or cell alone. It owns its lists of
 * operations, deaths and losses, and borrows the rest. */
static struct history view_of(const struct history *h, uint32_t word,
                              bool is_cell, struct picture *p,
                              const struct check_violation *v)
{
    struct history view = *h;

    view.ops = NULL;
    view.losts = NULL;
    view.op_count = view.op_room = view.lost_count = view.lost_room = 0;
    view.deaths = history_deaths(h, &view.death_count);
    for (size_t i = 0; i < h->op_count; i++) {
        const struct history_op *op = &h->ops[i];
        bool here = is_cell ? op->cell == word
                            : op->key == word && op->kind != HISTORY_WRITE;

        if (v && i == v->first)
            p->first = view.op_count;
        if (v && i == v->second)
            p->second = view.op_count;
        if (here)
            history_add(&view, op);
    }
    for (size_t i = 0; i < h->lost_count; i++) {
        if (h->losts[i].key == word && !is_cell)
            history_add_lost(&view, h->losts[i]);
    }
    return view;
}

static void free_view(struct picture *p, struct history *view)
{
    free(p->valid);
    free(view->ops);
    free(view->losts);
    free(view->deaths);
}

int timeline_violation(const struct history *h, const struct check_violation *v,
                       FILE *out)
{
    bool is_cell =
        v->kind == CHECK_FENCE_ORDER || v->kind == CHECK_FENCE_SHARED;
    struct picture p = {
        .out = out,
        .origin = report_origin(h),
        .first = CHECK_NO_OP,
        .second = CHECK_NO_OP,
        .spans_stand_out = v->kind == CHECK_EXCLUSION,
    };
    struct history view = view_of(h, v->key, is_cell, &p, v);
    struct check_span seen = v->second_span;
    char title[160];

    p.h = &view;
    p.valid = check_validity(&view, &p.valid_count);
    if (v->first != CHECK_NO_OP)
        seen = join(v->first_span, v->second_span);
    if (p.spans_stand_out)
        seen = crop(seen, v->first_span, v->second_span);
    set_window(&p, seen);
    snprintf(title, sizeof title, "%s: %s", check_kind_name(v->kind),
             check_kind_text(v->kind));
    int answer = draw_all(&p, title, v->key, is_cell ? "cell" : "key", v);

    free_view(&p, &view);
    return answer;
}

int timeline_key(const struct history *h, uint32_t key, FILE *out)
{
    struct picture p = {
        .out = out,
        .origin = report_origin(h),
        .first = CHECK_NO_OP,
        .second = CHECK_NO_OP,
    };
    struct history view = view_of(h, key, false, &p, NULL);
    struct check_span seen = {HISTORY_NEVER, 0};

    p.h = &view;
    p.valid = check_validity(&view, &p.valid_count);
    for (size_t i = 0; i < view.op_count; i++) {
        struct check_span span = {view.ops[i].invoke, view.ops[i].answer};

        seen = i ? join(seen, span) : join(span, span);
    }
    if (!view.op_count)
        seen = (struct check_span){p.origin, p.origin};
    set_window(&p, seen);
    int answer = draw_all(&p, "what happened", key, "key", NULL);

    free_view(&p, &view);
    return answer;
}
