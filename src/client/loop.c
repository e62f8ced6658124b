#include "client/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/limits.h"
#include "client/claim.h"
#include "client/client.h"
#include "client/lock.h"
#include "client/watch.h"

#define EVENTS_A_TURN 64
#define EARLY_MS 100 /* by which the timer descriptor may be early */

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

static void fire_due(struct hf_client *client)
{
    struct hf_heap *timers = &client->loop.timers;

    while (hf_heap_top_key(timers) <= hf_client_now(client)) {
        struct hf_heap_link *link = hf_heap_top(timers);
        struct hf_timer *timer = HF_CONTAINER(link, struct hf_timer, link);

        hf_heap_drop(timers, link);
        timer->fire(timer);
    }
}

hf_time hf_loop_next(const struct hf_client *client)
{
    return hf_heap_top_key(&client->loop.timers);
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

    (void)fd_control(host, fd, EPOLL_CTL_DEL);
    for (int i = 0; i < loop->ready_count; i++) {
        if (loop->ready[i].data.ptr == fd)
            loop->ready[i].data.ptr = NULL;
    }
}

/* ---- Being woken --------------------------------------------------------*/

static void drop_waker(struct hf_waker *waker)
{
    if (atomic_fetch_sub(&waker->references, 1) > 1)
        return;
    (void)close(waker->fd);
    free(waker);
}

static struct hf_waker *take_waker(struct hf_loop *loop)
{
    atomic_fetch_add(&loop->waker->references, 1);
    return loop->waker;
}

void hf_waker_ring(struct hf_waker *waker)
{
    uint64_t one = 1;

    /* One write is enough until it is heard. It cannot fail: the counter is
     * at most 1. */
    if (!atomic_exchange(&waker->ringing, true) &&
        write(waker->fd, &one, sizeof(one)) < 0)
        atomic_store(&waker->ringing, false);
    drop_waker(waker);
}

/* Whoever rang has posted before, and we look at the posts after this. */
static void hear(struct hf_waker *waker)
{
    uint64_t count;

    if (read(waker->fd, &count, sizeof(count)) < 0)
        HF_ASSERT(errno == EAGAIN || errno == EINTR);
    atomic_store(&waker->ringing, false);
}

static struct hf_waker *post(struct hf_host *host, struct hf_post *post)
{
    struct hf_loop *loop = &client_of(host)->loop;
    struct hf_waker *waker = NULL;

    pthread_mutex_lock(&loop->post_mutex);
    if (!hf_list_linked(&post->link)) {
        hf_list_push_back(&loop->posts, &post->link);
        waker = take_waker(loop);
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

static void run_deferred(struct hf_loop *loop)
{
    struct hf_list *link;

    while ((link = hf_list_take(&loop->deferred))) {
        struct hf_post *post = HF_CONTAINER(link, struct hf_post, link);

        post->run(post);
    }
}

static struct hf_post *next_post(struct hf_loop *loop)
{
    struct hf_list *link;

    pthread_mutex_lock(&loop->post_mutex);
    link = hf_list_take(&loop->posts);
    pthread_mutex_unlock(&loop->post_mutex);
    return link ? HF_CONTAINER(link, struct hf_post, link) : NULL;
}

static void run_posts(struct hf_client *client)
{
    struct hf_post *post;

    while ((post = next_post(&client->loop)))
        post->run(post);
}

/* Set the timer descriptor no later than the next timer. A descriptor that is
 * set too early costs one idle turn, and setting it a system call: it is moved
 * back where much is gained, and not for each call that is soon answered. */
static void arm(struct hf_client *client, bool to_sleep)
{
    struct hf_loop *loop = &client->loop;
    hf_time next = hf_loop_next(client);
    struct itimerspec at = {0};

    if (next == HF_NEVER ||
        (next >= loop->armed && (!to_sleep || next - loop->armed < EARLY_MS)))
        return;
    loop->armed = next;
    /* An instant of zero would disarm it. */
    at.it_value.tv_sec = next > 0 ? next / 1000 : 0;
    at.it_value.tv_nsec = next > 0 ? (next % 1000) * 1000000 : 1;
    (void)timerfd_settime(loop->timer, TFD_TIMER_ABSTIME, &at, NULL);
}

struct hf_waker *hf_loop_notify(struct hf_client *client)
{
    struct hf_loop *loop = &client->loop;

    if (loop->driven && !loop->sleeping)
        return NULL; /* the driver looks again before it sleeps */
    arm(client, false);
    if (!loop->ring && hf_list_empty(&loop->callbacks))
        return NULL;
    loop->ring = false;
    return take_waker(loop);
}

/* ---- Answers and pushes -------------------------------------------------*/

static void answer(struct hf_host *host, struct hf_request *request)
{
    request->answered = true;
    hf_list_push_back(&client_of(host)->loop.answered, &request->link);
}

void hf_loop_settle(struct hf_client *client)
{
    struct hf_list *link;

    while ((link = hf_list_take(&client->loop.answered))) {
        struct hf_request *request =
            HF_CONTAINER(link, struct hf_request, link);

        request->answered = false;
        request->done(request);
    }
}

void hf_loop_end_turn(struct hf_client *client)
{
    struct hf_loop *loop = &client->loop;

    hf_loop_settle(client);
    while (!hf_list_empty(&loop->deferred) && !hf_loop_inside(client)) {
        run_deferred(loop);
        hf_loop_settle(client);
    }
}

static hf_time now(struct hf_host *host)
{
    return hf_client_now(client_of(host));
}

static const char *owner(struct hf_host *host)
{
    return client_of(host)->owner;
}

static struct hf_random *get_random(struct hf_host *host)
{
    return &client_of(host)->random;
}

/* ---- Callbacks ----------------------------------------------------------*/

void hf_loop_callback(struct hf_client *client, struct hf_callback *callback,
                      bool first)
{
    struct hf_list *callbacks = &client->loop.callbacks;

    if (first) {
        hf_list_remove(&callback->link);
        hf_list_push_front(callbacks, &callback->link);
    } else if (!hf_list_linked(&callback->link)) {
        hf_list_push_back(callbacks, &callback->link);
    }
}

bool hf_loop_inside(const struct hf_client *client)
{
    return client->loop.in_callback &&
           pthread_equal(client->loop.driver, pthread_self());
}

/* What is due at this instant, short of callbacks. */
static void catch_up(struct hf_client *client)
{
    hf_client_forget_now(client);
    run_posts(client);
    hf_loop_settle(client);
    fire_due(client);
    hf_loop_settle(client);
}

static void run_callbacks(struct hf_client *client)
{
    struct hf_loop *loop = &client->loop;
    struct hf_list *link;

    while ((link = hf_list_take(&loop->callbacks))) {
        struct hf_callback *callback =
            HF_CONTAINER(link, struct hf_callback, link);

        loop->in_callback = true;
        callback->run(callback);
        loop->in_callback = false;
        catch_up(client);
    }
}

/* ---- Driving ------------------------------------------------------------*/

static void read_timer(struct hf_loop *loop)
{
    uint64_t count;

    if (read(loop->timer, &count, sizeof(count)) > 0)
        loop->armed = HF_NEVER;
}

static void dispatch(struct hf_loop *loop, struct epoll_event *event)
{
    struct hf_fd *fd = event->data.ptr;

    if (event->data.ptr == &loop->timer)
        read_timer(loop);
    else if (event->data.ptr == loop->waker)
        hear(loop->waker);
    else if (fd)
        fd->ready(fd, event->events);
}

/* Look at the descriptors, sleeping up to `timeout` (-1: until woken). */
static void look(struct hf_client *client, int timeout)
{
    struct epoll_event events[EVENTS_A_TURN];
    struct hf_loop *loop = &client->loop;
    int count;

    if (timeout != 0) {
        loop->sleeping = true;
        pthread_mutex_unlock(&client->mutex);
    }
    count = epoll_wait(loop->epoll, events, EVENTS_A_TURN, timeout);
    if (timeout != 0) {
        pthread_mutex_lock(&client->mutex);
        loop->sleeping = false;
    }
    hf_client_forget_now(client);
    loop->ready = events;
    loop->ready_count = count > 0 ? count : 0;
    for (int i = 0; i < count; i++)
        dispatch(loop, &events[i]);
    loop->ready_count = 0;
}

static void take_role(struct hf_loop *loop, struct hf_blocked *awaiting)
{
    loop->driven = true;
    loop->driver = pthread_self();
    loop->awaiting = awaiting;
}

/* The next blocked caller drives on. */
static void hand_role_on(struct hf_loop *loop)
{
    struct hf_list *next = hf_list_first(&loop->blocked);

    loop->driven = false;
    loop->awaiting = NULL;
    if (next)
        pthread_cond_signal(&HF_CONTAINER(next, struct hf_blocked, link)->wake);
}

void hf_loop_process(struct hf_client *client)
{
    if (client->loop.driven)
        return;
    take_role(&client->loop, NULL);
    look(client, 0);
    catch_up(client);
    run_callbacks(client);
    hand_role_on(&client->loop);
}

/* What has come goes before what has run out, and before what is told. Where
 * there is neither, it can wait for the look that sleeps. */
static bool must_look(struct hf_client *client, struct hf_blocked *blocked)
{
    return hf_loop_next(client) <= hf_client_now(client) ||
           !hf_list_empty(&client->loop.callbacks) ||
           client->loop.quiet == blocked;
}

static void drive(struct hf_client *client, struct hf_blocked *blocked)
{
    take_role(&client->loop, blocked);
    if (must_look(client, blocked))
        look(client, 0);
    catch_up(client);
    run_callbacks(client);
    if (client->loop.quiet == blocked)
        blocked->done = true;
    while (!blocked->done) {
        run_deferred(&client->loop);
        arm(client, true);
        look(client, hf_list_empty(&client->loop.answered) ? -1 : 0);
        catch_up(client);
        run_callbacks(client);
    }
    hand_role_on(&client->loop);
}

/* ---- Waiting ------------------------------------------------------------*/

void hf_loop_release(struct hf_blocked *blocked)
{
    struct hf_loop *loop = &blocked->client->loop;

    blocked->done = true;
    if (loop->awaiting != blocked)
        pthread_cond_signal(&blocked->wake);
    else if (loop->sleeping)
        loop->ring = true;
}

static void limit_passed(struct hf_timer *timer)
{
    hf_loop_release(HF_CONTAINER(timer, struct hf_blocked, limit));
}

static void ring(struct hf_waker *waker)
{
    if (waker)
        hf_waker_ring(waker);
}

/* `deadline` by the clock that condition variables and joins can wait by. */
static struct timespec monotonic(const struct hf_client *client,
                                 hf_time deadline)
{
    uint32_t left = hf_time_left(deadline, hf_client_clock(client));
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += left / 1000;
    at.tv_nsec += (left % 1000 + 1) * 1000000L;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

/* Wait to be released, or for the role. The driver fires our limit; but it may
 * be stuck in a callback of the user's, so this looks at the clock itself. */
static void sleep_undriving(struct hf_client *client,
                            struct hf_blocked *blocked, hf_time deadline)
{
    struct timespec until = monotonic(client, deadline);

    hf_loop_end_turn(client);
    if (blocked->done)
        return;
    hf_list_push_back(&client->loop.blocked, &blocked->link);
    ring(hf_loop_notify(client));
    if (deadline == HF_NEVER) {
        pthread_cond_wait(&blocked->wake, &client->mutex);
    } else {
        pthread_cond_clockwait(&blocked->wake, &client->mutex, CLOCK_MONOTONIC,
                               &until);
    }
    hf_list_remove(&blocked->link);
    hf_client_forget_now(client);
    if (hf_client_now(client) >= deadline)
        blocked->done = true;
}

enum hf_err hf_loop_wait(struct hf_client *client, struct hf_blocked *blocked,
                         hf_time deadline)
{
    struct hf_host *host = &client->host;
    bool limited = deadline != HF_NEVER;

    blocked->client = client;
    blocked->limit.fire = limit_passed;
    if (limited && timer_add(host, &blocked->limit))
        return HF_ENOMEM;
    timer_set(host, &blocked->limit, deadline);
    pthread_cond_init(&blocked->wake, NULL);
    while (!blocked->done) {
        if (client->loop.driven)
            sleep_undriving(client, blocked, deadline);
        else
            drive(client, blocked);
    }
    /* Who is answered just as the role is handed to it passes it on. */
    if (!client->loop.driven)
        hand_role_on(&client->loop);
    pthread_cond_destroy(&blocked->wake);
    if (limited)
        timer_remove(host, &blocked->limit);
    return limited && hf_client_now(client) >= deadline ? HF_ETIMEDOUT : HF_OK;
}

void hf_loop_quiesce(struct hf_client *client, hf_time deadline)
{
    struct hf_blocked blocked = {0};

    client->loop.quiet = &blocked;
    (void)hf_loop_wait(client, &blocked, deadline);
    client->loop.quiet = NULL;
}

/* ---- A thread of its own ------------------------------------------------*/

static void *thread_main(void *arg)
{
    struct hf_client *client = arg;

    pthread_mutex_lock(&client->mutex);
    (void)hf_loop_wait(client, &client->loop.until_stopped, HF_NEVER);
    client->loop.stopped = true;
    pthread_cond_signal(&client->loop.until_gone);
    hf_client_unref(client);
    hf_client_leave(client);
    return NULL;
}

enum hf_err hf_loop_start_thread(struct hf_client *client,
                                 struct hf_error *error)
{
    struct hf_loop *loop = &client->loop;
    sigset_t all, before;
    int failed;

    /* Signals are the program's: none is handled in a thread of ours. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    loop->until_stopped.client = client;
    hf_client_ref(client);
    failed = pthread_create(&loop->thread, NULL, thread_main, client);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    loop->background = !failed;
    if (!failed)
        return HF_OK;
    hf_client_unref(client);
    return hf_error_set(error, HF_ESYSTEM,
                        "background: cannot start a thread: %s",
                        strerror(failed));
}

enum hf_err hf_loop_see_driven(struct hf_client *client)
{
    struct hf_error error;
    enum hf_err err;

    if (client->loop.background || client->loop.self_driven || client->closing)
        return HF_OK;
    err = hf_loop_start_thread(client, &error);
    return err ? hf_client_fail(client, err, "%s", error.text) : HF_OK;
}

void hf_loop_stop_thread(struct hf_client *client, hf_time deadline)
{
    struct hf_loop *loop = &client->loop;
    struct timespec until = monotonic(client, deadline);
    struct hf_waker *waker;

    if (!loop->background)
        return;
    loop->background = false;
    hf_loop_release(&loop->until_stopped);
    waker = hf_loop_notify(client);
    ring(waker);
    while (!loop->stopped &&
           !pthread_cond_clockwait(&loop->until_gone, &client->mutex,
                                   CLOCK_MONOTONIC, &until))
        continue;
    if (!loop->stopped) {
        pthread_detach(loop->thread);
        return;
    }
    pthread_mutex_unlock(&client->mutex);
    pthread_join(loop->thread, NULL);
    pthread_mutex_lock(&client->mutex);
}

/* ---- Opening and closing ------------------------------------------------*/

static struct hf_waker *new_waker(void)
{
    struct hf_waker *waker = malloc(sizeof(*waker));

    if (!waker)
        return NULL;
    atomic_init(&waker->references, 1);
    atomic_init(&waker->ringing, false);
    waker->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return waker;
}

enum hf_err hf_loop_open(struct hf_client *client, struct hf_error *error)
{
    struct hf_loop *loop = &client->loop;
    struct epoll_event event = {.events = EPOLLIN};
    struct epoll_event timer = {.events = EPOLLIN, .data.ptr = &loop->timer};

    loop->armed = HF_NEVER;
    hf_list_init(&loop->answered);
    hf_list_init(&loop->deferred);
    hf_list_init(&loop->callbacks);
    hf_list_init(&loop->blocked);
    hf_list_init(&loop->posts);
    loop->waker = new_waker();
    if (!loop->waker)
        return hf_error_code(error, HF_ENOMEM);
    event.data.ptr = loop->waker;
    pthread_mutex_init(&loop->post_mutex, NULL);
    pthread_cond_init(&loop->until_gone, NULL);
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    loop->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (loop->epoll >= 0 && loop->waker->fd >= 0 && loop->timer >= 0 &&
        !epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->waker->fd, &event) &&
        !epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->timer, &timer))
        return HF_OK;
    hf_error_set(error, HF_ESYSTEM, "cannot have a descriptor: %s",
                 strerror(errno));
    hf_loop_close(client);
    return HF_ESYSTEM;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

void hf_loop_close(struct hf_client *client)
{
    struct hf_loop *loop = &client->loop;

    close_fd(loop->timer);
    close_fd(loop->epoll);
    drop_waker(loop->waker);
    hf_heap_fini(&loop->timers);
    pthread_cond_destroy(&loop->until_gone);
    pthread_mutex_destroy(&loop->post_mutex);
}

const struct hf_host_ops hf_loop_host_ops = {
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
    .event = hf_watch_pushed,
    .owner = owner,
    .random = get_random,
};
