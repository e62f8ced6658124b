/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "words.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

struct word {
    size_t at;
    uint32_t len;
    uint32_t hash;
};

/* An empty slot. Word 0 is never looked for in the table, so 0 is free. */
#define NO_WORD 0u

/* FNV-1a: short strings, no adversary. */
static uint32_t hash_of(const char *bytes, size_t len)
{
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 16777619u;
    return hash ^ hash >> 15;
}

static int is_word(const struct words *w, uint32_t number, uint32_t hash,
                   const char *bytes, size_t len)
{
    const struct word *word = &w->list[number];

    return word->hash == hash && word->len == len &&
           memcmp(w->bytes + word->at, bytes, len) == 0;
}

/* The slot that holds these bytes, or the empty one where they belong. */
static uint32_t *slot_of(const struct words *w, uint32_t hash,
                         const char *bytes, size_t len)
{
    size_t mask = w->slot_count - 1;
    size_t at = hash & mask;

    while (w->slots[at] != NO_WORD &&
           !is_word(w, w->slots[at], hash, bytes, len))
        at = (at + 1) & mask;
    return &w->slots[at];
}

static void rehash(struct words *w)
{
    free(w->slots);
    w->slot_count = w->slot_count ? w->slot_count * 2 : 64;
    w->slots = memory_new(w->slot_count, sizeof *w->slots);
    for (size_t i = 1; i < w->count; i++) {
        const struct word *word = &w->list[i];

        *slot_of(w, word->hash, w->bytes + word->at, word->len) = (uint32_t)i;
    }
}

static uint32_t append(struct words *w, uint32_t hash, const char *bytes,
                       size_t len)
{
    w->list = memory_grow(w->list, &w->list_room, w->count, sizeof *w->list);
    while (w->bytes_room < w->bytes_len + len)
        w->bytes = memory_grow(w->bytes, &w->bytes_room, w->bytes_room, 1);
    w->list[w->count] =
        (struct word){.at = w->bytes_len, .len = (uint32_t)len, .hash = hash};
    if (len)
        memcpy(w->bytes + w->bytes_len, bytes, len);
    w->bytes_len += len;
    return (uint32_t)w->count++;
}

void words_init(struct words *w)
{
    *w = (struct words){0};
    append(w, 0, "", 0);
    rehash(w);
}

void words_fini(struct words *w)
{
    free(w->bytes);
    free(w->list);
    free(w->slots);
    *w = (struct words){0};
}

uint32_t words_add(struct words *w, const char *bytes, size_t len)
{
    if (!len)
        return 0;
    uint32_t hash = hash_of(bytes, len);
    uint32_t *slot = slot_of(w, hash, bytes, len);

    if (*slot != NO_WORD)
        return *slot;
    uint32_t number = *slot = append(w, hash, bytes, len);

    if (w->count * 2 > w->slot_count)
        rehash(w);
    return number;
}

const char *words_bytes(const struct words *w, uint32_t word, size_t *len)
{
    *len = w->list[word].len;
    return w->bytes ? w->bytes + w->list[word].at : "";
}
