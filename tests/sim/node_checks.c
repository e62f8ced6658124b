#include "sim/node_checks.h"

#include <stdlib.h>

#include "core/snapshot.h"
#include "lib/runner.h"
#include "node/clients_state.h"
#include "node/state.h"

/* In a simulation, snapshots are taken every few hundred entries at most, and
 * sessions without a client end after 10 s. A client waits for one key at a
 * time, and has few commands under way. A node that is cut off keeps the
 * requests of its clients until their deadlines; messages to it are queued
 * until the cut ends. */
#define LOG_MAX 500
#define SESSIONS_MAX 100
#define WAITERS_MAX 30
#define BYTES_MAX 40000
/* Bytes on the disk: the last snapshot, and a reserve for two more. A node that
 * has restarted expects that all entries of its log, up to LOG_MAX, make its
 * table larger. */
#define SNAPSHOTS_MAX 450000
#define SEGMENTS_MAX 4 /* files of the log */
#define OUTBOX_MAX 300
#define OUTPUT_MAX 65536
#define QUEUED_MAX 2000000
#define REQUESTS_MAX 300
#define PROPOSALS_MAX 150
#define PROPOSAL_BYTES_MAX 60000
#define UNANSWERED_MAX 160000
#define READS_MAX 100

static const struct hf_seed zero;

void node_checks_init(struct node_checks *checks)
{
    memset(checks, 0, sizeof(*checks));
}

void node_checks_fini(struct node_checks *checks)
{
    free(checks->entries);
    free(checks->tables);
    free(checks->tokens);
    node_events_fini(&checks->events);
    node_sessions_fini(&checks->sessions);
    for (unsigned i = 0; i < SIM_NODES; i++)
        node_durable_fini(&checks->durable[i]);
}

static void grow(uint64_t **list, size_t from, size_t to)
{
    *list = realloc(*list, to * sizeof(**list));
    assert_non_null(*list);
    memset(*list + from, 0, (to - from) * sizeof(**list));
}

static void reserve(struct node_checks *checks, uint64_t index)
{
    size_t capacity = checks->capacity ? checks->capacity : 1024;

    while (capacity <= index)
        capacity *= 2;
    if (capacity == checks->capacity)
        return;
    grow(&checks->entries, checks->capacity, capacity);
    grow(&checks->tables, checks->capacity, capacity);
    grow(&checks->tokens, checks->capacity, capacity);
    checks->capacity = capacity;
}

static void check_entry(struct node_checks *checks, struct sim_node *node,
                        uint64_t index)
{
    const struct hf_entry *entry =
        hf_entries_find(&node->node->engine.log, index);

    if (!entry)
        return; /* the entry was in a snapshot */
    reserve(checks, index);
    if (checks->entries[index] == 0) {
        checks->entries[index] = node_durable_hash(entry);
        node_sessions_add(&checks->sessions, index, entry);
    } else if (checks->entries[index] != node_durable_hash(entry)) {
        fail_msg("node %u has applied another entry %llu", node->number + 1,
                 (unsigned long long)index);
    }
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

static uint64_t hash_table(const struct sim_node *node)
{
    struct hf_buf bytes = {0};
    uint64_t hash;

    hf_snapshot_encode(&node->node->machine.store->table, &bytes);
    hash = hf_siphash(&zero, bytes.data, bytes.size);
    hf_buf_fini(&bytes);
    return hash | 1;
}

static void check_table(struct node_checks *checks, const struct sim_node *node)
{
    uint64_t index = node->node->machine.applied;
    uint64_t hash = hash_table(node);

    reserve(checks, index);
    checks->compared += checks->tables[index] != 0;
    if (checks->tables[index] != 0 && checks->tables[index] != hash)
        fail_msg("node %u has another table at entry %llu", node->number + 1,
                 (unsigned long long)index);
    checks->tables[index] = hash;
}

static void fail_counter(const struct sim_node *node, uint64_t index,
                         uint64_t token, uint64_t other)
{
    fail_msg("the token counter of node %u is %llu at entry %llu, and %llu at "
             "entry %llu",
             node->number + 1, (unsigned long long)token,
             (unsigned long long)node->node->machine.applied,
             (unsigned long long)other, (unsigned long long)index);
}

/* Compare the token counter with those at the nearest indexes. */
static void check_counter(struct node_checks *checks,
                          const struct sim_node *node)
{
    uint64_t applied = node->node->machine.applied;
    uint64_t token = node->node->machine.store->table.token + 1;
    uint64_t before = applied < checks->newest ? applied : checks->newest;
    uint64_t after = applied;

    reserve(checks, applied);
    while (before > 0 && checks->tokens[before] == 0)
        before--;
    while (after < checks->newest && checks->tokens[after] == 0)
        after++;
    if (checks->tokens[before] > token)
        fail_counter(node, before, token - 1, checks->tokens[before] - 1);
    if (checks->tokens[after] != 0 && checks->tokens[after] < token)
        fail_counter(node, after, token - 1, checks->tokens[after] - 1);
    checks->tokens[applied] = token;
    if (applied > checks->newest)
        checks->newest = applied;
}

void node_checks_on_start(struct node_checks *checks, struct sim_node *node)
{
    checks->applied[node->number] = node->node->machine.applied;
    check_table(checks, node);
    check_counter(checks, node);
    node_events_on_start(&checks->events, node);
    node_durable_on_start(&checks->durable[node->number], node,
                          checks->entries[node->node->engine.snapshot.index]);
}

static void check_limit(const struct sim_node *node, uint64_t count,
                        uint64_t limit, const char *what)
{
    if (count > limit)
        fail_msg("node %u has %llu %s", node->number + 1,
                 (unsigned long long)count, what);
}

static void check_table_limits(const struct sim_node *node)
{
    const struct hf_entries *log = &node->node->engine.log;
    const struct hf_table *table = &node->node->machine.store->table;

    check_limit(node, log->last - log->base_index, LOG_MAX, "log entries");
    check_limit(node, table->sessions.count, SESSIONS_MAX, "sessions");
    check_limit(node, table->waiting.count, WAITERS_MAX, "waiters");
    check_limit(node, hf_table_bytes(table), BYTES_MAX, "bytes in its table");
    check_limit(node, sim_disk_used(node->disk),
                SNAPSHOTS_MAX + SEGMENTS_MAX * node->nodes->segment_size,
                "bytes on its disk");
}

static size_t count_links(const struct hf_dlist *list)
{
    size_t count = 0;

    for (const struct hf_dlist *at = list->next; at != list; at = at->next)
        count++;
    return count;
}

static void check_request_limits(const struct sim_node *sim)
{
    const struct hf_node *node = sim->node;

    check_limit(sim, node->requests.count, REQUESTS_MAX, "requests");
    check_limit(sim, node->clients->unanswered, UNANSWERED_MAX,
                "bytes of requests");
    check_limit(sim, node->proposals.count, PROPOSALS_MAX, "proposals");
    check_limit(sim, node->proposals.bytes, PROPOSAL_BYTES_MAX,
                "bytes of proposals");
    check_limit(sim, node->reads.early_count + node->reads.rounds.reads.count,
                READS_MAX, "reads");
}

static void check_output_limits(const struct sim_node *sim)
{
    const struct hf_node *node = sim->node;
    const struct hf_dlist *conns = &node->clients->server.conns;

    check_limit(sim, count_links(&node->outbox.waiting), OUTBOX_MAX,
                "messages that wait for a flush");
    for (size_t i = 0; i < node->peers.count; i++)
        check_limit(sim, node->peers.list[i].out.size, OUTPUT_MAX,
                    "bytes for a peer");
    for (unsigned i = 0; i < sim->nodes->count; i++)
        check_limit(sim, sim->nodes->conns[sim->number][i].queued, QUEUED_MAX,
                    "bytes on the way to a peer");
    for (struct hf_dlist *at = conns->next; at != conns; at = at->next)
        check_limit(sim,
                    HF_CONTAINER(at, struct hf_serve_conn, link)->output.size,
                    OUTPUT_MAX, "bytes for a client");
}

static void check_acknowledged(struct node_checks *checks,
                               const struct sim_node *node)
{
    const struct sim_nodes *nodes = node->nodes;
    uint64_t *index = &checks->acknowledged;
    unsigned copies = 0;

    if (hf_node_leads(node->node) && node->node->machine.applied > *index)
        *index = node->node->machine.applied;
    if (*index == 0)
        return;
    for (unsigned i = 0; i < nodes->count; i++)
        copies += node_durable_has(&checks->durable[i], *index,
                                   checks->entries[*index]);
    if (copies <= nodes->count / 2)
        fail_msg("entry %llu was acknowledged, and %u nodes have it",
                 (unsigned long long)*index, copies);
}

static void check_applied(struct node_checks *checks, struct sim_node *node)
{
    uint64_t *applied = &checks->applied[node->number];
    bool has_applied = *applied < node->node->machine.applied;

    if (*applied > node->node->machine.applied)
        fail_msg("node %u has gone back", node->number + 1);
    while (*applied < node->node->machine.applied)
        check_entry(checks, node, ++*applied);
    if (has_applied) {
        check_table(checks, node);
        check_counter(checks, node);
        node_events_read(&checks->events, node);
        node_sessions_check(&checks->sessions, node);
    }
    node_durable_note(&checks->durable[node->number], node);
    check_acknowledged(checks, node);
}

void node_checks_on_turn(struct node_checks *checks, struct sim_node *node)
{
    if (node->error.code)
        fail_msg("node %u has stopped: %s", node->number + 1, node->error.text);
    check_applied(checks, node);
    check_leader(checks, node);
    check_table_limits(node);
    check_request_limits(node);
    check_output_limits(node);
}

/* A node that has failed may have applied an entry in part. */
void node_checks_on_down(struct node_checks *checks, struct sim_node *node)
{
    if (!node->error.code)
        check_applied(checks, node);
}

/* ---- At the end ---------------------------------------------------------*/

static bool is_free(const struct sim_nodes *nodes)
{
    const struct hf_node *first = nodes->list[0].node;

    for (unsigned i = 0; i < nodes->count; i++) {
        const struct hf_node *node = nodes->list[i].node;

        if (!node || node->machine.store->table.holds.count > 0 ||
            node->machine.applied != first->machine.applied ||
            node->engine.log.last != first->machine.applied)
            return false;
    }
    return true;
}

/* What changes in the table of the first node when a grant ends. */
struct progress {
    const struct sim_nodes *nodes;
    uint64_t token;
    size_t holds;
};

static struct progress progress_of(const struct sim_nodes *nodes)
{
    const struct hf_node *node = nodes->list[0].node;
    const struct hf_table *table = node ? &node->machine.store->table : NULL;

    return (struct progress){nodes, table ? table->token : 0,
                             table ? table->holds.count : 0};
}

static bool has_progress(void *arg)
{
    const struct progress *before = arg;
    struct progress now = progress_of(before->nodes);

    return now.token != before->token || now.holds != before->holds ||
           is_free(before->nodes);
}

/* The shortest lease in the table of the first node; 0 if no key is held. */
static uint32_t shortest_lease(const struct sim_nodes *nodes)
{
    const struct hf_node *node = nodes->list[0].node;
    const struct hf_hold *hold = NULL;
    uint32_t shortest = 0;

    while (node &&
           (hold = hf_table_next_hold(&node->machine.store->table, hold))) {
        if (shortest == 0 || hold->lease_ms < shortest)
            shortest = hold->lease_ms;
    }
    return shortest;
}

void node_checks_await_free(struct sim_nodes *nodes, uint32_t ms)
{
    while (!is_free(nodes)) {
        struct progress progress = progress_of(nodes);
        uint32_t limit = shortest_lease(nodes) + ms;

        if (!sim_nodes_run(nodes, limit, has_progress, &progress))
            fail_msg("%zu keys are held for longer than their leases, or a "
                     "node lacks entries",
                     progress.holds);
    }
}

void node_checks_equal(struct node_checks *checks, struct sim_nodes *nodes)
{
    uint64_t first = 0;

    (void)checks;
    for (unsigned i = 0; i < nodes->count; i++) {
        uint64_t hash = hash_table(&nodes->list[i]);

        if (i > 0 && hash != first)
            fail_msg("the table of node %u differs", i + 1);
        first = hash;
    }
}
