/* loop.h - the event loop of a client: timers, descriptors, answers, callbacks.
 *
 * There are two roles, and at most one thread has each.
 *
 *   - The *driver* sleeps in epoll, and handles timers, descriptors and posts.
 *     If the client has background threads, the driver is one of them.
 *     Otherwise it is a thread inside hf_process(), or the first thread that
 *     blocks in a call, which passes the role on when its own call is complete.
 *   - The *callback thread* runs user callbacks, one at a time, without the
 *     mutex. A driver that finds queued callbacks passes its role on and
 *     becomes the callback thread. So renewals, timeouts and losses are not
 *     delayed by user code if another thread can drive: always in a client with
 *     background threads, never in a program with one thread.
 *
 * A turn handles a limited number of descriptors and callbacks, and only the
 * posts that are queued when it starts; the rest waits for the next turn. So
 * timers fire, and blocked threads return, under any load.
 *
 * Due timers fire before each callback, and the callback for a lost lock goes
 * to the front of the queue. So a process that was stopped learns of a loss
 * before any other callback runs. */
#ifndef HF_CLIENT_LOOP_H
#define HF_CLIENT_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/dlist.h"
#include "base/heap.h"
#include "client/host.h"
#include "strategy/strategy.h"

struct epoll_event;
struct hf_client;

/* A queued user callback. `run` is called with the mutex held, and unlocks it
 * while user code runs. */
struct hf_callback {
    struct hf_dlist link;
    void (*run)(struct hf_callback *callback);
};

/* A thread inside hf_loop_wait(). hf_loop_release() sets `done`, and so does
 * the timer `limit` at the deadline. */
struct hf_blocked {
    struct hf_dlist link;   /* in loop->blocked or loop->standby, while it
                               sleeps and does not drive */
    struct hf_dlist waiter; /* in hf_future.waiters, for block_once() */
    struct hf_client *client;
    struct hf_timer limit; /* fires at the deadline */
    pthread_cond_t wake;
    bool background;     /* this is a background thread */
    bool interruptible;  /* hf_interrupt() ends the wait */
    unsigned interrupts; /* the wait ends when loop->interrupts differs from
                            this */
    bool done;
};

/* Background threads: one can drive while the other runs a callback. */
#define HF_THREADS 2

struct hf_thread {
    pthread_t id;
    struct hf_blocked until_stopped;
};

struct hf_loop {
    int epoll;
    int outer; /* after hf_open_start(): an epoll set that contains `epoll`,
                  returned by hf_fd(); otherwise -1 */
    int timer;
    struct hf_waker *waker;
    bool wake_pending;         /* hf_loop_notify() must return the waker */
    struct epoll_event *ready; /* the events that dispatch_events() works on */
    int ready_count;
    hf_time armed; /* the instant to which `timer` is set */

    struct hf_heap timers;
    size_t timer_count;        /* timers added, for which the heap has room */
    struct hf_dlist answered;  /* requests whose `done` is to run */
    struct hf_dlist deferred;  /* posts that run at the end of the turn */
    struct hf_dlist callbacks; /* queued, in order */
    struct hf_dlist blocked;   /* callers that sleep and do not drive */
    struct hf_dlist standby;   /* background threads that do not drive */

    bool driven;                 /* a thread has the role of the driver */
    bool sleeping;               /* the driver is inside epoll_wait() */
    struct hf_blocked *awaiting; /* the wait of the driver itself; NULL in
                                    hf_process() */
    unsigned removals;           /* descriptors removed so far */

    bool calling;                /* a thread runs callbacks */
    pthread_t callback_thread;   /* valid if `calling` */
    struct hf_callback *running; /* NULL between two callbacks */
    pthread_cond_t returned;     /* signals the end of a callback or a thread */

    atomic_uint interrupts; /* how often hf_interrupt() was called */
    unsigned noticed;       /* `interrupts` when callers were last woken */
    unsigned delivered;     /* `interrupts` when a wait was last interrupted */

    bool self_driven; /* the program has called hf_fd() or hf_process() */
    bool background;  /* only background threads may drive */
    struct hf_thread threads[HF_THREADS];
    unsigned thread_count;    /* started */
    unsigned threads_running; /* not yet finished */

    /* Separate from the client's mutex, so that any thread can post. */
    pthread_mutex_t post_mutex;
    struct hf_dlist posts;
};

/* Create the descriptors of the loop. Can fail with HF_ESYSTEM or HF_ENOMEM;
 * `error` has the text. */
enum hf_err hf_loop_open(struct hf_client *client, struct hf_error *error);
void hf_loop_close(struct hf_client *client);

/* The functions below require the mutex. */

/* End the turn: settle answered requests and run deferred posts. Inside a
 * callback the deferred posts are left to the driver, which runs them once for
 * all callbacks of its turn. */
void hf_loop_end_turn(struct hf_client *client);

/* End the turn and wake the driver if it has work. Keeps the mutex locked. */
void hf_loop_flush(struct hf_client *client);

/* Called before the mutex is unlocked. Sets the timer descriptor, and returns a
 * waker if a sleeping driver, or a program that polls hf_fd(), has to be woken;
 * otherwise NULL. The caller wakes it after unlocking. */
struct hf_waker *hf_loop_notify(struct hf_client *client);

/* Queue `callback`, unless it is queued already. With `first`, put it at the
 * front, even if it is queued. */
void hf_loop_queue_callback(struct hf_client *client,
                            struct hf_callback *callback, bool first);

/* Make hf_interrupt() end the wait of `blocked`. With `pending`, an earlier
 * hf_interrupt() that has not ended any wait yet ends this wait too; otherwise
 * only a later one does. */
void hf_loop_set_interruptible(struct hf_client *client,
                               struct hf_blocked *blocked, bool pending);

/* Sleep until `blocked` is released, and drive if no other thread does.
 * `blocked` is zeroed, apart from `background` and the members that
 * hf_loop_set_interruptible() sets.
 *
 * HF_ETIMEDOUT  `deadline` has passed
 * HF_EINTR      interrupted
 * HF_EFORK      this is a child that a callback has forked
 * HF_ENOMEM     did not wait; not possible if `deadline` is HF_NEVER */
enum hf_err hf_loop_wait(struct hf_client *client, struct hf_blocked *blocked,
                         hf_time deadline);
void hf_loop_release(struct hf_blocked *blocked);

/* Wait until no other thread runs callbacks, then run the queued callbacks. If
 * the other thread does not finish by `deadline`, leave the queued callbacks to
 * that thread. */
void hf_loop_finish_callbacks(struct hf_client *client, hf_time deadline);

/* Wait until `callback` is not running; the caller has made sure that it is not
 * queued. Returns at once inside a callback of this client. */
void hf_loop_await_callback(struct hf_client *client,
                            const struct hf_callback *callback);

/* Returns true if this thread is inside a callback of this client. */
bool hf_loop_is_in_callback(const struct hf_client *client);

/* Drive for one turn without sleeping, for hf_process(). */
void hf_loop_process(struct hf_client *client);

/* When the next timer is due; HF_NEVER if there is none. */
hf_time hf_loop_next_timer(const struct hf_client *client);

#endif
