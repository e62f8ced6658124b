/* clients_node.c - connects the client half to the node. */
#include "node/clients.h"
#include "node/state.h"

hf_time hf_clients_now(const struct hf_node *node)
{
    return node->now;
}

struct hf_store *hf_clients_store(const struct hf_node *node)
{
    return node->machine.store;
}

/* Nonces and secrets must not repeat after a restart, even if the seed does. */
static struct hf_seed make_seed(const struct hf_node *node)
{
    struct hf_seed seed;

    for (uint64_t i = 0; i < 2; i++) {
        const uint64_t input[] = {node->incarnation, i};
        uint64_t word = hf_siphash(&node->opts.seed, input, sizeof(input));

        memcpy(seed.bytes + i * sizeof(word), &word, sizeof(word));
    }
    return seed;
}

enum hf_err hf_clients_open(struct hf_node *node)
{
    const struct hf_clients_opts opts = {
        .node = node,
        .ops = node->ops,
        .arg = node->arg,
        .cluster = node->opts.cluster,
        .id = node->opts.id,
        .max = node->opts.clients_max,
        .seed = make_seed(node),
    };

    node->clients = hf_clients_new(&opts);
    if (!node->clients)
        return HF_ENOMEM;
    hf_node_set_hooks(node, &hf_clients_hooks, node->clients);
    return HF_OK;
}

void hf_node_on_client_open(struct hf_node *node, uint64_t conn)
{
    hf_clients_on_open(node->clients, conn);
}

void hf_node_on_client_data(struct hf_node *node, uint64_t conn,
                            const void *bytes, size_t size)
{
    hf_clients_on_data(node->clients, conn, bytes, size);
}

void hf_node_on_client_closed(struct hf_node *node, uint64_t conn)
{
    hf_clients_on_closed(node->clients, conn);
}

void hf_node_on_client_refused(struct hf_node *node)
{
    hf_clients_on_refused(node->clients);
}

void hf_node_on_client_unsent(struct hf_node *node, uint64_t conn, size_t size)
{
    hf_clients_on_unsent(node->clients, conn, size);
}
