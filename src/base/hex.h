/* hex.h - bytes as hexadecimal digits. */
#ifndef HF_BASE_HEX_H
#define HF_BASE_HEX_H

#include <stdbool.h>
#include <stddef.h>

/* The value of a digit of either case, or -1. */
int hf_hex_digit(char c);

/* Write 2 * size lower-case digits and a NUL. */
void hf_hex_encode(char *text, const void *bytes, size_t size);

/* Decode 2 * size digits of `text`, which may be shorter if it ends with a NUL.
 * The caller checks what follows the digits. Returns false if a character is
 * not a digit; `bytes` may be partly written then. */
bool hf_hex_decode(void *bytes, size_t size, const char *text);

#endif
