/* network.h - a simulated network: frames are delayed, lost, repeated,
 * overtaken and cut off, as a seed decides. */
#ifndef HF_TESTS_SIM_NETWORK_H
#define HF_TESTS_SIM_NETWORK_H

#include "base/dlist.h"
#include "base/random.h"
#include "sim/schedule.h"

#define SIM_NODES_MAX 9

/* The probabilities are per thousand frames. */
struct sim_network_odds {
    unsigned lose, repeat, slow;
    uint32_t quick_ms; /* most frames take 1 to quick_ms + 1 ms */
    uint32_t slow_ms;  /* slow frames take 1 to slow_ms + 1 ms */
};

struct sim_network {
    struct sim_schedule *schedule;
    struct hf_random *random;
    struct sim_network_odds odds;
    /* [from][to]; frames that arrive during a cut are lost. */
    bool is_cut[SIM_NODES_MAX][SIM_NODES_MAX];
    struct hf_dlist flying;
    /* Called when a frame arrives. Returns 0, or the time at which the frame is
     * to arrive again, because the receiver is stopped. */
    hf_time (*deliver)(void *arg, unsigned from, unsigned to,
                       const uint8_t *data, size_t size);
    void *arg;
    uint64_t delivered, lost;
};

void sim_network_init(struct sim_network *network,
                      struct sim_schedule *schedule, struct hf_random *random);
void sim_network_fini(struct sim_network *network);

/* Send a copy of the frame from node `from` to node `to`. */
void sim_network_send(struct sim_network *network, unsigned from, unsigned to,
                      const uint8_t *data, size_t size);

/* End all cuts, losses, repeats and long delays. */
void sim_network_heal(struct sim_network *network);

#endif
