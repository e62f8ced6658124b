/* text.h - format bytes and durations for people.
 *
 * The caller frees the returned strings. They are never NULL: if memory is
 * exhausted, the program exits. */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* A copy of `text`. */
char *text_copy(const char *text);

/* Quote the bytes as one word that can be pasted into a shell: a plain word
 * such as nightly stays as it is, any other becomes $'my\x20key\n\xff'. The
 * result contains no blank. */
char *text_quote(const void *data, size_t size);

/* Escape an owner or a note, which is shown but not pasted: blanks and quotes
 * stay, and characters that cannot be shown are escaped with a backslash. */
char *text_label(const char *text);

/* Write a duration as "250ms", "7.5s", "42s", "2m 3s", "4h 5m" or "6d 7h". */
#define TEXT_SPAN_SIZE 32
void text_span(uint64_t ms, char text[TEXT_SPAN_SIZE]);

/* Write lower-case hexadecimal digits and a NUL. `text` must have room for 2 *
 * size + 1 bytes. */
void text_hex(const void *data, size_t size, char *text);

/* Decode the UTF-8 character at `data` to `*character`. Returns its length in
 * bytes, or 0 if it is not valid. */
size_t text_utf8(const unsigned char *data, size_t size, uint32_t *character);

/* The number of characters in `text`: about the columns it takes on a
 * terminal. */
size_t text_width(const char *text);

#endif
