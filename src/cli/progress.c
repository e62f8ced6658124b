#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "failure.h"
#include "text.h"

#define WIDTH_OTHERWISE 80

void progress_init(struct progress *progress, bool wanted)
{
    *progress = (struct progress){.wanted = wanted && isatty(STDERR_FILENO)};
}

/* Returns true if we are in the foreground of the terminal. From the
 * background, the status line would mix with what the user types. */
static bool is_in_foreground(void)
{
    return tcgetpgrp(STDERR_FILENO) == getpgrp();
}

static size_t terminal_width(void)
{
    struct winsize size;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || size.ws_col == 0)
        return WIDTH_OTHERWISE;
    return size.ws_col;
}

/* The size of the part of `text` that fits into `columns`. */
static int size_in_width(const char *text, size_t columns)
{
    const char *c = text;

    for (; *c; c++) {
        if (((unsigned char)*c & 0xc0) == 0x80)
            continue;
        if (columns-- == 0)
            break;
    }
    return (int)(c - text);
}

/* Format the status line. The caller frees the text. */
static char *describe_wait(const struct hf_info *info, uint32_t position)
{
    bool noted = info->note && *info->note;
    char *key = text_quote(info->key.data, info->key.size);
    char *owner = text_label(info->owner ? info->owner : "");
    char *note = text_label(noted ? info->note : "");
    char span[TEXT_SPAN_SIZE], queued[40] = "";
    char *text;

    text_span(info->held_ms, span);
    if (position > 0)
        (void)snprintf(queued, sizeof(queued), ", position %u", position);
    if (asprintf(&text, "holdfast: waiting for %s%s, held by %s for %s%s%s%s",
                 key, queued, *owner ? owner : "another", span,
                 noted ? " (" : "", note, noted ? ")" : "") < 0)
        failure_no_memory();
    free(note);
    free(owner);
    free(key);
    return text;
}

/* Leave the last column empty: a line that wraps cannot be overwritten. */
void progress_show_text(struct progress *progress, const char *text)
{
    if (!progress->wanted || !is_in_foreground())
        return;
    (void)fprintf(stderr, "\r%.*s\033[K",
                  size_in_width(text, terminal_width() - 1), text);
    (void)fflush(stderr);
    progress->shown = true;
}

void progress_show(struct progress *progress, const struct hf_info *info,
                   uint32_t position)
{
    char *text;

    if (!progress->wanted || !info->held)
        return;
    text = describe_wait(info, position);
    progress_show_text(progress, text);
    free(text);
}

void progress_clear(struct progress *progress)
{
    if (!progress->shown)
        return;
    (void)fputs("\r\033[K", stderr);
    (void)fflush(stderr);
    progress->shown = false;
}
