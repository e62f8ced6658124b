#include "base/map.h"

#include <stdlib.h>

#include "base/assert.h"

static unsigned log2_floor(size_t x)
{
    return 63u - (unsigned)__builtin_clzll(x);
}

/* Buckets 16 to 31 are in segment 0, 32 to 63 in segment 1, and so on. */
static unsigned segment_of(size_t bucket)
{
    return log2_floor(bucket) - 4;
}

static struct hf_map_link **bucket_at(const struct hf_map *map, size_t bucket)
{
    if (bucket < HF_MAP_FIRST)
        return (struct hf_map_link **)&map->first[bucket];
    return &map->segments[segment_of(bucket)]
                         [bucket - ((size_t)1 << log2_floor(bucket))];
}

/* The bucket for `hash`. If the bucket that the hash selects has not been split
 * off yet, its links are still in its parent, whose number lacks the highest
 * bit, so return the parent. */
static size_t bucket_of(const struct hf_map *map, uint64_t hash)
{
    size_t half = (size_t)1 << log2_floor(map->buckets);
    size_t bucket = hash & (2 * half - 1);

    return bucket < map->buckets ? bucket : bucket & (half - 1);
}

void hf_map_init(struct hf_map *map)
{
    *map = (struct hf_map){.buckets = HF_MAP_FIRST};
}

void hf_map_fini(struct hf_map *map)
{
    for (size_t i = 0; i < HF_MAP_SEGMENTS; i++)
        free(map->segments[i]);
    hf_map_init(map);
}

/* The bucket that `bucket` was split from and will be merged into. */
static size_t parent_of(size_t bucket)
{
    return bucket - ((size_t)1 << log2_floor(bucket));
}

static void grow_map(struct hf_map *map)
{
    size_t bucket = map->buckets;
    unsigned segment = segment_of(bucket);
    struct hf_map_link **from, **to;

    if (segment >= HF_MAP_SEGMENTS)
        return;
    if (!map->segments[segment]) {
        map->segments[segment] = calloc((size_t)HF_MAP_FIRST << segment,
                                        sizeof(struct hf_map_link *));
        if (!map->segments[segment])
            return;
    }
    from = bucket_at(map, parent_of(bucket));
    to = bucket_at(map, bucket);
    map->buckets++;
    while (*from) {
        struct hf_map_link *link = *from;

        if (bucket_of(map, link->hash) != bucket) {
            from = &link->next;
            continue;
        }
        *from = link->next;
        link->next = *to;
        *to = link;
    }
}

void hf_map_reserve(struct hf_map *map, size_t count)
{
    HF_ASSERT(map->count == 0);
    while (map->buckets < count) {
        size_t before = map->buckets;
        unsigned segment = segment_of(before);

        grow_map(map);
        if (map->buckets == before)
            return;
        /* The map is empty, so the other buckets of the new segment need no
         * split. */
        map->buckets = (size_t)HF_MAP_FIRST << (segment + 1);
    }
    if (map->buckets > count && count > HF_MAP_FIRST)
        map->buckets = count;
}

static void shrink_map(struct hf_map *map)
{
    size_t bucket = map->buckets - 1;
    struct hf_map_link **from = bucket_at(map, bucket);
    struct hf_map_link **to = bucket_at(map, parent_of(bucket));

    while (*to)
        to = &(*to)->next;
    *to = *from;
    *from = NULL;
    map->buckets = bucket;
    /* A power of two is the first bucket of a segment, so the segment is empty
     * now. */
    if ((bucket & (bucket - 1)) == 0) {
        free(map->segments[segment_of(bucket)]);
        map->segments[segment_of(bucket)] = NULL;
    }
}

void hf_map_insert(struct hf_map *map, struct hf_map_link *link, uint64_t hash)
{
    struct hf_map_link **bucket;

    if (map->count >= map->buckets)
        grow_map(map);
    bucket = bucket_at(map, bucket_of(map, hash));
    link->hash = hash;
    link->next = *bucket;
    *bucket = link;
    map->count++;
}

void hf_map_remove(struct hf_map *map, struct hf_map_link *link)
{
    struct hf_map_link **at = bucket_at(map, bucket_of(map, link->hash));

    while (*at != link) {
        HF_ASSERT(*at);
        at = &(*at)->next;
    }
    *at = link->next;
    link->next = NULL;
    map->count--;
    /* Shrink only below half full, so that a map whose count goes up and down
     * does not split and merge all the time. A half-full map has two buckets
     * per link, so each removal merges two buckets: if it merged one, half of
     * the buckets would remain when the map is empty. */
    for (int i = 0; i < 2; i++) {
        if (map->buckets > HF_MAP_FIRST && map->count < map->buckets / 2)
            shrink_map(map);
    }
}

struct hf_map_link *hf_map_find(const struct hf_map *map, uint64_t hash)
{
    struct hf_map_link *link = *bucket_at(map, bucket_of(map, hash));

    while (link && link->hash != hash)
        link = link->next;
    return link;
}

struct hf_map_link *hf_map_find_next(const struct hf_map_link *link)
{
    struct hf_map_link *next = link->next;

    while (next && next->hash != link->hash)
        next = next->next;
    return next;
}

struct hf_map_link *hf_map_next(const struct hf_map *map,
                                const struct hf_map_link *link)
{
    size_t bucket = link ? bucket_of(map, link->hash) + 1 : 0;

    if (link && link->next)
        return link->next;
    for (; bucket < map->buckets; bucket++) {
        if (*bucket_at(map, bucket))
            return *bucket_at(map, bucket);
    }
    return NULL;
}
