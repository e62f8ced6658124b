#include "strategy/net/net.h"

#define NAMES_MS 5000 /* limit on waiting for names in hf_strategy.open */

enum hf_err hf_net_init(struct hf_net *net, struct hf_host *host,
                        struct hf_net_transport *transport,
                        void (*fire)(struct hf_timer *timer))
{
    *net = (struct hf_net){
        .host = host,
        .transport = transport,
        .timer = {.fire = fire},
        .timer_at = HF_NEVER,
        .next_id = 1,
    };
    return host->ops->timer_add(host, &net->timer);
}

void hf_net_fini(struct hf_net *net)
{
    net->host->ops->timer_remove(net->host, &net->timer);
}

hf_time hf_net_now(const struct hf_net *net)
{
    return net->opening ? hf_time_now() : net->host->ops->now(net->host);
}

void hf_net_wake_at(struct hf_net *net, hf_time at)
{
    if (at >= net->timer_at || net->opening)
        return;
    net->timer_at = at;
    hf_timer_set(net->host, &net->timer, at);
}

/* Returns true if no node has an address yet, and a name is still being
 * resolved. */
static bool awaits_names(const struct hf_net_addresses *addresses)
{
    bool is_resolving = false;

    for (unsigned i = 0; i < addresses->count; i++) {
        if (addresses->list[i].found_count > 0)
            return false;
        is_resolving |= addresses->list[i].is_resolving;
    }
    return is_resolving;
}

void hf_net_await_names(const struct hf_net *net,
                        const struct hf_net_addresses *addresses)
{
    hf_time until = hf_time_add(hf_net_now(net), NAMES_MS);

    while (awaits_names(addresses) && hf_net_now(net) < until)
        net->transport->ops->wait(net->transport, until);
}
