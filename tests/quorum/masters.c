#include "quorum/masters.h"

#include <stdlib.h>

#include "lib/runner.h"

uint32_t sim_quorum_below(struct sim_quorum *quorum, uint32_t bound)
{
    return hf_random_below(&quorum->random, bound);
}

static void add_trace(struct sim_quorum *quorum, uint64_t number)
{
    quorum->trace =
        hf_map_hash_number(quorum->trace ^ number) ^ quorum->trace >> 31;
}

/* ---- Clocks -------------------------------------------------------------*/

hf_time sim_clock_now(const struct sim_quorum *quorum,
                      const struct sim_clock *clock)
{
    hf_time now = quorum->schedule.now;

    return clock->offset + now + now * clock->drift / 1000000;
}

hf_time sim_clock_when(const struct sim_quorum *quorum,
                       const struct sim_clock *clock, hf_time local)
{
    hf_time at = quorum->schedule.now;
    hf_time left = local - sim_clock_now(quorum, clock);

    if (local == HF_NEVER)
        return HF_NEVER;
    return left <= 0 ? at : at + left + left / 50 + 1;
}

static void draw_clock(struct sim_quorum *quorum, struct sim_clock *clock,
                       bool drift)
{
    clock->offset = sim_quorum_below(quorum, 100000000);
    clock->drift = drift ? (int32_t)sim_quorum_below(quorum, 20001) - 10000 : 0;
}

/* ---- Clients ------------------------------------------------------------*/

void sim_client_send(struct sim_client *client, unsigned master,
                     const struct hf_claim_id *id,
                     const struct hf_quorum_request *request)
{
    struct sim_link *link = &client->links[master];
    struct sim_packet *packet;

    if (!link->conn)
        return;
    packet = sim_packet_new(id);
    hf_message_encode_request(request, &packet->bytes);
    sim_pipe_send(&link->conn->to_master, packet);
}

static void set_usable(struct sim_link *link, bool is_usable)
{
    unsigned bit = 1U << link->master;
    struct hf_coordinators *common = &link->client->common;

    if (((common->usable & bit) != 0) == is_usable)
        return;
    common->usable ^= bit;
    link->client->connected(link->client, link->master, is_usable);
}

/* The master decides nothing yet: do without it until it does. The connection
 * is closed, so that the master forgets claims that end meanwhile. */
static void set_quiet(struct sim_link *link, uint32_t quiet_ms)
{
    struct sim_schedule *schedule = &link->client->quorum->schedule;

    sim_link_break(link);
    sim_schedule_set(schedule, &link->reconnect,
                     schedule->now + quiet_ms + quiet_ms / 50 + 1);
}

void sim_client_receive(struct sim_conn *conn, struct sim_packet *packet)
{
    struct sim_link *link = conn->link;
    struct hf_bytes bytes = {packet->bytes.data, packet->bytes.size};
    struct hf_quorum_reply reply;

    assert_int_equal(hf_message_decode_reply(&reply, bytes), HF_OK);
    if (reply.kind == HF_QUORUM_QUIET)
        set_quiet(link, reply.quiet_ms);
    else
        link->client->receive(link->client, link->master, &packet->id, &reply);
}

/* ---- Masters ------------------------------------------------------------*/

static void send_reply(struct sim_conn *conn, const struct hf_claim_id *id,
                       const struct hf_quorum_reply *reply)
{
    struct sim_packet *packet;

    if (conn->is_broken)
        return;
    packet = sim_packet_new(id);
    hf_message_encode_reply(reply, &packet->bytes);
    sim_pipe_send(&conn->to_client, packet);
}

/* Make a higher mark durable if the master wants one. */
static void raise_mark(struct sim_master *master)
{
    struct sim_quorum *quorum = master->quorum;
    uint64_t mark = hf_master_wanted_mark(&master->master);

    if (mark == 0 || hf_heap_has(&master->mark_written.link))
        return;
    master->next_mark = mark;
    sim_schedule_set(&quorum->schedule, &master->mark_written,
                     quorum->schedule.now +
                         sim_quorum_below(quorum, quorum->mark_ms + 1));
}

static void on_mark_written(struct sim_event *event)
{
    struct sim_master *master =
        HF_CONTAINER(event, struct sim_master, mark_written);

    master->mark = master->next_mark;
    hf_master_set_mark(&master->master, master->mark);
    raise_mark(master);
}

static void arm_master(struct sim_master *master)
{
    struct sim_quorum *quorum = master->quorum;
    hf_time at = sim_clock_when(quorum, &master->clock,
                                hf_master_deadline(&master->master));

    raise_mark(master);
    if (at == HF_NEVER)
        sim_schedule_cancel(&quorum->schedule, &master->timer);
    else
        sim_schedule_set(&quorum->schedule, &master->timer,
                         at > master->stopped_until ? at
                                                    : master->stopped_until);
}

static void on_master_timer(struct sim_event *event)
{
    struct sim_master *master = HF_CONTAINER(event, struct sim_master, timer);

    if (master->stopped_until <= master->quorum->schedule.now)
        hf_master_advance(&master->master,
                          sim_clock_now(master->quorum, &master->clock));
    arm_master(master);
}

static void on_push(void *arg, uint64_t number, const struct hf_claim_id *id,
                    const struct hf_quorum_reply *reply)
{
    struct sim_master *master = arg;
    struct sim_quorum *quorum = master->quorum;

    for (unsigned i = 0; i < quorum->client_count; i++) {
        struct sim_conn *conn = quorum->clients[i].links[master->index].conn;

        if (conn && conn->number == number)
            send_reply(conn, id, reply);
    }
}

static const struct hf_master_ops master_ops = {.push = on_push};

void sim_master_start(struct sim_master *master)
{
    struct sim_quorum *quorum = master->quorum;
    hf_time now = sim_clock_now(quorum, &master->clock);
    struct hf_master_opts opts = {
        .mark = master->mark,
        .floor = master->mark,
        .lease_max_ms = SIM_LEASE_MAX_MS,
        .bytes_max = 1 << 20,
        .quiet_until = master->mark > 0 ? now + SIM_LEASE_MAX_MS : 0,
    };

    hf_master_init(&master->master, &opts, &master_ops, master);
    master->is_up = true;
    raise_mark(master);
}

void sim_master_crash(struct sim_master *master)
{
    struct sim_quorum *quorum = master->quorum;

    if (!master->is_up)
        return;
    quorum->crashes++;
    master->is_up = false;
    sim_schedule_cancel(&quorum->schedule, &master->timer);
    sim_schedule_cancel(&quorum->schedule, &master->mark_written);
    for (unsigned i = 0; i < quorum->client_count; i++)
        sim_link_break(&quorum->clients[i].links[master->index]);
    hf_master_fini(&master->master);
}

bool sim_master_is_awake(const struct sim_master *master)
{
    return master->is_up && sim_clock_now(master->quorum, &master->clock) >=
                                master->master.opts.quiet_until;
}

void sim_master_receive(struct sim_conn *conn, struct sim_packet *packet)
{
    struct sim_quorum *quorum = conn->link->client->quorum;
    struct sim_master *master = &quorum->masters[conn->link->master];
    hf_time now = sim_clock_now(quorum, &master->clock);
    struct hf_bytes bytes = {packet->bytes.data, packet->bytes.size};
    struct hf_quorum_request request;
    struct hf_quorum_reply reply;

    if (!master->is_up)
        return;
    add_trace(quorum, (uint64_t)quorum->schedule.now ^ packet->bytes.size);
    if (packet->is_end) {
        hf_master_disconnect(&master->master, now, conn->number);
    } else {
        assert_int_equal(hf_message_decode_request(&request, bytes), HF_OK);
        quorum->requests++;
        hf_master_receive(&master->master, now, conn->number, &request, &reply);
        send_reply(conn, &packet->id, &reply);
        if (quorum->handled)
            quorum->handled(quorum, request.key);
    }
    arm_master(master);
}

/* ---- Connections --------------------------------------------------------*/

void sim_link_connect(struct sim_link *link)
{
    struct sim_quorum *quorum = link->client->quorum;

    if (link->conn)
        return;
    if (!quorum->masters[link->master].is_up || link->is_cut) {
        sim_schedule_set(&quorum->schedule, &link->reconnect,
                         quorum->schedule.now + 50);
        return;
    }
    link->conn = sim_conn_new(link, ++quorum->connections);
    set_usable(link, true);
}

static void on_reconnect(struct sim_event *event)
{
    sim_link_connect(HF_CONTAINER(event, struct sim_link, reconnect));
}

void sim_link_break(struct sim_link *link)
{
    struct sim_quorum *quorum = link->client->quorum;

    if (!link->conn)
        return;
    quorum->breaks++;
    sim_conn_break(link->conn);
    link->conn = NULL;
    set_usable(link, false);
    sim_schedule_set(&quorum->schedule, &link->reconnect,
                     quorum->schedule.now + 1 + sim_quorum_below(quorum, 100));
}

/* ---- The whole ----------------------------------------------------------*/

static void ignore_connection(struct sim_client *client, unsigned master,
                              bool is_up)
{
    (void)client;
    (void)master;
    (void)is_up;
}

static void init_master(struct sim_quorum *quorum, unsigned index, bool drift)
{
    struct sim_master *master = &quorum->masters[index];

    master->quorum = quorum;
    master->index = index;
    master->timer.fire = on_master_timer;
    master->mark_written.fire = on_mark_written;
    draw_clock(quorum, &master->clock, drift);
    sim_master_start(master);
}

static void init_client(struct sim_quorum *quorum, unsigned index,
                        const struct sim_quorum_opts *opts)
{
    struct sim_client *client = &quorum->clients[index];

    client->quorum = quorum;
    client->index = index;
    client->connected = ignore_connection;
    draw_clock(quorum, &client->clock, opts->drift);
    client->common = (struct hf_coordinators){
        .quorum = hf_quorum_of(opts->masters),
        .patience_ms = 12,
        .spread = 7,
        .chance = opts->seed * 31 + index,
    };
    for (unsigned i = 0; i < opts->masters; i++) {
        client->links[i] = (struct sim_link){
            .client = client,
            .master = i,
            .reconnect = {.fire = on_reconnect},
        };
        sim_link_connect(&client->links[i]);
    }
}

void sim_quorum_init(struct sim_quorum *quorum,
                     const struct sim_quorum_opts *opts)
{
    *quorum = (struct sim_quorum){
        .master_count = opts->masters,
        .client_count = opts->clients,
        .delay_min_ms = 1,
        .delay_max_ms = 3,
    };
    hf_random_init(&quorum->random, opts->seed + 1);
    hf_dlist_init(&quorum->conns);
    for (unsigned i = 0; i < opts->masters; i++)
        init_master(quorum, i, opts->drift);
    for (unsigned i = 0; i < opts->clients; i++)
        init_client(quorum, i, opts);
}

void sim_quorum_fini(struct sim_quorum *quorum)
{
    while (!hf_dlist_is_empty(&quorum->conns))
        sim_conn_free(HF_CONTAINER(quorum->conns.next, struct sim_conn, all));
    for (unsigned i = 0; i < quorum->master_count; i++) {
        if (quorum->masters[i].is_up)
            hf_master_fini(&quorum->masters[i].master);
    }
    sim_schedule_fini(&quorum->schedule);
}

void sim_quorum_run(struct sim_quorum *quorum, hf_time ms)
{
    hf_time until = quorum->schedule.now + ms;

    while (sim_schedule_step(&quorum->schedule, until))
        continue;
}
