/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "fields.h"

#include <stdarg.h>
#include <string.h>

static const struct {
    const char *name;
    size_t len;
    enum hf_field_type type;
} known[HF_FIELDS] = {
    [HF_FIELD_TYPE] = {"type", 4, HF_FIELD_TYPE_TEXT},
    [HF_FIELD_CLIENT] = {"client", 6, HF_FIELD_TYPE_NUMBER},
    [HF_FIELD_OP] = {"op", 2, HF_FIELD_TYPE_NUMBER},
    [HF_FIELD_KIND] = {"kind", 4, HF_FIELD_TYPE_TEXT},
    [HF_FIELD_KEY] = {"key", 3, HF_FIELD_TYPE_TEXT},
    [HF_FIELD_NONCE] = {"nonce", 5, HF_FIELD_TYPE_TEXT},
    [HF_FIELD_TOKEN] = {"token", 5, HF_FIELD_TYPE_NUMBER},
    [HF_FIELD_CELL] = {"cell", 4, HF_FIELD_TYPE_TEXT},
    [HF_FIELD_VALUE] = {"value", 5, HF_FIELD_TYPE_NUMBER},
    [HF_FIELD_FENCED] = {"fenced", 6, HF_FIELD_TYPE_FLAG},
    [HF_FIELD_INVOKE] = {"invoke", 6, HF_FIELD_TYPE_NUMBER},
    [HF_FIELD_QUEUED] = {"queued", 6, HF_FIELD_TYPE_NUMBER},
    [HF_FIELD_RETURN] = {"return", 6, HF_FIELD_TYPE_NUMBER},
    [HF_FIELD_RESULT] = {"result", 6, HF_FIELD_TYPE_TEXT},
    [HF_FIELD_ERROR] = {"error", 5, HF_FIELD_TYPE_TEXT},
    [HF_FIELD_DEADLINE] = {"deadline", 8, HF_FIELD_TYPE_NUMBER},
    [HF_FIELD_LEASE] = {"lease", 5, HF_FIELD_TYPE_NUMBER},
    [HF_FIELD_TIME] = {"time", 4, HF_FIELD_TYPE_NUMBER},
    [HF_FIELD_TEXT] = {"text", 4, HF_FIELD_TYPE_TEXT},
    [HF_FIELD_VERSION] = {"version", 7, HF_FIELD_TYPE_NUMBER},
    [HF_FIELD_FIFO] = {"fifo", 4, HF_FIELD_TYPE_FLAG},
};

/* Names that are not in the list above. */
#define FOREIGN HF_FIELDS /* "x_...": ignored */
#define UNKNOWN (HF_FIELDS + 1)

int hf_fields_fail(struct hf_fields *f, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() above */
    vsnprintf(f->fault->text, sizeof f->fault->text, format, list);
    va_end(list);
    /* The text may quote the input, so remove what could control a terminal. */
    for (char *c = f->fault->text; *c; c++) {
        if (*c < 0x20 || *c > 0x7e)
            *c = '?';
    }
    f->fault->line = f->line;
    return -1;
}

static void skip_space(struct hf_fields *f)
{
    while (f->at < f->end &&
           (*f->at == ' ' || *f->at == '\t' || *f->at == '\r'))
        f->at++;
}

static bool skip_char(struct hf_fields *f, char wanted)
{
    skip_space(f);
    if (f->at == f->end || *f->at != wanted)
        return false;
    f->at++;
    return true;
}

int hf_fields_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Return the byte XX of \u00XX; `at` is after the u. */
static int read_hex(struct hf_fields *f)
{
    int code = 0;

    if (f->end - f->at < 4)
        return hf_fields_fail(f, "a \\u escape is cut off");
    for (int i = 0; i < 4; i++) {
        int digit = hf_fields_hex_digit(*f->at++);

        if (digit < 0)
            return hf_fields_fail(f, "a \\u escape that is not hexadecimal");
        code = code * 16 + digit;
    }
    if (code > 0xff)
        return hf_fields_fail(f,
                              "a character beyond U+00FF stands for no byte");
    return code;
}

static int read_escape(struct hf_fields *f)
{
    static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    const char *found;

    if (f->at == f->end)
        return hf_fields_fail(f, "a string is cut off");
    char c = *f->at++;

    if (c == 'u')
        return read_hex(f);
    found = c ? strchr(names, c) : NULL;
    if (!found)
        return hf_fields_fail(f, "an escape that JSON does not know");
    return (unsigned char)bytes[found - names];
}

/* Return one character of a string as a byte, or -1 and the fault. */
static int read_byte(struct hf_fields *f)
{
    unsigned char c = (unsigned char)*f->at++;

    if (c == '\\')
        return read_escape(f);
    if (c < 0x20)
        return hf_fields_fail(f, "a bare control character in a string");
    if (c < 0x80)
        return c;
    /* Two bytes, the UTF-8 form of U+0080 to U+00FF, stand for one byte. */
    if ((c == 0xc2 || c == 0xc3) && f->at < f->end &&
        ((unsigned char)*f->at & 0xc0) == 0x80)
        return ((c & 3) << 6) | ((unsigned char)*f->at++ & 0x3f);
    return hf_fields_fail(f, "not UTF-8 of a character up to U+00FF");
}

/* Most strings have no escape: borrow such a string from the line. Returns
 * false if read_byte() has to decode it. */
static bool read_plain_string(struct hf_fields *f, struct hf_field *value)
{
    const char *at = f->at;

    while (at < f->end && *at != '"' && *at != '\\' && *at >= 0x20 &&
           *at <= 0x7e)
        at++;
    if (at == f->end || *at != '"' || at - f->at > HF_OP_TEXT_MAX)
        return false;
    value->text = f->at;
    value->len = (size_t)(at - f->at);
    f->at = at + 1;
    return true;
}

static int read_string(struct hf_fields *f, struct hf_field *value, char *text)
{
    value->type = HF_FIELD_TYPE_TEXT;
    if (read_plain_string(f, value))
        return 0;
    value->text = text;
    value->len = 0;
    while (f->at < f->end && *f->at != '"') {
        int byte = read_byte(f);

        if (byte < 0)
            return -1;
        if (value->len == HF_OP_TEXT_MAX)
            return hf_fields_fail(f, "a string of more than %d bytes",
                                  HF_OP_TEXT_MAX);
        text[value->len++] = (char)byte;
    }
    if (f->at == f->end)
        return hf_fields_fail(f, "a string is cut off");
    f->at++;
    return 0;
}

static int read_number(struct hf_fields *f, struct hf_field *value)
{
    const char *from = f->at;
    uint64_t number = 0;

    while (f->at < f->end && *f->at >= '0' && *f->at <= '9') {
        unsigned digit = (unsigned)(*f->at++ - '0');

        if (number > (UINT64_MAX - digit) / 10)
            return hf_fields_fail(f, "a number beyond 2^64 - 1");
        number = number * 10 + digit;
    }
    if (f->at == from)
        return hf_fields_fail(f, "not a string, a number, true or false");
    if (*from == '0' && f->at - from > 1)
        return hf_fields_fail(f, "a number with a leading zero");
    value->type = HF_FIELD_TYPE_NUMBER;
    value->number = number;
    return 0;
}

static bool skip_literal(struct hf_fields *f, const char *literal)
{
    size_t len = strlen(literal);

    if ((size_t)(f->end - f->at) < len || memcmp(f->at, literal, len) != 0)
        return false;
    f->at += len;
    return true;
}

static int read_value(struct hf_fields *f, struct hf_field *value, char *text)
{
    skip_space(f);
    if (f->at < f->end && *f->at == '"') {
        f->at++;
        return read_string(f, value, text);
    }
    value->type = HF_FIELD_TYPE_FLAG;
    value->number = 1;
    if (skip_literal(f, "true"))
        return 0;
    value->number = 0;
    if (skip_literal(f, "false"))
        return 0;
    return read_number(f, value);
}

static bool is_field(const struct hf_field *name, enum hf_field_name field)
{
    return name->len == known[field].len &&
           memcmp(name->text, known[field].name, name->len) == 0;
}

static unsigned find_field(struct hf_fields *f, const struct hf_field *name)
{
    unsigned field = f->next;

    /* Most writers use one order of fields, so start with the field that
     * usually follows. */
    for (int i = 0; i < HF_FIELDS; i++) {
        if (is_field(name, field))
            return field;
        field = field + 1 < HF_FIELDS ? field + 1 : 0;
    }
    if (name->len > 2 && name->text[0] == 'x' && name->text[1] == '_')
        return FOREIGN;
    return UNKNOWN;
}

static int read_field(struct hf_fields *f)
{
    struct hf_field name, foreign;

    if (!skip_char(f, '"'))
        return hf_fields_fail(f, "a field name is missing");
    if (read_string(f, &name, f->unescaped[FOREIGN]) < 0)
        return -1;
    unsigned field = find_field(f, &name);

    if (field == UNKNOWN)
        return hf_fields_fail(f, "field \"%.*s\" is not known",
                              (int)(name.len < 40 ? name.len : 40), name.text);
    if (!skip_char(f, ':'))
        return hf_fields_fail(f, "no colon after a field name");
    if (field == FOREIGN)
        return read_value(f, &foreign, f->unescaped[FOREIGN]);
    if (f->given & HF_FIELD_BIT(field))
        return hf_fields_fail(f, "field \"%s\" is given twice",
                              known[field].name);
    f->given |= HF_FIELD_BIT(field);
    f->next = field + 1 < HF_FIELDS ? field + 1 : 0;
    if (read_value(f, &f->values[field], f->unescaped[field]) < 0)
        return -1;
    if (f->values[field].type != known[field].type)
        return hf_fields_fail(f, "field \"%s\" has a value of the wrong type",
                              known[field].name);
    return 0;
}

int hf_fields_read(struct hf_fields *f, const char *at, const char *end)
{
    f->at = at;
    f->end = end;
    f->given = 0;
    f->next = 0;
    if (!skip_char(f, '{'))
        return hf_fields_fail(f, "not a JSON object");
    do {
        if (read_field(f) < 0)
            return -1;
    } while (skip_char(f, ','));
    if (!skip_char(f, '}'))
        return hf_fields_fail(f, "neither a comma nor the end of the object");
    skip_space(f);
    if (f->at < f->end)
        return hf_fields_fail(f, "extra text after the object");
    return 0;
}

bool hf_fields_given(const struct hf_fields *f, enum hf_field_name name)
{
    return f->given & HF_FIELD_BIT(name);
}

bool hf_fields_is(const struct hf_fields *f, enum hf_field_name name,
                  const char *text)
{
    const struct hf_field *value = &f->values[name];

    return value->len == strlen(text) &&
           memcmp(value->text, text, value->len) == 0;
}

uint64_t hf_fields_number(const struct hf_fields *f, enum hf_field_name name,
                          uint64_t otherwise)
{
    return hf_fields_given(f, name) ? f->values[name].number : otherwise;
}

int hf_fields_demand(struct hf_fields *f, unsigned wanted, unsigned allowed)
{
    for (unsigned field = 0; field < HF_FIELDS; field++) {
        if ((wanted & HF_FIELD_BIT(field)) && !hf_fields_given(f, field))
            return hf_fields_fail(f, "field \"%s\" is missing",
                                  known[field].name);
        if (hf_fields_given(f, field) &&
            !((wanted | allowed) & HF_FIELD_BIT(field)))
            return hf_fields_fail(f,
                                  "field \"%s\" does not belong on this line",
                                  known[field].name);
    }
    if (hf_fields_given(f, HF_FIELD_CLIENT) &&
        f->values[HF_FIELD_CLIENT].number > UINT32_MAX)
        return hf_fields_fail(f, "a client number beyond 2^32 - 1");
    if (hf_fields_given(f, HF_FIELD_TIME) &&
        f->values[HF_FIELD_TIME].number > HF_OP_TIME_MAX)
        return hf_fields_fail(f, "a time beyond 2^63 - 1 ns");
    return 0;
}
