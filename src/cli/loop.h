/* loop.h - one place to sleep: signals, an instant, a client, a descriptor.
 *
 * From loop_open() on, signals that could end or stop this program are kept for
 * loop_signal() to tell, and harm nobody. Those that were ignored stay so, as
 * nohup(1) and shells mean it. Instants are milliseconds of CLOCK_BOOTTIME,
 * which goes on while a machine sleeps, as leases do. */
#ifndef CLI_LOOP_H
#define CLI_LOOP_H

#include <holdfast.h>
#include <signal.h>

#define LOOP_NEVER INT64_MAX

struct loop {
    int signals; /* a signalfd */
    int timer;   /* a timerfd */
    int64_t armed;
    sigset_t kept;             /* the signals that are told */
    sigset_t before;           /* the mask that we were started with */
    struct sigaction children; /* what we were started with */
};

/* 0, or errno. */
int loop_open(struct loop *loop);
void loop_close(struct loop *loop);

int64_t loop_now(void);

/* Sleep until `until`, until there is a signal, until the client has work or
 * until `fd` is readable (-1: there is none); then let the client work.
 *
 *   first   called, if it is not NULL, before all else after the sleep: this
 *           program may have been stopped in it for any time
 *
 * True if `fd` is readable or at its end. */
bool loop_sleep(struct loop *loop, struct hf_client *client, int fd,
                int64_t until, void (*first)(void *arg), void *arg);

/* The next signal that has come, or 0. */
int loop_signal(struct loop *loop);

/* Whether a message can be written to stderr right now. A pipe that nobody
 * reads must not hold up a program that has a lease to watch. */
bool loop_can_report(void);

/* Whether such a signal ends a program that does nothing about it. */
bool loop_is_fatal(int signal);

/* Whether it is one that stops it, by the keyboard or the terminal. */
bool loop_is_stop(int signal);

/* Let `signal`, a stop, have its effect on this process, and with `all` on its
 * whole group; returns when it goes on, or at once where nobody could wake it
 * again. */
void loop_stop(int signal, bool all);

/* End as if nobody had kept `signal`, so that a shell sees it. */
__attribute__((noreturn)) void loop_die(int signal);

#endif
