#include "text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"

char *text_copy(const char *text)
{
    char *copy = strdup(text);

    if (!copy)
        failure_no_memory();
    return copy;
}

/* ---- Characters ---------------------------------------------------------*/

size_t text_utf8(const unsigned char *data, size_t size, uint32_t *character)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = data[0] < 0x80   ? 1
                    : data[0] < 0xc2 ? 0
                    : data[0] < 0xe0 ? 2
                    : data[0] < 0xf0 ? 3
                    : data[0] < 0xf5 ? 4
                                     : 0;
    uint32_t sum = length == 1 ? data[0] : data[0] & (0x7fu >> length);

    if (length == 0 || length > size)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((data[i] & 0xc0) != 0x80)
            return 0;
        sum = sum << 6 | (data[i] & 0x3fu);
    }
    if (sum < smallest[length] || sum > 0x10ffff ||
        (sum >= 0xd800 && sum <= 0xdfff))
        return 0;
    *character = sum;
    return length;
}

/* Returns true if a non-ASCII character is invisible, or changes how others are
 * displayed: controls, unusual blanks, direction marks, private use. */
static bool is_hidden(uint32_t c)
{
    static const struct {
        uint32_t first, last;
    } hidden[] = {
        {0x80, 0xa0},     {0xad, 0xad},        {0x61c, 0x61c},
        {0x1680, 0x1680}, {0x180e, 0x180e},    {0x2000, 0x200f},
        {0x2028, 0x202f}, {0x205f, 0x206f},    {0x3000, 0x3000},
        {0xe000, 0xf8ff}, {0xfe00, 0xfe0f},    {0xfeff, 0xfeff},
        {0xfff0, 0xffff}, {0xe0000, 0x10ffff},
    };

    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++) {
        if (c >= hidden[i].first && c <= hidden[i].last)
            return true;
    }
    return false;
}

size_t text_width(const char *text)
{
    size_t width = 0;

    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

/* ---- Quoting ------------------------------------------------------------*/

static FILE *open_text(char **text, size_t *size)
{
    FILE *out = open_memstream(text, size);

    if (!out)
        failure_no_memory();
    return out;
}

static void close_text(FILE *out)
{
    if (fclose(out))
        failure_no_memory();
}

/* The short escape sequence of an ASCII character, or NULL if it has none. In a
 * quoted word, blanks and quotes are escaped too. */
static const char *escape_of(uint32_t c, bool quoted)
{
    switch (c) {
    case '\n':
        return "\\n";
    case '\t':
        return "\\t";
    case '\r':
        return "\\r";
    case '\\':
        return "\\\\";
    case '\'':
        return quoted ? "\\'" : NULL;
    case ' ':
        return quoted ? "\\x20" : NULL;
    default:
        return NULL;
    }
}

static void put_escaped(FILE *out, const unsigned char *data, size_t size,
                        bool quoted)
{
    size_t length;

    for (size_t i = 0; i < size; i += length) {
        uint32_t c = 0;
        const char *escape;

        length = text_utf8(data + i, size - i, &c);
        escape = length == 1 ? escape_of(c, quoted) : NULL;
        if (escape)
            (void)fputs(escape, out);
        else if (length == 1 ? c >= ' ' && c < 0x7f
                             : length > 1 && !is_hidden(c))
            (void)fwrite(data + i, 1, length, out);
        else
            for (size_t j = 0; j < (length ? length : 1); j++)
                (void)fprintf(out, "\\x%02x", data[i + j]);
        length += length == 0;
    }
}

/* Returns true if a shell reads the bytes unchanged, as one word. */
static bool is_plain_word(const unsigned char *data, size_t size)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_-./:@%+,=";
    size_t i = 0;

    while (i < size && data[i] != '\0') {
        uint32_t c;
        size_t length = text_utf8(data + i, size - i, &c);

        if (length == 0 || (length == 1 && !strchr(plain, (int)c)) ||
            (length > 1 && is_hidden(c)))
            return false;
        i += length;
    }
    return size > 0 && i == size;
}

char *text_quote(const void *data, size_t size)
{
    bool plain = is_plain_word(data, size);
    char *text;
    size_t text_size;
    FILE *out = open_text(&text, &text_size);

    if (!plain)
        (void)fputs("$'", out);
    put_escaped(out, data, size, true);
    if (!plain)
        (void)fputc('\'', out);
    close_text(out);
    return text;
}

char *text_label(const char *text)
{
    char *label;
    size_t size;
    FILE *out = open_text(&label, &size);

    put_escaped(out, (const unsigned char *)text, strlen(text), false);
    close_text(out);
    return label;
}

/* ---- Numbers ------------------------------------------------------------*/

void text_span(uint64_t ms, char text[TEXT_SPAN_SIZE])
{
    static const struct {
        uint64_t seconds;
        const char *unit, *smaller_unit;
        uint64_t smaller;
    } spans[] = {
        {86400, "d", "h", 3600},
        {3600, "h", "m", 60},
        {60, "m", "s", 1},
    };
    uint64_t seconds = ms / 1000;

    for (size_t i = 0; i < sizeof(spans) / sizeof(spans[0]); i++) {
        if (seconds < spans[i].seconds)
            continue;
        (void)snprintf(
            text, TEXT_SPAN_SIZE, "%llu%s %llu%s",
            (unsigned long long)(seconds / spans[i].seconds), spans[i].unit,
            (unsigned long long)(seconds % spans[i].seconds / spans[i].smaller),
            spans[i].smaller_unit);
        return;
    }
    if (ms < 1000)
        (void)snprintf(text, TEXT_SPAN_SIZE, "%llums", (unsigned long long)ms);
    else if (ms < 10000)
        (void)snprintf(text, TEXT_SPAN_SIZE, "%llu.%llus",
                       (unsigned long long)seconds,
                       (unsigned long long)(ms % 1000 / 100));
    else
        (void)snprintf(text, TEXT_SPAN_SIZE, "%llus",
                       (unsigned long long)seconds);
}

void text_hex(const void *data, size_t size, char *text)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *bytes = data;

    for (size_t i = 0; i < size; i++) {
        *text++ = digits[bytes[i] >> 4];
        *text++ = digits[bytes[i] & 15];
    }
    *text = '\0';
}
