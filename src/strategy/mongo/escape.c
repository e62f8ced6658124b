#include "strategy/mongo/escape.h"

#include <stdlib.h>

#include "base/hex.h"

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
        hf_hex_encode(to, &from[i], 1);
        to += 2;
    }
    *to = '\0';
    return (size_t)(to - text);
}

char *hf_mongo_escape_new(const void *bytes, size_t size)
{
    char *text = malloc(HF_MONGO_ESCAPED_SIZE(size));

    if (text)
        (void)hf_mongo_escape(text, bytes, size);
    return text;
}

size_t hf_mongo_unescape(uint8_t *bytes, const char *text, size_t size)
{
    uint8_t *to = bytes;

    for (size_t i = 0; i < size; i++) {
        uint8_t byte = (uint8_t)text[i];

        if (byte == '%' && size - i > 2 &&
            hf_hex_decode(&byte, 1, &text[i + 1]))
            i += 2;
        *to++ = byte;
    }
    return (size_t)(to - bytes);
}
