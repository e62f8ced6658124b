/* picture.h - the SVG canvas of timeline.c: sizes, colours, the coordinates of
 * instants and clients, and everything around the lanes. */
#ifndef HF_CHECK_TOOL_PICTURE_H
#define HF_CHECK_TOOL_PICTURE_H

#include "check.h"
#include "timeline.h"

/* All in pixels. */
#define PICTURE_WIDTH 1200.0
#define PICTURE_LEFT 128.0 /* left edge of the plot, right of lane names */
#define PICTURE_RIGHT 1172.0
#define PICTURE_TITLE_TOP 34.0
#define PICTURE_LANES_TOP 84.0 /* top of the first lane without marks */
#define PICTURE_MARKS 44.0     /* height of the marks above the first lane */
#define PICTURE_LANE 64.0
#define PICTURE_BAR 22.0
#define PICTURE_THIN 8.0
#define PICTURE_FONT 13.0

/* Bars of one height can be told apart by the colour-blind and in greyscale. */
#define PICTURE_INK "#1f2933"
#define PICTURE_FAINT "#7b8794"
#define PICTURE_GRID "#e4e7eb"
#define PICTURE_PENDING "#b8c4d0"
#define PICTURE_VALID "#3a7ca5"
#define PICTURE_UNLOCK "#e0a030"
#define PICTURE_RENEW "#1b4965"
#define PICTURE_ALARM "#c81d25"
#define PICTURE_OTHER "#8b6bb1"

struct hf_picture {
    const struct hf_check_history *h; /* the operations of this key only */
    struct hf_check_valid *valid;
    size_t valid_count;
    FILE *out;
    uint64_t origin;      /* instant from which printed times count */
    uint64_t from, until; /* the window */
    size_t first, second; /* highlighted operations, or HF_CHECK_NO_OP */
    bool spans_stand_out; /* highlight their validity, not their calls */
    double top;           /* y of the first lane */
    uint32_t lanes[HF_TIMELINE_LANES_MAX]; /* clients */
    size_t lane_count;
    bool lanes_left_out;
};

enum hf_picture_anchor {
    PICTURE_START,
    PICTURE_MIDDLE,
    PICTURE_END
};

/* Write a piece of SVG. */
__attribute__((format(printf, 2, 3))) void hf_picture_draw(
    const struct hf_picture *p, const char *format, ...);

/* Write escaped text with the attributes in `style`. */
void hf_picture_text(const struct hf_picture *p, double x, double y,
                     enum hf_picture_anchor anchor, const char *style,
                     const char *text);

/* Return an upper estimate of the width of `text` in size PICTURE_FONT. */
double hf_picture_text_width(const char *text);

/* Return the x of an instant, which may be outside of the plot. The second
 * function clamps an x to the plot. */
double hf_picture_x(const struct hf_picture *p, uint64_t time);
double hf_picture_clamp(double x);

/* Returns true if any part of this span is inside the window. */
bool hf_picture_shows(const struct hf_picture *p, uint64_t from,
                      uint64_t until);

/* Return the lane of a client, or lane_count if it has none. */
size_t hf_picture_lane(const struct hf_picture *p, uint32_t client);
bool hf_picture_has_lane(const struct hf_picture *p, uint32_t client);

/* Return the y of a lane, of its validity bars, and of the calls below them: a
 * renewal must not hide the token that it renews. */
double hf_picture_lane_y(const struct hf_picture *p, size_t lane);
double hf_picture_valid_y(const struct hf_picture *p, size_t lane);
double hf_picture_call_y(const struct hf_picture *p, size_t lane);
/* Return the y of the bottom of the last lane. */
double hf_picture_bottom(const struct hf_picture *p);

/* Print the milliseconds from `origin` to `time`, truncated to `decimals`. */
void hf_picture_print_ms(char *text, size_t size, uint64_t origin,
                         uint64_t time, int decimals);

/* Draw everything around the lanes. Notes are numbered above the lanes and
 * listed below them. */
void hf_picture_title(const struct hf_picture *p, const char *title,
                      uint32_t key, const char *what);
void hf_picture_lanes(const struct hf_picture *p);
void hf_picture_axis(const struct hf_picture *p);
size_t hf_picture_count_notes(const struct hf_picture *p);
void hf_picture_notes(const struct hf_picture *p);
void hf_picture_list_notes(const struct hf_picture *p, double y);
void hf_picture_legend(const struct hf_picture *p, double y);

#endif
