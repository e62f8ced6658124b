/* raft.c - open, drive, describe and close raft:. */
#include <stdio.h>
#include <string.h>

#include "strategy/raft/raft.h"

#define OPEN_MS 5000  /* limit on waiting for the cluster in `open` */
#define CHECK_MS 5000 /* waiters check for lost pushes about this often */

/* ---- The timer ----------------------------------------------------------*/

static hf_time next_deadline(const struct hf_raft *raft)
{
    hf_time at = hf_raft_route_deadline(raft);

    for (unsigned i = 0; i < 2; i++)
        at =
            hf_time_min(at, hf_raft_connection_deadline(&raft->connections[i]));
    return at;
}

static void do_what_is_due(struct hf_raft *raft)
{
    for (unsigned i = 0; i < 2; i++)
        hf_raft_connection_tick(&raft->connections[i]);
    hf_raft_route_tick(raft);
}

static void on_raft_timer(struct hf_timer *timer)
{
    struct hf_raft *raft = HF_CONTAINER(timer, struct hf_raft, net.timer);

    raft->net.timer_at = HF_NEVER;
    do_what_is_due(raft);
    hf_net_wake_at(&raft->net, next_deadline(raft));
}

/* ---- Opening ------------------------------------------------------------*/

enum hf_err hf_raft_read_url(struct hf_raft *raft, struct hf_url *url,
                             struct hf_error *error)
{
    const char *route = hf_url_param(url, "route");

    if (route && strcmp(route, "leader") != 0 && strcmp(route, "any") != 0)
        return hf_error_set(error, HF_EINVAL,
                            "url: route: '%s' is not 'leader' or 'any'", route);
    raft->route_any = route && !strcmp(route, "any");
    return hf_net_addresses_parse(&raft->addresses, url, HF_NET_ADDRESSES_MAX,
                                  error);
}

static void free_raft(struct hf_raft *raft)
{
    for (unsigned i = 0; i < 2; i++)
        hf_raft_connection_close(&raft->connections[i]);
    hf_net_sockets_fini(&raft->sockets);
    hf_raft_claims_fini(raft);
    hf_watches_fini(&raft->watches, NULL, NULL);
    hf_map_fini(&raft->requests_by_id);
    hf_buf_fini(&raft->scratch);
    hf_net_fini(&raft->net);
}

static enum hf_err init_raft(struct hf_raft *raft, struct hf_host *host,
                             struct hf_net_transport *transport)
{
    hf_dlist_init(&raft->requests);
    hf_map_init(&raft->requests_by_id);
    hf_map_init(&raft->claims);
    hf_watches_init(&raft->watches);
    for (unsigned i = 0; i < 2; i++)
        hf_raft_connection_init(&raft->connections[i], raft);
    return hf_net_init(&raft->net, host, transport, on_raft_timer);
}

static void set_open_failure(const struct hf_raft *raft, struct hf_error *error)
{
    const struct hf_raft_connection *current = raft->current;

    if (raft->route.failure.code != HF_OK)
        *error = raft->route.failure;
    else if (current->link.state == HF_NET_LINK_READY)
        (void)hf_error_set(
            error, HF_EUNAVAIL,
            "%s: the node cannot open a session: fewer than a majority of the "
            "nodes are up or connected",
            current->link.address->name);
    else
        (void)hf_error_set(error, HF_EUNAVAIL, "%s: the node does not answer",
                           current->link.address->name);
}

/* Drive the connection until it is up, until every node has failed once, or
 * until OPEN_MS have passed. */
static enum hf_err await_session(struct hf_raft *raft, struct hf_error *error)
{
    hf_time until = hf_time_add(hf_net_now(&raft->net), OPEN_MS);

    while (!hf_raft_connection_is_up(raft->current)) {
        hf_time at = next_deadline(raft);

        if (hf_raft_route_has_failed(raft) || hf_net_now(&raft->net) >= until) {
            struct hf_error failure;

            set_open_failure(raft, &failure);
            if (error)
                *error = failure;
            return failure.code;
        }
        raft->net.transport->ops->wait(raft->net.transport,
                                       hf_time_min(at, until));
        do_what_is_due(raft);
        hf_net_link_flush(&raft->current->link);
    }
    return HF_OK;
}

enum hf_err hf_raft_open_with(struct hf_raft *raft, struct hf_url *url,
                              struct hf_host *host,
                              struct hf_net_transport *transport,
                              struct hf_error *error)
{
    enum hf_err err = hf_raft_read_url(raft, url, error);

    if (err)
        return err;
    err = init_raft(raft, host, transport);
    if (err)
        return hf_error_set_code(error, err);
    if (transport->ops->resolve)
        transport->ops->resolve(transport, &raft->addresses);
    raft->net.opening = transport->ops->wait != NULL;
    if (raft->net.opening)
        hf_net_await_names(&raft->net, &raft->addresses);
    hf_raft_route_start(raft);
    if (raft->net.opening)
        err = await_session(raft, error);
    raft->net.opening = false;
    if (err)
        free_raft(raft);
    else
        hf_net_wake_at(&raft->net, next_deadline(raft));
    return err;
}

static enum hf_err raft_open(void *self, struct hf_url *url,
                             struct hf_host *host, struct hf_error *error)
{
    struct hf_raft *raft = self;

    hf_net_sockets_init(&raft->sockets, host);
    return hf_raft_open_with(raft, url, host, &raft->sockets.transport, error);
}

/* ---- Other members ------------------------------------------------------*/

static uint32_t raft_caps(const void *self)
{
    (void)self;
    return HF_CAP_FENCE | HF_CAP_DURABLE | HF_CAP_FIFO | HF_CAP_PUSH |
           HF_CAP_STEADY | HF_CAP_FAILOVER_SAFE | HF_CAP_LINEARIZABLE_READ |
           HF_CAP_VALUE | HF_CAP_WATCH | HF_CAP_FLEET;
}

static void raft_describe(const void *self, hf_fact_fn *each, void *arg)
{
    const struct hf_raft *raft = self;
    const struct hf_raft_connection *current = raft->current;
    char text[HF_NET_NAME_SIZE + 64];

    each("cluster", raft->route.cluster, arg);
    if (!hf_raft_connection_is_up(current)) {
        each("node", raft->route.failure.text, arg);
        return;
    }
    (void)snprintf(text, sizeof(text), "%s, node %llu, %s",
                   current->link.address->name,
                   (unsigned long long)current->node,
                   current->leader == current->node ? "the leader"
                   : current->leader > 0            ? "a follower"
                                                    : "knows no leader");
    each("node", text, arg);
}

/* DETACH closes the session at once, so that the waiters of this client leave
 * their queues without the delay that follows a lost connection. */
static void raft_close(void *self)
{
    struct hf_raft *raft = self;
    struct hf_mux_request detach = {.verb = HF_VERB_DETACH};

    if (hf_raft_connection_is_up(raft->current)) {
        detach.id = raft->net.next_id++;
        hf_raft_connection_send(raft->current, &detach);
    }
    free_raft(raft);
}

const struct hf_strategy hf_strategy_raft = {
    .scheme = "raft",
    .size = sizeof(struct hf_raft),
    .looks_up = true,
    .poll_ms = CHECK_MS,
    .open = raft_open,
    .caps = raft_caps,
    .describe = raft_describe,
    .submit = hf_raft_request_submit,
    .cancel = hf_raft_request_cancel,
    .sent_at = hf_raft_request_sent_at,
    .close = raft_close,
};
