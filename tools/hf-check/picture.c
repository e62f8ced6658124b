/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "picture.h"

#include "encoder.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

void hf_picture_draw(const struct hf_picture *p, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    vfprintf(p->out, format, list);
    va_end(list);
}

/* All text is escaped here, so that no byte of a key is markup. */
static void draw_escaped(const struct hf_picture *p, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            hf_picture_draw(p, "&lt;");
        else if (*text == '>')
            hf_picture_draw(p, "&gt;");
        else if (*text == '&')
            hf_picture_draw(p, "&amp;");
        else
            fputc(*text, p->out);
    }
}

void hf_picture_text(const struct hf_picture *p, double x, double y,
                     enum hf_picture_anchor anchor, const char *style,
                     const char *text)
{
    static const char *const names[] = {"start", "middle", "end"};

    hf_picture_draw(p, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" %s>", x,
                    y, names[anchor], style);
    draw_escaped(p, text);
    hf_picture_draw(p, "</text>\n");
}

double hf_picture_text_width(const char *text)
{
    return (double)strlen(text) * PICTURE_FONT * 0.62;
}

double hf_picture_clamp(double x)
{
    return x < PICTURE_LEFT    ? PICTURE_LEFT
           : x > PICTURE_RIGHT ? PICTURE_RIGHT
                               : x;
}

double hf_picture_x(const struct hf_picture *p, uint64_t time)
{
    double span = (double)(p->until - p->from);
    double offset =
        time < p->from ? -(double)(p->from - time) : (double)(time - p->from);

    if (time == HF_OP_NEVER)
        return PICTURE_RIGHT + 1;
    return PICTURE_LEFT + offset / span * (PICTURE_RIGHT - PICTURE_LEFT);
}

double hf_picture_lane_y(const struct hf_picture *p, size_t lane)
{
    return p->top + ((double)lane + 0.5) * PICTURE_LANE;
}

double hf_picture_valid_y(const struct hf_picture *p, size_t lane)
{
    return hf_picture_lane_y(p, lane) - 5;
}

double hf_picture_call_y(const struct hf_picture *p, size_t lane)
{
    return hf_picture_lane_y(p, lane) + 14;
}

double hf_picture_bottom(const struct hf_picture *p)
{
    return p->top + (double)p->lane_count * PICTURE_LANE;
}

bool hf_picture_shows(const struct hf_picture *p, uint64_t from, uint64_t until)
{
    return from <= p->until && until >= p->from;
}

size_t hf_picture_lane(const struct hf_picture *p, uint32_t client)
{
    size_t lane = 0;

    while (lane < p->lane_count && p->lanes[lane] != client)
        lane++;
    return lane;
}

void hf_picture_print_ms(char *text, size_t size, uint64_t origin,
                         uint64_t time, int decimals)
{
    uint64_t span = time < origin ? origin - time : time - origin;
    uint64_t unit = 1;

    /* Truncate instead of rounding, as the text report does. */
    for (int i = decimals; i < 6; i++)
        unit *= 10;
    span = span / unit * unit;
    snprintf(text, size, "%s%.*f", time < origin ? "-" : "", decimals,
             (double)span / 1e6);
}

bool hf_picture_has_lane(const struct hf_picture *p, uint32_t client)
{
    return hf_picture_lane(p, client) < p->lane_count;
}

size_t hf_picture_count_notes(const struct hf_picture *p)
{
    size_t count = 0;

    for (size_t i = 0; i < p->h->note_count; i++)
        count += hf_picture_shows(p, p->h->notes[i].time, p->h->notes[i].time);
    return count < HF_TIMELINE_NOTES_MAX ? count : HF_TIMELINE_NOTES_MAX;
}

/* The smallest distance at which badges do not overlap. */
#define BADGE 20.0

void hf_picture_notes(const struct hf_picture *p)
{
    double last = PICTURE_LEFT - BADGE, bottom = hf_picture_bottom(p);
    size_t shown = 0;

    for (size_t i = 0; i < p->h->note_count; i++) {
        const struct hf_op_note *note = &p->h->notes[i];
        char number[24];

        if (!hf_picture_shows(p, note->time, note->time) ||
            shown == HF_TIMELINE_NOTES_MAX)
            continue;
        double x = hf_picture_x(p, note->time);
        double badge = x < last + BADGE ? last + BADGE : x;

        snprintf(number, sizeof number, "%zu", ++shown);
        hf_picture_draw(
            p,
            "<path d=\"M%.1f %.1f V%.1f L%.1f %.1f\" stroke=\"" PICTURE_INK
            "\" "
            "stroke-dasharray=\"4 3\" fill=\"none\"/>\n"
            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"9\" fill=\"" PICTURE_INK
            "\"/>\n",
            x, bottom, p->top - 6, badge, p->top - 16, badge, p->top - 20);
        hf_picture_text(p, badge, p->top - 16, PICTURE_MIDDLE,
                        "fill=\"#ffffff\" font-size=\"11\"", number);
        last = badge;
    }
}

void hf_picture_list_notes(const struct hf_picture *p, double y)
{
    static const char style[] = "fill=\"" PICTURE_INK "\"";
    char quoted[6 * HF_OP_TEXT_MAX + 3], text[128];
    size_t shown = 0;

    for (size_t i = 0; i < p->h->note_count; i++) {
        const struct hf_op_note *note = &p->h->notes[i];

        if (!hf_picture_shows(p, note->time, note->time) ||
            shown == HF_TIMELINE_NOTES_MAX)
            continue;
        y += 19;
        snprintf(text, sizeof text, "%zu", ++shown);
        hf_picture_text(p, PICTURE_LEFT + 18, y, PICTURE_END,
                        "fill=\"" PICTURE_INK "\" font-weight=\"bold\"", text);
        hf_picture_print_ms(text, sizeof text, p->origin, note->time, 3);
        hf_picture_text(p, PICTURE_LEFT + 110, y, PICTURE_END, style, text);
        hf_encoder_quote(p->h, note->text, quoted);
        snprintf(text, sizeof text, "%.120s", quoted);
        hf_picture_text(p, PICTURE_LEFT + 128, y, PICTURE_START, style, text);
    }
}

/* ---- Axis, lanes and text -----------------------------------------------*/

/* Return 1, 2 or 5 times a power of ten, so that there are six to fifteen
 * ticks. */
static uint64_t tick_step(const struct hf_picture *p)
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

void hf_picture_axis(const struct hf_picture *p)
{
    uint64_t step = tick_step(p);
    uint64_t base = p->origin % step;
    uint64_t tick = base;
    double bottom = hf_picture_bottom(p);

    if (p->from > base)
        tick += (p->from - base + step - 1) / step * step;
    for (; tick <= p->until; tick += step) {
        double x = hf_picture_x(p, tick);
        char text[40];

        hf_picture_print_ms(text, sizeof text, p->origin, tick,
                            tick_decimals(step));
        hf_picture_draw(p,
                        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                        "stroke=\"" PICTURE_GRID "\"/>\n",
                        x, p->top, x, bottom + 5);
        hf_picture_text(p, x, bottom + 20, PICTURE_MIDDLE,
                        "fill=\"" PICTURE_FAINT "\" font-size=\"12\"", text);
    }
    hf_picture_text(p, PICTURE_RIGHT, bottom + 38, PICTURE_END,
                    "fill=\"" PICTURE_FAINT "\" font-size=\"12\"",
                    "milliseconds since the history began");
}

void hf_picture_lanes(const struct hf_picture *p)
{
    for (size_t i = 0; i < p->lane_count; i++) {
        double top = p->top + (double)i * PICTURE_LANE;
        char text[32];

        if (i % 2 == 0)
            hf_picture_draw(
                p,
                "<rect x=\"0\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                "fill=\"#f5f7fa\"/>\n",
                top, PICTURE_WIDTH, PICTURE_LANE);
        snprintf(text, sizeof text, "client %" PRIu32, p->lanes[i]);
        hf_picture_text(p, PICTURE_LEFT - 14, hf_picture_lane_y(p, i) + 5,
                        PICTURE_END, "fill=\"" PICTURE_INK "\"", text);
    }
}

struct legend {
    const char *text;
    const char *style;
    double height;
};

void hf_picture_legend(const struct hf_picture *p, double y)
{
    static const struct legend legend[] = {
        {"lock waits", "fill=\"" PICTURE_PENDING "\"", PICTURE_THIN},
        {"valid", "fill=\"" PICTURE_VALID "\"", PICTURE_BAR},
        {"violation", "fill=\"" PICTURE_ALARM "\"", PICTURE_BAR},
        {"unlock", "fill=\"" PICTURE_UNLOCK "\"", PICTURE_THIN},
        {"renew", "fill=\"" PICTURE_RENEW "\"", PICTURE_THIN},
        {"other call", "fill=\"" PICTURE_OTHER "\"", PICTURE_THIN},
        {"unknown result",
         "fill=\"" PICTURE_PENDING
         "\" fill-opacity=\"0.35\" stroke=\"" PICTURE_FAINT
         "\" stroke-dasharray=\"3 2\"",
         PICTURE_THIN},
    };
    double x = PICTURE_LEFT;

    for (size_t i = 0; i < sizeof legend / sizeof *legend; i++) {
        hf_picture_draw(
            p,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"26\" height=\"%.1f\" "
            "rx=\"2\" %s/>\n",
            x, y - legend[i].height / 2, legend[i].height, legend[i].style);
        hf_picture_text(p, x + 33, y + 5, PICTURE_START,
                        "fill=\"" PICTURE_INK "\"", legend[i].text);
        x += 33 + hf_picture_text_width(legend[i].text) * 0.85 + 24;
    }
    hf_picture_draw(p,
                    "<path d=\"M%.1f %.1f m-6 -6 l12 12 m0 -12 l-12 12\" "
                    "stroke=\"" PICTURE_INK
                    "\" stroke-width=\"3\" fill=\"none\"/>\n",
                    x + 8, y);
    hf_picture_text(p, x + 22, y + 5, PICTURE_START, "fill=\"" PICTURE_INK "\"",
                    "dies");
    x += 22 + hf_picture_text_width("dies") * 0.85 + 24;
    hf_picture_draw(
        p,
        "<path d=\"M%.1f %.1f m0 -8 l8 8 l-8 8 l-8 -8 z\" fill=\"#ffffff\" "
        "stroke=\"" PICTURE_INK "\" stroke-width=\"2\"/>\n",
        x + 8, y);
    hf_picture_text(p, x + 22, y + 5, PICTURE_START, "fill=\"" PICTURE_INK "\"",
                    "lost");
}

void hf_picture_title(const struct hf_picture *p, const char *title,
                      uint32_t key, const char *what)
{
    char quoted[6 * HF_OP_TEXT_MAX + 3], line[200];

    hf_encoder_quote(p->h, key, quoted);
    snprintf(line, sizeof line, "%s %.100s%s", what, quoted,
             strlen(quoted) > 100 ? "..." : "");
    hf_picture_text(p, 24, PICTURE_TITLE_TOP, PICTURE_START,
                    "fill=\"" PICTURE_INK
                    "\" font-size=\"19\" font-weight=\"bold\"",
                    title);
    hf_picture_text(p, 24, PICTURE_TITLE_TOP + 24, PICTURE_START,
                    "fill=\"" PICTURE_FAINT "\" font-size=\"14\"", line);
}
