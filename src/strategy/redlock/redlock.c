#include "strategy/redlock/redlock.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "strategy/redis/await.h"

#define OPEN_MS 5000

static void fail_redlock_request(struct hf_redlock *redlock,
                                 struct hf_request *request, enum hf_err err,
                                 const char *text)
{
    request->answer.result.err = err;
    hf_redis_reply_set_cause(&request->answer, text);
    redlock->host->ops->answer(redlock->host, request);
}

static void redlock_submit(void *self, struct hf_request *request)
{
    struct hf_redlock *redlock = self;
    struct hf_redlock_vote *vote;

    if (request->kind == HF_REQUEST_WATCH ||
        request->kind == HF_REQUEST_UNWATCH ||
        (request->kind == HF_REQUEST_COMMAND &&
         request->command.kind == HF_COMMAND_UPDATE)) {
        fail_redlock_request(
            redlock, request, HF_EUNSUPPORTED,
            "redlock: supports neither watches nor updates of values");
        return;
    }
    if (request->kind != HF_REQUEST_LIST &&
        hf_redis_keyspace_is_reserved(request->command.key)) {
        fail_redlock_request(
            redlock, request, HF_EINVAL,
            "key: keys that begin with 'hf:' are reserved for holdfast in "
            "Redis; choose another key");
        return;
    }
    vote = hf_redlock_vote_new(redlock, request);
    if (vote)
        hf_redlock_vote_start(vote);
    else
        fail_redlock_request(redlock, request, HF_ENOMEM,
                             hf_err_text(HF_ENOMEM));
}

static void redlock_cancel(void *self, struct hf_request *request)
{
    struct hf_redlock *redlock = self;
    struct hf_dlist *link = redlock->votes.next;

    while (HF_CONTAINER(link, struct hf_redlock_vote, link)->request !=
           request) {
        link = link->next;
        HF_ASSERT(link != &redlock->votes);
    }
    hf_answer_clear(&request->answer);
    hf_redlock_vote_cancel(HF_CONTAINER(link, struct hf_redlock_vote, link));
}

/* ---- Opening and closing ------------------------------------------------*/

/* Find a server in the URL that is the same process as `server`, under another
 * address. That process would vote twice. */
static const struct hf_redlock_server *find_same_server(
    const struct hf_redlock_server *server)
{
    const struct hf_redlock *redlock = server->redlock;

    for (unsigned i = 0; i < redlock->count; i++) {
        const struct hf_redlock_server *other = &redlock->servers[i];

        if (other != server && other->connection.state == HF_REDIS_UP &&
            *server->connection.server_info.run_id &&
            !strcmp(other->connection.server_info.run_id,
                    server->connection.server_info.run_id))
            return other;
    }
    return NULL;
}

static void on_server_up(struct hf_redis_connection *connection)
{
    struct hf_redlock_server *server =
        HF_CONTAINER(connection, struct hf_redlock_server, connection);
    const struct hf_redlock_server *same = find_same_server(server);
    char text[HF_REDIS_NAME_MAX + 80];

    if (!same) {
        hf_redlock_cancels_send(server);
        return;
    }
    (void)snprintf(text, sizeof(text),
                   "is the same server as %s; redlock: needs independent "
                   "servers",
                   same->address.name);
    hf_redis_connection_drop(connection, HF_EINVAL, text);
}

static void on_server_down(struct hf_redis_connection *connection)
{
    (void)connection;
}

static const struct hf_redis_connection_ops server_ops = {
    .up = on_server_up,
    .down = on_server_down,
};

static bool is_listed_twice(const struct hf_redlock *redlock,
                            const struct hf_redis_address *address)
{
    for (unsigned i = 0; i < redlock->count; i++) {
        const struct hf_redis_address *other = &redlock->servers[i].address;

        if (address != other && address->port == other->port &&
            !strcasecmp(address->host, other->host))
            return true;
    }
    return false;
}

static enum hf_err read_servers(struct hf_redlock *redlock, struct hf_url *url,
                                struct hf_error *error)
{
    const char *host = url->hosts;
    enum hf_err err = HF_OK;

    while (host && !err) {
        struct hf_redlock_server *server = &redlock->servers[redlock->count];

        if (redlock->count == HF_REDLOCK_MAX)
            return hf_error_set(error, HF_EINVAL,
                                "url: redlock: has more than %d servers",
                                HF_REDLOCK_MAX);
        err = hf_redis_address_init(&server->address, url, host, error);
        hf_dlist_init(&server->cancels);
        server->redlock = redlock;
        redlock->count += !err;
        if (!err && is_listed_twice(redlock, &server->address))
            err = hf_error_set(error, HF_EINVAL,
                               "url: redlock: %s:%d is listed twice",
                               server->address.host, server->address.port);
        host = strchr(host, ',');
        host += host != NULL;
    }
    if (!err && (redlock->count < 3 || redlock->count % 2 == 0))
        err = hf_error_set(error, HF_EINVAL,
                           "url: redlock: needs an odd number of servers, at "
                           "least three, as in redlock://a,b,c");
    redlock->majority = redlock->count / 2 + 1;
    return err;
}

/* Succeed if a majority is up, because the other servers may come up later. But
 * a server that was reached and is not usable is a configuration error. */
static enum hf_err connect_servers(struct hf_redlock *redlock,
                                   struct hf_error *error)
{
    struct hf_redis_connection *connections[HF_REDLOCK_MAX];
    unsigned up = 0;

    for (unsigned i = 0; i < redlock->count; i++) {
        enum hf_err err;

        connections[i] = &redlock->servers[i].connection;
        err = hf_redis_connection_open(connections[i], redlock->host,
                                       &redlock->servers[i].address,
                                       &server_ops, NULL);
        if (err)
            return hf_error_set_code(error, err);
    }
    hf_redis_await_connections(connections, redlock->count, redlock->majority,
                               OPEN_MS);
    for (unsigned i = 0; i < redlock->count; i++) {
        if (connections[i]->state == HF_REDIS_UP &&
            !hf_redis_server_info_check_eviction(&connections[i]->server_info,
                                                 connections[i]->address,
                                                 &connections[i]->failure)) {
            up++;
            continue;
        }
        if (error)
            *error = connections[i]->failure;
        if (connections[i]->failure.code != HF_EUNAVAIL)
            return connections[i]->failure.code;
    }
    return up >= redlock->majority ? HF_OK : HF_EUNAVAIL;
}

static void remove_timers(struct hf_redlock *redlock)
{
    struct hf_host *host = redlock->host;

    host->ops->timer_remove(host, &redlock->nudge_timer);
    host->ops->timer_remove(host, &redlock->vote_timer);
    host->ops->timer_remove(host, &redlock->pubsub_timer);
}

static void close_servers(struct hf_redlock *redlock)
{
    for (unsigned i = 0; i < redlock->count; i++) {
        hf_redis_connection_close(&redlock->servers[i].connection);
        hf_redis_connection_close(&redlock->servers[i].pubsub);
        hf_redlock_cancels_fini(&redlock->servers[i]);
        hf_redis_address_fini(&redlock->servers[i].address);
    }
    hf_redlock_waiters_fini(redlock);
    hf_redlock_in_doubt_fini(redlock);
    remove_timers(redlock);
}

static enum hf_err add_timers(struct hf_redlock *redlock)
{
    struct hf_host *host = redlock->host;
    enum hf_err err = host->ops->timer_add(host, &redlock->nudge_timer);

    if (err)
        return err;
    err = host->ops->timer_add(host, &redlock->vote_timer);
    if (err)
        goto fail;
    err = host->ops->timer_add(host, &redlock->pubsub_timer);
    if (err)
        goto fail_vote_timer;
    return HF_OK;

fail_vote_timer:
    host->ops->timer_remove(host, &redlock->vote_timer);
fail:
    host->ops->timer_remove(host, &redlock->nudge_timer);
    return err;
}

static enum hf_err redlock_open(void *self, struct hf_url *url,
                                struct hf_host *host, struct hf_error *error)
{
    struct hf_redlock *redlock = self;
    enum hf_err err;

    redlock->host = host;
    redlock->nudge_timer.fire = hf_redlock_waiters_on_timer;
    redlock->vote_timer.fire = hf_redlock_vote_on_timeout;
    redlock->pubsub_timer.fire = hf_redlock_pubsub_on_timer;
    hf_dlist_init(&redlock->votes);
    hf_dlist_init(&redlock->undecided);
    hf_dlist_init(&redlock->in_doubt);
    hf_dlist_init(&redlock->waiters);
    err = add_timers(redlock);
    if (err)
        return hf_error_set_code(error, err);
    err = read_servers(redlock, url, error);
    if (!err && hf_redis_identity_init(&redlock->identity, host,
                                       &redlock->servers[0].address.space))
        err = hf_error_set_code(error, HF_ESYSTEM);
    (void)snprintf(redlock->freed_channel, sizeof(redlock->freed_channel),
                   "hf:freed:%u:", redlock->servers[0].address.db);
    redlock->identity.announce = redlock->freed_channel;
    if (!err)
        err = connect_servers(redlock, error);
    if (err)
        close_servers(redlock);
    return err;
}

/* redlock: promises less than redis:, because its servers share no queue, no
 * token counter and no event stream. There is no capability for its advantage,
 * that a lock survives the loss of a server. */
static uint32_t redlock_caps(const void *self)
{
    (void)self;
    return HF_CAP_FLEET;
}

static void redlock_describe(const void *self, hf_fact_fn *each, void *arg)
{
    const struct hf_redlock *redlock = self;
    char text[HF_REDIS_NAME_MAX +
              sizeof(redlock->servers->connection.failure.text)];

    for (unsigned i = 0; i < redlock->count; i++) {
        const struct hf_redis_connection *connection =
            &redlock->servers[i].connection;

        if (connection->state == HF_REDIS_UP)
            (void)snprintf(text, sizeof(text), "%s, Redis %s",
                           connection->address->name,
                           connection->server_info.version);
        else
            (void)snprintf(text, sizeof(text), "down: %s",
                           connection->failure.text);
        each("server", text, arg);
    }
}

static void redlock_close(void *self)
{
    close_servers(self);
}

const struct hf_strategy hf_strategy_redlock = {
    .scheme = "redlock",
    .size = sizeof(struct hf_redlock),
    .open = redlock_open,
    .caps = redlock_caps,
    .describe = redlock_describe,
    .submit = redlock_submit,
    .cancel = redlock_cancel,
    .close = redlock_close,
};
