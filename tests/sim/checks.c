#include "sim/checks.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/runner.h"
#include "sim/node.h"

#define REQUIRE(node, condition, ...)                                          \
    do {                                                                       \
        if (!(condition)) {                                                    \
            printf("%lld ms, node %llu: ", (long long)(node)->schedule->now,   \
                   (unsigned long long)(node)->id);                            \
            printf(__VA_ARGS__);                                               \
            printf("\n");                                                      \
            fail();                                                            \
        }                                                                      \
    } while (0)

typedef unsigned long long ull;

uint64_t sim_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static uint64_t hash_bytes(const void *data, size_t size)
{
    const uint8_t *bytes = data;
    uint64_t hash = size + 1;

    for (size_t i = 0; i < size; i++)
        hash = sim_mix(hash, bytes[i]);
    return hash;
}

/* ---- What happened so far -----------------------------------------------*/

static void *grow_array(void *array, size_t *capacity, uint64_t index,
                        size_t size)
{
    size_t wanted = *capacity > 0 ? *capacity : 256;

    if (index < *capacity)
        return array;
    while (wanted <= index)
        wanted *= 2;
    array = realloc(array, wanted * size);
    assert_non_null(array);
    memset((char *)array + *capacity * size, 0, (wanted - *capacity) * size);
    *capacity = wanted;
    return array;
}

static struct sim_history *history_at(struct sim_checks *checks, uint64_t index)
{
    checks->history = grow_array(checks->history, &checks->history_capacity,
                                 index, sizeof(*checks->history));
    return &checks->history[index];
}

static struct sim_term *term_at(struct sim_checks *checks, uint64_t term)
{
    checks->terms = grow_array(checks->terms, &checks->term_capacity, term,
                               sizeof(*checks->terms));
    return &checks->terms[term];
}

void sim_checks_fini(struct sim_checks *checks)
{
    for (size_t i = 0; i < checks->history_capacity; i++) {
        while (checks->history[i].seen) {
            struct sim_seen *seen = checks->history[i].seen;

            checks->history[i].seen = seen->next;
            free(seen);
        }
    }
    free(checks->history);
    free(checks->terms);
    *checks = (struct sim_checks){0};
}

/* ---- The checks ---------------------------------------------------------*/

static void check_entry(struct sim_checks *checks, struct sim_node *node,
                        uint64_t index)
{
    const struct hf_entry *entry = hf_entries_find(&node->engine.log, index);
    uint64_t prev_term = hf_entries_term(&node->engine.log, index - 1);
    uint64_t hash = hash_bytes(entry->data.data, entry->data.size);
    struct sim_history *history = history_at(checks, index);
    struct sim_seen *seen = history->seen;

    while (seen && seen->term != entry->term)
        seen = seen->next;
    if (!seen) {
        seen = malloc(sizeof(*seen));
        assert_non_null(seen);
        *seen = (struct sim_seen){entry->term, hash, prev_term, history->seen};
        history->seen = seen;
    }
    REQUIRE(node, seen->hash == hash && seen->prev_term == prev_term,
            "entry %llu of term %llu has two contents", (ull)index,
            (ull)entry->term);
    REQUIRE(node, index <= 1 || prev_term <= entry->term,
            "terms decrease at entry %llu", (ull)index);
}

void sim_checks_entries(struct sim_checks *checks, struct sim_node *node,
                        uint64_t first, uint64_t last)
{
    for (uint64_t i = first; i <= last; i++)
        check_entry(checks, node, i);
}

void sim_checks_leader(struct sim_checks *checks, struct sim_node *node)
{
    struct sim_term *term = term_at(checks, hf_engine_term(&node->engine));
    const struct hf_entries *log = &node->engine.log;

    REQUIRE(node, term->leader == 0 || term->leader == node->id,
            "nodes %llu and %llu both lead in term %llu", (ull)term->leader,
            (ull)node->id, (ull)hf_engine_term(&node->engine));
    term->leader = node->id;
    checks->leaders++;
    for (uint64_t i = log->base_index + 1; i <= checks->committed; i++)
        REQUIRE(node,
                hf_entries_term(log, i) == checks->history[i].committed_term ||
                    checks->history[i].committed_in >
                        hf_engine_term(&node->engine),
                "the new leader lacks committed entry %llu", (ull)i);
}

static void check_durable(struct sim_checks *checks, struct sim_node *node,
                          uint64_t index, uint64_t term)
{
    unsigned copies = 0;

    for (unsigned i = 0; i < checks->count; i++)
        copies += sim_storage_has(&checks->nodes[i].storage, index, term);
    REQUIRE(node, copies > checks->count / 2,
            "entry %llu is committed, but durable on %u nodes only", (ull)index,
            copies);
}

void sim_checks_commit(struct sim_checks *checks, struct sim_node *node,
                       uint64_t before, uint64_t commit)
{
    REQUIRE(node, commit >= before, "the commit index decreases to %llu",
            (ull)commit);
    for (uint64_t i = before + 1; i <= commit; i++) {
        uint64_t term = hf_entries_term(&node->engine.log, i);
        struct sim_history *history = history_at(checks, i);

        if (term == 0)
            continue; /* in the snapshot */
        if (history->committed_term == 0) {
            history->committed_term = term;
            history->committed_in = hf_engine_term(&node->engine);
            checks->commits++;
            if (i > 1)
                check_durable(checks, node, i, term);
        }
        REQUIRE(node, history->committed_term == term,
                "entry %llu is committed with the terms %llu and %llu", (ull)i,
                (ull)history->committed_term, (ull)term);
        if (i > checks->committed)
            checks->committed = i;
    }
}

void sim_checks_applied(struct sim_checks *checks, const struct sim_node *node)
{
    struct sim_history *history = history_at(checks, node->applied);

    if (history->state == 0)
        history->state = node->hash;
    REQUIRE(node, history->state == node->hash,
            "the state after entry %llu differs from that of another node",
            (ull)node->applied);
}

void sim_checks_vote(struct sim_checks *checks, const struct sim_node *node,
                     uint64_t term, uint64_t candidate)
{
    uint64_t *vote = &term_at(checks, term)->votes[node->number];

    REQUIRE(node, *vote == 0 || *vote == candidate,
            "votes for %llu and %llu in term %llu", (ull)*vote, (ull)candidate,
            (ull)term);
    *vote = candidate;
}

void sim_checks_read(struct sim_checks *checks, const struct sim_node *node,
                     uint64_t acknowledged)
{
    checks->reads++;
    REQUIRE(node, node->applied >= acknowledged,
            "a read sees entry %llu, but %llu was acknowledged before it",
            (ull)node->applied, (ull)acknowledged);
}
