#include "lib/mutex_map.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdlib.h>

#include "lib/bench.h"

#define SHARDS 64

struct entry {
    struct entry *next;
    unsigned users; /* threads that hold or want the mutex */
    pthread_mutex_t mutex;
    size_t size;
    uint8_t key[];
};

struct shard {
    alignas(64) pthread_mutex_t mutex;
    struct entry **buckets;
    size_t mask; /* the number of buckets, a power of two, minus one */
};

struct mutex_map {
    struct shard shards[SHARDS];
};

struct mutex_map *mutex_map_new(size_t keys)
{
    struct mutex_map *map = aligned_alloc(64, sizeof(*map));
    size_t buckets = 1;

    if (!map)
        bench_fail("out of memory");
    while (buckets * SHARDS < keys)
        buckets *= 2;
    for (size_t i = 0; i < SHARDS; i++) {
        pthread_mutex_init(&map->shards[i].mutex, NULL);
        map->shards[i].buckets = bench_alloc(buckets, sizeof(struct entry *));
        map->shards[i].mask = buckets - 1;
    }
    return map;
}

void mutex_map_free(struct mutex_map *map)
{
    for (size_t i = 0; i < SHARDS; i++) {
        pthread_mutex_destroy(&map->shards[i].mutex);
        free(map->shards[i].buckets);
    }
    free(map);
}

/* FNV-1a, a cheap hash. */
static uint64_t hash_key(struct hf_key key)
{
    const uint8_t *bytes = key.data;
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < key.size; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* Returns the pointer that points to the key's entry, or the NULL pointer at
 * the end of the key's bucket. */
static struct entry **find_entry(struct shard *shard, struct hf_key key,
                                 uint64_t h)
{
    struct entry **at = &shard->buckets[(h >> 32) & shard->mask];

    while (*at && ((*at)->size != key.size ||
                   memcmp((*at)->key, key.data, key.size) != 0))
        at = &(*at)->next;
    return at;
}

static struct entry *new_entry(struct hf_key key)
{
    struct entry *entry = malloc(sizeof(*entry) + key.size);

    if (!entry)
        bench_fail("out of memory");
    entry->next = NULL;
    entry->users = 0;
    pthread_mutex_init(&entry->mutex, NULL);
    entry->size = key.size;
    memcpy(entry->key, key.data, key.size);
    return entry;
}

void mutex_map_lock(struct mutex_map *map, struct hf_key key)
{
    uint64_t h = hash_key(key);
    struct shard *shard = &map->shards[h % SHARDS];
    struct entry **at, *entry;

    pthread_mutex_lock(&shard->mutex);
    at = find_entry(shard, key, h);
    if (!*at)
        *at = new_entry(key);
    entry = *at;
    entry->users++;
    pthread_mutex_unlock(&shard->mutex);
    pthread_mutex_lock(&entry->mutex);
}

void mutex_map_unlock(struct mutex_map *map, struct hf_key key)
{
    uint64_t h = hash_key(key);
    struct shard *shard = &map->shards[h % SHARDS];
    struct entry **at, *entry;

    pthread_mutex_lock(&shard->mutex);
    at = find_entry(shard, key, h);
    entry = *at;
    if (!entry)
        bench_fail("mutex_map_unlock: the key is not locked");
    pthread_mutex_unlock(&entry->mutex);
    if (--entry->users == 0) {
        *at = entry->next;
        pthread_mutex_destroy(&entry->mutex);
        free(entry);
    }
    pthread_mutex_unlock(&shard->mutex);
}
