#include "strategy/redis/redlock.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "strategy/redis/await.h"

#define OPEN_MS 5000

static void refuse(struct hf_redlock *redlock, struct hf_request *request,
                   enum hf_err err, const char *text)
{
    request->answer.result.err = err;
    hf_redis_explain(&request->answer, text);
    redlock->host->ops->answer(redlock->host, request);
}

static void submit(void *self, struct hf_request *request)
{
    struct hf_redlock *redlock = self;
    struct hf_redlock_poll *poll;

    if (request->kind == HF_REQUEST_WATCH ||
        request->kind == HF_REQUEST_UNWATCH ||
        (request->kind == HF_REQUEST_COMMAND &&
         request->command.kind == HF_COMMAND_UPDATE)) {
        refuse(redlock, request, HF_EUNSUPPORTED,
               "redlock: has neither watches nor values to update");
        return;
    }
    if (request->kind != HF_REQUEST_LIST &&
        hf_redis_key_is_ours(request->command.key)) {
        refuse(redlock, request, HF_EINVAL,
               "key: what begins with 'hf:' is holdfast's own in Redis");
        return;
    }
    poll = hf_redlock_poll_new(redlock, request);
    if (poll)
        hf_redlock_poll_begin(poll);
    else
        refuse(redlock, request, HF_ENOMEM, hf_err_text(HF_ENOMEM));
}

static void cancel(void *self, struct hf_request *request)
{
    struct hf_redlock *redlock = self;
    struct hf_list *link = redlock->polls.next;

    while (HF_CONTAINER(link, struct hf_redlock_poll, link)->request !=
           request) {
        link = link->next;
        HF_ASSERT(link != &redlock->polls);
    }
    hf_answer_clear(&request->answer);
    hf_redlock_poll_cancel(HF_CONTAINER(link, struct hf_redlock_poll, link));
}

/* ---- Opening and closing ------------------------------------------------*/

/* Another address of the list leads to the same server: it would vote twice. */
static const struct hf_redlock_server *find_same_server(
    const struct hf_redlock_server *server)
{
    const struct hf_redlock *redlock = server->redlock;

    for (unsigned i = 0; i < redlock->count; i++) {
        const struct hf_redlock_server *other = &redlock->servers[i];

        if (other != server && other->link.state == HF_REDIS_UP &&
            *server->link.promises.run_id &&
            !strcmp(other->link.promises.run_id, server->link.promises.run_id))
            return other;
    }
    return NULL;
}

static void on_up(struct hf_redis_link *link)
{
    struct hf_redlock_server *server =
        HF_CONTAINER(link, struct hf_redlock_server, link);
    const struct hf_redlock_server *same = find_same_server(server);
    char text[HF_REDIS_NAME_MAX + 80];

    if (!same) {
        hf_redlock_send_owed(server);
        return;
    }
    (void)snprintf(text, sizeof(text),
                   "is the same server as %s; redlock: needs independent ones",
                   same->address.name);
    hf_redis_link_drop(link, HF_EINVAL, text);
}

static void ignore(struct hf_redis_link *link)
{
    (void)link;
}

static const struct hf_redis_link_ops link_ops = {
    .up = on_up,
    .down = ignore,
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
                                "url: redlock: more than %d servers",
                                HF_REDLOCK_MAX);
        err = hf_redis_address_init(&server->address, url, host, error);
        hf_list_init(&server->owed);
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
                           "url: redlock: wants an odd number of servers, at "
                           "least three, as in redlock://a,b,c");
    redlock->majority = redlock->count / 2 + 1;
    return err;
}

/* As many as are needed: those that are missing may come later. */
static enum hf_err connect_all(struct hf_redlock *redlock,
                               struct hf_error *error)
{
    struct hf_redis_link *links[HF_REDLOCK_MAX];
    unsigned up = 0;

    for (unsigned i = 0; i < redlock->count; i++) {
        enum hf_err err;

        links[i] = &redlock->servers[i].link;
        err = hf_redis_link_open(links[i], redlock->host,
                                 &redlock->servers[i].address, &link_ops, NULL);
        if (err)
            return hf_error_code(error, err);
    }
    hf_redis_await_links(links, redlock->count, redlock->majority, OPEN_MS);
    for (unsigned i = 0; i < redlock->count; i++) {
        if (links[i]->state == HF_REDIS_UP &&
            !hf_redis_check_eviction(&links[i]->promises, links[i]->address,
                                     &links[i]->failure)) {
            up++;
            continue;
        }
        if (error)
            *error = links[i]->failure;
        if (links[i]->failure.code != HF_EUNAVAIL)
            return links[i]->failure.code; /* reached, and it will not do */
    }
    return up >= redlock->majority ? HF_OK : HF_EUNAVAIL;
}

static void remove_timers(struct hf_redlock *redlock)
{
    struct hf_host *host = redlock->host;

    host->ops->timer_remove(host, &redlock->nudge);
    host->ops->timer_remove(host, &redlock->impatience);
    host->ops->timer_remove(host, &redlock->listen);
}

static void disconnect(struct hf_redlock *redlock)
{
    for (unsigned i = 0; i < redlock->count; i++) {
        hf_redis_link_close(&redlock->servers[i].link);
        hf_redis_link_close(&redlock->servers[i].news);
        hf_redlock_forget_owed(&redlock->servers[i]);
        hf_redis_address_fini(&redlock->servers[i].address);
    }
    hf_redlock_forget_waiters(redlock);
    hf_redlock_forget_doubts(redlock);
    remove_timers(redlock);
}

static enum hf_err add_timers(struct hf_redlock *redlock)
{
    struct hf_host *host = redlock->host;
    enum hf_err err = host->ops->timer_add(host, &redlock->nudge);

    if (err)
        return err;
    err = host->ops->timer_add(host, &redlock->impatience);
    if (err)
        goto fail;
    err = host->ops->timer_add(host, &redlock->listen);
    if (err)
        goto fail_impatience;
    return HF_OK;

fail_impatience:
    host->ops->timer_remove(host, &redlock->impatience);
fail:
    host->ops->timer_remove(host, &redlock->nudge);
    return err;
}

static enum hf_err redlock_open(void *self, struct hf_url *url,
                                struct hf_host *host, struct hf_error *error)
{
    struct hf_redlock *redlock = self;
    enum hf_err err;

    redlock->host = host;
    redlock->nudge.fire = hf_redlock_on_nudge;
    redlock->impatience.fire = hf_redlock_on_impatience;
    redlock->listen.fire = hf_redlock_on_listen;
    hf_list_init(&redlock->polls);
    hf_list_init(&redlock->undecided);
    hf_list_init(&redlock->doubts);
    hf_list_init(&redlock->waiters);
    err = add_timers(redlock);
    if (err)
        return hf_error_code(error, err);
    err = read_servers(redlock, url, error);
    if (!err && hf_redis_asker_init(&redlock->asker, host,
                                    &redlock->servers[0].address.space))
        err = hf_error_code(error, HF_ESYSTEM);
    (void)snprintf(redlock->freed, sizeof(redlock->freed),
                   "hf:freed:%u:", redlock->servers[0].address.db);
    redlock->asker.announce = redlock->freed;
    if (!err)
        err = connect_all(redlock, error);
    if (err)
        disconnect(redlock);
    return err;
}

/* A majority of independent servers, each with a clock that can be set, and
 * without a queue: what it gives is that the lock outlives a server. */
static uint32_t caps(const void *self)
{
    (void)self;
    return HF_CAP_FLEET;
}

static void redlock_describe(const void *self, hf_fact_fn *each, void *arg)
{
    const struct hf_redlock *redlock = self;
    char text[HF_REDIS_NAME_MAX + sizeof(redlock->servers->link.failure.text)];

    for (unsigned i = 0; i < redlock->count; i++) {
        const struct hf_redis_link *link = &redlock->servers[i].link;

        if (link->state == HF_REDIS_UP)
            (void)snprintf(text, sizeof(text), "%s, Redis %s",
                           link->address->name, link->promises.version);
        else
            (void)snprintf(text, sizeof(text), "down: %s", link->failure.text);
        each("server", text, arg);
    }
}

static void redlock_close(void *self)
{
    disconnect(self);
}

const struct hf_strategy hf_strategy_redlock = {
    .scheme = "redlock",
    .size = sizeof(struct hf_redlock),
    .open = redlock_open,
    .caps = caps,
    .describe = redlock_describe,
    .submit = submit,
    .cancel = cancel,
    .close = redlock_close,
};
