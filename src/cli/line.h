/* line.h - one line on a terminal that says what is waited for.
 *
 * It is written in place again and again, and leaves nothing behind. */
#ifndef CLI_LINE_H
#define CLI_LINE_H

#include <holdfast.h>

struct line {
    bool wanted; /* stderr is a terminal */
    bool shown;
};

void line_init(struct line *line, bool wanted);

/* "holdfast: waiting for nightly, place 2 in line, held by report[12]@web for
 * 2m 3s (its note)"; `info` is what was last read, `place` is 0 where it is not
 * known. Nothing happens in the background of the terminal. */
void line_show(struct line *line, const struct hf_info *info, uint32_t place);

/* Take it away. */
void line_clear(struct line *line);

#endif
