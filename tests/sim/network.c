#include "sim/network.h"

#include <stdlib.h>
#include <string.h>

#include "lib/runner.h"

struct frame {
    struct sim_event arrival;
    struct hf_dlist link;
    struct sim_network *network;
    unsigned from, to;
    size_t size;
    uint8_t data[];
};

void sim_network_init(struct sim_network *network,
                      struct sim_schedule *schedule, struct hf_random *random)
{
    *network = (struct sim_network){.schedule = schedule, .random = random};
    hf_dlist_init(&network->flying);
}

static void free_frame(struct frame *frame)
{
    sim_schedule_cancel(frame->network->schedule, &frame->arrival);
    hf_dlist_remove(&frame->link);
    free(frame);
}

static struct frame *take_frame(struct sim_network *network)
{
    struct hf_dlist *link = hf_dlist_take(&network->flying);

    return link ? HF_CONTAINER(link, struct frame, link) : NULL;
}

void sim_network_fini(struct sim_network *network)
{
    for (struct frame *frame = take_frame(network); frame;
         frame = take_frame(network))
        free_frame(frame);
}

static void on_arrival(struct sim_event *event)
{
    struct frame *frame = HF_CONTAINER(event, struct frame, arrival);
    struct sim_network *network = frame->network;
    hf_time again = 0;

    if (network->is_cut[frame->from][frame->to]) {
        network->lost++;
    } else {
        network->delivered++;
        again = network->deliver(network->arg, frame->from, frame->to,
                                 frame->data, frame->size);
    }
    if (again > 0)
        sim_schedule_set(network->schedule, &frame->arrival, again);
    else
        free_frame(frame);
}

static bool is_drawn(struct sim_network *network, unsigned per_mille)
{
    return per_mille > 0 && hf_random_below(network->random, 1000) < per_mille;
}

static void send_copy(struct sim_network *network, unsigned from, unsigned to,
                      const uint8_t *data, size_t size)
{
    struct frame *frame = malloc(sizeof(*frame) + size);
    uint32_t delay = 1;

    assert_non_null(frame);
    *frame = (struct frame){.network = network, .from = from, .to = to};
    frame->size = size;
    memcpy(frame->data, data, size);
    frame->arrival.fire = on_arrival;
    hf_dlist_push_back(&network->flying, &frame->link);
    if (is_drawn(network, network->odds.slow))
        delay += hf_random_below(network->random, network->odds.slow_ms + 1);
    else
        delay += hf_random_below(network->random, network->odds.quick_ms + 1);
    sim_schedule_set(network->schedule, &frame->arrival,
                     network->schedule->now + delay);
}

void sim_network_send(struct sim_network *network, unsigned from, unsigned to,
                      const uint8_t *data, size_t size)
{
    if (is_drawn(network, network->odds.lose)) {
        network->lost++;
        return;
    }
    send_copy(network, from, to, data, size);
    if (is_drawn(network, network->odds.repeat))
        send_copy(network, from, to, data, size);
}

void sim_network_heal(struct sim_network *network)
{
    memset(network->is_cut, 0, sizeof(network->is_cut));
    network->odds = (struct sim_network_odds){.quick_ms = 2};
}
