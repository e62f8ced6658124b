/* loop.h - wait for signals, a deadline, a client and a descriptor at once.
 *
 * From loop_open() on, signals that could end or stop this program are blocked,
 * and loop_signal() returns them. Those that were ignored stay ignored, as
 * nohup(1) and shells rely on. Times are milliseconds of CLOCK_BOOTTIME, which
 * continues while the machine is suspended; hf_lock_deadline() uses it too. */
#ifndef CLI_LOOP_H
#define CLI_LOOP_H

#include <holdfast.h>
#include <signal.h>

#define LOOP_NEVER INT64_MAX

struct loop {
    int signals; /* a signalfd */
    int timer;   /* a timerfd */
    int64_t armed;
    sigset_t kept;             /* the signals that loop_signal() returns */
    sigset_t before;           /* the signal mask that we were started with */
    struct sigaction children; /* for SIGCHLD, that we were started with */
};

/* 0, or errno. */
int loop_open(struct loop *loop);
void loop_close(struct loop *loop);

int64_t loop_now(void);

/* Sleep until `until`, a signal, work for the client, or until `fd` is readable
 * (-1: no descriptor); then let the client work.
 *
 *   first   called before anything else after the sleep, if not NULL: this
 *           program may have been stopped during the sleep for any time
 *
 * True if `fd` is readable or at its end. */
bool loop_sleep(struct loop *loop, struct hf_client *client, int fd,
                int64_t until, void (*first)(void *arg), void *arg);

/* The next pending signal, or 0. */
int loop_signal(struct loop *loop);

/* Whether a message can be written to stderr right now. A pipe that nobody
 * reads must not hold up a program that has a lease to watch. */
bool loop_can_report(void);

/* Whether the default action of `signal` ends a process. */
bool loop_is_fatal(int signal);

/* Whether it is a stop signal of the terminal: SIGTSTP, SIGTTIN or SIGTTOU. */
bool loop_is_stop(int signal);

/* Stop this process by `signal`, and with `all` its whole group. Returns when it
 * is continued, or at once where nobody could continue it. */
void loop_stop(int signal, bool all);

/* Die of `signal`, so that a shell sees it. */
__attribute__((noreturn)) void loop_die(int signal);

#endif
