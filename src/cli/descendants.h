/* descendants.h - the processes that the command has started, and theirs.
 *
 * This process is their subreaper: a descendant whose parent has ended becomes
 * our child, whatever session or process group it has moved to. Descendants that
 * were there before are not counted: a shell that has started them may have
 * replaced itself with this program. */
#ifndef CLI_DESCENDANTS_H
#define CLI_DESCENDANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define DESCENDANTS_OLD_MAX 1024
#define DESCENDANT_NAME_SIZE 32

struct descendants {
    pid_t old[DESCENDANTS_OLD_MAX]; /* descendants before the command */
    size_t old_count;
};

/* Adopt orphans from now on, and remember the descendants there are. */
void descendants_init(struct descendants *d);

/* Process `pid`, which was our child, has been reaped: its number is free. */
void descendants_forget(struct descendants *d, pid_t pid);

/* Whether any descendant lives. Call it after every child that has ended is
 * reaped. */
bool descendants_exist(const struct descendants *d);

/* Whether a descendant is in the process group `group`. */
bool descendants_have_group(const struct descendants *d, pid_t group);

/* Send `signal` to every descendant outside the process group `group`, which has
 * it already; 0: to all. Returns a process, of that group or not, that refuses it because
 * it belongs to another user; or 0. */
pid_t descendants_signal(const struct descendants *d, int signal, pid_t group);

/* One of them, to name it in a message; 0 if there is none. */
pid_t descendants_first(const struct descendants *d);

/* Write the name of a process, "?" if it has ended. */
void descendants_name(pid_t pid, char name[DESCENDANT_NAME_SIZE]);

/* Whether another process than this one and its ancestors is in our process
 * group, as the rest of a pipeline is. */
bool descendants_group_is_shared(void);

#endif
