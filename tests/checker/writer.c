/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * The written form of a history: docs/history.md.
 *
 * No line can be too long: every text in it is at most HISTORY_TEXT_MAX bytes,
 * a byte becomes six at most, and no line has more than two long texts. */
#include "history.h"

#include <inttypes.h>
#include <string.h>

_Static_assert(HISTORY_LINE_MAX >= 2 * 6 * HISTORY_TEXT_MAX + 2048,
               "a line holds two long texts and a dozen numbers");

struct line {
    const struct history *h;
    char *text;
    size_t len;
};

static struct line begin(const struct history *h, char *text)
{
    struct line line = {.h = h};

    line.text = text;
    return line;
}

static void put_bytes(struct line *line, const char *bytes, size_t len)
{
    memcpy(line->text + line->len, bytes, len);
    line->len += len;
}

static void put(struct line *line, const char *text)
{
    put_bytes(line, text, strlen(text));
}

/* By hand: a long history has ten million numbers, and printf() is slow. */
static void put_number(struct line *line, uint64_t number)
{
    char digits[20];
    size_t at = sizeof digits;

    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    put_bytes(line, digits + at, sizeof digits - at);
}

static void number_field(struct line *line, const char *name, uint64_t number)
{
    put(line, name);
    put_number(line, number);
}

static void time_field(struct line *line, const char *name, uint64_t time)
{
    if (time != HISTORY_NEVER)
        number_field(line, name, time);
}

static void word_field(struct line *line, const char *name, uint32_t word)
{
    if (!word)
        return;
    put(line, name);
    line->len += history_quote(line->h, word, line->text + line->len);
}

static size_t finish(struct line *line)
{
    put(line, "}\n");
    line->text[line->len] = '\0';
    return line->len;
}

size_t history_quote(const struct history *h, uint32_t word, char *text)
{
    static const char hex[] = "0123456789abcdef";
    size_t len, at = 0;
    const char *bytes = words_bytes(&h->words, word, &len);

    text[at++] = '"';
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)bytes[i];

        if (c < 0x20 || c > 0x7e) {
            memcpy(text + at, "\\u00", 4);
            text[at + 4] = hex[c >> 4];
            text[at + 5] = hex[c & 15];
            at += 6;
            continue;
        }
        if (c == '"' || c == '\\')
            text[at++] = '\\';
        text[at++] = (char)c;
    }
    text[at++] = '"';
    text[at] = '\0';
    return at;
}

size_t history_write_header(const struct history *h, char *text)
{
    struct line line = begin(h, text);

    put(&line, "{\"type\":\"history\",\"version\":1,\"fifo\":");
    put(&line, h->fifo ? "true" : "false");
    return finish(&line);
}

static void result_fields(struct line *line, const struct history_op *op)
{
    time_field(line, ",\"return\":", op->answer);
    put(line, ",\"result\":\"");
    put(line, history_result_name(op->result));
    put(line, "\"");
    word_field(line, ",\"error\":", op->error_name);
}

size_t history_write_op(const struct history *h, const struct history_op *op,
                        char *text)
{
    struct line line = begin(h, text);

    number_field(&line, "{\"type\":\"op\",\"client\":", op->client);
    number_field(&line, ",\"op\":", op->id);
    put(&line, ",\"kind\":\"");
    put(&line, history_kind_name(op->kind));
    put(&line, "\"");
    word_field(&line, ",\"key\":", op->key);
    word_field(&line, ",\"nonce\":", op->nonce);
    if (op->token)
        number_field(&line, ",\"token\":", op->token);
    word_field(&line, ",\"cell\":", op->cell);
    if (op->kind == HISTORY_WRITE) {
        number_field(&line, ",\"value\":", op->value);
        put(&line, op->fenced ? "" : ",\"fenced\":false");
    }
    number_field(&line, ",\"invoke\":", op->invoke);
    time_field(&line, ",\"queued\":", op->queued);
    if (op->answered)
        result_fields(&line, op);
    time_field(&line, ",\"deadline\":", op->deadline);
    if (op->lease)
        number_field(&line, ",\"lease\":", op->lease);
    return finish(&line);
}

size_t history_write_death(const struct history_death *death, char *text)
{
    struct line line = begin(NULL, text);

    number_field(&line, "{\"type\":\"death\",\"client\":", death->client);
    number_field(&line, ",\"time\":", death->time);
    return finish(&line);
}

size_t history_write_lost(const struct history *h,
                          const struct history_lost *lost, char *text)
{
    struct line line = begin(h, text);

    number_field(&line, "{\"type\":\"lost\",\"client\":", lost->client);
    word_field(&line, ",\"key\":", lost->key);
    number_field(&line, ",\"token\":", lost->token);
    number_field(&line, ",\"time\":", lost->time);
    return finish(&line);
}

size_t history_write_note(const struct history *h,
                          const struct history_note *note, char *text)
{
    struct line line = begin(h, text);

    number_field(&line, "{\"type\":\"note\",\"time\":", note->time);
    put(&line, ",\"text\":");
    line.len += history_quote(h, note->text, line.text + line.len);
    return finish(&line);
}

int history_write(const struct history *h, FILE *out)
{
    char line[HISTORY_LINE_MAX];
    size_t len = history_write_header(h, line);

    fwrite(line, 1, len, out);
    for (size_t i = 0; i < h->op_count; i++)
        fwrite(line, 1, history_write_op(h, &h->ops[i], line), out);
    for (size_t i = 0; i < h->death_count; i++)
        fwrite(line, 1, history_write_death(&h->deaths[i], line), out);
    for (size_t i = 0; i < h->lost_count; i++)
        fwrite(line, 1, history_write_lost(h, &h->losts[i], line), out);
    for (size_t i = 0; i < h->note_count; i++)
        fwrite(line, 1, history_write_note(h, &h->notes[i], line), out);
    return fflush(out) || ferror(out) ? -1 : 0;
}
