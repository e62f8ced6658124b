/* mutex_map.h - the plain way to have a mutex a key: what a program would
 * write if it had no library, to compare with.
 *
 * 64 shards, each a small hash map under a mutex of its own. A key is in its
 * map while somebody holds it or waits for it, so memory does not grow with
 * the keys that ever were. No lease, no token, no order of arrival, no limit
 * on the wait, one process. */
#ifndef BENCH_MUTEX_MAP_H
#define BENCH_MUTEX_MAP_H

#include "holdfast.h"

struct mutex_map;

/* Built for about `keys` keys at a time: it does not grow. */
struct mutex_map *mutex_map_new(size_t keys);
void mutex_map_free(struct mutex_map *map);

void mutex_map_lock(struct mutex_map *map, struct hf_key key);
void mutex_map_unlock(struct mutex_map *map, struct hf_key key);

#endif
