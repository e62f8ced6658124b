/* child.h - one command, in a process group of its own, as a shell runs a job.
 *
 * If this program is in the foreground of its terminal, the command's group
 * becomes the foreground: Ctrl-C and Ctrl-Z reach the command alone. In a
 * pipeline the terminal stays with our group, which has the other processes of
 * the pipeline, until the command asks for it by reading from it; signals are
 * passed on to the command. When the command stops, this program stops too, so
 * that the shell has its prompt, and goes on with it. The command dies with this
 * program, whatever kills it.
 *
 * What the command has started and left running is waited for, unless
 * `detached` says otherwise; see descendants.h. */
#ifndef CLI_CHILD_H
#define CLI_CHILD_H

#include "descendants.h"
#include "loop.h"

struct child {
    pid_t pid;     /* and the number of its group */
    int tty;       /* the terminal that controls us, or -1 */
    int failure;   /* a pipe: why the command could not be executed */
    bool pipeline; /* others in our group use the terminal */
    bool detached; /* only the command itself is waited for */
    struct descendants descendants;
    bool reaped;     /* the command itself has ended */
    bool foreground; /* then: it had the terminal to its end */
    int status;      /* then: as a shell would tell it */
    int signal;      /* what killed it, or 0 */
    int exec_err;    /* errno of exec, or 0 */
};

/* Start `argv`. Returns 0, or errno. The command has the signals, descriptors
 * and environment that we were started with; see loop.h.
 *
 *   detached   do not wait for what the command leaves running */
int child_start(struct child *child, char **argv, const struct loop *loop,
                bool detached);

/* Whether the program `name` runs with the rights of another user: then it may
 * not take our signals, and does not die with this program. */
bool child_is_privileged(const char *name);

/* Send `signal` to the whole group. Only until the command is reaped. */
void child_signal(const struct child *child, int signal);

/* The same, and to every other process that child_is_left() counts. Returns one
 * that refuses it, or 0. */
pid_t child_signal_all(const struct child *child, int signal);

/* Reap what has ended, orphans too: as process 1 nobody else does. Returns the
 * signal that has stopped the command, or 0. */
int child_look(struct child *child);

/* From now on orphans of the command are ours to reap: their parent may be one
 * that never does, as in many a container. */
void child_adopt(void);

/* Whether a process is left that the lock is kept for; of a detached command,
 * one of its group. Only when the command is reaped. */
bool child_is_left(const struct child *child);

/* It was stopped by `signal`: follow, if there is a terminal to come back
 * from. Returns true when both may go on: see to the lease, then call
 * child_resume(). */
bool child_follow(struct child *child, int signal);

/* Let it go on, with the terminal if we have it. */
void child_resume(struct child *child);

/* Take the terminal back and close what is open. */
void child_end(struct child *child);

#endif
