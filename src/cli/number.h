/* number.h - parse numbers and durations strictly.
 *
 * Blanks, signs, exponents, trailing characters and numbers that are too large
 * are refused. */
#ifndef CLI_NUMBER_H
#define CLI_NUMBER_H

#include <stdint.h>

/* Parse a decimal number of at most `max`. Returns NULL on success. On failure,
 * returns the end of an error message, such as "is too large", which the caller
 * puts after the text. */
const char *number_parse(const char *text, uint64_t max, uint64_t *number);

/* Parse "250ms", "15s", "2m", "1h" or a number of seconds, each with an
 * optional fraction, to milliseconds. A fraction of a millisecond is refused.
 * Returns the same as number_parse(). */
const char *number_parse_duration(const char *text, uint64_t max_ms,
                                  uint64_t *ms);

#endif
