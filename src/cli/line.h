/* line.h - one line on a terminal that shows what is waited for.
 *
 * It is overwritten in place, and removed at the end. */
#ifndef CLI_LINE_H
#define CLI_LINE_H

#include <holdfast.h>

struct line {
    bool wanted; /* stderr is a terminal */
    bool shown;
};

void line_init(struct line *line, bool wanted);

/* Show "holdfast: waiting for nightly, position 2, held by report[12]@web for
 * 2m 3s (its note)". `info` is what was last read; `place` is
 * 0 if it is not known. In the background of the terminal, nothing is shown. */
void line_show(struct line *line, const struct hf_info *info, uint32_t place);

/* Remove it. */
void line_clear(struct line *line);

#endif
