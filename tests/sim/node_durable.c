#include "sim/node_durable.h"

#include <stdlib.h>

#include "lib/runner.h"
#include "node/state.h"

typedef unsigned long long ull;

void node_durable_fini(struct node_durable *durable)
{
    free(durable->entries);
}

uint64_t node_durable_hash(const struct hf_entry *entry)
{
    static const struct hf_seed zero;
    uint64_t hash = hf_siphash(&zero, entry->data.data, entry->data.size);

    hash ^= (entry->term * 8 + (uint64_t)entry->kind) *
            UINT64_C(0x9e3779b97f4a7c15);
    return hash | 1;
}

static void reserve(struct node_durable *durable, uint64_t index)
{
    size_t capacity = durable->capacity ? durable->capacity : 1024;

    while (capacity <= index)
        capacity *= 2;
    if (capacity == durable->capacity)
        return;
    durable->entries =
        realloc(durable->entries, capacity * sizeof(*durable->entries));
    assert_non_null(durable->entries);
    durable->capacity = capacity;
}

static void note_entries(struct node_durable *durable,
                         const struct hf_entries *log, uint64_t last)
{
    uint64_t index = durable->last < last ? durable->last : last;

    if (index < log->base_index)
        index = log->base_index;
    reserve(durable, last);
    while (index++ < last)
        durable->entries[index] =
            node_durable_hash(hf_entries_find(log, index));
    durable->last = last;
}

/* While a snapshot is being installed, the old log is still on the disk. */
void node_durable_note(struct node_durable *durable,
                       const struct sim_node *node)
{
    const struct hf_engine *engine = &node->node->engine;
    struct hf_log_state state = hf_wal_durable(node->node->journal.wal);

    if (engine->installing)
        return;
    note_entries(durable, &engine->log, state.last_index);
    durable->snapshot = engine->snapshot.index;
    durable->term = state.term;
    durable->vote = state.vote;
}

/* If the node has received a snapshot that contradicts its log, the log is
 * dropped. `committed` is the hash of the entry at the snapshot. */
static void check_entries(const struct node_durable *durable,
                          const struct sim_node *node, uint64_t committed)
{
    const struct hf_engine *engine = &node->node->engine;
    uint64_t index = engine->snapshot.index;

    if (index > durable->snapshot && index <= durable->last &&
        durable->entries[index] != committed)
        return;
    if (index < durable->snapshot)
        fail_msg("node %u has lost its snapshot at entry %llu",
                 node->number + 1, (ull)durable->snapshot);
    for (uint64_t i = index + 1; i <= durable->last; i++) {
        const struct hf_entry *entry = hf_entries_find(&engine->log, i);

        if (!entry || node_durable_hash(entry) != durable->entries[i])
            fail_msg("node %u has lost entry %llu, which was durable",
                     node->number + 1, (ull)i);
    }
}

void node_durable_on_start(struct node_durable *durable,
                           const struct sim_node *node, uint64_t committed)
{
    struct hf_log_state state = hf_wal_durable(node->node->journal.wal);

    check_entries(durable, node, committed);
    if (state.term < durable->term ||
        (state.term == durable->term && durable->vote != 0 &&
         state.vote != durable->vote))
        fail_msg("node %u has lost its term or vote", node->number + 1);
    node_durable_note(durable, node);
}

bool node_durable_has(const struct node_durable *durable, uint64_t index,
                      uint64_t hash)
{
    if (index <= durable->snapshot)
        return true;
    return index <= durable->last && durable->entries[index] == hash;
}
