/* opening.c - opening a strategy in a thread of its own. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/thread.h"
#include "client/keeper.h"
#include "client/lock.h"
#include "client/open.h"
#include "client/watch.h"

/* What the thread needs. The future is its first member. */
struct hf_opening {
    struct hf_future future;
    struct hf_url url;
    struct hf_heap timers; /* of the strategy, until it is open */
    size_t timer_count;
};

/* ---- The host, for a strategy that is being opened ----------------------
 *
 * The thread does not hold the mutex, or a server that does not answer would
 * block every call: each use of the client takes it. And nothing of the
 * strategy runs in another thread meanwhile: its timers, descriptors and posts
 * wait until it is open. */

static struct hf_client *opening_client(struct hf_host *host)
{
    return HF_CONTAINER(host, struct hf_client, host);
}

#define LOCKED(host, call)                                                     \
    do {                                                                       \
        hf_client_lock(opening_client(host));                                  \
        call;                                                                  \
        pthread_mutex_unlock(&opening_client(host)->mutex);                    \
    } while (0)

/* There are no turns: the time is now. */
static hf_time opening_now(struct hf_host *host)
{
    return hf_client_clock(opening_client(host));
}

/* Timers wait in a heap of their own, and fire when the strategy is open. */
static struct hf_heap *timers_of(struct hf_host *host)
{
    return &opening_client(host)->opening->timers;
}

static enum hf_err opening_timer_add(struct hf_host *host,
                                     struct hf_timer *timer)
{
    struct hf_opening *opening = opening_client(host)->opening;
    enum hf_err err =
        hf_heap_reserve(&opening->timers, opening->timer_count + 1);

    if (err)
        return err;
    LOCKED(host, err = hf_client_host_ops.timer_add(host, timer));
    opening->timer_count += !err;
    return err;
}

static void opening_timer_set(struct hf_host *host, struct hf_timer *timer,
                              hf_time at)
{
    if (at == HF_NEVER)
        hf_heap_drop(timers_of(host), &timer->link);
    else
        hf_heap_set(timers_of(host), &timer->link, at);
}

static void opening_timer_remove(struct hf_host *host, struct hf_timer *timer)
{
    hf_heap_drop(timers_of(host), &timer->link);
    opening_client(host)->opening->timer_count--;
    LOCKED(host, hf_client_host_ops.timer_remove(host, timer));
}

static enum hf_err opening_fd_add(struct hf_host *host, struct hf_fd *fd)
{
    enum hf_err err;

    LOCKED(host, err = hf_client_host_ops.fd_add(host, fd));
    return err;
}

static enum hf_err opening_fd_change(struct hf_host *host, struct hf_fd *fd)
{
    enum hf_err err;

    LOCKED(host, err = hf_client_host_ops.fd_change(host, fd));
    return err;
}

static void opening_fd_remove(struct hf_host *host, struct hf_fd *fd)
{
    LOCKED(host, hf_client_host_ops.fd_remove(host, fd));
}

static struct hf_waker *opening_post(struct hf_host *host, struct hf_post *post)
{
    return hf_client_host_ops.post(host, post);
}

/* What was deferred is in a list that the mutex guards. */
static void opening_unpost(struct hf_host *host, struct hf_post *post)
{
    LOCKED(host, hf_client_host_ops.unpost(host, post));
}

static void opening_defer(struct hf_host *host, struct hf_post *post)
{
    LOCKED(host, hf_client_host_ops.defer(host, post));
}

static void opening_answer(struct hf_host *host, struct hf_request *request)
{
    LOCKED(host, hf_client_host_ops.answer(host, request));
}

static void opening_grant(struct hf_host *host,
                          const struct hf_push_grant *grant)
{
    LOCKED(host, hf_acquire_on_grant(host, grant));
}

static void opening_nudge(struct hf_host *host, const struct hf_nonce *nonce)
{
    LOCKED(host, hf_acquire_on_nudge(host, nonce));
}

static void opening_recheck(struct hf_host *host, uint64_t token)
{
    LOCKED(host, hf_keeper_recheck(host, token));
}

static void opening_event(struct hf_host *host,
                          const struct hf_push_event *event)
{
    LOCKED(host, hf_watch_on_event(host, event));
}

/* Nobody else uses these before the client is open. */
static const char *opening_owner(struct hf_host *host)
{
    return hf_client_host_ops.owner(host);
}

static bool opening_inherit(struct hf_host *host)
{
    return hf_client_host_ops.inherit(host);
}

static struct hf_random *opening_random(struct hf_host *host)
{
    return hf_client_host_ops.random(host);
}

static const struct hf_host_ops opening_host_ops = {
    .now = opening_now,
    .timer_add = opening_timer_add,
    .timer_set = opening_timer_set,
    .timer_remove = opening_timer_remove,
    .fd_add = opening_fd_add,
    .fd_change = opening_fd_change,
    .fd_remove = opening_fd_remove,
    .post = opening_post,
    .unpost = opening_unpost,
    .defer = opening_defer,
    .answer = opening_answer,
    .grant = opening_grant,
    .nudge = opening_nudge,
    .recheck = opening_recheck,
    .event = opening_event,
    .owner = opening_owner,
    .inherit = opening_inherit,
    .random = opening_random,
};

/* ---- Descriptors --------------------------------------------------------
 *
 * Meanwhile the driver, and a program that polls hf_fd(), look at an epoll that
 * has the client's own descriptors only. The other one, where the strategy's
 * are, is in it as well, and takes part from the end of the opening on. */

static enum hf_err create_outer_epoll(struct hf_loop *loop,
                                      struct hf_error *error)
{
    struct epoll_event waker = {.events = EPOLLIN, .data.ptr = loop->waker};
    struct epoll_event timer = {.events = EPOLLIN, .data.ptr = &loop->timer};
    struct epoll_event inner = {.events = 0};

    loop->outer = epoll_create1(EPOLL_CLOEXEC);
    if (loop->outer >= 0 &&
        !epoll_ctl(loop->outer, EPOLL_CTL_ADD, loop->waker->fd, &waker) &&
        !epoll_ctl(loop->outer, EPOLL_CTL_ADD, loop->timer, &timer) &&
        !epoll_ctl(loop->outer, EPOLL_CTL_ADD, loop->epoll, &inner))
        return HF_OK;
    return hf_error_set(error, HF_ESYSTEM, "open: no descriptor: %s",
                        strerror(errno));
}

/* To change what is there takes no memory. */
static void enable_inner_epoll(struct hf_loop *loop)
{
    struct epoll_event inner = {.events = EPOLLIN};

    (void)epoll_ctl(loop->outer, EPOLL_CTL_MOD, loop->epoll, &inner);
    loop->wake_pending =
        true; /* posts may wait, and the driver looks elsewhere */
}

/* ---- The thread ---------------------------------------------------------*/

static void release_opening(struct hf_future *future)
{
    struct hf_opening *opening =
        HF_CONTAINER(future, struct hf_opening, future);
    struct hf_client *client = future->client;

    hf_url_fini(&opening->url);
    hf_heap_fini(&opening->timers);
    free(opening);
    hf_client_unref(client);
}

static void start_timers(struct hf_client *client, struct hf_heap *timers)
{
    struct hf_heap_link *link;

    while ((link = hf_heap_top(timers))) {
        hf_time at = hf_heap_top_key(timers);

        hf_heap_drop(timers, link);
        hf_heap_set(&client->loop.timers, link, at);
    }
}

/* With the mutex held. Where the client closes, nobody else closes it. */
static void end_opening(struct hf_opening *opening, enum hf_err err,
                        uint32_t caps, const struct hf_error *error)
{
    struct hf_client *client = opening->future.client;

    start_timers(client, &opening->timers);
    client->host.ops = &hf_client_host_ops;
    client->opening = NULL;
    enable_inner_epoll(&client->loop);
    if (client->closing && !err) {
        client->strategy->close(client->self);
    } else if (!err) {
        client->caps = caps;
        client->opened = true;
    }
    if (!opening->future.answered)
        hf_future_answer(&opening->future, err, err ? error->text : NULL);
    hf_close_on_drained(client);
}

static void *opening_main(void *arg)
{
    struct hf_opening *opening = arg;
    struct hf_client *client = opening->future.client;
    struct hf_error error = {0};
    uint32_t caps = 0;
    enum hf_err err = hf_open_strategy(client, &opening->url, &caps, &error);

    hf_thread_disable_cancel();
    hf_client_lock(client);
    hf_client_reset_now(client);
    end_opening(opening, err, caps, &error);
    hf_future_unref(&opening->future); /* the thread's */
    hf_client_leave(client);
    return NULL;
}

/* With the operation's reference and the thread's. */
static struct hf_opening *new_opening(struct hf_client *client,
                                      struct hf_url *url, hf_done_fn *done,
                                      void *arg)
{
    struct hf_opening *opening = calloc(1, sizeof(*opening));

    if (!opening)
        return NULL;
    hf_future_init(&opening->future, client, done, arg);
    opening->future.release = release_opening;
    opening->future.references = 2;
    opening->url = *url;
    *url = (struct hf_url){0};
    hf_client_ref(client);
    return opening;
}

enum hf_err hf_opening_start(struct hf_client *client, struct hf_url *url,
                             hf_done_fn *done, void *arg,
                             struct hf_future **future, struct hf_error *error)
{
    enum hf_err err = create_outer_epoll(&client->loop, error);
    struct hf_opening *opening = NULL;
    pthread_t thread;
    int failed;

    if (err)
        return err;
    opening = new_opening(client, url, done, arg);
    if (!opening)
        return hf_error_set_code(error, HF_ENOMEM);
    client->opening = opening;
    client->host.ops = &opening_host_ops;
    failed = hf_thread_start(&thread, opening_main, opening);
    if (!failed) {
        pthread_detach(thread);
        hf_future_give(&opening->future, future);
        return HF_OK;
    }
    client->opening = NULL;
    client->host.ops = &hf_client_host_ops;
    release_opening(&opening->future);
    return hf_error_set(error, HF_ESYSTEM, "open: cannot start a thread: %s",
                        strerror(failed));
}

void hf_opening_abandon(struct hf_client *client)
{
    struct hf_opening *opening = client->opening;

    if (opening && !opening->future.answered)
        hf_future_answer(&opening->future, HF_ECLOSED, NULL);
}
