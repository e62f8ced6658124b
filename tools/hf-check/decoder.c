/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * Splits the input into lines and lines into fields (fields.h), and converts
 * these into operations and events. */
#include "decoder.h"

#include "array.h"
#include "encoder.h"
#include "fields.h"

#include <stdlib.h>
#include <string.h>

struct decoder {
    struct hf_check_history *h;
    struct hf_fields fields;
    /* The operations by client and id: a hash table whose size is a power of
     * two. A slot is an index + 1, or 0 if it is empty. */
    uint32_t *seen;
    size_t seen_count, seen_room;
};

static uint32_t intern_field(struct decoder *d, enum hf_field_name field)
{
    if (!hf_fields_given(&d->fields, field))
        return 0;
    return hf_intern_add(&d->h->strings, d->fields.values[field].text,
                         d->fields.values[field].len);
}

/* Return the index of the name in this field, or `count` if it is unknown. */
static unsigned find_name(const struct decoder *d, enum hf_field_name field,
                          unsigned count, const char *(*name)(unsigned))
{
    unsigned i = 0;

    while (i < count && !hf_fields_is(&d->fields, field, name(i)))
        i++;
    return i;
}

static const char *kind_name(unsigned kind)
{
    return hf_op_kind_name(kind);
}

static const char *result_name(unsigned result)
{
    return hf_op_result_name(result);
}

/* A nonce is a hexadecimal number, so store "AB" as "ab". */
static int read_nonce(struct decoder *d, struct hf_op *op)
{
    char digits[HF_OP_NONCE_MAX];
    const struct hf_field *value = &d->fields.values[HF_FIELD_NONCE];

    if (!hf_fields_given(&d->fields, HF_FIELD_NONCE))
        return 0;
    if (!value->len || value->len > sizeof digits)
        return hf_fields_fail(&d->fields,
                              "a nonce of no or of more than %d digits",
                              HF_OP_NONCE_MAX);
    for (size_t i = 0; i < value->len; i++) {
        int digit = hf_fields_hex_digit(value->text[i]);

        if (digit < 0)
            return hf_fields_fail(&d->fields,
                                  "a nonce that is not hexadecimal");
        digits[i] = "0123456789abcdef"[digit];
    }
    op->nonce = hf_intern_add(&d->h->strings, digits, value->len);
    return 0;
}

static int read_result(struct decoder *d, struct hf_op *op)
{
    if (hf_fields_given(&d->fields, HF_FIELD_RESULT)) {
        unsigned result =
            find_name(d, HF_FIELD_RESULT, HF_OP_RESULTS, result_name);

        if (result == HF_OP_RESULTS)
            return hf_fields_fail(&d->fields,
                                  "a result that is not ok, fail or unknown");
        op->result = (uint8_t)result;
        op->answered = true;
    }
    if (hf_fields_given(&d->fields, HF_FIELD_ERROR))
        hf_op_set_error(op, &d->h->strings,
                        d->fields.values[HF_FIELD_ERROR].text,
                        d->fields.values[HF_FIELD_ERROR].len);
    return 0;
}

static int read_times(struct decoder *d, struct hf_op *op)
{
    op->answer = hf_fields_number(&d->fields, HF_FIELD_RETURN, HF_OP_NEVER);
    op->deadline = hf_fields_number(&d->fields, HF_FIELD_DEADLINE, HF_OP_NEVER);
    op->queued = hf_fields_number(&d->fields, HF_FIELD_QUEUED, HF_OP_NEVER);
    op->lease = hf_fields_number(&d->fields, HF_FIELD_LEASE, 0);
    /* HF_OP_NEVER means "not given" in memory, so a file must not contain
     * it. */
    for (unsigned field = HF_FIELD_INVOKE; field <= HF_FIELD_LEASE; field++) {
        if (hf_fields_given(&d->fields, field) &&
            d->fields.values[field].type == HF_FIELD_TYPE_NUMBER &&
            d->fields.values[field].number == HF_OP_NEVER)
            return hf_fields_fail(&d->fields, "a time beyond 2^63 - 1 ns");
    }
    return 0;
}

static size_t hash_op_id(const struct hf_op *op)
{
    uint64_t mixed = (op->id ^ (uint64_t)op->client << 40 ^ op->client) *
                     UINT64_C(0x9e3779b97f4a7c15);

    return (size_t)(mixed >> 20);
}

static uint32_t *find_op_slot(struct decoder *d, const struct hf_op *op)
{
    size_t mask = d->seen_room - 1;
    size_t at = hash_op_id(op) & mask;

    while (d->seen[at]) {
        const struct hf_op *other = &d->h->ops[d->seen[at] - 1];

        if (other->client == op->client && other->id == op->id)
            break;
        at = (at + 1) & mask;
    }
    return &d->seen[at];
}

static void grow_op_slots(struct decoder *d)
{
    uint32_t *old = d->seen;
    size_t old_room = d->seen_room;

    d->seen_room = old_room ? old_room * 2 : 1024;
    d->seen = hf_array_new(d->seen_room, sizeof *d->seen);
    for (size_t i = 0; i < old_room; i++) {
        if (old[i])
            *find_op_slot(d, &d->h->ops[old[i] - 1]) = old[i];
    }
    free(old);
}

static bool is_same_call(const struct hf_op *a, const struct hf_op *b)
{
    return a->kind == b->kind && a->key == b->key && a->invoke == b->invoke;
}

/* An operation is written when it begins and again when it ends, so that the
 * calls of a killed process are known. The line written at the end replaces the
 * earlier line. */
static int merge_op(struct decoder *d, struct hf_op *old,
                    const struct hf_op *op)
{
    if (old->answered && op->answered)
        return hf_fields_fail(&d->fields,
                              "this operation has a result already");
    if (!is_same_call(old, op))
        return hf_fields_fail(
            &d->fields, "kind, key or invoke differs from an earlier line");
    if (op->answered)
        *old = *op;
    return 0;
}

static int add_op(struct decoder *d, const struct hf_op *op)
{
    if (d->seen_count * 2 >= d->seen_room)
        grow_op_slots(d);
    uint32_t *slot = find_op_slot(d, op);

    if (*slot)
        return merge_op(d, &d->h->ops[*slot - 1], op);
    if (d->h->op_count == UINT32_MAX - 1)
        return hf_fields_fail(&d->fields, "too many operations");
    *slot = (uint32_t)hf_check_history_add(d->h, op) + 1;
    d->seen_count++;
    return 0;
}

static int read_op(struct decoder *d)
{
    unsigned events =
        HF_FIELD_BIT(HF_FIELD_TIME) | HF_FIELD_BIT(HF_FIELD_TEXT) |
        HF_FIELD_BIT(HF_FIELD_VERSION) | HF_FIELD_BIT(HF_FIELD_FIFO);

    if (hf_fields_demand(
            &d->fields,
            HF_FIELD_BIT(HF_FIELD_TYPE) | HF_FIELD_BIT(HF_FIELD_CLIENT) |
                HF_FIELD_BIT(HF_FIELD_OP) | HF_FIELD_BIT(HF_FIELD_KIND) |
                HF_FIELD_BIT(HF_FIELD_KEY) | HF_FIELD_BIT(HF_FIELD_INVOKE),
            ~events) < 0)
        return -1;
    unsigned kind = find_name(d, HF_FIELD_KIND, HF_OP_KINDS, kind_name);

    if (kind == HF_OP_KINDS)
        return hf_fields_fail(&d->fields, "an unknown kind of operation");
    struct hf_op op = hf_op_make(
        kind, (uint32_t)hf_fields_number(&d->fields, HF_FIELD_CLIENT, 0),
        hf_fields_number(&d->fields, HF_FIELD_INVOKE, 0));

    op.id = hf_fields_number(&d->fields, HF_FIELD_OP, 0);
    op.token = hf_fields_number(&d->fields, HF_FIELD_TOKEN, 0);
    op.value = hf_fields_number(&d->fields, HF_FIELD_VALUE, 0);
    op.fenced = hf_fields_number(&d->fields, HF_FIELD_FENCED, 1);
    op.key = intern_field(d, HF_FIELD_KEY);
    op.cell = intern_field(d, HF_FIELD_CELL);
    if (hf_fields_given(&d->fields, HF_FIELD_TOKEN) && !op.token)
        return hf_fields_fail(&d->fields, "a token of 0");
    if (read_nonce(d, &op) < 0 || read_result(d, &op) < 0 ||
        read_times(d, &op) < 0)
        return -1;
    const char *fault = hf_op_fault(&op);

    return fault ? hf_fields_fail(&d->fields, "%s", fault) : add_op(d, &op);
}

static int read_death(struct decoder *d)
{
    if (hf_fields_demand(&d->fields,
                         HF_FIELD_BIT(HF_FIELD_TYPE) |
                             HF_FIELD_BIT(HF_FIELD_CLIENT) |
                             HF_FIELD_BIT(HF_FIELD_TIME),
                         0) < 0)
        return -1;
    hf_check_history_add_death(
        d->h, (struct hf_op_death){
                  .time = hf_fields_number(&d->fields, HF_FIELD_TIME, 0),
                  .client = (uint32_t)hf_fields_number(&d->fields,
                                                       HF_FIELD_CLIENT, 0),
              });
    return 0;
}

static int read_lost(struct decoder *d)
{
    if (hf_fields_demand(
            &d->fields,
            HF_FIELD_BIT(HF_FIELD_TYPE) | HF_FIELD_BIT(HF_FIELD_CLIENT) |
                HF_FIELD_BIT(HF_FIELD_KEY) | HF_FIELD_BIT(HF_FIELD_TOKEN) |
                HF_FIELD_BIT(HF_FIELD_TIME),
            0) < 0)
        return -1;
    hf_check_history_add_lost(
        d->h, (struct hf_op_lost){
                  .time = hf_fields_number(&d->fields, HF_FIELD_TIME, 0),
                  .token = hf_fields_number(&d->fields, HF_FIELD_TOKEN, 0),
                  .client = (uint32_t)hf_fields_number(&d->fields,
                                                       HF_FIELD_CLIENT, 0),
                  .key = intern_field(d, HF_FIELD_KEY),
              });
    return 0;
}

static int read_note(struct decoder *d)
{
    if (hf_fields_demand(&d->fields,
                         HF_FIELD_BIT(HF_FIELD_TYPE) |
                             HF_FIELD_BIT(HF_FIELD_TIME) |
                             HF_FIELD_BIT(HF_FIELD_TEXT),
                         0) < 0)
        return -1;
    hf_check_history_add_note(
        d->h, (struct hf_op_note){
                  .time = hf_fields_number(&d->fields, HF_FIELD_TIME, 0),
                  .text = intern_field(d, HF_FIELD_TEXT),
              });
    return 0;
}

static int read_header(struct decoder *d)
{
    if (hf_fields_demand(&d->fields,
                         HF_FIELD_BIT(HF_FIELD_TYPE) |
                             HF_FIELD_BIT(HF_FIELD_VERSION) |
                             HF_FIELD_BIT(HF_FIELD_FIFO),
                         0) < 0)
        return -1;
    if (!hf_fields_is(&d->fields, HF_FIELD_TYPE, "history"))
        return hf_fields_fail(&d->fields,
                              "the first line is not a \"history\" header");
    if (hf_fields_number(&d->fields, HF_FIELD_VERSION, 0) != 1)
        return hf_fields_fail(&d->fields, "a version that is not 1");
    d->h->fifo = hf_fields_number(&d->fields, HF_FIELD_FIFO, 0);
    return 0;
}

static int read_line(struct decoder *d, const char *at, const char *end)
{
    if (hf_fields_read(&d->fields, at, end) < 0)
        return -1;
    if (d->fields.line == 1)
        return read_header(d);
    if (!hf_fields_given(&d->fields, HF_FIELD_TYPE))
        return hf_fields_fail(&d->fields, "field \"type\" is missing");
    if (hf_fields_is(&d->fields, HF_FIELD_TYPE, "op"))
        return read_op(d);
    if (hf_fields_is(&d->fields, HF_FIELD_TYPE, "death"))
        return read_death(d);
    if (hf_fields_is(&d->fields, HF_FIELD_TYPE, "lost"))
        return read_lost(d);
    if (hf_fields_is(&d->fields, HF_FIELD_TYPE, "note"))
        return read_note(d);
    return hf_fields_fail(&d->fields, "an unknown type of line");
}

/* ---- Lines --------------------------------------------------------------*/

#define CHUNK ((size_t)1 << 18)

/* Read the complete lines of `buffer`. In the `last` buffer, the last line may
 * lack its newline. `*used` is the size of what was read. */
static int read_lines(struct decoder *d, const char *buffer, size_t len,
                      bool last, size_t *used)
{
    *used = 0;
    while (*used < len) {
        const char *from = buffer + *used;
        const char *end = memchr(from, '\n', len - *used);

        if (!end && !last)
            break;
        d->fields.line++;
        if (!end)
            end = buffer + len;
        if (end - from >= HF_ENCODER_LINE_MAX)
            return hf_fields_fail(&d->fields, "a line of more than %d bytes",
                                  HF_ENCODER_LINE_MAX);
        if (read_line(d, from, end) < 0)
            return -1;
        *used = (size_t)(end - buffer) + (end < buffer + len ? 1 : 0);
    }
    return 0;
}

static int read_all(struct decoder *d, FILE *in, char *buffer)
{
    size_t kept = 0, used = 0;
    bool last = false;

    while (!last) {
        size_t got = fread(buffer + kept, 1, CHUNK - kept, in);

        if (ferror(in))
            return hf_fields_fail(&d->fields, "it cannot be read");
        last = got == 0;
        if (read_lines(d, buffer, kept + got, last, &used) < 0)
            return -1;
        kept += got - used;
        memmove(buffer, buffer + used, kept);
        if (kept >= HF_ENCODER_LINE_MAX && !last) {
            d->fields.line++;
            return hf_fields_fail(&d->fields, "a line of more than %d bytes",
                                  HF_ENCODER_LINE_MAX);
        }
    }
    if (!d->fields.line)
        return hf_fields_fail(&d->fields, "it has no lines");
    return 0;
}

int hf_decoder_read(struct hf_check_history *h, FILE *in,
                    struct hf_check_fault *fault)
{
    struct decoder *d = hf_array_new(1, sizeof *d);
    char *buffer = hf_array_new(CHUNK, 1);

    d->h = h;
    d->fields.fault = fault;
    int answer = read_all(d, in, buffer);

    free(buffer);
    free(d->seen);
    free(d);
    return answer;
}
