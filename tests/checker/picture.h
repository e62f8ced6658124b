/* picture.h - the sheet on which timeline.c draws: sizes, colours, where an
 * instant and a client have their place, and all that surrounds the lanes. */
#ifndef CHECKER_PICTURE_H
#define CHECKER_PICTURE_H

#include "check.h"
#include "timeline.h"

/* All in pixels. */
#define WIDTH 1200.0
#define LEFT 128.0 /* of the plot; lane names stand before it */
#define RIGHT 1172.0
#define TITLE_TOP 34.0
#define LANES_TOP 84.0 /* of the first lane, under the title... */
#define MARKS 44.0     /* ...and this lower if marks stand between */
#define LANE 64.0
#define BAR 22.0
#define THIN 8.0
#define FONT 13.0

/* Colours that stay apart for the colour-blind and in grey. */
#define INK "#1f2933"
#define FAINT "#7b8794"
#define GRID "#e4e7eb"
#define PENDING "#b8c4d0"
#define VALID "#3a7ca5"
#define UNLOCK "#e0a030"
#define RENEW "#1b4965"
#define ALARM "#c81d25"
#define OTHER "#8b6bb1"

struct picture {
    const struct history *h; /* the operations of this key alone */
    struct check_valid *valid;
    size_t valid_count;
    FILE *out;
    uint64_t origin;      /* of the printed times */
    uint64_t from, until; /* the window */
    size_t first, second; /* operations that stand out, or CHECK_NO_OP */
    bool spans_stand_out; /* their validity does, not the calls */
    double top;           /* of the first lane */
    uint32_t lanes[TIMELINE_LANES_MAX]; /* clients */
    size_t lane_count;
    bool lanes_left_out;
};

enum anchor {
    START,
    MIDDLE,
    END
};

/* Write a piece of SVG. */
__attribute__((format(printf, 2, 3))) void picture_draw(const struct picture *p,
                                                        const char *format,
                                                        ...);

/* Write text, with attributes in `style`. No byte of it can be markup. */
void picture_text(const struct picture *p, double x, double y,
                  enum anchor anchor, const char *style, const char *text);

/* Wider than the text will be, whatever font is found. */
double picture_text_width(const char *text);

/* Where an instant lies, perhaps outside of the plot; and `x` inside of it. */
double picture_x(const struct picture *p, uint64_t time);
double picture_clamp(double x);

/* Whether any of this span is inside of the window. */
bool picture_shows(const struct picture *p, uint64_t from, uint64_t until);

/* The lane of a client, or lane_count if it has none. */
size_t picture_lane(const struct picture *p, uint32_t client);
bool picture_has_lane(const struct picture *p, uint32_t client);

/* The middle of a lane, of the bars of validity in it, and of the calls below
 * them: a renewal must not hide the token that it renews. */
double picture_lane_y(const struct picture *p, size_t lane);
double picture_valid_y(const struct picture *p, size_t lane);
double picture_call_y(const struct picture *p, size_t lane);
double picture_bottom(const struct picture *p); /* of the last lane */

/* Milliseconds from `origin` to `time`, cut off after so many decimals. */
void picture_print_ms(char *text, size_t size, uint64_t origin, uint64_t time,
                      int decimals);

/* What surrounds the lanes; notes are numbered at the top, and told below. */
void picture_title(const struct picture *p, const char *title, uint32_t key,
                   const char *what);
void picture_lanes(const struct picture *p);
void picture_axis(const struct picture *p);
size_t picture_count_notes(const struct picture *p);
void picture_notes(const struct picture *p);
void picture_list_notes(const struct picture *p, double y);
void picture_legend(const struct picture *p, double y);

#endif
