/* planted.h - histories that a test plants, and their checks.
 *
 * Histories are planted as lines of words. All lines are about key "k" and
 * cell "c", and instants are small numbers:
 *
 *     1 lock a1 0 10 ok token 5 until 100
 *
 * Client 1 called lock at 0 and received ok at 10, with nonce a1, token 5 and
 * deadline 100. In place of "ok" there may be "unknown", an error such as
 * HF_EBUSY, or "open" for a call that did not return (its second instant means
 * nothing). The nonce "-" means none. Further words are lease, queued, value
 * and unfenced 1. Other lines are:
 *
 *     1 dies 40
 *     1 lost 5 40          notified at 40 that token 5 is lost
 *     fifo                 arrival order is promised
 *     no-fence             rising tokens are not promised */
#ifndef HF_CHECK_TOOL_TESTS_PLANTED_H
#define HF_CHECK_TOOL_TESTS_PLANTED_H

#include "hf-check/check.h"

/* Check a planted history. */
void check_planted(const char *text, struct hf_check_report *report);

/* Check that the history has a violation of this kind, perhaps among others. */
void assert_finds(enum hf_check_kind kind, const char *text);

/* Check that the history has a violation of this kind and no other. */
void assert_finds_only(enum hf_check_kind kind, const char *text);

/* Check that the history has no violation. */
void assert_good(const char *text);

#endif
