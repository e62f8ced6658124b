/* descendants.h - the processes that the command has started, directly or not.
 *
 * This process is their subreaper: a descendant whose parent has ended becomes
 * our child, whatever session or process group it is in.
 *
 * We may have had children before we started the command: a shell may have
 * started them, and then replaced itself with this program (exec). These
 * children and their descendants do not count, but their orphans become our
 * children too. So if we had children before, a process counts only if it is
 * not older than the command and not in our own process group, which the
 * command has left. */
#ifndef CLI_DESCENDANTS_H
#define CLI_DESCENDANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define DESCENDANT_NAME_SIZE 32

struct descendants {
    bool mixed;      /* we had children before the command */
    long long since; /* start time of the command, if mixed */
};

/* Become a subreaper. Call it before the command is started. */
void descendants_init(struct descendants *d);

/* Record that `command`, a child that is not reaped yet, was started. */
void descendants_begin(struct descendants *d, pid_t command);

/* Returns true if a descendant is alive, or may be alive because /proc cannot
 * be read. Call it after reaping all children that have ended. */
bool descendants_exist(const struct descendants *d);

/* Returns true if a descendant is in the process group `group`. */
bool descendants_have_group(const struct descendants *d, pid_t group);

/* Send `signal` to every descendant that is not in the process group `group`,
 * which the caller has signalled already; if `group` is 0, to every descendant.
 * Returns the id of a descendant, in that group or not, that we may not signal
 * because it belongs to another user, or 0 if there is none. */
pid_t descendants_signal(const struct descendants *d, int signal, pid_t group);

/* The descendant with the lowest pid, for messages; 0 if there is none. */
pid_t descendants_first(const struct descendants *d);

/* Write the name of a process. If it cannot be read, for example because the
 * process has ended, write "?" and return false. */
bool descendants_name(pid_t pid, char name[DESCENDANT_NAME_SIZE]);

/* Returns true if our process group contains a process other than this process
 * and its ancestors, such as the rest of a pipeline. */
bool descendants_group_is_shared(void);

#endif
