/* Whole nodes with more incoming links than they keep, with links that send no
 * HELLO, and with links that send the HELLO of a peer but are not of it. */
#include "node/calls.h"

static struct sim_nodes nodes;

static void start(void)
{
    sim_nodes_init(&nodes, 3, 5);
    sim_nodes_start_all(&nodes);
    (void)await_leader(&nodes);
}

static int tear_down(void **state)
{
    (void)state;
    sim_nodes_fini(&nodes);
    return 0;
}

/* Send `size` bytes on a link that has announced a long HELLO. */
static void drip(struct hf_node *node, uint64_t link, size_t size)
{
    static const uint8_t zeros[4];

    hf_node_on_link_data(node, link, zeros, size);
}

static void announce_hello(struct hf_node *node, uint64_t link)
{
    struct hf_buf frame = {0};

    hf_buf_u32(&frame, HF_NODE_HELLO_MAX);
    hf_node_on_link_open(node, link);
    hf_node_on_link_data(node, link, frame.data, frame.size);
    hf_buf_fini(&frame);
}

static bool has_link_of(const struct hf_node *node, const struct hf_peer *peer)
{
    for (size_t i = 0; i < HF_NODE_LINKS_MAX; i++)
        if (node->peers.links[i].id != 0 && node->peers.links[i].peer == peer)
            return true;
    return false;
}

static void strangers_that_send_do_not_push_out_peers(void **state)
{
    struct hf_node *node;

    (void)state;
    start();
    node = nodes.list[0].node;
    sim_nodes_run(&nodes, 500, NULL, NULL);
    for (unsigned i = 0; i < 3 * HF_NODE_LINKS_MAX; i++) {
        announce_hello(node, 1000 + i);
        for (unsigned j = 0; j <= i; j++)
            drip(node, 1000 + j, 1);
    }
    assert_string_equal(nodes.list[0].refused, "too many connections of nodes");
    assert_true(has_link_of(node, &node->peers.list[0]));
    assert_true(has_link_of(node, &node->peers.list[1]));
}

static void send_frame(struct hf_node *node, uint64_t link, struct hf_buf *body)
{
    struct hf_buf frame = {0};

    hf_buf_bytes(&frame, body->data, body->size);
    hf_node_on_link_data(node, link, frame.data, frame.size);
    hf_buf_fini(body);
    hf_buf_fini(&frame);
}

/* Send the HELLO of `peer`. */
static void send_hello(struct hf_node *node, uint64_t link,
                       const struct hf_node *peer)
{
    const struct hf_packet_hello hello = {
        .protocol_min = HF_PACKET_PROTOCOL,
        .protocol_max = HF_PACKET_PROTOCOL,
        .cluster = node->opts.cluster,
        .from = peer->opts.id,
        .to = node->opts.id,
        .incarnation = peer->incarnation,
        .version = peer->opts.version,
    };
    struct hf_buf body = {0};

    hf_packet_encode_hello(&body, &hello);
    send_frame(node, link, &body);
}

static const struct hf_link *find_link(const struct hf_node *node, uint64_t id)
{
    for (size_t i = 0; i < HF_NODE_LINKS_MAX; i++)
        if (node->peers.links[i].id == id)
            return &node->peers.links[i];
    return NULL;
}

static void strangers_leave_before_links_with_a_hello(void **state)
{
    struct hf_node *node;

    (void)state;
    start();
    node = nodes.list[0].node;
    for (unsigned i = 0; i < HF_NODE_LINKS_MAX; i++)
        announce_hello(node, 1000 + i);
    hf_node_on_link_open(node, 999);
    send_hello(node, 999, nodes.list[1].node); /* it is not read yet */
    for (unsigned i = 0; i < HF_NODE_LINKS_MAX; i++)
        announce_hello(node, 2000 + i);
    assert_non_null(find_link(node, 999));
    assert_ptr_equal(find_link(node, 999)->peer, &node->peers.list[0]);
}

static void a_hello_has_a_deadline(void **state)
{
    struct sim_node *node = &nodes.list[0];
    struct hf_node_status status;

    (void)state;
    start();
    announce_hello(node->node, 999);
    for (unsigned ms = 0; ms < HF_NODE_HELLO_MS - 100; ms += 100) {
        drip(node->node, 999, 1);
        sim_nodes_wake(&nodes, 0);
        sim_nodes_run(&nodes, 100, NULL, NULL);
    }
    assert_null(node->refused);
    sim_nodes_run(&nodes, 200, NULL, NULL);
    assert_string_equal(node->refused, "it has sent no HELLO in time");
    node->refused = NULL;
    sim_nodes_run(&nodes, 10000, NULL, NULL);
    assert_null(node->refused); /* the links of peers stay */
    hf_node_on_link_refused(node->node);
    hf_node_status(node->node, &status);
    assert_int_equal(status.links_refused, 2);
}

/* ---- In the name of a peer ----------------------------------------------*/

/* Open a link to the leader that sends the HELLO of another node. Returns the
 * leader. */
static struct hf_node *impersonate(uint64_t link, unsigned *peer)
{
    struct sim_node *leader = await_leader(&nodes);

    *peer = other_than(&nodes, leader->number);
    hf_node_on_link_open(leader->node, link);
    send_hello(leader->node, link, nodes.list[*peer].node);
    sim_nodes_wake(&nodes, leader->number);
    sim_nodes_run(&nodes, 10, NULL, NULL);
    assert_non_null(find_link(leader->node, link)->peer);
    return leader->node;
}

/* If the leader accepted it, it would drop all frames of the peer. */
static void a_frame_of_another_process_is_refused(void **state)
{
    struct hf_frames frames = {0};
    struct hf_buf frame = {0};
    struct hf_node *node;
    unsigned peer;

    (void)state;
    start();
    node = impersonate(999, &peer);
    hf_frames_begin(&frames, peer + 1, UINT64_MAX, &frame);
    send_frame(node, 999, &frame);
    sim_nodes_wake(&nodes, (unsigned)node->opts.id - 1);
    sim_nodes_run(&nodes, 10, NULL, NULL);
    assert_string_equal(nodes.list[node->opts.id - 1].refused,
                        "it sends in the name of another process");
    assert_null(find_link(node, 999));
    assert_true(hf_peers_find(node, peer + 1)->frames.incarnation ==
                nodes.list[peer].node->incarnation);
}

/* Only the link that the peer sends over stands for its clients. */
static void a_link_without_frames_detaches_no_session(void **state)
{
    struct hf_node *node;
    uint64_t session;
    unsigned peer;

    (void)state;
    start();
    node = impersonate(999, &peer);
    session = open_session(&nodes, peer, 1);
    assert_int_equal(hf_attachments_add(nodes.list[peer].node, session, 7),
                     HF_OK);
    sim_nodes_run(&nodes, 1000, NULL, NULL);
    assert_true(hf_sessions_origins(node, session) != 0);
    hf_node_on_link_closed(node, 999);
    assert_true(hf_sessions_origins(node, session) != 0);
    hf_node_on_link_open(node, 998);
    send_hello(node, 998, nodes.list[peer].node);
    hf_node_on_link_closed(node, 998);
    assert_true(hf_sessions_origins(node, session) != 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(strangers_that_send_do_not_push_out_peers,
                                  tear_down),
        cmocka_unit_test_teardown(strangers_leave_before_links_with_a_hello,
                                  tear_down),
        cmocka_unit_test_teardown(a_hello_has_a_deadline, tear_down),
        cmocka_unit_test_teardown(a_frame_of_another_process_is_refused,
                                  tear_down),
        cmocka_unit_test_teardown(a_link_without_frames_detaches_no_session,
                                  tear_down),
    };

    return hf_test_main("node-links", cases, HF_TEST_COUNT(cases), 0);
}
