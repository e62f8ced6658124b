/* text.h - bytes and spans of time as people read them.
 *
 * What is returned is the caller's to free. There is always something to
 * return: out of memory, the program ends. */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* A copy of `text`. */
char *text_copy(const char *text);

/* One word that stands for exactly these bytes and can be pasted into a shell:
 * nightly as it is, others as $'my\x20key\n\xff'. It has no blank in it. */
char *text_quote(const void *data, size_t size);

/* The same for labels and notes, which are shown and not pasted: blanks and
 * marks stay, what cannot be shown is escaped with a backslash. */
char *text_label(const char *text);

/* "250ms", "7.5s", "42s", "2m 3s", "4h 5m", "6d 7h". */
#define TEXT_SPAN_SIZE 32
void text_span(uint64_t ms, char text[TEXT_SPAN_SIZE]);

/* Lower-case digits, and a NUL: `text` has 2 * size + 1 bytes. */
void text_hex(const void *data, size_t size, char *text);

/* How many bytes at `data` are one character of valid UTF-8, which is written
 * to `*character`; 0 if they are none. */
size_t text_utf8(const unsigned char *data, size_t size, uint32_t *character);

/* The columns that `text` takes on a terminal, near enough. */
size_t text_width(const char *text);

#endif
