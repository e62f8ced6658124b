#include "sim/app_net.h"

#include <stdlib.h>

#include "lib/runner.h"

#define RETRY_MS 10 /* until a packet that cannot arrive is tried again */

/* ---- Packets ------------------------------------------------------------*/

static struct app_packet *packet_at(struct hf_dlist *link)
{
    return HF_CONTAINER(link, struct app_packet, link);
}

static void free_packets(struct hf_dlist *packets)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(packets)))
        free(packet_at(link));
}

static void clear_pipe(struct app_pipe *pipe)
{
    sim_schedule_cancel(&pipe->owner->net->nodes->schedule, &pipe->arrive);
    free_packets(&pipe->packets);
}

static hf_time draw_delay(struct app_net *net)
{
    const struct sim_nodes_odds *odds = &net->nodes->odds;
    bool is_slow = hf_random_below(&net->random, 100) == 0;

    return (hf_time)hf_random_below(
        &net->random, (is_slow ? odds->slow_ms : odds->delay_ms) + 1);
}

static void mix_hash(struct app_net *net, uint64_t number, const void *bytes,
                     size_t size)
{
    struct hf_seed seed = {{0}};

    memcpy(seed.bytes, &net->nodes->hash, 8);
    memcpy(seed.bytes + 8, &number, 8);
    net->nodes->hash = hf_siphash(&seed, bytes, size);
}

static void push_packet(struct app_pipe *pipe, enum app_packet_kind kind,
                        const void *bytes, size_t size)
{
    struct app_net *net = pipe->owner->net;
    struct app_packet *packet = malloc(sizeof(*packet) + size);
    hf_time at = net->nodes->schedule.now + draw_delay(net);
    bool is_first = hf_dlist_is_empty(&pipe->packets);

    assert_non_null(packet);
    if (at < pipe->last)
        at = pipe->last;
    pipe->last = at;
    packet->kind = kind;
    packet->at = at;
    packet->size = size;
    if (size > 0)
        memcpy(packet->bytes, bytes, size);
    hf_dlist_push_back(&pipe->packets, &packet->link);
    if (is_first)
        sim_schedule_set(&net->nodes->schedule, &pipe->arrive, at);
    net->sent++;
    mix_hash(net, pipe->owner->number * 4 + kind, packet->bytes, size);
}

/* ---- Arrival at a node --------------------------------------------------*/

static void deliver_to_node(struct app_link *link,
                            const struct app_packet *packet)
{
    struct sim_nodes *nodes = link->net->nodes;
    struct sim_node *node = &nodes->list[link->node];

    if (!node->node || (packet->kind == APP_PACKET_DATA && !link->is_known)) {
        push_packet(&link->to_app, APP_PACKET_CLOSE, NULL, 0);
        return;
    }
    hf_node_set_time(node->node, sim_node_now(node));
    if (packet->kind == APP_PACKET_OPEN) {
        link->is_known = true;
        hf_node_on_client_open(node->node, link->number);
        push_packet(&link->to_app, APP_PACKET_OPEN, NULL, 0);
    } else if (packet->kind == APP_PACKET_DATA) {
        hf_node_on_client_data(node->node, link->number, packet->bytes,
                               packet->size);
    } else if (link->is_known) {
        link->is_known = false;
        hf_node_on_client_closed(node->node, link->number);
    }
    sim_nodes_wake(nodes, link->node);
}

/* ---- Arrival in general -------------------------------------------------*/

/* Returns until when the next packet of the pipe has to wait, or 0. */
static hf_time blocked_until(const struct app_pipe *pipe)
{
    const struct app_link *link = pipe->owner;
    const struct app_net *net = link->net;
    hf_time now = net->nodes->schedule.now;
    bool to_node = pipe == &link->to_node;
    hf_time paused = to_node ? net->nodes->list[link->node].paused_until
                             : net->paused_until[link->app];
    bool is_cut = to_node ? net->cut_to[link->app][link->node]
                          : net->cut_from[link->app][link->node];

    if (paused > now)
        return paused;
    return is_cut || (to_node && link->is_held) ? now + RETRY_MS : 0;
}

static void on_arrive(struct sim_event *event)
{
    struct app_pipe *pipe = HF_CONTAINER(event, struct app_pipe, arrive);
    struct app_link *link = pipe->owner;
    struct sim_schedule *schedule = &link->net->nodes->schedule;
    hf_time until = blocked_until(pipe);
    struct app_packet *packet;

    if (until > 0) {
        sim_schedule_set(schedule, event, until);
        return;
    }
    packet = packet_at(hf_dlist_take(&pipe->packets));
    if (pipe == &link->to_node) {
        deliver_to_node(link, packet);
        free(packet);
    } else if (link->stream) {
        hf_dlist_push_back(&link->arrived, &packet->link);
        link->net->on_arrival(link->net->arg, link->app);
    } else {
        free(packet);
    }
    if (!hf_dlist_is_empty(&pipe->packets))
        sim_schedule_set(schedule, event,
                         packet_at(hf_dlist_first(&pipe->packets))->at);
}

/* ---- Arrival at an application ------------------------------------------*/

static void deliver_to_stream(struct app_link *link,
                              const struct app_packet *packet)
{
    struct hf_net_stream *stream = link->stream;

    if (packet->kind == APP_PACKET_OPEN) {
        stream->ops->opened(stream);
    } else if (packet->kind == APP_PACKET_DATA) {
        stream->ops->data(stream, packet->bytes, packet->size);
    } else {
        link->stream = NULL;
        stream->handle = NULL;
        stream->ops->lost(stream, HF_EUNAVAIL, "Connection reset by peer");
    }
}

void app_net_deliver(struct app_net *net, unsigned app)
{
    for (size_t i = 0; i < net->count; i++) {
        struct app_link *link = net->links[i];
        struct hf_dlist *taken;

        if (link->app != app)
            continue;
        while (link->stream && (taken = hf_dlist_take(&link->arrived))) {
            deliver_to_stream(link, packet_at(taken));
            free(packet_at(taken));
        }
        free_packets(&link->arrived);
    }
}

/* ---- Calls of applications ----------------------------------------------*/

static void init_pipe(struct app_pipe *pipe, struct app_link *link)
{
    pipe->owner = link;
    pipe->arrive.fire = on_arrive;
    hf_dlist_init(&pipe->packets);
}

void app_net_connect(struct app_net *net, unsigned app, unsigned node,
                     struct hf_net_stream *stream)
{
    struct app_link *link = calloc(1, sizeof(*link));

    assert_non_null(link);
    if (net->count == net->capacity) {
        net->capacity = net->capacity ? net->capacity * 2 : 64;
        net->links =
            realloc(net->links, net->capacity * sizeof(struct app_link *));
        assert_non_null(net->links);
    }
    net->links[net->count++] = link;
    link->net = net;
    link->number = net->count;
    link->app = app;
    link->node = node;
    link->stream = stream;
    stream->handle = link;
    init_pipe(&link->to_node, link);
    init_pipe(&link->to_app, link);
    hf_dlist_init(&link->arrived);
    push_packet(&link->to_node, APP_PACKET_OPEN, NULL, 0);
}

void app_net_write(struct hf_net_stream *stream, const void *data, size_t size)
{
    struct app_link *link = stream->handle;

    push_packet(&link->to_node, APP_PACKET_DATA, data, size);
}

void app_net_close(struct hf_net_stream *stream)
{
    struct app_link *link = stream->handle;

    link->stream = NULL;
    stream->handle = NULL;
    push_packet(&link->to_node, APP_PACKET_CLOSE, NULL, 0);
}

/* ---- Calls of nodes -----------------------------------------------------*/

void app_net_on_send(struct app_net *net, uint64_t number, const void *bytes,
                     size_t size)
{
    push_packet(&net->links[number - 1]->to_app, APP_PACKET_DATA, bytes, size);
}

void app_net_on_close(struct app_net *net, uint64_t number)
{
    struct app_link *link = net->links[number - 1];

    link->is_known = false;
    push_packet(&link->to_app, APP_PACKET_CLOSE, NULL, 0);
}

void app_net_on_pause(struct app_net *net, uint64_t number, bool stop)
{
    net->links[number - 1]->is_held = stop;
}

void app_net_on_down(struct app_net *net, unsigned node)
{
    bool silent = hf_random_below(&net->random, 3) == 0;

    for (size_t i = 0; i < net->count; i++) {
        struct app_link *link = net->links[i];

        if (link->node != node || !link->is_known)
            continue;
        link->is_known = link->is_held = false;
        if (!silent)
            push_packet(&link->to_app, APP_PACKET_CLOSE, NULL, 0);
    }
}

/* ---- Faults -------------------------------------------------------------*/

void app_net_reset(struct app_net *net, unsigned app, bool silent)
{
    for (size_t i = 0; i < net->count; i++) {
        struct app_link *link = net->links[i];

        if (link->app != app || (!link->stream && !link->is_known))
            continue;
        clear_pipe(&link->to_node);
        clear_pipe(&link->to_app);
        push_packet(&link->to_app, APP_PACKET_CLOSE, NULL, 0);
        if (!silent)
            push_packet(&link->to_node, APP_PACKET_CLOSE, NULL, 0);
    }
}

void app_net_cut(struct app_net *net, unsigned app, unsigned node, bool to,
                 bool from)
{
    net->cut_to[app][node] |= to;
    net->cut_from[app][node] |= from;
}

void app_net_heal(struct app_net *net, unsigned app)
{
    memset(net->cut_to[app], 0, sizeof(net->cut_to[app]));
    memset(net->cut_from[app], 0, sizeof(net->cut_from[app]));
}

/* Bytes that follow a gap would not make sense, so the connections end too. */
void app_net_lose(struct app_net *net, unsigned node)
{
    for (size_t i = 0; i < net->count; i++) {
        struct app_link *link = net->links[i];

        if (link->node != node || !link->is_known)
            continue;
        clear_pipe(&link->to_app);
        clear_pipe(&link->to_node);
        push_packet(&link->to_app, APP_PACKET_CLOSE, NULL, 0);
        push_packet(&link->to_node, APP_PACKET_CLOSE, NULL, 0);
    }
}

/* ---- Init and fini ------------------------------------------------------*/

void app_net_init(struct app_net *net, struct sim_nodes *nodes, uint64_t seed)
{
    memset(net, 0, sizeof(*net));
    net->nodes = nodes;
    hf_random_init(&net->random, seed * 2 + 31337);
}

void app_net_fini(struct app_net *net)
{
    for (size_t i = 0; i < net->count; i++) {
        clear_pipe(&net->links[i]->to_node);
        clear_pipe(&net->links[i]->to_app);
        free_packets(&net->links[i]->arrived);
        free(net->links[i]);
    }
    free(net->links);
}
