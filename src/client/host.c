#include "client/host.h"

#include <errno.h>
#include <sys/epoll.h>

#include "base/limits.h"
#include "client/call.h"
#include "client/client.h"
#include "client/keeper.h"
#include "client/lock.h"
#include "client/watch.h"

static struct hf_client *host_client(struct hf_host *host)
{
    return HF_CONTAINER(host, struct hf_client, host);
}

/* ---- Timers -------------------------------------------------------------*/

static enum hf_err host_timer_add(struct hf_host *host, struct hf_timer *timer)
{
    struct hf_loop *loop = &host_client(host)->loop;
    enum hf_err err;

    (void)timer;
    if (loop->timer_count >= 4 * (size_t)HF_HANDLES_MAX)
        return HF_ELIMIT;
    err = hf_heap_reserve(&loop->timers, loop->timer_count + 1);
    if (!err)
        loop->timer_count++;
    return err;
}

static void host_timer_set(struct hf_host *host, struct hf_timer *timer,
                           hf_time at)
{
    struct hf_loop *loop = &host_client(host)->loop;

    if (at == HF_NEVER)
        hf_heap_drop(&loop->timers, &timer->link);
    else
        hf_heap_set(&loop->timers, &timer->link, at);
}

static void host_timer_remove(struct hf_host *host, struct hf_timer *timer)
{
    struct hf_loop *loop = &host_client(host)->loop;

    hf_heap_drop(&loop->timers, &timer->link);
    loop->timer_count--;
    (void)hf_heap_reserve(&loop->timers, loop->timer_count);
}

void hf_host_fire_due(struct hf_client *client)
{
    struct hf_heap *timers = &client->loop.timers;

    while (hf_heap_top_key(timers) <= hf_client_now(client)) {
        struct hf_heap_link *link = hf_heap_top(timers);
        struct hf_timer *timer = HF_CONTAINER(link, struct hf_timer, link);

        hf_heap_drop(timers, link);
        timer->fire(timer);
    }
}

/* ---- Descriptors --------------------------------------------------------*/

static enum hf_err fd_control(struct hf_host *host, struct hf_fd *fd, int what)
{
    struct epoll_event event = {.events = fd->events, .data.ptr = fd};

    if (epoll_ctl(host_client(host)->loop.epoll, what, fd->fd, &event) < 0)
        return errno == ENOMEM ? HF_ENOMEM : HF_ESYSTEM;
    return HF_OK;
}

static enum hf_err host_fd_add(struct hf_host *host, struct hf_fd *fd)
{
    return fd_control(host, fd, EPOLL_CTL_ADD);
}

static enum hf_err host_fd_change(struct hf_host *host, struct hf_fd *fd)
{
    return fd_control(host, fd, EPOLL_CTL_MOD);
}

/* dispatch_events() may be working through a batch that contains an event for
 * this descriptor, so remove that event from the batch. */
static void host_fd_remove(struct hf_host *host, struct hf_fd *fd)
{
    struct hf_loop *loop = &host_client(host)->loop;

    loop->removals++;
    (void)fd_control(host, fd, EPOLL_CTL_DEL);
    for (int i = 0; i < loop->ready_count; i++) {
        if (loop->ready[i].data.ptr == fd)
            loop->ready[i].data.ptr = NULL;
    }
}

/* ---- Posts --------------------------------------------------------------*/

static struct hf_waker *host_post(struct hf_host *host, struct hf_post *post)
{
    struct hf_loop *loop = &host_client(host)->loop;
    struct hf_waker *waker = NULL;

    pthread_mutex_lock(&loop->post_mutex);
    if (!hf_dlist_is_linked(&post->link)) {
        hf_dlist_push_back(&loop->posts, &post->link);
        waker = hf_waker_ref(loop->waker);
    }
    pthread_mutex_unlock(&loop->post_mutex);
    return waker;
}

static void host_unpost(struct hf_host *host, struct hf_post *post)
{
    struct hf_loop *loop = &host_client(host)->loop;

    pthread_mutex_lock(&loop->post_mutex);
    hf_dlist_remove(&post->link);
    pthread_mutex_unlock(&loop->post_mutex);
}

static void host_defer(struct hf_host *host, struct hf_post *post)
{
    if (!hf_dlist_is_linked(&post->link))
        hf_dlist_push_back(&host_client(host)->loop.deferred, &post->link);
}

void hf_host_run_deferred(struct hf_client *client)
{
    struct hf_dlist *link;

    if (client->opening)
        return;
    while ((link = hf_dlist_take(&client->loop.deferred))) {
        struct hf_post *post = HF_CONTAINER(link, struct hf_post, link);

        post->run(post);
    }
}

/* Move all posts to `batch`. hf_host_ops.unpost can still remove them there. */
static void take_posts(struct hf_loop *loop, struct hf_dlist *batch)
{
    struct hf_dlist *link;

    pthread_mutex_lock(&loop->post_mutex);
    while ((link = hf_dlist_take(&loop->posts)))
        hf_dlist_push_back(batch, link);
    pthread_mutex_unlock(&loop->post_mutex);
}

/* Other threads check in host_post() whether a post is linked, so change the
 * links only with post_mutex held. */
static struct hf_post *next_post(struct hf_loop *loop, struct hf_dlist *batch)
{
    struct hf_dlist *link;

    if (hf_dlist_is_empty(batch))
        return NULL;
    pthread_mutex_lock(&loop->post_mutex);
    link = hf_dlist_take(batch);
    pthread_mutex_unlock(&loop->post_mutex);
    return HF_CONTAINER(link, struct hf_post, link);
}

void hf_host_run_posts(struct hf_client *client)
{
    struct hf_dlist batch = {&batch, &batch};
    struct hf_post *post;

    if (client->opening)
        return;
    take_posts(&client->loop, &batch);
    while ((post = next_post(&client->loop, &batch)))
        post->run(post);
}

/* ---- Answers and pushes -------------------------------------------------*/

static void host_answer(struct hf_host *host, struct hf_request *request)
{
    request->answered = true;
    hf_dlist_push_back(&host_client(host)->loop.answered, &request->link);
}

static void settle_answered(struct hf_client *client)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&client->loop.answered))) {
        struct hf_request *request =
            HF_CONTAINER(link, struct hf_request, link);

        request->answered = false;
        request->done(request);
    }
}

void hf_host_settle_answers(struct hf_client *client)
{
    do
        settle_answered(client);
    while (hf_call_send_parked(client));
}

static hf_time host_now(struct hf_host *host)
{
    return hf_client_now(host_client(host));
}

static const char *host_owner(struct hf_host *host)
{
    return host_client(host)->owner;
}

static bool host_inherit(struct hf_host *host)
{
    return host_client(host)->inherit;
}

static struct hf_random *host_random(struct hf_host *host)
{
    return &host_client(host)->random;
}

const struct hf_host_ops hf_client_host_ops = {
    .now = host_now,
    .timer_add = host_timer_add,
    .timer_set = host_timer_set,
    .timer_remove = host_timer_remove,
    .fd_add = host_fd_add,
    .fd_change = host_fd_change,
    .fd_remove = host_fd_remove,
    .post = host_post,
    .unpost = host_unpost,
    .defer = host_defer,
    .answer = host_answer,
    .grant = hf_acquire_on_grant,
    .nudge = hf_acquire_on_nudge,
    .recheck = hf_keeper_recheck,
    .event = hf_watch_on_event,
    .owner = host_owner,
    .inherit = host_inherit,
    .random = host_random,
};
