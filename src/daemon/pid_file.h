/* pid_file.h - which process runs the node of a directory.
 *
 * The process holds a POSIX record lock on the file "pid" while it runs. The
 * kernel reports the owner of such a lock (F_GETLK), so a reader never finds a
 * process that has ended. The file also contains the process id, for people. */
#ifndef HF_DAEMON_PID_FILE_H
#define HF_DAEMON_PID_FILE_H

#include "base/error.h"

#define HF_PID_FILE "pid"

/* Create the file in `directory` if it does not exist, and lock it. The lock
 * lasts until the process ends. Call this only once in a process: closing any
 * descriptor of the file would unlock it.
 *
 * HF_EBUSY    another process runs the node; `*error` names it
 *             unless it has just ended
 * HF_EINVAL   the path is too long
 * HF_ESYSTEM  the file cannot be opened or locked */
enum hf_err hf_pid_file_lock(const char *directory, struct hf_error *error);

#endif
