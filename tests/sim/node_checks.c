#include "sim/node_checks.h"

#include <stdlib.h>

#include "core/snapshot.h"
#include "lib/runner.h"
#include "node/state.h"

static const struct hf_seed zero;

void node_checks_init(struct node_checks *checks)
{
    memset(checks, 0, sizeof(*checks));
}

void node_checks_fini(struct node_checks *checks)
{
    free(checks->entries);
}

static void reserve(struct node_checks *checks, uint64_t index)
{
    size_t capacity = checks->capacity ? checks->capacity : 1024;

    while (capacity <= index)
        capacity *= 2;
    if (capacity == checks->capacity)
        return;
    checks->entries =
        realloc(checks->entries, capacity * sizeof(*checks->entries));
    assert_non_null(checks->entries);
    memset(checks->entries + checks->capacity, 0,
           (capacity - checks->capacity) * sizeof(*checks->entries));
    checks->capacity = capacity;
}

static uint64_t hash_entry(const struct hf_entry *entry)
{
    uint64_t hash = hf_siphash(&zero, entry->data.data, entry->data.size);

    hash ^= (entry->term * 8 + (uint64_t)entry->kind) *
            UINT64_C(0x9e3779b97f4a7c15);
    return hash | 1;
}

static void check_entry(struct node_checks *checks, struct sim_node *node,
                        uint64_t index)
{
    const struct hf_entry *entry =
        hf_entries_find(&node->node->engine.log, index);

    if (!entry)
        return; /* the entry was in a snapshot */
    reserve(checks, index);
    if (checks->entries[index] == 0)
        checks->entries[index] = hash_entry(entry);
    else if (checks->entries[index] != hash_entry(entry))
        fail_msg("node %u has applied another entry %llu", node->number + 1,
                 (unsigned long long)index);
}

void node_checks_on_start(struct node_checks *checks, struct sim_node *node)
{
    checks->applied[node->number] = node->node->replica.applied;
}

static void check_leader(struct node_checks *checks, struct sim_node *node)
{
    uint64_t term = node->node->leading_term;
    uint64_t *leader = &checks->leader_of[term % 4096];

    if (term == 0)
        return;
    if (*leader == 0)
        checks->leaders++;
    else if (*leader != node->number + 1)
        fail_msg("nodes %llu and %u lead in term %llu",
                 (unsigned long long)*leader, node->number + 1,
                 (unsigned long long)term);
    *leader = node->number + 1;
}

void node_checks_on_turn(struct node_checks *checks, struct sim_node *node)
{
    uint64_t *applied = &checks->applied[node->number];

    if (node->error.code)
        fail_msg("node %u has stopped: %s", node->number + 1, node->error.text);
    if (*applied > node->node->replica.applied)
        fail_msg("node %u has gone back", node->number + 1);
    while (*applied < node->node->replica.applied)
        check_entry(checks, node, ++*applied);
    check_leader(checks, node);
}

void node_checks_equal(struct node_checks *checks, struct sim_nodes *nodes)
{
    uint64_t first = 0;

    (void)checks;
    for (unsigned i = 0; i < nodes->count; i++) {
        struct hf_buf bytes = {0};
        uint64_t hash;

        hf_snapshot_encode(&nodes->list[i].node->replica.store->table, &bytes);
        hash = hf_siphash(&zero, bytes.data, bytes.size);
        hf_buf_fini(&bytes);
        if (i > 0 && hash != first)
            fail_msg("the table of node %u differs", i + 1);
        first = hash;
    }
}
