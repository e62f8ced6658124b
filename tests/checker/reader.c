/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * Reads written histories: docs/history.md. Bytes are cut into lines, lines
 * into fields (fields.h), and fields make operations and events. */
#include "fields.h"
#include "history.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    struct history *h;
    struct fields fields;
    /* The operations by client and id: a hash table of a power of two slots,
     * each an index + 1, or 0 if it is empty. */
    uint32_t *seen;
    size_t seen_count, seen_room;
};

static uint32_t word(struct reader *r, enum field_name field)
{
    if (!fields_given(&r->fields, field))
        return 0;
    return words_add(&r->h->words, r->fields.values[field].text,
                     r->fields.values[field].len);
}

/* The number of the name in this field, or `count` if it is none of them. */
static unsigned choice(const struct reader *r, enum field_name field,
                       unsigned count, const char *(*name)(unsigned))
{
    unsigned i = 0;

    while (i < count && !fields_is(&r->fields, field, name(i)))
        i++;
    return i;
}

static const char *kind_name(unsigned kind)
{
    return history_kind_name(kind);
}

static const char *result_name(unsigned result)
{
    return history_result_name(result);
}

/* Nonces are numbers written in base 16: AB and ab are one. */
static int read_nonce(struct reader *r, struct history_op *op)
{
    char digits[HISTORY_NONCE_MAX];
    const struct field *value = &r->fields.values[F_NONCE];

    if (!fields_given(&r->fields, F_NONCE))
        return 0;
    if (!value->len || value->len > sizeof digits)
        return fields_fail(&r->fields,
                           "a nonce of no or of more than %d digits",
                           HISTORY_NONCE_MAX);
    for (size_t i = 0; i < value->len; i++) {
        int digit = fields_hex_digit(value->text[i]);

        if (digit < 0)
            return fields_fail(&r->fields, "a nonce that is not hexadecimal");
        digits[i] = "0123456789abcdef"[digit];
    }
    op->nonce = words_add(&r->h->words, digits, value->len);
    return 0;
}

static int read_result(struct reader *r, struct history_op *op)
{
    if (fields_given(&r->fields, F_RESULT)) {
        unsigned result = choice(r, F_RESULT, HISTORY_RESULTS, result_name);

        if (result == HISTORY_RESULTS)
            return fields_fail(&r->fields,
                               "a result that is not ok, fail or unknown");
        op->result = (uint8_t)result;
        op->answered = true;
    }
    if (fields_given(&r->fields, F_ERROR))
        history_set_error(r->h, op, r->fields.values[F_ERROR].text,
                          r->fields.values[F_ERROR].len);
    return 0;
}

static int read_times(struct reader *r, struct history_op *op)
{
    op->answer = fields_number(&r->fields, F_RETURN, HISTORY_NEVER);
    op->deadline = fields_number(&r->fields, F_DEADLINE, HISTORY_NEVER);
    op->queued = fields_number(&r->fields, F_QUEUED, HISTORY_NEVER);
    op->lease = fields_number(&r->fields, F_LEASE, 0);
    /* In memory this number means "not given". */
    for (unsigned field = F_INVOKE; field <= F_LEASE; field++) {
        if (fields_given(&r->fields, field) &&
            r->fields.values[field].type == FIELD_NUMBER &&
            r->fields.values[field].number == HISTORY_NEVER)
            return fields_fail(&r->fields, "a time beyond 2^63 - 1 ns");
    }
    return 0;
}

static size_t seen_hash(const struct history_op *op)
{
    uint64_t mixed = (op->id ^ (uint64_t)op->client << 40 ^ op->client) *
                     UINT64_C(0x9e3779b97f4a7c15);

    return (size_t)(mixed >> 20);
}

static uint32_t *seen_slot(struct reader *r, const struct history_op *op)
{
    size_t mask = r->seen_room - 1;
    size_t at = seen_hash(op) & mask;

    while (r->seen[at]) {
        const struct history_op *other = &r->h->ops[r->seen[at] - 1];

        if (other->client == op->client && other->id == op->id)
            break;
        at = (at + 1) & mask;
    }
    return &r->seen[at];
}

static void seen_grow(struct reader *r)
{
    uint32_t *old = r->seen;
    size_t old_room = r->seen_room;

    r->seen_room = old_room ? old_room * 2 : 1024;
    r->seen = memory_new(r->seen_room, sizeof *r->seen);
    for (size_t i = 0; i < old_room; i++) {
        if (old[i])
            *seen_slot(r, &r->h->ops[old[i] - 1]) = old[i];
    }
    free(old);
}

static bool same_call(const struct history_op *a, const struct history_op *b)
{
    return a->kind == b->kind && a->key == b->key && a->invoke == b->invoke;
}

/* An operation is written when it begins and again when it ends, so that one
 * whose process is killed in between is known too. The end counts. */
static int merge_op(struct reader *r, struct history_op *old,
                    const struct history_op *op)
{
    if (old->answered && op->answered)
        return fields_fail(&r->fields, "this operation has a result already");
    if (!same_call(old, op))
        return fields_fail(&r->fields,
                           "kind, key or invoke differs from an earlier line");
    if (op->answered)
        *old = *op;
    return 0;
}

static int add_op(struct reader *r, const struct history_op *op)
{
    if (r->seen_count * 2 >= r->seen_room)
        seen_grow(r);
    uint32_t *slot = seen_slot(r, op);

    if (*slot)
        return merge_op(r, &r->h->ops[*slot - 1], op);
    if (r->h->op_count == UINT32_MAX - 1)
        return fields_fail(&r->fields, "too many operations");
    *slot = (uint32_t)history_add(r->h, op) + 1;
    r->seen_count++;
    return 0;
}

static int read_op(struct reader *r)
{
    unsigned events = FIELD_BIT(F_TIME) | FIELD_BIT(F_TEXT) |
                      FIELD_BIT(F_VERSION) | FIELD_BIT(F_FIFO);

    if (fields_demand(&r->fields,
                      FIELD_BIT(F_TYPE) | FIELD_BIT(F_CLIENT) |
                          FIELD_BIT(F_OP) | FIELD_BIT(F_KIND) |
                          FIELD_BIT(F_KEY) | FIELD_BIT(F_INVOKE),
                      ~events) < 0)
        return -1;
    unsigned kind = choice(r, F_KIND, HISTORY_KINDS, kind_name);

    if (kind == HISTORY_KINDS)
        return fields_fail(&r->fields,
                           "an operation of a kind that is not known");
    struct history_op op =
        history_op(kind, (uint32_t)fields_number(&r->fields, F_CLIENT, 0),
                   fields_number(&r->fields, F_INVOKE, 0));

    op.id = fields_number(&r->fields, F_OP, 0);
    op.token = fields_number(&r->fields, F_TOKEN, 0);
    op.value = fields_number(&r->fields, F_VALUE, 0);
    op.fenced = fields_number(&r->fields, F_FENCED, 1);
    op.key = word(r, F_KEY);
    op.cell = word(r, F_CELL);
    if (fields_given(&r->fields, F_TOKEN) && !op.token)
        return fields_fail(&r->fields, "a token of 0");
    if (read_nonce(r, &op) < 0 || read_result(r, &op) < 0 ||
        read_times(r, &op) < 0)
        return -1;
    const char *fault = history_op_fault(&op);

    return fault ? fields_fail(&r->fields, "%s", fault) : add_op(r, &op);
}

static int read_death(struct reader *r)
{
    if (fields_demand(
            &r->fields,
            FIELD_BIT(F_TYPE) | FIELD_BIT(F_CLIENT) | FIELD_BIT(F_TIME), 0) < 0)
        return -1;
    history_add_death(
        r->h, (struct history_death){
                  .time = fields_number(&r->fields, F_TIME, 0),
                  .client = (uint32_t)fields_number(&r->fields, F_CLIENT, 0),
              });
    return 0;
}

static int read_lost(struct reader *r)
{
    if (fields_demand(&r->fields,
                      FIELD_BIT(F_TYPE) | FIELD_BIT(F_CLIENT) |
                          FIELD_BIT(F_KEY) | FIELD_BIT(F_TOKEN) |
                          FIELD_BIT(F_TIME),
                      0) < 0)
        return -1;
    history_add_lost(
        r->h, (struct history_lost){
                  .time = fields_number(&r->fields, F_TIME, 0),
                  .token = fields_number(&r->fields, F_TOKEN, 0),
                  .client = (uint32_t)fields_number(&r->fields, F_CLIENT, 0),
                  .key = word(r, F_KEY),
              });
    return 0;
}

static int read_note(struct reader *r)
{
    if (fields_demand(&r->fields,
                      FIELD_BIT(F_TYPE) | FIELD_BIT(F_TIME) | FIELD_BIT(F_TEXT),
                      0) < 0)
        return -1;
    history_add_note(r->h, (struct history_note){
                               .time = fields_number(&r->fields, F_TIME, 0),
                               .text = word(r, F_TEXT),
                           });
    return 0;
}

static int read_header(struct reader *r)
{
    if (fields_demand(&r->fields,
                      FIELD_BIT(F_TYPE) | FIELD_BIT(F_VERSION) |
                          FIELD_BIT(F_FIFO),
                      0) < 0)
        return -1;
    if (!fields_is(&r->fields, F_TYPE, "history"))
        return fields_fail(&r->fields,
                           "the first line is not a \"history\" header");
    if (fields_number(&r->fields, F_VERSION, 0) != 1)
        return fields_fail(&r->fields, "a version that is not 1");
    r->h->fifo = fields_number(&r->fields, F_FIFO, 0);
    return 0;
}

static int read_line(struct reader *r, const char *at, const char *end)
{
    if (fields_read(&r->fields, at, end) < 0)
        return -1;
    if (r->fields.line == 1)
        return read_header(r);
    if (!fields_given(&r->fields, F_TYPE))
        return fields_fail(&r->fields, "field \"type\" is missing");
    if (fields_is(&r->fields, F_TYPE, "op"))
        return read_op(r);
    if (fields_is(&r->fields, F_TYPE, "death"))
        return read_death(r);
    if (fields_is(&r->fields, F_TYPE, "lost"))
        return read_lost(r);
    if (fields_is(&r->fields, F_TYPE, "note"))
        return read_note(r);
    return fields_fail(&r->fields, "a line of a type that is not known");
}

/* Bytes into lines. */

#define CHUNK ((size_t)1 << 18)

/* Read the whole lines of `buffer`, and say how many bytes they were. */
static int read_lines(struct reader *r, const char *buffer, size_t len,
                      bool last, size_t *used)
{
    *used = 0;
    while (*used < len) {
        const char *from = buffer + *used;
        const char *end = memchr(from, '\n', len - *used);

        if (!end && !last)
            break;
        r->fields.line++;
        if (!end)
            end = buffer + len;
        if (end - from >= HISTORY_LINE_MAX)
            return fields_fail(&r->fields, "a line of more than %d bytes",
                               HISTORY_LINE_MAX);
        if (read_line(r, from, end) < 0)
            return -1;
        *used = (size_t)(end - buffer) + (end < buffer + len ? 1 : 0);
    }
    return 0;
}

static int read_all(struct reader *r, FILE *in, char *buffer)
{
    size_t kept = 0, used = 0;
    bool last = false;

    while (!last) {
        size_t got = fread(buffer + kept, 1, CHUNK - kept, in);

        if (ferror(in))
            return fields_fail(&r->fields, "it cannot be read");
        last = got == 0;
        if (read_lines(r, buffer, kept + got, last, &used) < 0)
            return -1;
        kept += got - used;
        memmove(buffer, buffer + used, kept);
        if (kept >= HISTORY_LINE_MAX && !last) {
            r->fields.line++;
            return fields_fail(&r->fields, "a line of more than %d bytes",
                               HISTORY_LINE_MAX);
        }
    }
    if (!r->fields.line)
        return fields_fail(&r->fields, "it has no lines");
    return 0;
}

int history_read(struct history *h, FILE *in, struct history_fault *fault)
{
    struct reader *r = memory_new(1, sizeof *r);
    char *buffer = memory_new(CHUNK, 1);

    r->h = h;
    r->fields.fault = fault;
    int answer = read_all(r, in, buffer);

    free(buffer);
    free(r->seen);
    free(r);
    return answer;
}
