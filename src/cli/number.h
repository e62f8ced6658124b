/* number.h - numbers and durations as people type them, read strictly.
 *
 * Digits and nothing else: no blanks, no signs, no exponent, nothing after
 * them. What does not fit is refused, never wrapped or cut. */
#ifndef CLI_NUMBER_H
#define CLI_NUMBER_H

#include <stdint.h>

/* Read a decimal number of at most `max`. NULL if that went well; else why
 * not, in words that follow the number: "is too large". */
const char *number_parse(const char *text, uint64_t max, uint64_t *number);

/* Read "250ms", "15s", "2m", "1h" or seconds, each with a fraction or without,
 * as milliseconds. As above; a fraction finer than that is refused too. */
const char *number_parse_duration(const char *text, uint64_t max_ms,
                                  uint64_t *ms);

#endif
