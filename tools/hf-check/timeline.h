/* timeline.h - draw the history of one key as SVG.
 *
 * Each client has a lane; time runs from left to right. The lanes show pending
 * calls, spans of validity with their tokens, unlocks, renewals, deaths, lost
 * locks and notes of the nemesis. For a violation, the two operations that
 * prove it are highlighted, and the window is cropped around them. */
#ifndef HF_CHECK_TOOL_TIMELINE_H
#define HF_CHECK_TOOL_TIMELINE_H

#include "check.h"

#include <stdio.h>

#define HF_TIMELINE_LANES_MAX 20
#define HF_TIMELINE_NOTES_MAX 12

/* Draw the violation `v` of `h`. Returns 0, or -1 with errno. */
int hf_timeline_draw_violation(const struct hf_check_history *h,
                               const struct hf_check_violation *v, FILE *out);

/* Draw all operations on `key`, an interned string of `h`. Returns 0, or -1
 * with errno. */
int hf_timeline_draw_key(const struct hf_check_history *h, uint32_t key,
                         FILE *out);

#endif
