#include "sim/node_events.h"

#include <stdlib.h>

#include "lib/runner.h"
#include "node/state.h"

typedef unsigned long long ull;

void node_events_fini(struct node_events *events)
{
    free(events->list);
}

static struct node_event *event_at(struct node_events *events, uint64_t index)
{
    size_t capacity = events->capacity ? events->capacity : 1024;

    while (capacity <= index)
        capacity *= 2;
    if (capacity > events->capacity) {
        events->list = realloc(events->list, capacity * sizeof(*events->list));
        assert_non_null(events->list);
        memset(events->list + events->capacity, 0,
               (capacity - events->capacity) * sizeof(*events->list));
        events->capacity = capacity;
    }
    return &events->list[index];
}

static uint64_t hash_key(struct hf_key key)
{
    static const struct hf_seed zero;

    return hf_siphash(&zero, key.data, key.size);
}

static void check_grant(struct node_events *events, const struct sim_node *node,
                        const struct hf_event *event)
{
    if (event->token <= events->token)
        fail_msg("node %u grants token %llu after token %llu", node->number + 1,
                 (ull)event->token, (ull)events->token);
    events->token = event->token;
    events->grants++;
}

/* An event that no node has had before. It is newer than all others, unless the
 * nodes that had it went down before node_events_read(). */
static void add_event(struct node_events *events, const struct sim_node *node,
                      const struct hf_event *event)
{
    bool is_newest = event->index > events->newest;

    if (is_newest && event->kind == HF_EVENT_GRANTED)
        check_grant(events, node, event);
    if (is_newest)
        events->newest = event->index;
    *event_at(events, event->index) = (struct node_event){
        .kind = event->kind,
        .freed = event->freed,
        .key = hash_key(event->key),
        .token = event->token,
    };
}

static void compare_event(const struct node_event *known,
                          const struct sim_node *node,
                          const struct hf_event *event)
{
    if (known->kind != event->kind || known->freed != event->freed ||
        known->key != hash_key(event->key) || known->token != event->token)
        fail_msg("node %u has another event %llu", node->number + 1,
                 (ull)event->index);
}

void node_events_on_start(struct node_events *events,
                          const struct sim_node *node)
{
    events->next[node->number] = node->node->machine.store->history.first;
}

void node_events_read(struct node_events *events, const struct sim_node *node)
{
    const struct hf_history *history = &node->node->machine.store->history;
    uint64_t *next = &events->next[node->number];
    struct hf_history_cursor cursor = hf_history_seek(history, *next);
    struct hf_event event;

    while (hf_history_read(history, &cursor, &event)) {
        *next = event.index;
        if (event.kind == HF_EVENT_DROPPED)
            continue; /* the events were in a snapshot */
        ++*next;
        if (event_at(events, event.index)->kind == 0)
            add_event(events, node, &event);
        else
            compare_event(event_at(events, event.index), node, &event);
    }
}

bool node_events_find_holder(const struct node_events *events,
                             struct hf_key key, uint64_t index, uint64_t *token)
{
    uint64_t hash = hash_key(key);

    if (index > events->newest)
        return false;
    for (; index > 0; index--) {
        const struct node_event *event = &events->list[index];

        if (event->kind == 0)
            return false;
        if (event->key != hash || event->kind == HF_EVENT_QUEUED ||
            event->kind == HF_EVENT_WITHDRAWN)
            continue;
        *token = event->freed ? 0 : event->token;
        return true;
    }
    *token = 0;
    return true;
}
