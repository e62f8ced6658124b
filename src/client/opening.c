/* opening.c - opening a strategy in its own thread: hf_open_start(). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/thread.h"
#include "client/keeper.h"
#include "client/lock.h"
#include "client/open.h"
#include "client/watch.h"

struct hf_opening {
    struct hf_future future;
    struct hf_url url;
    struct hf_heap timers; /* timers that the strategy has set; moved to the
                              loop when it is open */
    size_t timer_count;
};

/* ---- Host operations for a strategy that is being opened ----------------
 *
 * The opening thread does not hold the mutex: if it did, an unresponsive server
 * would block every call on the client. So each operation locks the mutex.
 * Until the strategy is open, its timers do not fire, and its descriptors and
 * posts are not handled, because that would run its code in another thread. */

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

/* The opening thread has no turns, so read the clock each time. */
static hf_time opening_now(struct hf_host *host)
{
    return hf_client_clock(opening_client(host));
}

/* Timers are kept in a separate heap, so that the driver does not fire them. */
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

/* Lock the mutex, because it guards the list of deferred posts. */
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

/* The next three functions need no mutex, because only the opening thread uses
 * the returned data before the client is open. */
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
 * The strategy's descriptors are in the epoll set `epoll`. While the strategy
 * is being opened, the driver and a program that polls hf_fd() use a second
 * set, `outer`, with the client's own descriptors. `outer` contains `epoll`
 * too, but without events until the strategy is open. */

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
    return hf_error_set(error, HF_ESYSTEM,
                        "open: cannot create a descriptor: %s",
                        strerror(errno));
}

/* EPOLL_CTL_MOD allocates nothing, so it cannot fail here. */
static void enable_inner_epoll(struct hf_loop *loop)
{
    struct epoll_event inner = {.events = EPOLLIN};

    (void)epoll_ctl(loop->outer, EPOLL_CTL_MOD, loop->epoll, &inner);
    /* Posts do not run while the strategy is being opened. Wake the driver,
     * which may sleep in `outer`, to run those that are queued. */
    loop->wake_pending = true;
}

/* ---- The opening thread -------------------------------------------------*/

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

static void move_timers(struct hf_client *client, struct hf_heap *timers)
{
    struct hf_heap_link *link;

    while ((link = hf_heap_top(timers))) {
        hf_time at = hf_heap_top_key(timers);

        hf_heap_drop(timers, link);
        hf_heap_set(&client->loop.timers, link, at);
    }
}

/* Requires the mutex. If the client was closed meanwhile, close its strategy
 * here, because hf_close() leaves that to the opening thread. */
static void end_opening(struct hf_opening *opening, enum hf_err err,
                        uint32_t caps, const struct hf_error *error)
{
    struct hf_client *client = opening->future.client;

    move_timers(client, &opening->timers);
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
    hf_future_unref(&opening->future); /* this thread's reference */
    hf_client_leave(client);
    return NULL;
}

/* The future has two references, one for the operation and one for the
 * thread. */
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
