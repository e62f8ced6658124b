/* calls.h - send commands to simulated nodes, and wait for their outcomes. */
#ifndef HF_TESTS_NODE_CALLS_H
#define HF_TESTS_NODE_CALLS_H

#include <stdio.h>
#include <stdlib.h>

#include "lib/runner.h"
#include "node/requests.h"
#include "node/state.h"
#include "sim/nodes.h"

struct call {
    struct hf_node_request request;
    struct hf_buf bytes;
    struct hf_node_outcome outcome;
    bool is_done;
};

static inline void on_call_done(struct hf_node_request *request,
                                const struct hf_node_outcome *outcome)
{
    struct call *call = HF_CONTAINER(request, struct call, request);

    assert_false(call->is_done);
    call->outcome = *outcome;
    call->is_done = true;
}

/* Submit `command`, or a linearizable read if it is NULL, to node `number`. The
 * deadline is `ms` from now. */
static inline void call_start(struct sim_nodes *nodes, unsigned number,
                              struct call *call,
                              const struct hf_command *command, uint32_t ms)
{
    struct sim_node *node = &nodes->list[number];

    *call = (struct call){0};
    call->request.kind = command ? HF_NODE_COMMAND : HF_NODE_READ_INDEX;
    if (command)
        hf_command_encode(command, HF_VERSION_FIRST, &call->bytes);
    call->request.command =
        (struct hf_bytes){call->bytes.data, call->bytes.size};
    call->request.deadline = sim_node_now(node) + ms;
    call->request.done = on_call_done;
    assert_int_equal(hf_requests_submit(node->node, &call->request), HF_OK);
    sim_nodes_wake(nodes, number);
}

static inline bool call_is_done(void *arg)
{
    return ((struct call *)arg)->is_done;
}

/* Run the simulation until the call is done, and return its outcome. */
static inline struct hf_node_outcome call_wait(struct sim_nodes *nodes,
                                               struct call *call)
{
    assert_true(sim_nodes_run(nodes, 60000, call_is_done, call));
    hf_buf_fini(&call->bytes);
    return call->outcome;
}

static inline struct hf_node_outcome call_run(struct sim_nodes *nodes,
                                              unsigned number,
                                              const struct hf_command *command)
{
    struct call call;

    call_start(nodes, number, &call, command, 10000);
    return call_wait(nodes, &call);
}

static inline struct hf_nonce nonce_of(unsigned n)
{
    struct hf_nonce nonce = {{(uint8_t)n, (uint8_t)(n >> 8), 7}};

    return nonce;
}

static inline struct hf_key key_of(const char *text)
{
    return (struct hf_key){text, strlen(text)};
}

/* Open a session with the secret nonce_of(n), through node `number`. */
static inline uint64_t open_session(struct sim_nodes *nodes, unsigned number,
                                    unsigned n)
{
    struct hf_command command = {.kind = HF_COMMAND_OPEN, .nonce = nonce_of(n)};
    struct hf_node_outcome outcome = call_run(nodes, number, &command);

    assert_int_equal(outcome.err, HF_OK);
    assert_int_equal(outcome.result.err, HF_OK);
    return outcome.result.session;
}

static inline struct hf_command lock_command(uint64_t session,
                                             uint64_t sequence, const char *key,
                                             unsigned nonce, uint32_t lease_ms)
{
    return (struct hf_command){
        .kind = HF_COMMAND_LOCK,
        .session = session,
        .sequence = sequence,
        .done = sequence,
        .key = key_of(key),
        .nonce = nonce_of(nonce),
        .lease_ms = lease_ms,
        .queue = true,
    };
}

static inline struct hf_command unlock_command(uint64_t session,
                                               uint64_t sequence,
                                               const char *key, unsigned nonce,
                                               uint64_t token)
{
    return (struct hf_command){
        .kind = HF_COMMAND_UNLOCK,
        .session = session,
        .sequence = sequence,
        .done = sequence,
        .key = key_of(key),
        .nonce = nonce_of(nonce),
        .token = token,
    };
}

static inline bool has_leader(void *arg)
{
    struct sim_node *leader = sim_nodes_leader(arg);

    return leader && leader->node->in_office;
}

/* Run the simulation until a leader is in office, and return it. */
static inline struct sim_node *await_leader(struct sim_nodes *nodes)
{
    assert_true(sim_nodes_run(nodes, 60000, has_leader, nodes));
    return sim_nodes_leader(nodes);
}

/* The number of a node other than `number`. */
static inline unsigned other_than(const struct sim_nodes *nodes,
                                  unsigned number)
{
    return (number + 1) % nodes->count;
}

#endif
