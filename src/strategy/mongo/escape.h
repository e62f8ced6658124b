/* escape.h - bytes as text that a document can hold.
 *
 * What is not a printable character of ASCII, and '%', '$' and the space, is
 * written as %XX. So keys stay readable, what begins with a prefix still does,
 * and no text is taken for a path ("$token") or for two words. */
#ifndef HF_STRATEGY_MONGO_ESCAPE_H
#define HF_STRATEGY_MONGO_ESCAPE_H

#include "base/buf.h"

/* The size of `size` bytes as text, at most, with its NUL. */
#define HF_MONGO_ESCAPED_SIZE(size) (3 * (size) + 1)

/* Write the text, with a NUL, into HF_MONGO_ESCAPED_SIZE(size) bytes; the size is
 * without the NUL. */
size_t hf_mongo_escape(char *text, const void *bytes, size_t size);

/* The bytes of `size` characters, into as many, and how many bytes these are.
 * What is no such text stands for itself. */
size_t hf_mongo_unescape(uint8_t *bytes, const char *text, size_t size);

#endif
