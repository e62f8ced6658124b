/* report.h - what the checker found, for people and for programs. */
#ifndef CHECKER_REPORT_H
#define CHECKER_REPORT_H

#include "check.h"

#include <stdio.h>

/* Instants are shown relative to this one, the first of the history. */
uint64_t report_origin(const struct history *h);

/* A few words on the whole, then each violation: the promise, the key, the two
 * operations that show it and what happened around them. */
void report_text(const struct history *h, const struct check_report *report,
                 const char *name, FILE *out);

/* One JSON object on one line:
 *   history     the name
 *   operations, keys, grants, busy, unknown, writes, bumps, lost_bumps
 *   linearizable
 *   violations  how many
 *   found       the first of them: kind, text, key (or cell), first and second,
 *               each null or an object with client, op, token, nonce, from,
 *               until (ns; null if it has no end) */
void report_json(const struct history *h, const struct check_report *report,
                 const char *name, FILE *out);

#endif
