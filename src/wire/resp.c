#include "wire/resp.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"

#define VALUES_KEPT 16   /* values whose memory an idle reader keeps */
#define BYTES_KEPT 16384 /* bytes of the buffer that an idle reader keeps */
#define HEADER_MAX 24    /* bytes of a line with a length or an integer */
#define LINE_MISSING SIZE_MAX

/* ---- Parser -------------------------------------------------------------*/

static void reset_parser(struct hf_resp_parser *parser)
{
    parser->in_bulk = false;
    parser->depth = 0;
    parser->left[0] = 1;
    parser->offset = 0;
    parser->count = 0;
}

static enum hf_resp_status reject_message(struct hf_resp_parser *parser,
                                          enum hf_err err, const char *cause)
{
    parser->err = err;
    parser->cause = cause;
    return HF_RESP_BROKEN;
}

static struct hf_resp_value *add_value(struct hf_resp_parser *parser,
                                       enum hf_resp_kind kind, size_t size)
{
    struct hf_resp_value *value;

    if (parser->count == parser->capacity) {
        size_t capacity =
            parser->capacity > 0 ? 2 * parser->capacity : VALUES_KEPT;
        struct hf_resp_value *values =
            realloc(parser->values, capacity * sizeof(*values));

        if (!values)
            return NULL;
        parser->values = values;
        parser->capacity = capacity;
    }
    value = &parser->values[parser->count++];
    value->kind = kind;
    value->size = (uint32_t)size;
    return value;
}

/* Count a complete value, and leave the arrays that it completes. */
static void finish_value(struct hf_resp_parser *parser)
{
    parser->left[parser->depth]--;
    while (parser->depth > 0 && parser->left[parser->depth] == 0)
        parser->depth--;
}

/* The size of the line at `line` without its end, which is LF or CR LF;
 * LINE_MISSING if no line ends within `size` bytes. `*end` is the size with its
 * end. */
static size_t find_line(const uint8_t *line, size_t size, size_t *end)
{
    const uint8_t *newline = size > 0 ? memchr(line, '\n', size) : NULL;
    size_t length;

    if (!newline)
        return LINE_MISSING;
    length = (size_t)(newline - line);
    *end = length + 1;
    return length > 0 && line[length - 1] == '\r' ? length - 1 : length;
}

static bool is_minus_one(const uint8_t *line, size_t size)
{
    return size == 2 && line[0] == '-' && line[1] == '1';
}

static enum hf_resp_status begin_bulk(struct hf_resp_parser *parser,
                                      const uint8_t *line, size_t size)
{
    uint64_t length;

    if (!parser->requests && is_minus_one(line, size)) {
        if (!add_value(parser, HF_RESP_NULL, 0))
            return reject_message(parser, HF_ENOMEM, "out of memory");
        finish_value(parser);
        return HF_RESP_MESSAGE;
    }
    if (!hf_resp_read_number(line, size, UINT32_MAX, &length))
        return reject_message(parser, HF_EPROTO,
                              "the length of a string is malformed");
    if (length > parser->limits.bytes ||
        parser->offset + length + 2 > parser->limits.bytes)
        return reject_message(parser, HF_ELIMIT, "the message is too large");
    if (!add_value(parser, HF_RESP_BULK, (size_t)length))
        return reject_message(parser, HF_ENOMEM, "out of memory");
    parser->values[parser->count - 1].offset = parser->offset;
    parser->in_bulk = true;
    return HF_RESP_MESSAGE;
}

static enum hf_resp_status end_bulk(struct hf_resp_parser *parser,
                                    const uint8_t *data, size_t size)
{
    size_t end = parser->offset + parser->values[parser->count - 1].size;

    if (size < end + 2)
        return HF_RESP_MORE;
    if (data[end] != '\r' || data[end + 1] != '\n')
        return reject_message(parser, HF_EPROTO,
                              "a string is longer than its length");
    parser->offset = end + 2;
    parser->in_bulk = false;
    finish_value(parser);
    return HF_RESP_MESSAGE;
}

static enum hf_resp_status begin_array(struct hf_resp_parser *parser,
                                       const uint8_t *line, size_t size)
{
    bool is_null = is_minus_one(line, size);
    uint64_t count = 0;

    if (!is_null && !hf_resp_read_number(line, size, UINT32_MAX, &count))
        return reject_message(parser, HF_EPROTO,
                              "the length of an array is malformed");
    if (count >= parser->limits.elements - parser->count)
        return reject_message(parser, HF_ELIMIT,
                              "the array has too many elements");
    if (!add_value(parser, is_null ? HF_RESP_NULL : HF_RESP_ARRAY,
                   (size_t)count))
        return reject_message(parser, HF_ENOMEM, "out of memory");
    if (count == 0) {
        finish_value(parser);
        return HF_RESP_MESSAGE;
    }
    if (parser->depth + 1 == HF_RESP_DEPTH)
        return reject_message(parser, HF_EPROTO,
                              "arrays are nested too deeply");
    parser->left[parser->depth]--;
    parser->left[++parser->depth] = (uint32_t)count;
    return HF_RESP_MESSAGE;
}

static enum hf_resp_status add_integer(struct hf_resp_parser *parser,
                                       const uint8_t *line, size_t size)
{
    bool is_negative = size > 0 && line[0] == '-';
    struct hf_resp_value *value;
    uint64_t number;

    if (!hf_resp_read_number(line + is_negative, size - is_negative, INT64_MAX,
                             &number))
        return reject_message(parser, HF_EPROTO, "an integer is malformed");
    value = add_value(parser, HF_RESP_INTEGER, 0);
    if (!value)
        return reject_message(parser, HF_ENOMEM, "out of memory");
    value->integer = is_negative ? -(int64_t)number : (int64_t)number;
    finish_value(parser);
    return HF_RESP_MESSAGE;
}

static enum hf_resp_status add_line(struct hf_resp_parser *parser,
                                    enum hf_resp_kind kind, size_t offset,
                                    size_t size)
{
    struct hf_resp_value *value = add_value(parser, kind, size);

    if (!value)
        return reject_message(parser, HF_ENOMEM, "out of memory");
    value->offset = offset;
    finish_value(parser);
    return HF_RESP_MESSAGE;
}

/* Parse the line at `line`, which is the beginning of a value: a type and
 * `size` bytes. `offset` is the offset of the line; parser->offset is already
 * after it. */
static enum hf_resp_status parse_value_line(struct hf_resp_parser *parser,
                                            const uint8_t *line, size_t size,
                                            size_t offset)
{
    uint8_t type = line[0];
    bool has_place = parser->depth == 0 ? type == '*' : type == '$';

    if (parser->requests && !has_place)
        return reject_message(parser, HF_EPROTO,
                              "a request must be an array of bulk strings");
    switch (type) {
    case '$':
        return begin_bulk(parser, line + 1, size);
    case '*':
        return begin_array(parser, line + 1, size);
    case ':':
        return add_integer(parser, line + 1, size);
    case '+':
        return add_line(parser, HF_RESP_SIMPLE, offset + 1, size);
    case '-':
        return add_line(parser, HF_RESP_ERROR, offset + 1, size);
    default:
        return reject_message(parser, HF_EPROTO, "a value has an unknown type");
    }
}

static size_t line_max(const uint8_t *line)
{
    bool is_header = line[0] == '*' || line[0] == '$' || line[0] == ':';

    return is_header ? HEADER_MAX : HF_RESP_LINE_MAX;
}

/* Parse the next value, or its first line if it is a bulk string or an array.
 * Returns HF_RESP_MESSAGE if the caller may go on parsing. */
static enum hf_resp_status parse_line(struct hf_resp_parser *parser,
                                      const uint8_t *data, size_t size)
{
    size_t offset = parser->offset;
    const uint8_t *line = data + offset;
    size_t left = size - offset;
    size_t max, length, end;

    if (left == 0)
        return HF_RESP_MORE;
    max = line_max(line);
    length = find_line(line, left < max ? left : max, &end);
    if (length == LINE_MISSING && left < max)
        return HF_RESP_MORE;
    if (length == LINE_MISSING)
        return reject_message(parser, HF_ELIMIT, "a line is too long");
    if (length == 0 || end < length + 2)
        return reject_message(parser, HF_EPROTO,
                              "a line does not end with CR LF");
    if (end > parser->limits.bytes - offset ||
        parser->count == parser->limits.elements)
        return reject_message(parser, HF_ELIMIT, "the message is too large");
    parser->offset += end;
    return parse_value_line(parser, line, length - 1, offset);
}

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\t';
}

static enum hf_resp_status split_words(struct hf_resp_parser *parser,
                                       const uint8_t *line, size_t size)
{
    for (size_t i = 0; i < size;) {
        size_t start = i;

        while (i < size && !is_blank(line[i]))
            i++;
        if (i > start && parser->count + 1 == parser->limits.elements)
            return reject_message(parser, HF_ELIMIT,
                                  "the line has too many words");
        if (i > start) {
            struct hf_resp_value *value =
                add_value(parser, HF_RESP_BULK, i - start);

            if (!value)
                return reject_message(parser, HF_ENOMEM, "out of memory");
            value->offset = start;
        }
        while (i < size && is_blank(line[i]))
            i++;
    }
    parser->left[0] = 0;
    return HF_RESP_MESSAGE;
}

static enum hf_resp_status parse_inline_words(struct hf_resp_parser *parser,
                                              const uint8_t *data, size_t size)
{
    size_t max = size < HF_RESP_LINE_MAX ? size : HF_RESP_LINE_MAX;
    size_t length = find_line(data, max, &parser->offset);

    if (length == LINE_MISSING && size < HF_RESP_LINE_MAX)
        return HF_RESP_MORE;
    if (length == LINE_MISSING)
        return reject_message(parser, HF_ELIMIT, "a line is too long");
    return split_words(parser, data, length);
}

/* Parse until the message is complete, the bytes are used up, or an error is
 * found. */
static enum hf_resp_status parse_message(struct hf_resp_parser *parser,
                                         const uint8_t *data, size_t size)
{
    enum hf_resp_status status = HF_RESP_MESSAGE;

    if (size == 0)
        return HF_RESP_MORE;
    if (parser->requests && data[0] != '*')
        return parse_inline_words(parser, data, size);
    while (parser->left[0] > 0 || parser->depth > 0) {
        status = parser->in_bulk ? end_bulk(parser, data, size)
                                 : parse_line(parser, data, size);
        if (status != HF_RESP_MESSAGE)
            break;
    }
    return status;
}

/* ---- Reader -------------------------------------------------------------*/

void hf_resp_reader_init(struct hf_resp_reader *reader, bool requests,
                         struct hf_resp_limits limits)
{
    HF_ASSERT(limits.elements > 0);
    *reader = (struct hf_resp_reader){0};
    reader->parser.requests = requests;
    reader->parser.limits = limits;
    if (requests)
        reader->parser.limits.elements++; /* for the array itself */
    reset_parser(&reader->parser);
}

void hf_resp_reader_fini(struct hf_resp_reader *reader)
{
    free(reader->parser.values);
    hf_buf_fini(&reader->kept);
    *reader = (struct hf_resp_reader){0};
}

enum hf_err hf_resp_reader_feed(struct hf_resp_reader *reader, const void *data,
                                size_t size)
{
    if (reader->size == 0) {
        reader->kept.size = 0;
        reader->input = data;
        reader->size = size;
        return HF_OK;
    }
    HF_ASSERT(reader->input == reader->kept.data);
    hf_buf_raw(&reader->kept, data, size);
    reader->input = reader->kept.data;
    reader->size = reader->kept.size;
    return reader->kept.failed ? HF_ENOMEM : HF_OK;
}

/* Replace offsets with addresses: the bytes of a complete message do not
 * move. */
static void resolve_offsets(struct hf_resp_parser *parser, const uint8_t *data)
{
    for (size_t i = 0; i < parser->count; i++) {
        struct hf_resp_value *value = &parser->values[i];

        if (hf_resp_is_string(value) || value->kind == HF_RESP_ERROR)
            value->data = data + value->offset;
    }
}

static bool is_empty_request(const struct hf_resp_parser *parser, bool is_line)
{
    return parser->requests && parser->count == (is_line ? 0 : 1);
}

static void make_message(const struct hf_resp_parser *parser, bool is_line,
                         struct hf_resp_message *message)
{
    size_t skipped = parser->requests && !is_line ? 1 : 0;

    *message = (struct hf_resp_message){
        .values = parser->values + skipped,
        .count = parser->count - skipped,
        .is_inline = is_line,
    };
}

enum hf_resp_status hf_resp_reader_next(struct hf_resp_reader *reader,
                                        struct hf_resp_message *message)
{
    struct hf_resp_parser *parser = &reader->parser;

    for (;;) {
        const uint8_t *data = reader->input;
        enum hf_resp_status status;
        bool is_line, is_empty;

        status = parser->err ? HF_RESP_BROKEN
                             : parse_message(parser, data, reader->size);
        if (status != HF_RESP_MESSAGE)
            return status;
        is_line = parser->requests && data[0] != '*';
        is_empty = is_empty_request(parser, is_line);
        if (!is_empty) {
            resolve_offsets(parser, data);
            make_message(parser, is_line, message);
        }
        reader->input += parser->offset;
        reader->size -= parser->offset;
        reset_parser(parser);
        if (!is_empty)
            return HF_RESP_MESSAGE;
    }
}

/* Free memory that an idle reader does not need. */
static void shrink_reader(struct hf_resp_reader *reader)
{
    struct hf_resp_parser *parser = &reader->parser;

    if (reader->kept.capacity > BYTES_KEPT)
        hf_buf_fini(&reader->kept);
    if (parser->capacity > VALUES_KEPT) {
        free(parser->values);
        parser->values = NULL;
        parser->capacity = 0;
    }
}

enum hf_err hf_resp_reader_keep(struct hf_resp_reader *reader)
{
    struct hf_buf *kept = &reader->kept;
    bool is_here = kept->size > 0;

    if (reader->size == 0) {
        kept->size = 0;
        reader->input = NULL;
        shrink_reader(reader);
        return HF_OK;
    }
    if (is_here && reader->input != kept->data)
        memmove(kept->data, reader->input, reader->size);
    if (!is_here)
        hf_buf_raw(kept, reader->input, reader->size);
    if (kept->failed)
        return HF_ENOMEM;
    kept->size = reader->size;
    reader->input = kept->data;
    return HF_OK;
}
