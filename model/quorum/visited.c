#include "visited.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    ROOM_FIRST = 1 << 16,
};

void hf_visited_init(struct hf_visited *visited)
{
    memset(visited, 0, sizeof *visited);
}

void hf_visited_fini(struct hf_visited *visited)
{
    free(visited->fingerprints);
    free(visited->parents);
    free(visited->slots);
}

/* The slot of `fingerprint`, or the empty slot where it belongs. */
static uint32_t *find_slot(const struct hf_visited *visited,
                           uint64_t fingerprint)
{
    size_t mask = visited->slot_count - 1;
    size_t at = fingerprint & mask;

    while (visited->slots[at] &&
           visited->fingerprints[visited->slots[at] - 1] != fingerprint)
        at = (at + 1) & mask;
    return &visited->slots[at];
}

/* Make room for twice as many states. At most half of the slots are used. */
static void grow(struct hf_visited *visited)
{
    uint32_t room = visited->room ? visited->room * 2 : ROOM_FIRST;

    visited->fingerprints = hf_memory_resize(visited->fingerprints, room,
                                             sizeof *visited->fingerprints);
    visited->parents =
        hf_memory_resize(visited->parents, room, sizeof *visited->parents);
    visited->room = room;
    free(visited->slots);
    visited->slot_count = (size_t)room * 2;
    visited->slots =
        hf_memory_zeroed(visited->slot_count, sizeof *visited->slots);
    for (uint32_t i = 0; i < visited->count; i++)
        *find_slot(visited, visited->fingerprints[i]) = i + 1;
}

bool hf_visited_add(struct hf_visited *visited, uint64_t fingerprint,
                    uint32_t parent)
{
    uint32_t *slot;

    if (visited->count == visited->room)
        grow(visited);
    slot = find_slot(visited, fingerprint);
    if (*slot)
        return false;
    visited->fingerprints[visited->count] = fingerprint;
    visited->parents[visited->count] = parent;
    visited->count++;
    *slot = visited->count;
    return true;
}

size_t hf_visited_bytes(const struct hf_visited *visited)
{
    return visited->room *
               (sizeof *visited->fingerprints + sizeof *visited->parents) +
           visited->slot_count * sizeof *visited->slots;
}
