/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * A line always fits: its long strings are the key, the cell and the name of
 * the error, of at most HF_OP_TEXT_MAX bytes each, and a byte becomes at most
 * six. */
#include "encoder.h"

#include <inttypes.h>
#include <string.h>

_Static_assert(HF_ENCODER_LINE_MAX >= 3 * 6 * HF_OP_TEXT_MAX + 2048,
               "a line holds three long texts and a dozen numbers");

struct line {
    const struct hf_check_history *h;
    char *text;
    size_t len;
};

static struct line begin_line(const struct hf_check_history *h, char *text)
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

static void put_text(struct line *line, const char *text)
{
    put_bytes(line, text, strlen(text));
}

/* printf() is too slow here, because a long history has ten million numbers. */
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

static void put_number_field(struct line *line, const char *name,
                             uint64_t number)
{
    put_text(line, name);
    put_number(line, number);
}

static void put_time_field(struct line *line, const char *name, uint64_t time)
{
    if (time != HF_OP_NEVER)
        put_number_field(line, name, time);
}

static void put_string_field(struct line *line, const char *name,
                             uint32_t string)
{
    if (!string)
        return;
    put_text(line, name);
    line->len += hf_encoder_quote(line->h, string, line->text + line->len);
}

static size_t finish_line(struct line *line)
{
    put_text(line, "}\n");
    line->text[line->len] = '\0';
    return line->len;
}

size_t hf_encoder_quote(const struct hf_check_history *h, uint32_t string,
                        char *text)
{
    static const char hex[] = "0123456789abcdef";
    size_t len, at = 0;
    const char *bytes = hf_intern_bytes(&h->strings, string, &len);

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

size_t hf_encoder_put_header(const struct hf_check_history *h, char *text)
{
    struct line line = begin_line(h, text);

    put_text(&line, "{\"type\":\"history\",\"version\":1,\"fifo\":");
    put_text(&line, h->fifo ? "true" : "false");
    return finish_line(&line);
}

static void put_result_fields(struct line *line, const struct hf_op *op)
{
    put_time_field(line, ",\"return\":", op->answer);
    put_text(line, ",\"result\":\"");
    put_text(line, hf_op_result_name(op->result));
    put_text(line, "\"");
    put_string_field(line, ",\"error\":", op->error_name);
}

size_t hf_encoder_put_op(const struct hf_check_history *h,
                         const struct hf_op *op, char *text)
{
    struct line line = begin_line(h, text);

    put_number_field(&line, "{\"type\":\"op\",\"client\":", op->client);
    put_number_field(&line, ",\"op\":", op->id);
    put_text(&line, ",\"kind\":\"");
    put_text(&line, hf_op_kind_name(op->kind));
    put_text(&line, "\"");
    put_string_field(&line, ",\"key\":", op->key);
    put_string_field(&line, ",\"nonce\":", op->nonce);
    if (op->token)
        put_number_field(&line, ",\"token\":", op->token);
    put_string_field(&line, ",\"cell\":", op->cell);
    if (op->kind == HF_OP_WRITE) {
        put_number_field(&line, ",\"value\":", op->value);
        put_text(&line, op->fenced ? "" : ",\"fenced\":false");
    }
    put_number_field(&line, ",\"invoke\":", op->invoke);
    put_time_field(&line, ",\"queued\":", op->queued);
    if (op->answered)
        put_result_fields(&line, op);
    put_time_field(&line, ",\"deadline\":", op->deadline);
    if (op->lease)
        put_number_field(&line, ",\"lease\":", op->lease);
    return finish_line(&line);
}

size_t hf_encoder_put_death(const struct hf_op_death *death, char *text)
{
    struct line line = begin_line(NULL, text);

    put_number_field(&line, "{\"type\":\"death\",\"client\":", death->client);
    put_number_field(&line, ",\"time\":", death->time);
    return finish_line(&line);
}

size_t hf_encoder_put_lost(const struct hf_check_history *h,
                           const struct hf_op_lost *lost, char *text)
{
    struct line line = begin_line(h, text);

    put_number_field(&line, "{\"type\":\"lost\",\"client\":", lost->client);
    put_string_field(&line, ",\"key\":", lost->key);
    put_number_field(&line, ",\"token\":", lost->token);
    put_number_field(&line, ",\"time\":", lost->time);
    return finish_line(&line);
}

size_t hf_encoder_put_note(const struct hf_check_history *h,
                           const struct hf_op_note *note, char *text)
{
    struct line line = begin_line(h, text);

    put_number_field(&line, "{\"type\":\"note\",\"time\":", note->time);
    put_text(&line, ",\"text\":");
    line.len += hf_encoder_quote(h, note->text, line.text + line.len);
    return finish_line(&line);
}

int hf_encoder_write(const struct hf_check_history *h, FILE *out)
{
    char line[HF_ENCODER_LINE_MAX];
    size_t len = hf_encoder_put_header(h, line);

    fwrite(line, 1, len, out);
    for (size_t i = 0; i < h->op_count; i++)
        fwrite(line, 1, hf_encoder_put_op(h, &h->ops[i], line), out);
    for (size_t i = 0; i < h->death_count; i++)
        fwrite(line, 1, hf_encoder_put_death(&h->deaths[i], line), out);
    for (size_t i = 0; i < h->lost_count; i++)
        fwrite(line, 1, hf_encoder_put_lost(h, &h->losts[i], line), out);
    for (size_t i = 0; i < h->note_count; i++)
        fwrite(line, 1, hf_encoder_put_note(h, &h->notes[i], line), out);
    return fflush(out) || ferror(out) ? -1 : 0;
}
