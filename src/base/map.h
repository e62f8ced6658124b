/* map.h - an intrusive hash map.
 *
 * Linear hashing (Litwin, 1980): an insert adds at most one bucket and a
 * removal merges at most two, so no call stalls to rehash, and the arrays are
 * freed as the map empties. No call can fail: if memory for more buckets is
 * not available, the chains get longer.
 *
 * The caller computes the hashes and compares the keys; the map stores the
 * hashes. */
#ifndef HF_BASE_MAP_H
#define HF_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/container.h"

struct hf_map_link {
    struct hf_map_link *next;
    uint64_t hash;
};

#define HF_MAP_FIRST 16    /* buckets inside the struct */
#define HF_MAP_SEGMENTS 28 /* arrays of 16, 32, 64, ... buckets */

struct hf_map {
    struct hf_map_link *first[HF_MAP_FIRST];
    struct hf_map_link **segments[HF_MAP_SEGMENTS];
    size_t buckets;
    size_t count;
};

/* A hash for consecutive numbers, and others that no user chooses. Different
 * numbers have different hashes. */
static inline uint64_t hf_map_hash_number(uint64_t number)
{
    return number * UINT64_C(0x9e3779b97f4a7c15);
}

void hf_map_init(struct hf_map *map);

/* Allocate buckets for `count` links, so that inserting them splits no bucket.
 * The map must be empty. If memory is short, the map grows later as usual. */
void hf_map_reserve(struct hf_map *map, size_t count);

/* Free the arrays. The caller frees the linked objects first. */
void hf_map_fini(struct hf_map *map);

/* Add `link`, which must be in no map. */
void hf_map_insert(struct hf_map *map, struct hf_map_link *link, uint64_t hash);

/* Remove `link`, which must be in this map. */
void hf_map_remove(struct hf_map *map, struct hf_map_link *link);

/* The first link with `hash`, or NULL. The caller compares the keys, because
 * different keys may have the same hash. */
struct hf_map_link *hf_map_find(const struct hf_map *map, uint64_t hash);
/* The next link with the same hash as `link`, or NULL. */
struct hf_map_link *hf_map_find_next(const struct hf_map_link *link);

/* Iterate over all links in no particular order: pass NULL first; NULL ends the
 * iteration. Do not insert or remove links meanwhile. To free all objects, get
 * the next link before freeing each object, then call hf_map_fini(). */
struct hf_map_link *hf_map_next(const struct hf_map *map,
                                const struct hf_map_link *link);

#endif
