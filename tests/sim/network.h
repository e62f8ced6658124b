/* network.h - a simulated network: frames are delayed, lost, repeated, overtaken
 * and cut off, as a seed decides. */
#ifndef HF_TESTS_SIM_NETWORK_H
#define HF_TESTS_SIM_NETWORK_H

#include "base/dlist.h"
#include "base/random.h"
#include "sim/schedule.h"

#define SIM_NODES_MAX 9

/* The probabilities are per thousand frames. */
struct sim_network_odds {
    unsigned lose, repeat, slow;
    uint32_t quick_ms; /* the longest delay of most frames */
    uint32_t slow_ms;  /* and of slow ones, which others overtake */
};

struct sim_network {
    struct sim_schedule *schedule;
    struct hf_random *random;
    struct sim_network_odds odds;
    bool is_cut[SIM_NODES_MAX][SIM_NODES_MAX]; /* [from][to] */
    struct hf_dlist flying;
    /* A frame arrives. Returns 0, or the time at which it arrives again,
     * because the receiver is stopped. */
    hf_time (*deliver)(void *arg, unsigned from, unsigned to,
                       const uint8_t *data, size_t size);
    void *arg;
    uint64_t delivered, lost;
};

void sim_network_init(struct sim_network *network,
                      struct sim_schedule *schedule, struct hf_random *random);
void sim_network_fini(struct sim_network *network);

/* Send a copy of the frame. */
void sim_network_send(struct sim_network *network, unsigned from, unsigned to,
                      const uint8_t *data, size_t size);

/* Frames that are on their way when a link is cut are lost, too. */
void sim_network_heal(struct sim_network *network);

#endif
