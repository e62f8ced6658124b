/* fuzz_clients.c - arbitrary bytes at the client port of a node.
 *
 * The node must survive whatever its clients send, read or close, however its
 * requests end, and must have freed everything when all connections are closed.
 * The input is a sequence of actions, see run_action(). */
#include <stdlib.h>

#include "node/clients_state.h"
#include "node/fake_node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void reopen(struct hf_node *node, uint64_t conn)
{
    if (!node->conns[conn].is_closed)
        hf_clients_on_closed(node->clients, conn);
    hf_attachments_remove(node, node->conns[conn].session, conn);
    hf_fake_open(node, conn);
}

static void receive_from_client(struct hf_node *node, uint64_t conn,
                                struct hf_reader *input)
{
    size_t size = hf_reader_u8(input);

    if (size > input->size)
        size = input->size;
    if (!node->conns[conn].is_closed && !node->conns[conn].is_paused)
        hf_clients_on_data(node->clients, conn, input->data, size);
    input->data += size;
    input->size -= size;
}

/* Set how the node treats requests. */
static void set_faults(struct hf_node *node, uint8_t bits)
{
    node->is_stuck = bits & 1;
    node->loses_grants = bits & 2;
    node->age_ms = (bits & 4) ? -1 : 5;
    node->failure.err = (bits & 8)    ? HF_EINDOUBT
                        : (bits & 16) ? HF_EUNAVAIL
                        : (bits & 32) ? HF_ELIMIT
                                      : HF_OK;
    node->failure.no_space = bits & 64;
    node->behind = bits & 128 ? 3 : 0;
}

/* An action is a byte and what follows it. Its lower 3 bits select the action,
 * and the other bits the connection. */
static void run_action(struct hf_node *node, struct hf_reader *input)
{
    uint8_t byte = hf_reader_u8(input);
    uint64_t conn = 1 + (byte >> 3) % (HF_FAKE_CONNS - 1);
    hf_time now = node->now;

    switch (byte & 7) {
    case 0:
        reopen(node, conn);
        break;
    case 1:
        now += 100 * hf_reader_u8(input);
        break;
    case 2:
        if (!node->conns[conn].is_closed)
            hf_clients_on_unsent(node->clients, conn,
                                 (size_t)8192 * hf_reader_u8(input));
        break;
    case 3:
        set_faults(node, hf_reader_u8(input));
        break;
    case 4:
        hf_fake_restore(node, node->store.table.index + 5);
        break;
    default:
        receive_from_client(node, conn, input);
        break;
    }
    hf_fake_turn(node, now);
    for (conn = 1; conn < HF_FAKE_CONNS; conn++)
        node->conns[conn].output.size = 0;
}

/* All connections are closed: nothing of them may be left. */
static void check_empty(const struct hf_clients *clients)
{
    if (clients->server.count != 0 || clients->server.mux_count != 0 ||
        clients->unanswered != 0 || clients->server.input != 0 ||
        clients->server.unsent != 0 || clients->wait_count != 0 ||
        clients->server.list_count != 0 ||
        !hf_dlist_is_empty(&clients->server.watching) ||
        !hf_dlist_is_empty(&clients->server.streams) ||
        !hf_dlist_is_empty(&clients->orphans))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct hf_node node;
    struct hf_reader input = {.data = data, .size = size};

    hf_fake_init(&node);
    for (uint64_t conn = 1; conn < HF_FAKE_CONNS; conn++)
        hf_fake_open(&node, conn);
    while (input.size > 0)
        run_action(&node, &input);
    set_faults(&node, 0);
    for (uint64_t conn = 1; conn < HF_FAKE_CONNS; conn++)
        hf_clients_on_closed(node.clients, conn);
    hf_fake_turn(&node, node.now);
    check_empty(node.clients);
    hf_fake_fini(&node);
    return 0;
}
