/* loop.h - driving a client: timers, descriptors, answers and callbacks.
 *
 * There are two roles, and at most one thread has each.
 *
 *   - The *driver* sleeps in epoll and does what is due. It is one of the two
 *     threads of a background client, else the caller of hf_process(), else
 *     the first blocked caller, which hands the role on when its own answer
 *     has come.
 *   - The *caller* runs the user's callbacks, one at a time, without the mutex.
 *     A driver that finds callbacks queued hands its role on and becomes the
 *     caller. So renewals, time-outs and losses do not wait for user code where
 *     another thread can drive: always in a background client, never in a
 *     program with one thread.
 *
 * A turn does a limited amount of work: descriptors, posts, events and
 * callbacks each have a limit, and what is over it waits for the next turn. So
 * timers fire, and blocked callers return, whatever comes in.
 *
 * Timers that are due fire before each callback, and the callback of a lost
 * lock goes before all others that are not running yet: a process that was
 * stopped learns of the loss first. */
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

/* A user callback that is due. `run` is called with the mutex held, and drops
 * it around the user's code. */
struct hf_callback {
    struct hf_dlist link;
    void (*run)(struct hf_callback *callback);
};

/* A thread that waits for something. `done` is set by hf_loop_release(), or
 * when `limit` passes. */
struct hf_blocked {
    struct hf_dlist link; /* among those who wait and do not drive */
    struct hf_dlist
        waiter; /* the caller's: among those who wait for one answer */
    struct hf_client *client;
    struct hf_timer limit;
    pthread_cond_t wake;
    bool background;     /* a thread of the client's own */
    bool interruptible;  /* set by hf_loop_set_interruptible() */
    unsigned interrupts; /* that it does not heed */
    bool done;
};

/* Two threads of the client's own: one can drive while the other runs a
 * callback. */
#define HF_THREADS 2

struct hf_thread {
    pthread_t id;
    struct hf_blocked until_stopped;
};

struct hf_loop {
    int epoll;
    int outer; /* hf_open_start(): what hf_fd() gives; `epoll` is in it. Or -1 */
    int timer;
    struct hf_waker *waker;
    bool wake_pending;         /* it, once the mutex is dropped */
    struct epoll_event *ready; /* what is being dispatched */
    int ready_count;
    hf_time armed; /* what the timer descriptor is set to */

    struct hf_heap timers;
    size_t timer_count;        /* places reserved */
    struct hf_dlist answered;  /* requests whose `done` is to run */
    struct hf_dlist deferred;  /* posts to run when the turn ends */
    struct hf_dlist callbacks; /* in order */
    struct hf_dlist blocked;   /* callers that wait and do not drive */
    struct hf_dlist standby;   /* threads of the client's own that do not */

    bool driven;                 /* somebody has the role */
    bool sleeping;               /* and sleeps */
    struct hf_blocked *awaiting; /* and what for; NULL in hf_process() */
    unsigned removals;           /* of descriptors, so far */

    bool calling;                /* somebody runs callbacks */
    pthread_t caller;            /* who that is */
    struct hf_callback *running; /* and which; NULL between two of them */
    pthread_cond_t returned;     /* a callback has, or a thread has ended */

    atomic_uint interrupts; /* hf_interrupt(), so far */
    unsigned noticed;       /* by the driver, which wakes blocked callers */
    unsigned delivered;     /* the last that ended a wait */

    bool self_driven; /* the program has an event loop */
    bool background;  /* threads of the client's own drive, and no others */
    struct hf_thread threads[HF_THREADS];
    unsigned thread_count;    /* started */
    unsigned threads_running; /* not yet ended */

    /* Apart from the client's mutex, because a post comes from anywhere. */
    pthread_mutex_t post_mutex;
    struct hf_dlist posts;
};

/* HF_ESYSTEM with a text, HF_ENOMEM. */
enum hf_err hf_loop_open(struct hf_client *client, struct hf_error *error);
void hf_loop_close(struct hf_client *client);

/* All below: with the mutex held. */

/* The turn ends: run what was deferred to now, and settle what that answers.
 * Inside a callback the driver does it, for all of its callbacks at once. */
void hf_loop_end_turn(struct hf_client *client);

/* End the turn, and wake the driver if it sleeps and has something to do, without
 * dropping the mutex. */
void hf_loop_flush(struct hf_client *client);

/* Before unlocking: see that sleepers and event loops hear of what is new. What
 * is returned is to be rung after that; it may be NULL. */
struct hf_waker *hf_loop_notify(struct hf_client *client);

/* Run `callback` while driving; `first`: before the others. */
void hf_loop_queue_callback(struct hf_client *client,
                            struct hf_callback *callback, bool first);

/* hf_interrupt() ends the wait that `blocked` is for; `pending`: also one that
 * came before, while nobody waited. */
void hf_loop_set_interruptible(struct hf_client *client,
                               struct hf_blocked *blocked, bool pending);

/* Sleep, and drive if nobody does, until `blocked` (zeroed) is released or
 * `deadline` passes: HF_ETIMEDOUT. HF_EINTR: it was interrupted. HF_ENOMEM: did
 * not wait; never so without a deadline (HF_NEVER). */
enum hf_err hf_loop_wait(struct hf_client *client, struct hf_blocked *blocked,
                         hf_time deadline);
void hf_loop_release(struct hf_blocked *blocked);

/* Wait until no other thread runs callbacks, and run those that are queued. At
 * the deadline, leave them to that thread. */
void hf_loop_finish_callbacks(struct hf_client *client, hf_time deadline);

/* Wait until `callback`, which is not queued, has returned. Inside a callback of
 * this client: do not wait. */
void hf_loop_await_callback(struct hf_client *client,
                            const struct hf_callback *callback);

/* Whether this thread is inside one of this client's callbacks. */
bool hf_loop_is_in_callback(const struct hf_client *client);

/* One turn without sleeping. */
void hf_loop_process(struct hf_client *client);

/* When the next timer is due. */
hf_time hf_loop_next_timer(const struct hf_client *client);

#endif
