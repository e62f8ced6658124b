#include "client/loop.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "client/client.h"

#define EVENTS_PER_TURN 64
#define CALLBACKS_PER_TURN 64
#define EARLY_MS 100 /* how early the timer descriptor may fire */

/* ---- Waking the driver --------------------------------------------------*/

hf_time hf_loop_next_timer(const struct hf_client *client)
{
    return hf_heap_top_key(&client->loop.timers);
}

/* Set the timer descriptor, no later than the next timer. Each change is a
 * system call, and firing early only costs an idle turn. So the descriptor is
 * moved to a later instant only before sleeping, and only if it would be early
 * by EARLY_MS: otherwise each call, whose deadline is rarely reached, would
 * move it twice. */
static void arm_timer_fd(struct hf_client *client, bool before_sleep)
{
    struct hf_loop *loop = &client->loop;
    hf_time next = hf_loop_next_timer(client);
    struct itimerspec at = {0};

    if (next == HF_NEVER || (next >= loop->armed &&
                             (!before_sleep || next - loop->armed < EARLY_MS)))
        return;
    loop->armed = next;
    /* An instant of 0 would disarm the descriptor. */
    at.it_value.tv_sec = next > 0 ? next / 1000 : 0;
    at.it_value.tv_nsec = next > 0 ? (next % 1000) * 1000000 : 1;
    (void)timerfd_settime(loop->timer, TFD_TIMER_ABSTIME, &at, NULL);
}

/* Returns true if callbacks are queued and no thread runs them. */
static bool has_callbacks_due(const struct hf_loop *loop)
{
    return !loop->calling && !hf_dlist_is_empty(&loop->callbacks);
}

struct hf_waker *hf_loop_notify(struct hf_client *client)
{
    struct hf_loop *loop = &client->loop;

    /* A driver that is awake checks everything before it sleeps, so it needs no
     * wakeup. Without a driver, the callback thread checks everything after its
     * callbacks. */
    if (loop->driven ? !loop->sleeping : hf_loop_is_in_callback(client))
        return NULL;
    arm_timer_fd(client, false);
    if (!loop->wake_pending && !has_callbacks_due(loop) &&
        hf_dlist_is_empty(&loop->deferred))
        return NULL;
    loop->wake_pending = false;
    return hf_waker_ref(loop->waker);
}

void hf_loop_end_turn(struct hf_client *client)
{
    struct hf_loop *loop = &client->loop;

    hf_host_settle_answers(client);
    while (!hf_dlist_is_empty(&loop->deferred) &&
           !hf_loop_is_in_callback(client) && !client->opening) {
        hf_host_run_deferred(client);
        hf_host_settle_answers(client);
    }
}

/* ---- Callbacks ----------------------------------------------------------*/

void hf_loop_queue_callback(struct hf_client *client,
                            struct hf_callback *callback, bool first)
{
    struct hf_dlist *callbacks = &client->loop.callbacks;

    if (first) {
        hf_dlist_remove(&callback->link);
        hf_dlist_push_front(callbacks, &callback->link);
    } else if (!hf_dlist_is_linked(&callback->link)) {
        hf_dlist_push_back(callbacks, &callback->link);
    }
}

bool hf_loop_is_in_callback(const struct hf_client *client)
{
    return client->loop.calling &&
           pthread_equal(client->loop.callback_thread, pthread_self());
}

/* Handle queued posts, answers and due timers. Posts and answers go before
 * timers: a grant that arrived in time must not be reported as a timeout. */
static void process_due(struct hf_client *client)
{
    hf_client_reset_now(client);
    hf_host_run_posts(client);
    hf_host_settle_answers(client);
    hf_host_fire_due(client);
    hf_host_settle_answers(client);
}

static void run_callback(struct hf_client *client, struct hf_callback *callback)
{
    struct hf_loop *loop = &client->loop;

    loop->running = callback;
    callback->run(callback);
    loop->running = NULL;
    if (hf_client_is_forked(client))
        return;
    pthread_cond_broadcast(&loop->returned);
    hf_client_reset_now(client);
    if (hf_loop_next_timer(client) <= hf_client_now(client))
        process_due(client);
}

/* Run queued callbacks, unless another thread does. The number is limited, so
 * that this thread returns to its own call. If the client is closed, all
 * callbacks run, because no thread may come later to run the rest. */
static void run_callbacks(struct hf_client *client)
{
    struct hf_loop *loop = &client->loop;
    struct hf_dlist *link;

    if (!has_callbacks_due(loop))
        return;
    hf_host_run_deferred(client);
    hf_host_settle_answers(client);
    loop->calling = true;
    loop->callback_thread = pthread_self();
    for (unsigned i = 0; i < CALLBACKS_PER_TURN || client->closed; i++) {
        link = hf_dlist_take(&loop->callbacks);
        if (!link || hf_client_is_forked(client))
            break;
        run_callback(client, HF_CONTAINER(link, struct hf_callback, link));
    }
    loop->calling = false;
    pthread_cond_broadcast(&loop->returned);
}

void hf_loop_finish_callbacks(struct hf_client *client, hf_time deadline)
{
    struct hf_loop *loop = &client->loop;
    struct timespec until = hf_client_monotonic(client, deadline);

    while (loop->calling &&
           !pthread_cond_clockwait(&loop->returned, &client->mutex,
                                   CLOCK_MONOTONIC, &until))
        continue;
    run_callbacks(client);
}

/* ---- Driving ------------------------------------------------------------*/

static void read_timer(struct hf_loop *loop)
{
    uint64_t count;

    if (read(loop->timer, &count, sizeof(count)) > 0)
        loop->armed = HF_NEVER;
}

/* After hf_interrupt(), wake all blocked callers. Each of them checks whether
 * it is interruptible. */
static void on_waker(struct hf_loop *loop)
{
    unsigned interrupts;
    struct hf_dlist *link;

    hf_waker_clear(loop->waker);
    interrupts = atomic_load(&loop->interrupts);
    if (interrupts == loop->noticed)
        return;
    loop->noticed = interrupts;
    for (link = loop->blocked.next; link != &loop->blocked; link = link->next)
        pthread_cond_signal(&HF_CONTAINER(link, struct hf_blocked, link)->wake);
}

static void dispatch_event(struct hf_loop *loop, struct epoll_event *event)
{
    struct hf_fd *fd = event->data.ptr;

    if (event->data.ptr == &loop->timer)
        read_timer(loop);
    else if (event->data.ptr == loop->waker)
        on_waker(loop);
    else if (fd)
        fd->ready(fd, event->events);
}

static void dispatch_events(struct hf_client *client,
                            struct epoll_event *events, int count)
{
    struct hf_loop *loop = &client->loop;

    hf_client_reset_now(client);
    loop->ready = events;
    loop->ready_count = count > 0 ? count : 0;
    for (int i = 0; i < count; i++)
        dispatch_event(loop, &events[i]);
    loop->ready_count = 0;
}

/* The epoll set to poll. While the strategy is being opened, its descriptors
 * are not handled, so this is the set without them. */
static int epoll_of(const struct hf_client *client)
{
    return client->opening ? client->loop.outer : client->loop.epoll;
}

static void poll_descriptors(struct hf_client *client)
{
    struct epoll_event events[EVENTS_PER_TURN];

    dispatch_events(client, events,
                    epoll_wait(epoll_of(client), events, EVENTS_PER_TURN, 0));
}

/* Poll the descriptors without the mutex, for up to `timeout` milliseconds (-1:
 * no limit). If a descriptor was removed meanwhile, the events may refer to it,
 * so poll again. No event is lost, because epoll is level-triggered. */
static void sleep_in_epoll(struct hf_client *client, int timeout)
{
    struct epoll_event events[EVENTS_PER_TURN];
    struct hf_loop *loop = &client->loop;
    unsigned removals = loop->removals;
    int epoll = epoll_of(client);
    int count;

    loop->sleeping = true;
    pthread_mutex_unlock(&client->mutex);
    count = epoll_wait(epoll, events, EVENTS_PER_TURN, timeout);
    hf_client_lock(client);
    loop->sleeping = false;
    if (removals != loop->removals)
        count = epoll_wait(epoll, events, EVENTS_PER_TURN, 0);
    dispatch_events(client, events, count);
}

static bool is_interrupted(const struct hf_loop *loop,
                           const struct hf_blocked *blocked)
{
    return blocked->interruptible &&
           atomic_load(&loop->interrupts) != blocked->interrupts;
}

static bool must_return(const struct hf_client *client,
                        const struct hf_blocked *blocked)
{
    return blocked->done || hf_client_is_forked(client) ||
           is_interrupted(&client->loop, blocked);
}

static void take_driver_role(struct hf_loop *loop, struct hf_blocked *awaiting)
{
    loop->driven = true;
    loop->awaiting = awaiting;
}

/* Pass the role to a background thread, or to the first blocked caller if the
 * client has no background threads. */
static void pass_driver_role(struct hf_loop *loop)
{
    struct hf_dlist *next = hf_dlist_first(&loop->standby);

    if (!next && !loop->background)
        next = hf_dlist_first(&loop->blocked);
    loop->driven = false;
    loop->awaiting = NULL;
    if (next)
        pthread_cond_signal(&HF_CONTAINER(next, struct hf_blocked, link)->wake);
}

static bool may_drive(const struct hf_loop *loop,
                      const struct hf_blocked *blocked)
{
    return !loop->background || blocked->background;
}

void hf_loop_process(struct hf_client *client)
{
    struct hf_loop *loop = &client->loop;

    if (loop->driven || loop->background)
        return;
    take_driver_role(loop, NULL);
    poll_descriptors(client);
    process_due(client);
    pass_driver_role(loop);
    run_callbacks(client);
}

/* Returns true if the driver must poll now, because descriptors go before due
 * timers and before callbacks. If no timer is due and no callback is queued,
 * the poll in which the driver sleeps handles the descriptors, which saves one
 * system call. */
static bool must_poll(struct hf_client *client)
{
    return hf_loop_next_timer(client) <= hf_client_now(client) ||
           has_callbacks_due(&client->loop);
}

/* Drive until the wait of `blocked` ends, callbacks are queued, or background
 * threads take over. Then run queued callbacks. The role is passed on before
 * the callbacks run, so that another thread renews locks and records losses
 * while user code runs. */
static void drive_until_done(struct hf_client *client,
                             struct hf_blocked *blocked)
{
    struct hf_loop *loop = &client->loop;

    take_driver_role(loop, blocked);
    if (must_poll(client))
        poll_descriptors(client);
    process_due(client);
    while (!must_return(client, blocked) && may_drive(loop, blocked) &&
           !has_callbacks_due(loop)) {
        hf_host_run_deferred(client);
        arm_timer_fd(client, true);
        sleep_in_epoll(client, hf_dlist_is_empty(&loop->answered) ? -1 : 0);
        process_due(client);
    }
    pass_driver_role(loop);
    if (may_drive(loop, blocked))
        run_callbacks(client);
}

/* ---- Waiting ------------------------------------------------------------*/

void hf_loop_release(struct hf_blocked *blocked)
{
    struct hf_loop *loop = &blocked->client->loop;

    blocked->done = true;
    if (loop->awaiting != blocked)
        pthread_cond_signal(&blocked->wake);
    else if (loop->sleeping)
        loop->wake_pending = true;
}

static void on_limit_timer(struct hf_timer *timer)
{
    hf_loop_release(HF_CONTAINER(timer, struct hf_blocked, limit));
}

static void wake_driver(struct hf_waker *waker)
{
    if (waker)
        hf_waker_wake(waker);
}

void hf_loop_flush(struct hf_client *client)
{
    hf_loop_end_turn(client);
    wake_driver(hf_loop_notify(client));
}

/* Sleep until `blocked` is released or this thread is to become the driver. The
 * driver fires blocked->limit, but may be late: so this wait has the deadline
 * too. */
static void sleep_without_role(struct hf_client *client,
                               struct hf_blocked *blocked, hf_time deadline)
{
    struct timespec until = hf_client_monotonic(client, deadline);

    hf_loop_end_turn(client);
    if (blocked->done)
        return;
    hf_dlist_push_back(blocked->background ? &client->loop.standby
                                           : &client->loop.blocked,
                       &blocked->link);
    wake_driver(hf_loop_notify(client));
    if (deadline == HF_NEVER) {
        pthread_cond_wait(&blocked->wake, &client->mutex);
    } else {
        pthread_cond_clockwait(&blocked->wake, &client->mutex, CLOCK_MONOTONIC,
                               &until);
    }
    hf_dlist_remove(&blocked->link);
    hf_client_reset_now(client);
    if (hf_client_now(client) >= deadline)
        blocked->done = true;
}

void hf_loop_await_callback(struct hf_client *client,
                            const struct hf_callback *callback)
{
    struct hf_loop *loop = &client->loop;

    if (loop->running != callback || hf_loop_is_in_callback(client))
        return;
    hf_loop_flush(client);
    while (loop->running == callback)
        pthread_cond_wait(&loop->returned, &client->mutex);
    hf_client_reset_now(client);
}

void hf_loop_set_interruptible(struct hf_client *client,
                               struct hf_blocked *blocked, bool pending)
{
    const struct hf_loop *loop = &client->loop;

    blocked->interruptible = true;
    blocked->interrupts =
        pending ? loop->delivered : atomic_load(&loop->interrupts);
}

enum hf_err hf_loop_wait(struct hf_client *client, struct hf_blocked *blocked,
                         hf_time deadline)
{
    struct hf_host *host = &client->host;
    bool limited = deadline != HF_NEVER;

    blocked->client = client;
    blocked->limit.fire = on_limit_timer;
    /* Do not use host->ops: while the client is being opened, host->ops are for
     * the thread that opens it (opening.c). */
    if (limited && hf_client_host_ops.timer_add(host, &blocked->limit))
        return HF_ENOMEM;
    if (limited)
        hf_client_host_ops.timer_set(host, &blocked->limit, deadline);
    pthread_cond_init(&blocked->wake, NULL);
    while (!must_return(client, blocked)) {
        if (client->loop.driven || !may_drive(&client->loop, blocked))
            sleep_without_role(client, blocked, deadline);
        else
            drive_until_done(client, blocked);
    }
    /* This thread may have been released and chosen as the driver at the same
     * time, so it passes the role on. */
    if (!client->loop.driven)
        pass_driver_role(&client->loop);
    pthread_cond_destroy(&blocked->wake);
    if (limited)
        hf_client_host_ops.timer_remove(host, &blocked->limit);
    if (hf_client_is_forked(client))
        return HF_EFORK;
    if (!blocked->done) {
        client->loop.delivered = atomic_load(&client->loop.interrupts);
        return HF_EINTR;
    }
    return limited && hf_client_now(client) >= deadline ? HF_ETIMEDOUT : HF_OK;
}

/* ---- Opening and closing ------------------------------------------------*/

enum hf_err hf_loop_open(struct hf_client *client, struct hf_error *error)
{
    struct hf_loop *loop = &client->loop;
    struct epoll_event event = {.events = EPOLLIN};
    struct epoll_event timer = {.events = EPOLLIN, .data.ptr = &loop->timer};

    loop->armed = HF_NEVER;
    loop->outer = -1;
    hf_dlist_init(&loop->answered);
    hf_dlist_init(&loop->deferred);
    hf_dlist_init(&loop->callbacks);
    hf_dlist_init(&loop->blocked);
    hf_dlist_init(&loop->standby);
    hf_dlist_init(&loop->posts);
    loop->waker = hf_waker_new();
    if (!loop->waker)
        return hf_error_set_code(error, HF_ENOMEM);
    event.data.ptr = loop->waker;
    pthread_mutex_init(&loop->post_mutex, NULL);
    pthread_cond_init(&loop->returned, NULL);
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    loop->timer = timerfd_create(client->clock_id, TFD_CLOEXEC | TFD_NONBLOCK);
    if (loop->epoll >= 0 && loop->waker->fd >= 0 && loop->timer >= 0 &&
        !epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->waker->fd, &event) &&
        !epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->timer, &timer))
        return HF_OK;
    hf_error_set(error, HF_ESYSTEM, "open: cannot create a descriptor: %s",
                 strerror(errno));
    hf_loop_close(client);
    return HF_ESYSTEM;
}

static void close_if_open(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

void hf_loop_close(struct hf_client *client)
{
    struct hf_loop *loop = &client->loop;

    close_if_open(loop->timer);
    close_if_open(loop->outer);
    close_if_open(loop->epoll);
    hf_waker_unref(loop->waker);
    hf_heap_fini(&loop->timers);
    pthread_cond_destroy(&loop->returned);
    pthread_mutex_destroy(&loop->post_mutex);
}
