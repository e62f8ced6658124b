#include "json.h"

#include <string.h>

#include "text.h"

static void put_name(struct json *json, const char *name)
{
    (void)fprintf(json->out, "%s\"%s\":", json->begun ? "," : "", name);
    json->begun = true;
}

void json_open(struct json *json, FILE *out)
{
    *json = (struct json){.out = out};
    (void)fputc('{', out);
}

void json_close(struct json *json)
{
    (void)fputs("}\n", json->out);
}

void json_begin(struct json *json, const char *name)
{
    put_name(json, name);
    (void)fputc('{', json->out);
    json->begun = false;
}

void json_end(struct json *json)
{
    (void)fputc('}', json->out);
    json->begun = true;
}

/* Write one character, escaped if necessary, or a replacement for one byte that
 * is not valid UTF-8. Returns the length of the character, or 0 for an invalid
 * byte. */
static size_t put_character(FILE *out, const unsigned char *data, size_t size)
{
    uint32_t c;
    size_t length = text_utf8(data, size, &c);

    if (length == 0)
        (void)fprintf(out, "\\udc%02x", *data);
    else if (length > 1)
        (void)fwrite(data, 1, length, out);
    else if (c == '"' || c == '\\')
        (void)fprintf(out, "\\%c", (int)c);
    else if (c < ' ' || c == 0x7f)
        (void)fprintf(out, "\\u%04x", (unsigned)c);
    else
        (void)fputc((int)c, out);
    return length;
}

static void put_hex(struct json *json, const char *name,
                    const unsigned char *data, size_t size)
{
    (void)fprintf(json->out, ",\"%s_hex\":\"", name);
    for (size_t i = 0; i < size; i++) {
        char digits[3];

        text_hex(&data[i], 1, digits);
        (void)fputs(digits, json->out);
    }
    (void)fputc('"', json->out);
}

/* Write a quoted string. Returns false if a part of it is not valid UTF-8. */
static bool put_string(FILE *out, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    bool text = true;

    (void)fputc('"', out);
    for (size_t i = 0; i < size;) {
        size_t length = put_character(out, bytes + i, size - i);

        text = text && length > 0;
        i += length ? length : 1;
    }
    (void)fputc('"', out);
    return text;
}

void json_bytes(struct json *json, const char *name, const void *data,
                size_t size)
{
    put_name(json, name);
    if (!put_string(json->out, data, size))
        put_hex(json, name, data, size);
}

void json_begin_array(struct json *json, const char *name)
{
    put_name(json, name);
    (void)fputc('[', json->out);
    json->begun = false;
}

void json_element(struct json *json, const char *text)
{
    if (json->begun)
        (void)fputc(',', json->out);
    json->begun = true;
    (void)put_string(json->out, text, strlen(text));
}

void json_begin_element(struct json *json)
{
    (void)fputs(json->begun ? ",{" : "{", json->out);
    json->begun = false;
}

void json_end_array(struct json *json)
{
    (void)fputc(']', json->out);
    json->begun = true;
}

void json_text(struct json *json, const char *name, const char *text)
{
    json_bytes(json, name, text, strlen(text));
}

void json_number(struct json *json, const char *name, uint64_t number)
{
    put_name(json, name);
    (void)fprintf(json->out, "%llu", (unsigned long long)number);
}

void json_integer(struct json *json, const char *name, uint64_t number)
{
    put_name(json, name);
    (void)fprintf(json->out, "\"%llu\"", (unsigned long long)number);
}

void json_signed(struct json *json, const char *name, int number)
{
    put_name(json, name);
    (void)fprintf(json->out, "%d", number);
}

void json_bool(struct json *json, const char *name, bool value)
{
    put_name(json, name);
    (void)fputs(value ? "true" : "false", json->out);
}
