/* mutex_map.h - a map of mutexes by key, as a program without a lock library
 * would have it. The benchmarks compare holdfast with it.
 *
 * It has 64 shards, each a small hash map with a mutex. A key is in the map
 * only while it is locked or waited for. There are no leases, no tokens, no
 * order of arrival and no timeouts, and it works in one process only. */
#ifndef BENCH_MUTEX_MAP_H
#define BENCH_MUTEX_MAP_H

#include "holdfast.h"

struct mutex_map;

/* Make a map for about `keys` keys at a time; the number of buckets is
 * fixed. */
struct mutex_map *mutex_map_new(size_t keys);
void mutex_map_free(struct mutex_map *map);

void mutex_map_lock(struct mutex_map *map, struct hf_key key);
void mutex_map_unlock(struct mutex_map *map, struct hf_key key);

#endif
