/* net.h - what all connections of a client to holdfastd nodes have in common.
 *
 *   transport.h  bytes to a node and back; socket.c: over TCP
 *   address.h    host:port; resolver.h: names of hosts
 *   link.h       a connection that speaks the protocol of a node */
#ifndef HF_STRATEGY_NET_NET_H
#define HF_STRATEGY_NET_NET_H

#include "strategy/net/transport.h"

struct hf_net {
    struct hf_host *host;
    struct hf_net_transport *transport;
    struct hf_timer timer; /* of the strategy, which sets `fire` */
    hf_time timer_at;      /* when the timer fires */
    uint64_t next_id;      /* of a request */
    bool opening; /* inside hf_strategy.open, where no event loop runs */
};

/* Add the timer. `transport` must outlive `net`. */
enum hf_err hf_net_init(struct hf_net *net, struct hf_host *host,
                        struct hf_net_transport *transport,
                        void (*fire)(struct hf_timer *timer));
void hf_net_fini(struct hf_net *net);

/* The time of this turn, or the current time inside hf_strategy.open. */
hf_time hf_net_now(const struct hf_net *net);

/* Make the timer fire at `at`, unless it will fire earlier. Inside
 * hf_strategy.open this does nothing, because the timer cannot fire. */
void hf_net_wake_at(struct hf_net *net, hf_time at);

/* Inside hf_strategy.open: wait until an address of the list is known, all
 * names have failed to resolve, or a limit has passed. */
void hf_net_await_names(const struct hf_net *net,
                        const struct hf_net_addresses *addresses);

#endif
