/* map.h - a hash map, embedded in what it maps.
 *
 * Linear hashing (Litwin, 1980): it grows by one bucket an insert and shrinks
 * by at most two a removal, so nothing ever stalls to rehash, and an emptied
 * map gives its memory back. Nothing can fail: where a larger array cannot be had, the
 * chains get longer instead.
 *
 * The caller hashes and compares; the map keeps the hashes. */
#ifndef HF_BASE_MAP_H
#define HF_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/container.h"

struct hf_map_link {
    struct hf_map_link *next;
    uint64_t hash;
};

#define HF_MAP_FIRST 16    /* buckets in the struct itself */
#define HF_MAP_SEGMENTS 28 /* arrays of 16, 32, 64, ... more */

struct hf_map {
    struct hf_map_link *first[HF_MAP_FIRST];
    struct hf_map_link **segments[HF_MAP_SEGMENTS];
    size_t buckets;
    size_t count;
};

void hf_map_init(struct hf_map *map);

/* Have buckets for `count` links from the start: it is empty. Filling it then
 * splits none. Where memory is short, it grows as usual. */
void hf_map_reserve(struct hf_map *map, size_t count);

/* Give the arrays back. What is still linked is the caller's to free first. */
void hf_map_fini(struct hf_map *map);

/* Add `link`, which is in no map. */
void hf_map_insert(struct hf_map *map, struct hf_map_link *link, uint64_t hash);

/* Take out `link`, which is in this map. */
void hf_map_remove(struct hf_map *map, struct hf_map_link *link);

/* The first link with this hash, then the next one with the same hash; NULL
 * at the end. */
struct hf_map_link *hf_map_find(const struct hf_map *map, uint64_t hash);
struct hf_map_link *hf_map_find_next(const struct hf_map_link *link);

/* Walk over all: from NULL, in no order, until NULL. Nothing may be inserted or
 * removed meanwhile. To free all, ask for the follower of each link before
 * freeing it, then hf_map_fini(). */
struct hf_map_link *hf_map_next(const struct hf_map *map,
                                const struct hf_map_link *link);

#endif
