#include "strategy/mongo/event_line.h"

#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "strategy/mongo/escape.h"

/* Read a word, up to a space or a newline. Return its length. */
static size_t read_word(const char **cursor, const char **start)
{
    size_t size;

    *start = *cursor;
    size = strcspn(*cursor, " \n");
    *cursor += size + ((*cursor)[size] == ' ');
    return size;
}

static uint64_t read_decimal(const char **cursor)
{
    const char *start;

    return read_word(cursor, &start) > 0 ? strtoull(start, NULL, 10) : 0;
}

static bool read_event_claim(const char **cursor, struct hf_mongo_claim *claim)
{
    const char *start;

    if (read_word(cursor, &start) != HF_MONGO_CLIENT_SIZE)
        return false;
    memcpy(claim->client, start, HF_MONGO_CLIENT_SIZE);
    return read_word(cursor, &start) == HF_MONGO_NONCE_SIZE &&
           hf_hex_decode(claim->nonce.bytes, sizeof(claim->nonce.bytes), start);
}

bool hf_mongo_event_line_read(const char **cursor,
                              struct hf_mongo_event_line *line)
{
    const char *start;
    size_t size;

    *cursor += strcspn(*cursor, "\n");
    if (**cursor == '\0')
        return false;
    ++*cursor;
    *line = (struct hf_mongo_event_line){.lease_ms = 0};
    line->event.kind = (enum hf_event_kind)read_decimal(cursor);
    line->event.token = read_decimal(cursor);
    line->event.freed = read_decimal(cursor) != 0;
    line->lease_ms = (uint32_t)read_decimal(cursor);
    size = read_word(cursor, &start);
    if (size >= sizeof(line->owner))
        size = sizeof(line->owner) - 1;
    size = hf_mongo_unescape((uint8_t *)line->owner, start, size);
    if (size > HF_NOTE_MAX)
        size = HF_NOTE_MAX;
    line->owner[size] = '\0';
    line->event.owner = line->owner;
    while (line->claim_count < HF_MONGO_EVENT_LINE_CLAIMS && **cursor != '\0' &&
           **cursor != '\n' &&
           read_event_claim(cursor, &line->claims[line->claim_count]))
        line->claim_count++;
    return true;
}
