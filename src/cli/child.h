/* child.h - one command, in a process group of its own, as a shell runs a job.
 *
 * If this program is in the foreground of its terminal, the command's group
 * becomes the foreground: Ctrl-C and Ctrl-Z reach the command alone. When the
 * command stops, this program stops too, so that the shell has its prompt, and
 * goes on with it. The command dies with this program, whatever kills it. */
#ifndef CLI_CHILD_H
#define CLI_CHILD_H

#include "loop.h"

struct child {
    pid_t pid;    /* and the number of its group */
    int tty;      /* the terminal that controls us, or -1 */
    int failure;  /* a pipe: why the command could not be executed */
    bool reaped;  /* the command itself has ended */
    int status;   /* then: as a shell would tell it */
    int signal;   /* what killed it, or 0 */
    int exec_err; /* errno of exec, or 0 */
};

/* Start `argv`. Returns 0, or errno. The command has the signals, descriptors
 * and environment that we were started with; see loop.h. */
int child_start(struct child *child, char **argv, const struct loop *loop);

/* Send `signal` to the whole group, as long as there is one. */
void child_signal(const struct child *child, int signal);

/* See what has become of it. Returns the signal that has stopped it, or 0. */
int child_look(struct child *child);

/* From now on, what the command leaves behind is ours to bury: its parent may
 * be one that never does, as in many a container. */
void child_adopt(void);

/* Whether anyone is left of the group. Only when the command is reaped. */
bool child_has_group(const struct child *child);

/* It was stopped by `signal`: follow, if there is a terminal to come back
 * from. Returns true when both may go on: see to the lease, then call
 * child_resume(). */
bool child_follow(struct child *child, int signal);

/* Let it go on, with the terminal if we have it. */
void child_resume(struct child *child);

/* Take the terminal back and close what is open. True if the command was in
 * the foreground to its end. */
bool child_end(struct child *child);

#endif
