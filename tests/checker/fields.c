/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "fields.h"

#include <stdarg.h>
#include <string.h>

static const struct {
    const char *name;
    size_t len;
    enum field_type type;
} known[FIELDS] = {
    [F_TYPE] = {"type", 4, FIELD_TEXT},
    [F_CLIENT] = {"client", 6, FIELD_NUMBER},
    [F_OP] = {"op", 2, FIELD_NUMBER},
    [F_KIND] = {"kind", 4, FIELD_TEXT},
    [F_KEY] = {"key", 3, FIELD_TEXT},
    [F_NONCE] = {"nonce", 5, FIELD_TEXT},
    [F_TOKEN] = {"token", 5, FIELD_NUMBER},
    [F_CELL] = {"cell", 4, FIELD_TEXT},
    [F_VALUE] = {"value", 5, FIELD_NUMBER},
    [F_FENCED] = {"fenced", 6, FIELD_FLAG},
    [F_INVOKE] = {"invoke", 6, FIELD_NUMBER},
    [F_QUEUED] = {"queued", 6, FIELD_NUMBER},
    [F_RETURN] = {"return", 6, FIELD_NUMBER},
    [F_RESULT] = {"result", 6, FIELD_TEXT},
    [F_ERROR] = {"error", 5, FIELD_TEXT},
    [F_DEADLINE] = {"deadline", 8, FIELD_NUMBER},
    [F_LEASE] = {"lease", 5, FIELD_NUMBER},
    [F_TIME] = {"time", 4, FIELD_NUMBER},
    [F_TEXT] = {"text", 4, FIELD_TEXT},
    [F_VERSION] = {"version", 7, FIELD_NUMBER},
    [F_FIFO] = {"fifo", 4, FIELD_FLAG},
};

/* What a name can be, if it is not known. */
#define FOREIGN FIELDS /* "x_...": read and passed over */
#define UNKNOWN (FIELDS + 1)

int fields_fail(struct fields *f, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it has just begun */
    vsnprintf(f->fault->text, sizeof f->fault->text, format, list);
    va_end(list);
    /* It may quote the input, and ends on somebody's terminal. */
    for (char *c = f->fault->text; *c; c++) {
        if (*c < 0x20 || *c > 0x7e)
            *c = '?';
    }
    f->fault->line = f->line;
    return -1;
}

static void skip_space(struct fields *f)
{
    while (f->at < f->end &&
           (*f->at == ' ' || *f->at == '\t' || *f->at == '\r'))
        f->at++;
}

static bool take(struct fields *f, char wanted)
{
    skip_space(f);
    if (f->at == f->end || *f->at != wanted)
        return false;
    f->at++;
    return true;
}

int fields_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* \u00XX, with `at` behind the u: the byte XX. */
static int read_hex(struct fields *f)
{
    int code = 0;

    if (f->end - f->at < 4)
        return fields_fail(f, "a \\u escape is cut off");
    for (int i = 0; i < 4; i++) {
        int digit = fields_hex_digit(*f->at++);

        if (digit < 0)
            return fields_fail(f, "a \\u escape that is not hexadecimal");
        code = code * 16 + digit;
    }
    if (code > 0xff)
        return fields_fail(f, "a character beyond U+00FF stands for no byte");
    return code;
}

static int read_escape(struct fields *f)
{
    static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    const char *found;

    if (f->at == f->end)
        return fields_fail(f, "a string is cut off");
    char c = *f->at++;

    if (c == 'u')
        return read_hex(f);
    found = c ? strchr(names, c) : NULL;
    if (!found)
        return fields_fail(f, "an escape that JSON does not know");
    return (unsigned char)bytes[found - names];
}

/* One character of a string, as a byte; -1 and the fault if it is none. */
static int read_byte(struct fields *f)
{
    unsigned char c = (unsigned char)*f->at++;

    if (c == '\\')
        return read_escape(f);
    if (c < 0x20)
        return fields_fail(f, "a bare control character in a string");
    if (c < 0x80)
        return c;
    /* UTF-8 of U+0080 to U+00FF: two bytes that stand for one. */
    if ((c == 0xc2 || c == 0xc3) && f->at < f->end &&
        ((unsigned char)*f->at & 0xc0) == 0x80)
        return ((c & 3) << 6) | ((unsigned char)*f->at++ & 0x3f);
    return fields_fail(f, "not UTF-8 of a character up to U+00FF");
}

/* Most strings have no escape and are borrowed from the line as they are. */
static bool read_plain(struct fields *f, struct field *value)
{
    const char *at = f->at;

    while (at < f->end && *at != '"' && *at != '\\' && *at >= 0x20 &&
           *at <= 0x7e)
        at++;
    if (at == f->end || *at != '"' || at - f->at > HISTORY_TEXT_MAX)
        return false;
    value->text = f->at;
    value->len = (size_t)(at - f->at);
    f->at = at + 1;
    return true;
}

static int read_string(struct fields *f, struct field *value, char *text)
{
    value->type = FIELD_TEXT;
    if (read_plain(f, value))
        return 0;
    value->text = text;
    value->len = 0;
    while (f->at < f->end && *f->at != '"') {
        int byte = read_byte(f);

        if (byte < 0)
            return -1;
        if (value->len == HISTORY_TEXT_MAX)
            return fields_fail(f, "a string of more than %d bytes",
                               HISTORY_TEXT_MAX);
        text[value->len++] = (char)byte;
    }
    if (f->at == f->end)
        return fields_fail(f, "a string is cut off");
    f->at++;
    return 0;
}

static int read_number(struct fields *f, struct field *value)
{
    const char *from = f->at;
    uint64_t number = 0;

    while (f->at < f->end && *f->at >= '0' && *f->at <= '9') {
        unsigned digit = (unsigned)(*f->at++ - '0');

        if (number > (UINT64_MAX - digit) / 10)
            return fields_fail(f, "a number beyond 2^64 - 1");
        number = number * 10 + digit;
    }
    if (f->at == from)
        return fields_fail(f, "no value that is known here");
    if (*from == '0' && f->at - from > 1)
        return fields_fail(f, "a number with a leading zero");
    value->type = FIELD_NUMBER;
    value->number = number;
    return 0;
}

static bool take_literal(struct fields *f, const char *literal)
{
    size_t len = strlen(literal);

    if ((size_t)(f->end - f->at) < len || memcmp(f->at, literal, len) != 0)
        return false;
    f->at += len;
    return true;
}

static int read_value(struct fields *f, struct field *value, char *text)
{
    skip_space(f);
    if (f->at < f->end && *f->at == '"') {
        f->at++;
        return read_string(f, value, text);
    }
    value->type = FIELD_FLAG;
    value->number = 1;
    if (take_literal(f, "true"))
        return 0;
    value->number = 0;
    if (take_literal(f, "false"))
        return 0;
    return read_number(f, value);
}

static bool is_field(const struct field *name, enum field_name field)
{
    return name->len == known[field].len &&
           memcmp(name->text, known[field].name, name->len) == 0;
}

static unsigned find_field(struct fields *f, const struct field *name)
{
    unsigned field = f->next;

    /* Writers keep one order, so the guess is right or nearly so. */
    for (int i = 0; i < FIELDS; i++) {
        if (is_field(name, field))
            return field;
        field = field + 1 < FIELDS ? field + 1 : 0;
    }
    if (name->len > 2 && name->text[0] == 'x' && name->text[1] == '_')
        return FOREIGN;
    return UNKNOWN;
}

static int read_field(struct fields *f)
{
    struct field name, foreign;

    if (!take(f, '"'))
        return fields_fail(f, "no field name where one belongs");
    if (read_string(f, &name, f->unescaped[FOREIGN]) < 0)
        return -1;
    unsigned field = find_field(f, &name);

    if (field == UNKNOWN)
        return fields_fail(f, "field \"%.*s\" is not known",
                           (int)(name.len < 40 ? name.len : 40), name.text);
    if (!take(f, ':'))
        return fields_fail(f, "no colon after a field name");
    if (field == FOREIGN)
        return read_value(f, &foreign, f->unescaped[FOREIGN]);
    if (f->given & FIELD_BIT(field))
        return fields_fail(f, "field \"%s\" is given twice", known[field].name);
    f->given |= FIELD_BIT(field);
    f->next = field + 1 < FIELDS ? field + 1 : 0;
    if (read_value(f, &f->values[field], f->unescaped[field]) < 0)
        return -1;
    if (f->values[field].type != known[field].type)
        return fields_fail(f, "field \"%s\" has a value of the wrong type",
                           known[field].name);
    return 0;
}

int fields_read(struct fields *f, const char *at, const char *end)
{
    f->at = at;
    f->end = end;
    f->given = 0;
    f->next = 0;
    if (!take(f, '{'))
        return fields_fail(f, "not a JSON object");
    do {
        if (read_field(f) < 0)
            return -1;
    } while (take(f, ','));
    if (!take(f, '}'))
        return fields_fail(f, "neither a comma nor the end of the object");
    skip_space(f);
    if (f->at < f->end)
        return fields_fail(f, "something follows the object");
    return 0;
}

bool fields_given(const struct fields *f, enum field_name name)
{
    return f->given & FIELD_BIT(name);
}

bool fields_is(const struct fields *f, enum field_name name, const char *text)
{
    const struct field *value = &f->values[name];

    return value->len == strlen(text) &&
           memcmp(value->text, text, value->len) == 0;
}

uint64_t fields_number(const struct fields *f, enum field_name name,
                       uint64_t otherwise)
{
    return fields_given(f, name) ? f->values[name].number : otherwise;
}

int fields_demand(struct fields *f, unsigned wanted, unsigned allowed)
{
    for (unsigned field = 0; field < FIELDS; field++) {
        if ((wanted & FIELD_BIT(field)) && !fields_given(f, field))
            return fields_fail(f, "field \"%s\" is missing", known[field].name);
        if (fields_given(f, field) && !((wanted | allowed) & FIELD_BIT(field)))
            return fields_fail(f, "field \"%s\" does not belong on this line",
                               known[field].name);
    }
    if (fields_given(f, F_CLIENT) && f->values[F_CLIENT].number > UINT32_MAX)
        return fields_fail(f, "a client number beyond 2^32 - 1");
    if (fields_given(f, F_TIME) && f->values[F_TIME].number > HISTORY_TIME_MAX)
        return fields_fail(f, "a time beyond 2^63 - 1 ns");
    return 0;
}
