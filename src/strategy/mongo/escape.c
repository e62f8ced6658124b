#include "strategy/mongo/escape.h"

static const char digits[] = "0123456789abcdef";

static bool is_unescaped(uint8_t byte)
{
    return byte > ' ' && byte < 0x7f && byte != '%' && byte != '$';
}

size_t hf_mongo_escape(char *text, const void *bytes, size_t size)
{
    const uint8_t *from = bytes;
    char *to = text;

    for (size_t i = 0; i < size; i++) {
        if (is_unescaped(from[i])) {
            *to++ = (char)from[i];
            continue;
        }
        *to++ = '%';
        *to++ = digits[from[i] >> 4];
        *to++ = digits[from[i] & 15];
    }
    *to = '\0';
    return (size_t)(to - text);
}

static int hex_value(char c)
{
    const char *found = c ? strchr(digits, c) : NULL;

    return found ? (int)(found - digits) : -1;
}

size_t hf_mongo_unescape(uint8_t *bytes, const char *text, size_t size)
{
    uint8_t *to = bytes;

    for (size_t i = 0; i < size; i++) {
        int high = -1, low = -1;

        if (text[i] == '%' && size - i > 2) {
            high = hex_value(text[i + 1]);
            low = hex_value(text[i + 2]);
        }
        if (high < 0 || low < 0) {
            *to++ = (uint8_t)text[i];
            continue;
        }
        *to++ = (uint8_t)(high << 4 | low);
        i += 2;
    }
    return (size_t)(to - bytes);
}

void hf_mongo_escape_hex(char *text, const void *bytes, size_t size)
{
    const uint8_t *from = bytes;

    for (size_t i = 0; i < size; i++) {
        *text++ = digits[from[i] >> 4];
        *text++ = digits[from[i] & 15];
    }
    *text = '\0';
}

bool hf_mongo_unescape_hex(uint8_t *bytes, size_t size, const char *text)
{
    if (strlen(text) != 2 * size)
        return false;
    for (size_t i = 0; i < size; i++) {
        int high = hex_value(text[2 * i]), low = hex_value(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}
