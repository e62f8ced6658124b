/* raft_open.c - open, drive, describe and close raft:. */
#include <stdio.h>

#include "strategy/raft/raft.h"

#define OPEN_MS 5000  /* how long hf_open() waits for the cluster */
#define CHECK_MS 5000 /* waiters check for lost pushes about this often */

hf_time hf_raft_now(const struct hf_raft *raft)
{
    return raft->opening ? hf_time_now() : raft->host->ops->now(raft->host);
}

/* ---- The timer ----------------------------------------------------------*/

/* Inside `open` the timer cannot fire, so it is set only when `open`
 * returns. */
void hf_raft_wake_at(struct hf_raft *raft, hf_time at)
{
    if (at >= raft->timer_at || raft->opening)
        return;
    raft->timer_at = at;
    hf_timer_set(raft->host, &raft->timer, at);
}

static hf_time next_deadline(const struct hf_raft *raft)
{
    hf_time at = hf_raft_route_deadline(raft);

    for (unsigned i = 0; i < 2; i++) {
        hf_time next = hf_raft_connection_deadline(&raft->connections[i]);

        if (next < at)
            at = next;
    }
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
    struct hf_raft *raft = HF_CONTAINER(timer, struct hf_raft, timer);

    raft->timer_at = HF_NEVER;
    do_what_is_due(raft);
    hf_raft_wake_at(raft, next_deadline(raft));
}

/* ---- Opening ------------------------------------------------------------*/

static void free_raft(struct hf_raft *raft)
{
    for (unsigned i = 0; i < 2; i++)
        hf_raft_connection_close(&raft->connections[i]);
    hf_raft_claims_fini(raft);
    hf_watches_fini(&raft->watches, NULL, NULL);
    hf_map_fini(&raft->requests_by_id);
    hf_buf_fini(&raft->scratch);
    raft->host->ops->timer_remove(raft->host, &raft->timer);
}

static enum hf_err init_raft(struct hf_raft *raft, struct hf_host *host,
                             struct hf_raft_transport *transport)
{
    raft->host = host;
    raft->transport = transport;
    raft->next_id = 1;
    raft->timer_at = HF_NEVER;
    raft->timer.fire = on_raft_timer;
    hf_dlist_init(&raft->requests);
    hf_map_init(&raft->requests_by_id);
    hf_map_init(&raft->claims);
    hf_watches_init(&raft->watches);
    for (unsigned i = 0; i < 2; i++)
        hf_raft_connection_init(&raft->connections[i], raft);
    return host->ops->timer_add(host, &raft->timer);
}

static void set_open_failure(const struct hf_raft *raft, struct hf_error *error)
{
    const struct hf_raft_connection *current = raft->current;

    if (raft->route.failure.code != HF_OK)
        *error = raft->route.failure;
    else if (current->state == HF_RAFT_READY)
        (void)hf_error_set(
            error, HF_EUNAVAIL,
            "%s: the node cannot open a session: fewer than a majority of the "
            "nodes are up or connected",
            current->address->name);
    else
        (void)hf_error_set(error, HF_EUNAVAIL, "%s: the node does not answer",
                           current->address->name);
}

/* Drive the connection until it is up, until every node has failed once, or
 * until OPEN_MS have passed. */
static enum hf_err await_session(struct hf_raft *raft, struct hf_error *error)
{
    hf_time until = hf_time_add(hf_raft_now(raft), OPEN_MS);

    while (raft->current->state != HF_RAFT_UP) {
        hf_time at = next_deadline(raft);

        if (hf_raft_route_has_failed(raft) || hf_raft_now(raft) >= until) {
            struct hf_error failure;

            set_open_failure(raft, &failure);
            if (error)
                *error = failure;
            return failure.code;
        }
        raft->transport->ops->wait(raft->transport, at < until ? at : until);
        do_what_is_due(raft);
        hf_raft_connection_flush(raft->current);
    }
    return HF_OK;
}

enum hf_err hf_raft_open_with(struct hf_raft *raft, struct hf_url *url,
                              struct hf_host *host,
                              struct hf_raft_transport *transport,
                              struct hf_error *error)
{
    enum hf_err err = hf_raft_addresses_parse(&raft->addresses, url, error);

    if (err)
        return err;
    err = init_raft(raft, host, transport);
    if (err)
        return hf_error_set_code(error, err);
    raft->opening = transport->ops->wait != NULL;
    hf_raft_route_start(raft);
    if (raft->opening)
        err = await_session(raft, error);
    raft->opening = false;
    if (err)
        free_raft(raft);
    else
        hf_raft_wake_at(raft, next_deadline(raft));
    return err;
}

static enum hf_err raft_open(void *self, struct hf_url *url,
                             struct hf_host *host, struct hf_error *error)
{
    struct hf_raft *raft = self;

    hf_raft_sockets_init(&raft->sockets, host);
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
    char text[HF_RAFT_NAME_SIZE + 64];

    each("cluster", raft->route.cluster, arg);
    if (current->state != HF_RAFT_UP) {
        each("node", raft->route.failure.text, arg);
        return;
    }
    (void)snprintf(text, sizeof(text), "%s, node %llu, %s",
                   current->address->name, (unsigned long long)current->node,
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

    if (raft->current->state == HF_RAFT_UP) {
        detach.id = raft->next_id++;
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
    .submit = hf_raft_submit,
    .cancel = hf_raft_cancel,
    .sent_at = hf_raft_sent_at,
    .close = raft_close,
};
