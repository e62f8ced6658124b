/* quorum.c - open, drive, describe and close quorum:. */
#include "strategy/quorum/quorum.h"

#include <stdio.h>
#include <string.h>

#define OPEN_MS 5000 /* limit on waiting for a majority in `open` */
#define REST_MS 100  /* ... and then for the other masters */
#define SPREAD 7     /* see struct hf_coordinators */

void hf_voting_answer(struct hf_voting *voting, struct hf_request *request,
                      enum hf_err err, const char *cause)
{
    if (err)
        hf_answer_clear(&request->answer);
    request->answer.result.err = err;
    if (err && cause && *cause)
        request->answer.cause = strdup(cause);
    voting->net.host->ops->answer(voting->net.host, request);
}

/* ---- The timer ----------------------------------------------------------*/

static hf_time next_deadline(const struct hf_voting *voting)
{
    hf_time at = hf_voting_masters_deadline(voting);

    at = hf_time_min(at, hf_voting_rounds_deadline(voting));
    return hf_time_min(at, hf_heap_top_key(&voting->claim_timers));
}

static void start_pending(struct hf_voting *voting);

static void do_what_is_due(struct hf_voting *voting)
{
    hf_voting_masters_tick(voting);
    start_pending(voting);
    hf_voting_claims_tick(voting);
    hf_voting_rounds_tick(voting);
}

static void on_voting_timer(struct hf_timer *timer)
{
    struct hf_voting *voting = HF_CONTAINER(timer, struct hf_voting, net.timer);

    voting->net.timer_at = HF_NEVER;
    do_what_is_due(voting);
    hf_net_wake_at(&voting->net, next_deadline(voting));
}

/* ---- Requests -----------------------------------------------------------*/

static bool needs_majority(const struct hf_request *request)
{
    return request->kind != HF_REQUEST_READ || request->how != HF_LOCAL;
}

static void start_request(struct hf_voting *voting, struct hf_request *request)
{
    switch (request->kind) {
    case HF_REQUEST_COMMAND:
        if (request->command.kind == HF_COMMAND_FORCE)
            hf_voting_rounds_submit(voting, request);
        else
            hf_voting_claims_submit(voting, request);
        break;
    case HF_REQUEST_READ:
        hf_voting_rounds_submit(voting, request);
        break;
    case HF_REQUEST_LIST:
        hf_voting_list_submit(voting, request);
        break;
    case HF_REQUEST_LOOKUP: /* the strategy does not set `looks_up` */
    case HF_REQUEST_WATCH:  /* nor declare HF_CAP_WATCH */
    case HF_REQUEST_UNWATCH:
        hf_voting_answer(voting, request, HF_EUNSUPPORTED, NULL);
        break;
    }
}

static void fail_unavailable(struct hf_voting *voting,
                             struct hf_request *request)
{
    struct hf_error why;

    hf_voting_masters_explain(voting, &why);
    hf_voting_answer(voting, request, HF_EUNAVAIL, why.text);
}

/* Returns true if the request has to wait until masters are connected. */
static bool must_wait(const struct hf_voting *voting,
                      const struct hf_request *request)
{
    if (needs_majority(request))
        return !hf_voting_masters_have_majority(voting);
    return hf_voting_masters_usable(voting) == 0;
}

static void voting_submit(void *self, struct hf_request *request)
{
    struct hf_voting *voting = self;

    if (!must_wait(voting, request))
        start_request(voting, request);
    else if (hf_voting_masters_have_failed(voting))
        fail_unavailable(voting, request);
    else
        hf_dlist_push_back(&voting->pending, &request->link);
}

static void start_pending(struct hf_voting *voting)
{
    struct hf_dlist *link = voting->pending.next, *next;

    for (; link != &voting->pending; link = next) {
        struct hf_request *request =
            HF_CONTAINER(link, struct hf_request, link);

        next = link->next;
        if (must_wait(voting, request) &&
            !hf_voting_masters_have_failed(voting))
            continue;
        hf_dlist_remove(link);
        voting_submit(voting, request);
    }
}

static void voting_cancel(void *self, struct hf_request *request)
{
    struct hf_voting *voting = self;
    struct hf_dlist *link = voting->pending.next;

    for (; link != &voting->pending; link = link->next) {
        if (link != &request->link)
            continue;
        hf_dlist_remove(link);
        fail_unavailable(voting, request);
        return;
    }
    if (!hf_voting_claims_cancel(voting, request) &&
        !hf_voting_rounds_cancel(voting, request))
        (void)hf_voting_list_cancel(voting, request);
}

/* ---- Opening ------------------------------------------------------------*/

static void free_voting(struct hf_voting *voting)
{
    hf_voting_masters_close(voting);
    hf_net_sockets_fini(&voting->sockets);
    hf_voting_claims_fini(voting);
    hf_voting_rounds_fini(voting);
    hf_buf_fini(&voting->scratch);
    hf_net_fini(&voting->net);
}

static enum hf_err init_voting(struct hf_voting *voting, struct hf_host *host,
                               struct hf_net_transport *transport)
{
    hf_dlist_init(&voting->pending);
    hf_dlist_init(&voting->rounds);
    hf_dlist_init(&voting->lists);
    hf_voting_claims_init(voting);
    voting->common.spread = SPREAD;
    if (hf_random_bytes(host->ops->random(host), &voting->common.chance,
                        sizeof(voting->common.chance)))
        return HF_ESYSTEM;
    return hf_net_init(&voting->net, host, transport, on_voting_timer);
}

static void flush_links(struct hf_voting *voting)
{
    for (unsigned i = 0; i < HF_VOTING_SLOTS; i++)
        hf_net_link_flush(&voting->masters[i].link);
}

/* Returns true if each master is usable, or an attempt to connect to it has
 * failed. */
static bool has_tried_all(const struct hf_voting *voting)
{
    for (unsigned i = 0; i < voting->common.quorum.masters; i++) {
        if (!(voting->common.usable >> i & 1) &&
            voting->members[i]->failures == 0)
            return false;
    }
    return voting->set > 0;
}

/* Drive the connections until all masters were tried, or OPEN_MS have passed.
 * With a majority, the others are awaited for REST_MS only. */
static enum hf_err await_majority(struct hf_voting *voting,
                                  struct hf_error *error)
{
    hf_time until = hf_time_add(hf_net_now(&voting->net), OPEN_MS);
    bool has_majority = false;

    while (!has_tried_all(voting) && hf_net_now(&voting->net) < until &&
           !hf_voting_masters_have_failed(voting)) {
        hf_time at = next_deadline(voting);

        if (!has_majority && hf_voting_masters_have_majority(voting)) {
            has_majority = true;
            until = hf_time_add(hf_net_now(&voting->net), REST_MS);
        }
        voting->net.transport->ops->wait(voting->net.transport,
                                         hf_time_min(at, until));
        hf_voting_masters_tick(voting);
        flush_links(voting);
    }
    if (hf_voting_masters_have_majority(voting))
        return HF_OK;
    struct hf_error failure;

    hf_voting_masters_explain(voting, &failure);
    if (error)
        *error = failure;
    return failure.code;
}

enum hf_err hf_voting_open_with(struct hf_voting *voting, struct hf_url *url,
                                struct hf_host *host,
                                struct hf_net_transport *transport,
                                struct hf_error *error)
{
    enum hf_err err = hf_net_addresses_parse(&voting->seeds, url,
                                             HF_QUORUM_MASTERS_MAX, error);

    if (err)
        return err;
    err = init_voting(voting, host, transport);
    if (err)
        return hf_error_set_code(error, err);
    voting->net.opening = transport->ops->wait != NULL;
    hf_voting_masters_start(voting);
    if (voting->net.opening)
        err = await_majority(voting, error);
    voting->net.opening = false;
    if (err)
        free_voting(voting);
    else
        hf_net_wake_at(&voting->net, next_deadline(voting));
    return err;
}

static enum hf_err voting_open(void *self, struct hf_url *url,
                               struct hf_host *host, struct hf_error *error)
{
    struct hf_voting *voting = self;

    hf_net_sockets_init(&voting->sockets, host);
    return hf_voting_open_with(voting, url, host, &voting->sockets.transport,
                               error);
}

/* ---- Other members ------------------------------------------------------*/

/* Locks are kept in memory, so HF_CAP_DURABLE is not promised: they are lost if
 * a majority of the masters restarts. Claims are granted in order of arrival
 * only while no master and no connection fails, so HF_CAP_FIFO is not promised
 * either. */
static uint32_t voting_caps(const void *self)
{
    (void)self;
    return HF_CAP_FENCE | HF_CAP_PUSH | HF_CAP_STEADY | HF_CAP_FAILOVER_SAFE |
           HF_CAP_LINEARIZABLE_READ | HF_CAP_VALUE | HF_CAP_FLEET;
}

static void voting_describe(const void *self, hf_fact_fn *each, void *arg)
{
    const struct hf_voting *voting = self;
    char text[64];

    each("cluster", voting->cluster, arg);
    (void)snprintf(text, sizeof(text), "%u of %u usable",
                   hf_voting_masters_usable(voting),
                   voting->common.quorum.masters);
    each("masters", text, arg);
}

static void voting_close(void *self)
{
    free_voting(self);
}

const struct hf_strategy hf_strategy_quorum = {
    .scheme = "quorum",
    .size = sizeof(struct hf_voting),
    .open = voting_open,
    .caps = voting_caps,
    .describe = voting_describe,
    .submit = voting_submit,
    .cancel = voting_cancel,
    .close = voting_close,
};
