/* node_events.h - the events of all simulated nodes.
 *
 * All nodes have the same event at the same index, before and after restarts,
 * and each grant has a higher token than all grants before it, whether or not a
 * client has seen them. */
#ifndef HF_TESTS_SIM_NODE_EVENTS_H
#define HF_TESTS_SIM_NODE_EVENTS_H

#include "sim/nodes.h"

struct node_event {
    enum hf_event_kind kind; /* 0: not known */
    bool freed;
    uint64_t key; /* a hash */
    uint64_t token;
};

struct node_events {
    struct node_event *list; /* by index */
    size_t capacity;
    uint64_t newest;          /* the highest index so far */
    uint64_t token;           /* of the newest grant */
    uint64_t next[SIM_NODES]; /* index that the node reports next */
    uint64_t grants;
};

/* A zeroed struct has no events. */
void node_events_fini(struct node_events *events);

/* The node has started. */
void node_events_on_start(struct node_events *events,
                          const struct sim_node *node);

/* Read the events that the node has had since the last call. */
void node_events_read(struct node_events *events, const struct sim_node *node);

/* Find out who held `key` after event `index`: `*token` is 0 if the key was
 * free. Returns false if the events are not known. */
bool node_events_find_holder(const struct node_events *events,
                             struct hf_key key, uint64_t index,
                             uint64_t *token);

#endif
