/* progress.h - a status line on the terminal while a command takes long.
 *
 * The line is overwritten in place, and removed at the end. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <holdfast.h>

struct progress {
    bool wanted; /* the caller wants the line, and stderr is a terminal */
    bool shown;  /* the line is on the screen */
};

void progress_init(struct progress *progress, bool wanted);

/* Show "holdfast: waiting for nightly, position 2, held by report[12]@web for
 * 2m 3s (its note)". `info` is the last known state of the key; `position` is 0
 * if it is not known. Nothing is shown if the key is free, or in the background
 * of the terminal. */
void progress_show(struct progress *progress, const struct hf_info *info,
                   uint32_t position);

/* Show `text`. Nothing is shown in the background of the terminal. */
void progress_show_text(struct progress *progress, const char *text);

/* Remove the line. */
void progress_clear(struct progress *progress);

#endif
