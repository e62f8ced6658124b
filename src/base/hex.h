/* hex.h - bytes as hexadecimal digits. */
#ifndef HF_BASE_HEX_H
#define HF_BASE_HEX_H

#include <stdbool.h>
#include <stddef.h>

/* The value of the hexadecimal digit `c`, in upper or lower case; -1 if `c` is
 * not a digit. */
int hf_hex_digit(char c);

/* Write the `size` bytes at `bytes` to `text`, as 2 * size lower-case digits
 * and a NUL. */
void hf_hex_encode(char *text, const void *bytes, size_t size);

/* Decode the first 2 * size characters of `text` into `size` bytes. Returns
 * false if one of them is not a digit, or if `text` is shorter; `bytes` may be
 * partly written then. The caller checks what follows the digits. */
bool hf_hex_decode(void *bytes, size_t size, const char *text);

#endif
