#include "client/loop.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "client/client.h"

#define EVENTS_A_TURN 64
#define EARLY_MS 100 /* by which the timer descriptor may be early */

/* ---- Being woken --------------------------------------------------------*/

hf_time hf_loop_next(const struct hf_client *client)
{
    return hf_heap_top_key(&client->loop.timers);
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
    return hf_waker_take(loop->waker);
}

void hf_loop_end_turn(struct hf_client *client)
{
    struct hf_loop *loop = &client->loop;

    hf_host_settle(client);
    while (!hf_list_empty(&loop->deferred) && !hf_loop_inside(client)) {
        hf_host_run_deferred(client);
        hf_host_settle(client);
    }
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
    hf_host_run_posts(client);
    hf_host_settle(client);
    hf_host_fire_due(client);
    hf_host_settle(client);
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
        hf_waker_hear(loop->waker);
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
        hf_host_run_deferred(client);
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
    if (limited && host->ops->timer_add(host, &blocked->limit))
        return HF_ENOMEM;
    hf_timer_set(host, &blocked->limit, deadline);
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
        host->ops->timer_remove(host, &blocked->limit);
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
    int failed;

    loop->until_stopped.client = client;
    hf_client_ref(client);
    failed = hf_thread_start(&loop->thread, thread_main, client);
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
    loop->waker = hf_waker_new();
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
    hf_waker_drop(loop->waker);
    hf_heap_fini(&loop->timers);
    pthread_cond_destroy(&loop->until_gone);
    pthread_mutex_destroy(&loop->post_mutex);
}
