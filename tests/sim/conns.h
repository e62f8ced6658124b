/* conns.h - the connections between simulated nodes; see nodes.h. */
#ifndef HF_TESTS_SIM_CONNS_H
#define HF_TESTS_SIM_CONNS_H

#include "sim/nodes.h"

void sim_conns_init(struct sim_nodes *nodes);
void sim_conns_fini(struct sim_nodes *nodes);

/* Call sim_conns_start() when node `number` has started, and sim_conns_stop()
 * when it has gone down. The other nodes then see their connections to it
 * closed, unless `silent` is set. */
void sim_conns_start(struct sim_nodes *nodes, unsigned number);
void sim_conns_stop(struct sim_nodes *nodes, unsigned number, bool silent);

void sim_conns_send(struct sim_nodes *nodes, uint64_t link, const void *bytes,
                    size_t size);

/* Close the connection `link`, as its receiver. */
void sim_conns_close(struct sim_nodes *nodes, uint64_t link);

#endif
