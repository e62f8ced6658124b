#include "sim/conns.h"

#include <stdlib.h>

#include "lib/runner.h"

/* Bytes that were sent and have not arrived. */
struct segment {
    struct hf_dlist link;
    struct sim_event arrive;
    struct sim_conn *conn;
    uint64_t number; /* the `link` on which the bytes were sent */
    size_t size;
    uint8_t bytes[];
};

static struct segment *segment_at(struct hf_dlist *link)
{
    return HF_CONTAINER(link, struct segment, link);
}

static void free_segment(struct segment *segment)
{
    segment->conn->queued -= segment->size;
    sim_schedule_cancel(&segment->conn->nodes->schedule, &segment->arrive);
    hf_dlist_remove(&segment->link);
    free(segment);
}

static hf_time draw_delay(struct sim_nodes *nodes)
{
    bool is_slow = hf_random_below(&nodes->random, 100) == 0;

    return (hf_time)hf_random_below(
        &nodes->random,
        (is_slow ? nodes->odds.slow_ms : nodes->odds.delay_ms) + 1);
}

static bool happens(struct sim_nodes *nodes, unsigned per_thousand)
{
    return per_thousand > 0 &&
           hf_random_below(&nodes->random, 1000) < per_thousand;
}

/* ---- Connecting ---------------------------------------------------------*/

static void connect_later(struct sim_conn *conn)
{
    struct sim_schedule *schedule = &conn->nodes->schedule;

    sim_schedule_set(schedule, &conn->connect,
                     schedule->now + 1 + draw_delay(conn->nodes));
}

static void drop_segments(struct sim_conn *conn)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&conn->sent)))
        free_segment(segment_at(link));
}

static void tell_down(struct sim_conn *conn, bool refused)
{
    struct sim_node *from = &conn->nodes->list[conn->from];

    if (!from->node)
        return;
    hf_node_set_time(from->node, sim_node_now(from));
    hf_node_on_peer_down(from->node, conn->to + 1, refused);
    sim_nodes_wake(conn->nodes, conn->from);
}

static void tell_closed(struct sim_conn *conn)
{
    struct sim_node *to = &conn->nodes->list[conn->to];

    if (!to->node)
        return;
    hf_node_set_time(to->node, sim_node_now(to));
    hf_node_on_link_closed(to->node, conn->link);
    sim_nodes_wake(conn->nodes, conn->to);
}

static void break_conn(struct sim_conn *conn)
{
    if (conn->link == 0)
        return;
    drop_segments(conn);
    tell_down(conn, false);
    tell_closed(conn);
    conn->link = 0;
}

static void on_connect(struct sim_event *event)
{
    struct sim_conn *conn = HF_CONTAINER(event, struct sim_conn, connect);
    struct sim_nodes *nodes = conn->nodes;
    struct sim_node *from = &nodes->list[conn->from];
    struct sim_node *to = &nodes->list[conn->to];

    if (!from->node || conn->link != 0)
        return;
    /* A node that is paused accepts connections, because its kernel does. */
    if (conn->is_cut || from->paused_until > nodes->schedule.now) {
        sim_schedule_set(&nodes->schedule, event, nodes->schedule.now + 50);
        return;
    }
    if (!to->node || conn->is_refused) {
        conn->is_refused = false;
        tell_down(conn, true);
        sim_schedule_set(&nodes->schedule, event, nodes->schedule.now + 50);
        return;
    }
    conn->link = ++nodes->last_link;
    conn->last = nodes->schedule.now;
    hf_node_set_time(to->node, sim_node_now(to));
    hf_node_on_link_open(to->node, conn->link);
    hf_node_set_time(from->node, sim_node_now(from));
    hf_node_on_peer_up(from->node, conn->to + 1, conn->link);
    sim_nodes_wake(nodes, conn->from);
}

void sim_conns_start(struct sim_nodes *nodes, unsigned number)
{
    for (unsigned i = 0; i < nodes->count; i++) {
        if (i == number)
            continue;
        connect_later(&nodes->conns[number][i]);
        if (nodes->conns[i][number].link == 0)
            connect_later(&nodes->conns[i][number]);
    }
}

/* The connections from the node always close. Those to the node close if only
 * its process dies. If the machine dies (`silent`), the other nodes do not
 * notice until they connect to the next process of the node. */
void sim_conns_stop(struct sim_nodes *nodes, unsigned number, bool silent)
{
    for (unsigned i = 0; i < nodes->count; i++) {
        struct sim_conn *out = &nodes->conns[number][i];
        struct sim_conn *in = &nodes->conns[i][number];

        if (i == number)
            continue;
        sim_schedule_cancel(&nodes->schedule, &out->connect);
        if (out->is_cut || silent)
            drop_segments(out);
        break_conn(out);
        if (in->link != 0 && !silent)
            break_conn(in);
        else
            drop_segments(in);
        in->link = 0;
        if (!silent)
            connect_later(in);
        else
            sim_schedule_cancel(&nodes->schedule, &in->connect);
    }
}

void sim_conns_close(struct sim_nodes *nodes, uint64_t link)
{
    for (unsigned i = 0; i < nodes->count * nodes->count; i++) {
        struct sim_conn *conn =
            &nodes->conns[i / nodes->count][i % nodes->count];

        if (conn->link != link)
            continue;
        drop_segments(conn);
        conn->link = 0;
        tell_down(conn, false);
        connect_later(conn);
    }
}

void sim_nodes_reset(struct sim_nodes *nodes, unsigned from, unsigned to)
{
    struct sim_conn *conn = &nodes->conns[from][to];

    break_conn(conn);
    connect_later(conn);
}

void sim_nodes_refuse(struct sim_nodes *nodes, unsigned from, unsigned to)
{
    nodes->conns[from][to].is_refused = true;
    sim_nodes_reset(nodes, from, to);
}

/* ---- Sending ------------------------------------------------------------*/

static void on_arrive(struct sim_event *event)
{
    struct segment *segment = HF_CONTAINER(event, struct segment, arrive);
    struct sim_conn *conn = segment->conn;
    struct sim_nodes *nodes = conn->nodes;
    struct sim_node *to = &nodes->list[conn->to];

    if (conn->is_cut || to->paused_until > nodes->schedule.now) {
        sim_schedule_set(&nodes->schedule, event, nodes->schedule.now + 10);
        return;
    }
    /* Remove the segment first: the node may close the connection, which frees
     * all segments in the list. */
    hf_dlist_remove(&segment->link);
    if (to->node && segment->number == conn->link) {
        hf_node_set_time(to->node, sim_node_now(to));
        hf_node_on_link_data(to->node, conn->link, segment->bytes,
                             segment->size);
        sim_nodes_wake(nodes, conn->to);
    }
    free_segment(segment);
}

static void send_segment(struct sim_conn *conn, const void *bytes, size_t size,
                         bool is_first, bool overtakes)
{
    struct sim_nodes *nodes = conn->nodes;
    struct segment *segment = malloc(sizeof(*segment) + size);
    hf_time at = nodes->schedule.now + draw_delay(nodes);

    assert_non_null(segment);
    *segment = (struct segment){
        .arrive = {.fire = on_arrive},
        .conn = conn,
        .number = conn->link,
        .size = size,
    };
    memcpy(segment->bytes, bytes, size);
    if (at < (overtakes ? conn->hello : conn->last))
        at = overtakes ? conn->hello : conn->last;
    if (!overtakes)
        conn->last = at;
    if (is_first)
        conn->hello = at;
    hf_dlist_push_back(&conn->sent, &segment->link);
    conn->queued += size;
    sim_schedule_set(&nodes->schedule, &segment->arrive, at);
}

static void mix_hash(struct sim_nodes *nodes, uint64_t link, const void *bytes,
                     size_t size)
{
    struct hf_seed seed = {{0}};

    memcpy(seed.bytes, &nodes->hash, 8);
    memcpy(seed.bytes + 8, &link, 8);
    nodes->hash = hf_siphash(&seed, bytes, size);
}

/* The first bytes of a connection are its HELLO. It is never lost, repeated or
 * overtaken, because the receiver needs it to interpret the rest. */
void sim_conns_send(struct sim_nodes *nodes, uint64_t link, const void *bytes,
                    size_t size)
{
    struct sim_conn *conn = NULL;
    bool is_first;

    for (unsigned i = 0; i < nodes->count * nodes->count; i++) {
        if (nodes->conns[i / nodes->count][i % nodes->count].link == link)
            conn = &nodes->conns[i / nodes->count][i % nodes->count];
    }
    if (!conn)
        return;
    mix_hash(nodes, link, bytes, size);
    is_first = conn->hello_link != link;
    conn->hello_link = link;
    if (nodes->on_send)
        nodes->on_send(nodes->arg, &nodes->list[conn->from], conn->to, is_first,
                       bytes, size);
    if (!is_first && happens(nodes, nodes->odds.lose))
        return;
    send_segment(conn, bytes, size, is_first,
                 !is_first && happens(nodes, nodes->odds.overtake));
    if (!is_first && happens(nodes, nodes->odds.repeat))
        send_segment(conn, bytes, size, false, true);
}

/* ---- Cuts ---------------------------------------------------------------*/

void sim_nodes_cut(struct sim_nodes *nodes, unsigned from, unsigned to)
{
    nodes->conns[from][to].is_cut = true;
}

/* A connection that was cut continues or has broken, at random. */
void sim_nodes_heal(struct sim_nodes *nodes)
{
    for (unsigned i = 0; i < nodes->count * nodes->count; i++) {
        struct sim_conn *conn =
            &nodes->conns[i / nodes->count][i % nodes->count];

        if (!conn->is_cut)
            continue;
        conn->is_cut = false;
        if (conn->link != 0 && hf_random_below(&nodes->random, 2) == 0)
            sim_nodes_reset(nodes, conn->from, conn->to);
    }
}

/* ---- Init and fini ------------------------------------------------------*/

void sim_conns_init(struct sim_nodes *nodes)
{
    for (unsigned i = 0; i < nodes->count * nodes->count; i++) {
        struct sim_conn *conn =
            &nodes->conns[i / nodes->count][i % nodes->count];

        conn->nodes = nodes;
        conn->from = i / nodes->count;
        conn->to = i % nodes->count;
        conn->connect.fire = on_connect;
        hf_dlist_init(&conn->sent);
    }
}

void sim_conns_fini(struct sim_nodes *nodes)
{
    for (unsigned i = 0; i < nodes->count * nodes->count; i++)
        drop_segments(&nodes->conns[i / nodes->count][i % nodes->count]);
}
