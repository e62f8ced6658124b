/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "intern.h"

#include "array.h"

#include <stdlib.h>
#include <string.h>

struct hf_intern_entry {
    size_t at;
    uint32_t len;
    uint32_t hash;
};

/* Marks an empty slot. Number 0, the empty string, is never in the table. */
#define NO_STRING 0u

/* FNV-1a is enough, because no attacker chooses the strings. */
static uint32_t hash_bytes(const char *bytes, size_t len)
{
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 16777619u;
    return hash ^ hash >> 15;
}

static int is_string(const struct hf_intern *intern, uint32_t number,
                     uint32_t hash, const char *bytes, size_t len)
{
    const struct hf_intern_entry *entry = &intern->list[number];

    return entry->hash == hash && entry->len == len &&
           memcmp(intern->bytes + entry->at, bytes, len) == 0;
}

/* Return the slot of this string, or the empty slot where it belongs. */
static uint32_t *find_slot(const struct hf_intern *intern, uint32_t hash,
                           const char *bytes, size_t len)
{
    size_t mask = intern->slot_count - 1;
    size_t at = hash & mask;

    while (intern->slots[at] != NO_STRING &&
           !is_string(intern, intern->slots[at], hash, bytes, len))
        at = (at + 1) & mask;
    return &intern->slots[at];
}

static void grow_slots(struct hf_intern *intern)
{
    free(intern->slots);
    intern->slot_count = intern->slot_count ? intern->slot_count * 2 : 64;
    intern->slots = hf_array_new(intern->slot_count, sizeof *intern->slots);
    for (size_t i = 1; i < intern->count; i++) {
        const struct hf_intern_entry *entry = &intern->list[i];

        *find_slot(intern, entry->hash, intern->bytes + entry->at, entry->len) =
            (uint32_t)i;
    }
}

static uint32_t append_string(struct hf_intern *intern, uint32_t hash,
                              const char *bytes, size_t len)
{
    intern->list = hf_array_grow(intern->list, &intern->list_room,
                                 intern->count, sizeof *intern->list);
    while (intern->bytes_room < intern->bytes_len + len)
        intern->bytes = hf_array_grow(intern->bytes, &intern->bytes_room,
                                      intern->bytes_room, 1);
    intern->list[intern->count] = (struct hf_intern_entry){
        .at = intern->bytes_len, .len = (uint32_t)len, .hash = hash};
    if (len)
        memcpy(intern->bytes + intern->bytes_len, bytes, len);
    intern->bytes_len += len;
    return (uint32_t)intern->count++;
}

void hf_intern_init(struct hf_intern *intern)
{
    *intern = (struct hf_intern){0};
    append_string(intern, 0, "", 0);
    grow_slots(intern);
}

void hf_intern_fini(struct hf_intern *intern)
{
    free(intern->bytes);
    free(intern->list);
    free(intern->slots);
    *intern = (struct hf_intern){0};
}

uint32_t hf_intern_add(struct hf_intern *intern, const char *bytes, size_t len)
{
    if (!len)
        return 0;
    uint32_t hash = hash_bytes(bytes, len);
    uint32_t *slot = find_slot(intern, hash, bytes, len);

    if (*slot != NO_STRING)
        return *slot;
    uint32_t number = *slot = append_string(intern, hash, bytes, len);

    if (intern->count * 2 > intern->slot_count)
        grow_slots(intern);
    return number;
}

const char *hf_intern_bytes(const struct hf_intern *intern, uint32_t string,
                            size_t *len)
{
    *len = intern->list[string].len;
    return intern->bytes ? intern->bytes + intern->list[string].at : "";
}
