#include "base/hex.h"

#include <stdint.h>

int hf_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

void hf_hex_encode(char *text, const void *bytes, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *from = bytes;

    for (size_t i = 0; i < size; i++) {
        *text++ = digits[from[i] >> 4];
        *text++ = digits[from[i] & 15];
    }
    *text = '\0';
}

bool hf_hex_decode(void *bytes, size_t size, const char *text)
{
    uint8_t *to = bytes;

    for (size_t i = 0; i < size; i++) {
        int high = hf_hex_digit(text[2 * i]);
        int low = high < 0 ? -1 : hf_hex_digit(text[2 * i + 1]);

        if (low < 0)
            return false;
        to[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}
