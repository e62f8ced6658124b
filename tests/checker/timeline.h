/* timeline.h - a picture of what happened to one key, as SVG.
 *
 * A lane for each client, time from left to right: calls that wait for their
 * answer, spans of validity with their tokens, unlocks, renewals, deaths, and
 * what the nemesis did. Of a violation, the two operations that show it stand
 * out, and the window is cut around them. */
#ifndef CHECKER_TIMELINE_H
#define CHECKER_TIMELINE_H

#include "check.h"

#include <stdio.h>

#define TIMELINE_LANES_MAX 20
#define TIMELINE_NOTES_MAX 12

/* Draw the violation `v` of `h`. 0, or -1 with errno. */
int timeline_violation(const struct history *h, const struct check_violation *v,
                       FILE *out);

/* Draw all that happened to `key`, a word of `h`. 0, or -1 with errno. */
int timeline_key(const struct history *h, uint32_t key, FILE *out);

#endif
