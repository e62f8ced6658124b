/* loop.h - driving a client: what is due, what has come, what is to be told.
 *
 * One thread drives at a time: the background thread, else the caller of
 * hf_process(), else the first blocked caller, who hands the role on when its
 * own answer is there. Only the driver sleeps in epoll and runs callbacks.
 *
 * Due timers are looked at anew before each callback, and a lost lock is told
 * before whatever else is to be told: who was stopped hears of it first. */
#ifndef HF_CLIENT_LOOP_H
#define HF_CLIENT_LOOP_H

#include <pthread.h>

#include "base/heap.h"
#include "base/list.h"
#include "client/host.h"
#include "strategy/strategy.h"

struct epoll_event;
struct hf_client;

/* A user callback that is due. `run` is called with the mutex held, and drops
 * it around the user's code. */
struct hf_callback {
    struct hf_list link;
    void (*run)(struct hf_callback *callback);
};

/* A thread that waits for something. `done` is set by hf_loop_release(), or
 * when `limit` passes. */
struct hf_blocked {
    struct hf_list link; /* among those who wait and do not drive */
    struct hf_list
        waiter; /* the caller's: among those who wait for one answer */
    struct hf_client *client;
    struct hf_timer limit;
    pthread_cond_t wake;
    bool done;
};

struct hf_loop {
    int epoll;
    int timer;
    struct hf_waker *waker;
    bool ring;                 /* it, once the mutex is dropped */
    struct epoll_event *ready; /* what is being dispatched */
    int ready_count;
    hf_time armed; /* what the timer descriptor is set to */

    struct hf_heap timers;
    size_t timer_count;       /* places reserved */
    struct hf_list answered;  /* requests whose `done` is to run */
    struct hf_list deferred;  /* posts to run when the turn ends */
    struct hf_list callbacks; /* in order */
    struct hf_list blocked;   /* callers that wait and do not drive */

    bool driven;                 /* somebody has the role */
    bool sleeping;               /* and sleeps */
    bool in_callback;            /* or runs a callback */
    pthread_t driver;            /* who that is */
    struct hf_blocked *awaiting; /* and what for; NULL in hf_process() */
    struct hf_blocked *quiet; /* hf_loop_quiesce(): no more than once round */

    bool self_driven; /* the program has an event loop */
    bool background;  /* a thread of the client's own drives */
    pthread_t thread;
    struct hf_blocked until_stopped;
    pthread_cond_t until_gone;
    bool stopped; /* it has ended driving */

    /* Apart from the client's mutex, because a post comes from anywhere. */
    pthread_mutex_t post_mutex;
    struct hf_list posts;
};

/* HF_ESYSTEM with a text, HF_ENOMEM. */
enum hf_err hf_loop_open(struct hf_client *client, struct hf_error *error);
void hf_loop_close(struct hf_client *client);

/* All below: with the mutex held. */

/* The turn ends: run what was deferred to now, and settle what that answers.
 * Inside a callback the driver does it, for all of its callbacks at once. */
void hf_loop_end_turn(struct hf_client *client);

/* Before unlocking: see that sleepers and event loops hear of what is new. What
 * is returned is to be rung after that; it may be NULL. */
struct hf_waker *hf_loop_notify(struct hf_client *client);

/* Run `callback` while driving; `first`: before the others. */
void hf_loop_callback(struct hf_client *client, struct hf_callback *callback,
                      bool first);

/* Sleep, and drive if nobody does, until `blocked` (zeroed) is released or
 * `deadline` passes: HF_ETIMEDOUT. HF_ENOMEM: did not wait; never so without
 * a deadline (HF_NEVER). */
enum hf_err hf_loop_wait(struct hf_client *client, struct hf_blocked *blocked,
                         hf_time deadline);
void hf_loop_release(struct hf_blocked *blocked);

/* Wait until no other thread drives, and run the callbacks that are due. */
void hf_loop_quiesce(struct hf_client *client, hf_time deadline);

/* Whether this thread is inside one of this client's callbacks. */
bool hf_loop_inside(const struct hf_client *client);

/* One turn without sleeping. */
void hf_loop_process(struct hf_client *client);

/* A thread of the client's own drives from now on. */
enum hf_err hf_loop_start_thread(struct hf_client *client,
                                 struct hf_error *error);

/* See that somebody drives also while no call is open: start a thread, unless
 * there is one or the program drives itself. */
enum hf_err hf_loop_see_driven(struct hf_client *client);

/* End the thread, waiting for it until `deadline`, after which it ends by
 * itself. Drops the mutex meanwhile. */
void hf_loop_stop_thread(struct hf_client *client, hf_time deadline);

/* When the next timer is due. */
hf_time hf_loop_next(const struct hf_client *client);

#endif
