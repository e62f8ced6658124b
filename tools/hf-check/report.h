/* report.h - print the findings of the checker as text or as JSON. */
#ifndef HF_CHECK_TOOL_REPORT_H
#define HF_CHECK_TOOL_REPORT_H

#include "check.h"

#include <stdio.h>

/* Return the first instant of the history; reports are relative to it. */
uint64_t hf_report_origin(const struct hf_check_history *h);

/* Print a summary, then each violation: the promise, the key, the two
 * operations that prove it and the events around them. */
void hf_report_text(const struct hf_check_history *h,
                    const struct hf_check_report *report, const char *name,
                    FILE *out);

/* Print one JSON object on one line:
 *   history     the name
 *   operations, keys, grants, busy, unknown, writes, bumps, lost_bumps
 *   linearizable
 *   violations  the number of violations
 *   found       the first ones: kind, text, key (or cell), first and second,
 *               each null or an object with client, op, token, nonce, from,
 *               until (ns; null if it has no end) */
void hf_report_json(const struct hf_check_history *h,
                    const struct hf_check_report *report, const char *name,
                    FILE *out);

#endif
