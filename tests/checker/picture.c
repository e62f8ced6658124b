/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "picture.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

void picture_draw(const struct picture *p, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    vfprintf(p->out, format, list);
    va_end(list);
}

/* Text goes through here, so that no byte of a key can be markup. */
static void draw_escaped(const struct picture *p, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            picture_draw(p, "&lt;");
        else if (*text == '>')
            picture_draw(p, "&gt;");
        else if (*text == '&')
            picture_draw(p, "&amp;");
        else
            fputc(*text, p->out);
    }
}

void picture_text(const struct picture *p, double x, double y,
                  enum anchor anchor, const char *style, const char *text)
{
    static const char *const names[] = {"start", "middle", "end"};

    picture_draw(p, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" %s>", x, y,
                 names[anchor], style);
    draw_escaped(p, text);
    picture_draw(p, "</text>\n");
}

double picture_text_width(const char *text)
{
    return (double)strlen(text) * FONT * 0.62;
}

double picture_clamp(double x)
{
    return x < LEFT ? LEFT : x > RIGHT ? RIGHT : x;
}

double picture_x(const struct picture *p, uint64_t time)
{
    double span = (double)(p->until - p->from);
    double offset =
        time < p->from ? -(double)(p->from - time) : (double)(time - p->from);

    if (time == HISTORY_NEVER)
        return RIGHT + 1;
    return LEFT + offset / span * (RIGHT - LEFT);
}

double picture_lane_y(const struct picture *p, size_t lane)
{
    return p->top + ((double)lane + 0.5) * LANE;
}

double picture_valid_y(const struct picture *p, size_t lane)
{
    return picture_lane_y(p, lane) - 5;
}

double picture_call_y(const struct picture *p, size_t lane)
{
    return picture_lane_y(p, lane) + 14;
}

double picture_bottom(const struct picture *p)
{
    return p->top + (double)p->lane_count * LANE;
}

bool picture_shows(const struct picture *p, uint64_t from, uint64_t until)
{
    return from <= p->until && until >= p->from;
}

size_t picture_lane(const struct picture *p, uint32_t client)
{
    size_t lane = 0;

    while (lane < p->lane_count && p->lanes[lane] != client)
        lane++;
    return lane;
}

void picture_print_ms(char *text, size_t size, uint64_t origin, uint64_t time,
                      int decimals)
{
    uint64_t span = time < origin ? origin - time : time - origin;
    uint64_t unit = 1;

    /* Cut off, not rounded: the report in words does the same. */
    for (int i = decimals; i < 6; i++)
        unit *= 10;
    span = span / unit * unit;
    snprintf(text, size, "%s%.*f", time < origin ? "-" : "", decimals,
             (double)span / 1e6);
}

bool picture_has_lane(const struct picture *p, uint32_t client)
{
    return picture_lane(p, client) < p->lane_count;
}

size_t picture_count_notes(const struct picture *p)
{
    size_t count = 0;

    for (size_t i = 0; i < p->h->note_count; i++)
        count += picture_shows(p, p->h->notes[i].time, p->h->notes[i].time);
    return count < TIMELINE_NOTES_MAX ? count : TIMELINE_NOTES_MAX;
}

/* Badges would hide one another if they were nearer than this. */
#define BADGE 20.0

void picture_notes(const struct picture *p)
{
    double last = LEFT - BADGE, bottom = picture_bottom(p);
    size_t shown = 0;

    for (size_t i = 0; i < p->h->note_count; i++) {
        const struct history_note *note = &p->h->notes[i];
        char number[24];

        if (!picture_shows(p, note->time, note->time) ||
            shown == TIMELINE_NOTES_MAX)
            continue;
        double x = picture_x(p, note->time);
        double badge = x < last + BADGE ? last + BADGE : x;

        snprintf(number, sizeof number, "%zu", ++shown);
        picture_draw(
            p,
            "<path d=\"M%.1f %.1f V%.1f L%.1f %.1f\" stroke=\"" INK "\" "
            "stroke-dasharray=\"4 3\" fill=\"none\"/>\n"
            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"9\" fill=\"" INK "\"/>\n",
            x, bottom, p->top - 6, badge, p->top - 16, badge, p->top - 20);
        picture_text(p, badge, p->top - 16, MIDDLE,
                     "fill=\"#ffffff\" font-size=\"11\"", number);
        last = badge;
    }
}

void picture_list_notes(const struct picture *p, double y)
{
    static const char style[] = "fill=\"" INK "\"";
    char quoted[6 * HISTORY_TEXT_MAX + 3], text[128];
    size_t shown = 0;

    for (size_t i = 0; i < p->h->note_count; i++) {
        const struct history_note *note = &p->h->notes[i];

        if (!picture_shows(p, note->time, note->time) ||
            shown == TIMELINE_NOTES_MAX)
            continue;
        y += 19;
        snprintf(text, sizeof text, "%zu", ++shown);
        picture_text(p, LEFT + 18, y, END,
                     "fill=\"" INK "\" font-weight=\"bold\"", text);
        picture_print_ms(text, sizeof text, p->origin, note->time, 3);
        picture_text(p, LEFT + 110, y, END, style, text);
        history_quote(p->h, note->text, quoted);
        snprintf(text, sizeof text, "%.120s", quoted);
        picture_text(p, LEFT + 128, y, START, style, text);
    }
}

/* Axis, lanes, words. */

/* 1, 2 or 5 times a power of ten, so that there are six to fifteen ticks. */
static uint64_t tick_step(const struct picture *p)
{
    uint64_t span = p->until - p->from, step = 1;

    while (span / step > 15) {
        if (span / (step * 2) <= 15)
            return step * 2;
        if (span / (step * 5) <= 15)
            return step * 5;
        step *= 10;
    }
    return step;
}

static int tick_decimals(uint64_t step)
{
    int decimals = 6;

    while (decimals && step % 10 == 0) {
        decimals--;
        step /= 10;
    }
    return decimals;
}

void picture_axis(const struct picture *p)
{
    uint64_t step = tick_step(p);
    uint64_t base = p->origin % step;
    uint64_t tick = base;
    double bottom = picture_bottom(p);

    if (p->from > base)
        tick += (p->from - base + step - 1) / step * step;
    for (; tick <= p->until; tick += step) {
        double x = picture_x(p, tick);
        char text[40];

        picture_print_ms(text, sizeof text, p->origin, tick,
                         tick_decimals(step));
        picture_draw(p,
                     "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                     "stroke=\"" GRID "\"/>\n",
                     x, p->top, x, bottom + 5);
        picture_text(p, x, bottom + 20, MIDDLE,
                     "fill=\"" FAINT "\" font-size=\"12\"", text);
    }
    picture_text(p, RIGHT, bottom + 38, END,
                 "fill=\"" FAINT "\" font-size=\"12\"",
                 "milliseconds since the history began");
}

void picture_lanes(const struct picture *p)
{
    for (size_t i = 0; i < p->lane_count; i++) {
        double top = p->top + (double)i * LANE;
        char text[32];

        if (i % 2 == 0)
            picture_draw(
                p,
                "<rect x=\"0\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                "fill=\"#f5f7fa\"/>\n",
                top, WIDTH, LANE);
        snprintf(text, sizeof text, "client %" PRIu32, p->lanes[i]);
        picture_text(p, LEFT - 14, picture_lane_y(p, i) + 5, END,
                     "fill=\"" INK "\"", text);
    }
}

struct legend {
    const char *text;
    const char *style;
    double height;
};

void picture_legend(const struct picture *p, double y)
{
    static const struct legend legend[] = {
        {"lock waits", "fill=\"" PENDING "\"", THIN},
        {"valid", "fill=\"" VALID "\"", BAR},
        {"violation", "fill=\"" ALARM "\"", BAR},
        {"unlock", "fill=\"" UNLOCK "\"", THIN},
        {"renew", "fill=\"" RENEW "\"", THIN},
        {"other call", "fill=\"" OTHER "\"", THIN},
        {"unknown result",
         "fill=\"" PENDING "\" fill-opacity=\"0.35\" stroke=\"" FAINT
         "\" stroke-dasharray=\"3 2\"",
         THIN},
    };
    double x = LEFT;

    for (size_t i = 0; i < sizeof legend / sizeof *legend; i++) {
        picture_draw(p,
                     "<rect x=\"%.1f\" y=\"%.1f\" width=\"26\" height=\"%.1f\" "
                     "rx=\"2\" %s/>\n",
                     x, y - legend[i].height / 2, legend[i].height,
                     legend[i].style);
        picture_text(p, x + 33, y + 5, START, "fill=\"" INK "\"",
                     legend[i].text);
        x += 33 + picture_text_width(legend[i].text) * 0.85 + 24;
    }
    picture_draw(p,
                 "<path d=\"M%.1f %.1f m-6 -6 l12 12 m0 -12 l-12 12\" "
                 "stroke=\"" INK "\" stroke-width=\"3\" fill=\"none\"/>\n",
                 x + 8, y);
    picture_text(p, x + 22, y + 5, START, "fill=\"" INK "\"", "dies");
    x += 22 + picture_text_width("dies") * 0.85 + 24;
    picture_draw(
        p,
        "<path d=\"M%.1f %.1f m0 -8 l8 8 l-8 8 l-8 -8 z\" fill=\"#ffffff\" "
        "stroke=\"" INK "\" stroke-width=\"2\"/>\n",
        x + 8, y);
    picture_text(p, x + 22, y + 5, START, "fill=\"" INK "\"", "told: lost");
}

void picture_title(const struct picture *p, const char *title, uint32_t key,
                   const char *what)
{
    char quoted[6 * HISTORY_TEXT_MAX + 3], line[200];

    history_quote(p->h, key, quoted);
    snprintf(line, sizeof line, "%s %.100s%s", what, quoted,
             strlen(quoted) > 100 ? "..." : "");
    picture_text(p, 24, TITLE_TOP, START,
                 "fill=\"" INK "\" font-size=\"19\" font-weight=\"bold\"",
                 title);
    picture_text(p, 24, TITLE_TOP + 24, START,
                 "fill=\"" FAINT "\" font-size=\"14\"", line);
}
