/* loop.h - wait for signals, a deadline, a client and a descriptor at once.
 *
 * From loop_open() on, signals are blocked, and loop_signal() returns them.
 * Signals that report a fault, such as SIGSEGV, are not blocked. Signals that
 * were ignored stay ignored, because nohup(1) and shells rely on that. Times
 * are milliseconds of CLOCK_BOOTTIME, which continues while the machine is
 * suspended; hf_lock_deadline() uses it too. */
#ifndef CLI_LOOP_H
#define CLI_LOOP_H

#include <holdfast.h>
#include <signal.h>

#define LOOP_NEVER INT64_MAX

struct loop {
    int signals;               /* a signalfd */
    int timer;                 /* a timerfd */
    int64_t armed;             /* when the timer fires, or LOOP_NEVER */
    sigset_t kept;             /* the signals that loop_signal() returns */
    sigset_t before;           /* the signal mask before loop_open() */
    struct sigaction children; /* the action of SIGCHLD before loop_open() */
};

/* Block the signals, and open the signalfd and the timerfd. Returns 0, or an
 * errno value. */
int loop_open(struct loop *loop);
void loop_close(struct loop *loop);

/* The time, in milliseconds of CLOCK_BOOTTIME. */
int64_t loop_now(void);

/* Sleep until `until`, a signal, work for the client, or until `fd` is readable
 * (-1: no descriptor); then call hf_process(). `client` may be NULL.
 *
 *   first   if not NULL, called before anything else after the sleep, because
 *           this program may have been stopped meanwhile
 *
 * Returns true if `fd` is readable or at its end. */
bool loop_sleep(struct loop *loop, struct hf_client *client, int fd,
                int64_t until, void (*first)(void *arg), void *arg);

/* The next pending signal, or 0. */
int loop_signal(struct loop *loop);

/* Returns true if a write to stderr does not block. Check this before
 * reporting: a program that has to stop its command before the lock's validity
 * ends must not wait for the reader of a pipe. */
bool loop_can_report(void);

/* Returns true if the default action of `signal` ends a process. */
bool loop_is_fatal(int signal);

/* Returns true if `signal` is a stop signal of the terminal: SIGTSTP, SIGTTIN
 * or SIGTTOU. */
bool loop_is_stop(int signal);

/* Stop this process with `signal`, or with `all` its whole process group.
 * Returns when this process is continued. In an orphaned process group the
 * kernel does not stop the process, so this returns at once. */
void loop_stop(int signal, bool all);

/* End this process with `signal`, so that a shell sees the signal. */
__attribute__((noreturn)) void loop_die(int signal);

#endif
