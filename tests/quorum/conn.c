#include "quorum/conn.h"

#include <stdlib.h>

#include "lib/runner.h"
#include "quorum/masters.h"

static struct sim_quorum *quorum_of(const struct sim_conn *conn)
{
    return conn->link->client->quorum;
}

/* ---- Packets ------------------------------------------------------------*/

struct sim_packet *sim_packet_new(const struct hf_claim_id *id)
{
    struct sim_packet *packet = calloc(1, sizeof(*packet));

    assert_non_null(packet);
    if (id)
        packet->id = *id;
    return packet;
}

static void free_packet(struct sim_packet *packet)
{
    hf_buf_fini(&packet->bytes);
    free(packet);
}

static struct sim_packet *first_packet(const struct sim_pipe *pipe)
{
    struct hf_dlist *first = hf_dlist_first(&pipe->packets);

    return first ? HF_CONTAINER(first, struct sim_packet, in_pipe) : NULL;
}

static void drop_packets(struct sim_pipe *pipe)
{
    struct hf_dlist *link;

    sim_schedule_cancel(&quorum_of(pipe->conn)->schedule, &pipe->event);
    while ((link = hf_dlist_take(&pipe->packets)))
        free_packet(HF_CONTAINER(link, struct sim_packet, in_pipe));
}

void sim_pipe_send(struct sim_pipe *pipe, struct sim_packet *packet)
{
    struct sim_quorum *quorum = quorum_of(pipe->conn);
    uint32_t spread = quorum->delay_max_ms - quorum->delay_min_ms;

    packet->at = quorum->schedule.now + quorum->delay_min_ms +
                 sim_quorum_below(quorum, spread + 1);
    if (packet->at < pipe->last)
        packet->at = pipe->last;
    pipe->last = packet->at;
    hf_dlist_push_back(&pipe->packets, &packet->in_pipe);
    if (first_packet(pipe) == packet)
        sim_schedule_set(&quorum->schedule, &pipe->event, packet->at);
}

/* ---- Delivery -----------------------------------------------------------*/

/* When the receiver can take the first packet; now, or later. */
static hf_time ready_at(const struct sim_pipe *pipe, bool to_master)
{
    const struct sim_conn *conn = pipe->conn;
    const struct sim_client *client = conn->link->client;
    const struct sim_quorum *quorum = client->quorum;
    hf_time at = first_packet(pipe)->at;
    hf_time stopped = to_master
                          ? quorum->masters[conn->link->master].stopped_until
                          : client->stopped_until;

    if (at < stopped)
        at = stopped;
    if (to_master && conn->is_broken && at < conn->late_until)
        at = conn->late_until;
    if (!conn->is_broken && conn->link->is_cut &&
        at < quorum->schedule.now + 10)
        at = quorum->schedule.now + 10;
    return at;
}

/* Returns the next packet if it has arrived, otherwise waits for it. */
static struct sim_packet *take_packet(struct sim_pipe *pipe, bool to_master)
{
    struct sim_quorum *quorum = quorum_of(pipe->conn);
    struct sim_packet *packet = first_packet(pipe);
    hf_time at = packet ? ready_at(pipe, to_master) : HF_NEVER;

    if (!packet)
        return NULL;
    if (at > quorum->schedule.now) {
        sim_schedule_set(&quorum->schedule, &pipe->event, at);
        return NULL;
    }
    hf_dlist_remove(&packet->in_pipe);
    if (first_packet(pipe))
        sim_schedule_set(&quorum->schedule, &pipe->event,
                         first_packet(pipe)->at);
    return packet;
}

static void on_request(struct sim_event *event)
{
    struct sim_pipe *pipe = HF_CONTAINER(event, struct sim_pipe, event);
    struct sim_conn *conn = pipe->conn;
    struct sim_packet *packet = take_packet(pipe, true);
    bool is_end = packet && packet->is_end;

    if (!packet)
        return;
    sim_master_receive(conn, packet);
    free_packet(packet);
    if (is_end)
        sim_conn_free(conn);
}

static void on_reply(struct sim_event *event)
{
    struct sim_pipe *pipe = HF_CONTAINER(event, struct sim_pipe, event);
    struct sim_packet *packet = take_packet(pipe, false);

    if (!packet)
        return;
    sim_client_receive(pipe->conn, packet); /* may break the connection */
    free_packet(packet);
}

/* ---- Connections --------------------------------------------------------*/

static void init_pipe(struct sim_pipe *pipe, struct sim_conn *conn,
                      void (*fire)(struct sim_event *event))
{
    pipe->conn = conn;
    pipe->event.fire = fire;
    hf_dlist_init(&pipe->packets);
}

struct sim_conn *sim_conn_new(struct sim_link *link, uint64_t number)
{
    struct sim_conn *conn = calloc(1, sizeof(*conn));

    assert_non_null(conn);
    conn->link = link;
    conn->number = number;
    init_pipe(&conn->to_master, conn, on_request);
    init_pipe(&conn->to_client, conn, on_reply);
    hf_dlist_push_back(&quorum_of(conn)->conns, &conn->all);
    return conn;
}

void sim_conn_free(struct sim_conn *conn)
{
    drop_packets(&conn->to_master);
    drop_packets(&conn->to_client);
    hf_dlist_remove(&conn->all);
    free(conn);
}

void sim_conn_break(struct sim_conn *conn)
{
    struct sim_quorum *quorum = quorum_of(conn);
    struct sim_packet *end = sim_packet_new(NULL);

    conn->is_broken = true;
    if (quorum->late_ms > 0 && sim_quorum_below(quorum, 2) == 0)
        conn->late_until =
            quorum->schedule.now + sim_quorum_below(quorum, quorum->late_ms);
    drop_packets(&conn->to_client);
    end->is_end = true;
    sim_pipe_send(&conn->to_master, end);
}
