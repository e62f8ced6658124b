#include "strategy/mongo/line.h"

#include <stdlib.h>
#include <string.h>

#include "strategy/mongo/text.h"

/* The next word, up to a space or the end of the line. */
static size_t word(const char **at, const char **start)
{
    size_t size;

    *start = *at;
    size = strcspn(*at, " \n");
    *at += size + ((*at)[size] == ' ');
    return size;
}

static uint64_t number(const char **at)
{
    const char *start;

    return word(at, &start) > 0 ? strtoull(start, NULL, 10) : 0;
}

static bool read_claim(const char **at, struct hf_mongo_claim *claim)
{
    const char *start;
    char nonce[HF_MONGO_NONCE_SIZE + 1] = "";

    if (word(at, &start) != HF_MONGO_CLIENT_SIZE)
        return false;
    memcpy(claim->client, start, HF_MONGO_CLIENT_SIZE);
    if (word(at, &start) != HF_MONGO_NONCE_SIZE)
        return false;
    memcpy(nonce, start, HF_MONGO_NONCE_SIZE);
    return hf_mongo_unhex(claim->nonce.bytes, sizeof(claim->nonce.bytes),
                          nonce);
}

bool hf_mongo_line_read(const char **at, struct hf_mongo_line *line)
{
    const char *start;
    size_t size;

    *at += strcspn(*at, "\n");
    if (**at == '\0')
        return false;
    ++*at;
    *line = (struct hf_mongo_line){.lease_ms = 0};
    line->event.kind = (enum hf_event_kind)number(at);
    line->event.token = number(at);
    line->event.freed = number(at) != 0;
    line->lease_ms = (uint32_t)number(at);
    size = word(at, &start);
    if (size >= sizeof(line->owner))
        size = sizeof(line->owner) - 1;
    size = hf_mongo_unescape((uint8_t *)line->owner, start, size);
    if (size > HF_NOTE_MAX)
        size = HF_NOTE_MAX;
    line->owner[size] = '\0';
    line->event.owner = line->owner;
    while (line->claim_count < HF_MONGO_LINE_CLAIMS && **at != '\0' &&
           **at != '\n' && read_claim(at, &line->claims[line->claim_count]))
        line->claim_count++;
    return true;
}
