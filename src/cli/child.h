/* child.h - one command in a process group of its own, as a shell runs a job.
 *
 * If this program is in the foreground of its terminal, the command's group
 * becomes the foreground group: Ctrl-C and Ctrl-Z reach the command alone. In a
 * pipeline the terminal stays with our group, which the other processes of the
 * pipeline share, until the command reads from the terminal; we forward the
 * signals that we receive to the command. When the command stops, this program
 * stops too, so that the shell shows its prompt, and both continue together. If
 * this program dies, the kernel kills the command.
 *
 * We also wait for processes that the command has started and left running,
 * unless `detached` is set; see descendants.h. */
#ifndef CLI_CHILD_H
#define CLI_CHILD_H

#include "descendants.h"
#include "loop.h"

struct child {
    pid_t pid;     /* the command; also the id of its process group */
    int tty;       /* our controlling terminal, or -1 */
    int failure;   /* a pipe that carries the errno of a failed exec */
    bool pipeline; /* we are in the foreground, as part of a pipeline */
    bool detached; /* do not wait for descendants of the command */
    struct descendants descendants;
    bool reaped;     /* the command has ended; the members below are set */
    bool foreground; /* the command had the terminal when it ended */
    int status;      /* exit status of the command, or 128 + signal */
    int signal;      /* the signal that killed the command, or 0 */
    int exec_err;    /* errno if the exec failed, or 0 */
};

/* Start `argv`. Returns 0, or an errno value. The command gets the signal mask
 * that this process had before loop_open(), and inherits its descriptors and
 * its environment.
 *
 *   detached   do not wait for processes that the command leaves running */
int child_start(struct child *child, char **argv, const struct loop *loop,
                bool detached);

/* What the program `name` becomes if it is executed. The kernel clears the
 * parent-death signal when a process changes its effective user or group, even
 * if root executes a program that is set-user-ID to another user. */
enum child_privilege {
    CHILD_ORDINARY,
    CHILD_LEAVES_US,  /* the kernel does not kill it when this program dies */
    CHILD_OTHER_USER, /* neither that; nor may we be able to signal it */
};
enum child_privilege child_find_privilege(const char *name);

/* Send `signal` to the command's process group. Call this only before the
 * command is reaped. */
void child_signal(const struct child *child, int signal);

/* Send `signal` to the group and to every other process that child_is_left()
 * counts. Returns a process that we may not signal, or 0. */
pid_t child_signal_all(const struct child *child, int signal);

/* Reap the children that have ended. This includes orphans, which nobody else
 * reaps if we are process 1 of a container. Returns the signal that has stopped
 * the command, or 0. */
int child_reap(struct child *child);

/* Become the subreaper of the command's orphans, because process 1 of a
 * container often does not reap them, and zombies would seem to run for
 * ever. */
void child_adopt(void);

/* Returns true if a process is left that the lock is kept for: a descendant of
 * the command, or if `detached` is set, a member of its process group. Call it
 * after the command is reaped. */
bool child_is_left(const struct child *child);

/* React to a command that was stopped by `signal`. If the command needs the
 * terminal and our group has it, pass the terminal on; otherwise stop our whole
 * process group, and return when this program is continued. In both cases
 * return true: the caller then checks whether the lock is still valid, and
 * calls child_resume(). If there is no terminal, do nothing and return
 * false. */
bool child_follow(struct child *child, int signal);

/* Continue the command, or the processes that it has left if it has ended.
 * Unless we are in a pipeline, give a running command the terminal if our group
 * has it. */
void child_resume(struct child *child);

/* Take the terminal back, and close the descriptors. */
void child_end(struct child *child);

#endif
