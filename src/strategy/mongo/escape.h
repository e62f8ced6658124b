/* escape.h - arbitrary bytes as ASCII text, for strings in documents.
 *
 * Printable ASCII characters stand for themselves, except '%', '$' and the
 * space. All other bytes are written as %XX. So keys stay readable, and if a
 * key begins with a prefix, the escaped key begins with the escaped prefix.
 * MongoDB does not mistake an escaped text for a field path ("$token"), and the
 * text is always one word of an event line. */
#ifndef HF_STRATEGY_MONGO_ESCAPE_H
#define HF_STRATEGY_MONGO_ESCAPE_H

#include "base/buf.h"

/* The most characters that `size` bytes need, with a NUL. */
#define HF_MONGO_ESCAPED_SIZE(size) (3 * (size) + 1)

/* Escape `size` bytes into `text`, which has room for
 * HF_MONGO_ESCAPED_SIZE(size) characters. Return the length without the NUL. */
size_t hf_mongo_escape(char *text, const void *bytes, size_t size);

/* Escape `size` bytes into new memory, which the caller frees. Returns NULL if
 * out of memory. */
char *hf_mongo_escape_new(const void *bytes, size_t size);

/* Decode `size` characters into `bytes`, which has room for as many. Return the
 * number of bytes. A "%" that begins no valid escape stands for itself. */
size_t hf_mongo_unescape(uint8_t *bytes, const char *text, size_t size);

#endif
