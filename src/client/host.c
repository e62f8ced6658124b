#include "client/host.h"

#include <errno.h>
#include <sys/epoll.h>

#include "base/limits.h"
#include "client/call.h"
#include "client/client.h"
#include "client/keeper.h"
#include "client/lock.h"
#include "client/watch.h"

static struct hf_client *client_of(struct hf_host *host)
{
    return HF_CONTAINER(host, struct hf_client, host);
}

/* ---- Timers -------------------------------------------------------------*/

static enum hf_err timer_add(struct hf_host *host, struct hf_timer *timer)
{
    struct hf_loop *loop = &client_of(host)->loop;
    enum hf_err err;

    (void)timer;
    if (loop->timer_count >= 4 * (size_t)HF_HANDLES_MAX)
        return HF_ELIMIT;
    err = hf_heap_reserve(&loop->timers, loop->timer_count + 1);
    if (!err)
        loop->timer_count++;
    return err;
}

static void timer_set(struct hf_host *host, struct hf_timer *timer, hf_time at)
{
    struct hf_loop *loop = &client_of(host)->loop;

    if (at == HF_NEVER)
        hf_heap_drop(&loop->timers, &timer->link);
    else
        hf_heap_set(&loop->timers, &timer->link, at);
}

static void timer_remove(struct hf_host *host, struct hf_timer *timer)
{
    struct hf_loop *loop = &client_of(host)->loop;

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

    if (epoll_ctl(client_of(host)->loop.epoll, what, fd->fd, &event) < 0)
        return errno == ENOMEM ? HF_ENOMEM : HF_ESYSTEM;
    return HF_OK;
}

static enum hf_err fd_add(struct hf_host *host, struct hf_fd *fd)
{
    return fd_control(host, fd, EPOLL_CTL_ADD);
}

static enum hf_err fd_change(struct hf_host *host, struct hf_fd *fd)
{
    return fd_control(host, fd, EPOLL_CTL_MOD);
}

/* It may be among what is being dispatched: then it is not told any more. */
static void fd_remove(struct hf_host *host, struct hf_fd *fd)
{
    struct hf_loop *loop = &client_of(host)->loop;

    loop->removals++;
    (void)fd_control(host, fd, EPOLL_CTL_DEL);
    for (int i = 0; i < loop->ready_count; i++) {
        if (loop->ready[i].data.ptr == fd)
            loop->ready[i].data.ptr = NULL;
    }
}

/* ---- Posts --------------------------------------------------------------*/

static struct hf_waker *post(struct hf_host *host, struct hf_post *post)
{
    struct hf_loop *loop = &client_of(host)->loop;
    struct hf_waker *waker = NULL;

    pthread_mutex_lock(&loop->post_mutex);
    if (!hf_list_linked(&post->link)) {
        hf_list_push_back(&loop->posts, &post->link);
        waker = hf_waker_take(loop->waker);
    }
    pthread_mutex_unlock(&loop->post_mutex);
    return waker;
}

static void unpost(struct hf_host *host, struct hf_post *post)
{
    struct hf_loop *loop = &client_of(host)->loop;

    pthread_mutex_lock(&loop->post_mutex);
    hf_list_remove(&post->link);
    pthread_mutex_unlock(&loop->post_mutex);
}

static void defer(struct hf_host *host, struct hf_post *post)
{
    if (!hf_list_linked(&post->link))
        hf_list_push_back(&client_of(host)->loop.deferred, &post->link);
}

void hf_host_run_deferred(struct hf_client *client)
{
    struct hf_list *link;

    if (client->opening)
        return;
    while ((link = hf_list_take(&client->loop.deferred))) {
        struct hf_post *post = HF_CONTAINER(link, struct hf_post, link);

        post->run(post);
    }
}

/* Move all posts to `batch`, where a post may still be taken back. */
static void take_posts(struct hf_loop *loop, struct hf_list *batch)
{
    struct hf_list *link;

    pthread_mutex_lock(&loop->post_mutex);
    while ((link = hf_list_take(&loop->posts)))
        hf_list_push_back(batch, link);
    pthread_mutex_unlock(&loop->post_mutex);
}

/* Whoever posts looks at the links, so they change with the mutex held. */
static struct hf_post *next_post(struct hf_loop *loop, struct hf_list *batch)
{
    struct hf_list *link;

    if (hf_list_empty(batch))
        return NULL;
    pthread_mutex_lock(&loop->post_mutex);
    link = hf_list_take(batch);
    pthread_mutex_unlock(&loop->post_mutex);
    return HF_CONTAINER(link, struct hf_post, link);
}

void hf_host_run_posts(struct hf_client *client)
{
    struct hf_list batch = {&batch, &batch};
    struct hf_post *post;

    if (client->opening)
        return;
    take_posts(&client->loop, &batch);
    while ((post = next_post(&client->loop, &batch)))
        post->run(post);
}

/* ---- Answers and pushes -------------------------------------------------*/

static void answer(struct hf_host *host, struct hf_request *request)
{
    request->answered = true;
    hf_list_push_back(&client_of(host)->loop.answered, &request->link);
}

static void settle_answered(struct hf_client *client)
{
    struct hf_list *link;

    while ((link = hf_list_take(&client->loop.answered))) {
        struct hf_request *request =
            HF_CONTAINER(link, struct hf_request, link);

        request->answered = false;
        request->done(request);
    }
}

void hf_host_settle(struct hf_client *client)
{
    do
        settle_answered(client);
    while (hf_call_send_parked(client));
}

static hf_time now(struct hf_host *host)
{
    return hf_client_now(client_of(host));
}

static const char *owner(struct hf_host *host)
{
    return client_of(host)->owner;
}

static bool inherit(struct hf_host *host)
{
    return client_of(host)->inherit;
}

static struct hf_random *get_random(struct hf_host *host)
{
    return &client_of(host)->random;
}

const struct hf_host_ops hf_client_host_ops = {
    .now = now,
    .timer_add = timer_add,
    .timer_set = timer_set,
    .timer_remove = timer_remove,
    .fd_add = fd_add,
    .fd_change = fd_change,
    .fd_remove = fd_remove,
    .post = post,
    .unpost = unpost,
    .defer = defer,
    .answer = answer,
    .grant = hf_lock_pushed,
    .nudge = hf_lock_nudged,
    .recheck = hf_keeper_recheck,
    .event = hf_watch_pushed,
    .owner = owner,
    .inherit = inherit,
    .random = get_random,
};
