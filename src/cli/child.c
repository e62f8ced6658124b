#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failure.h"

/* ---- The terminal -------------------------------------------------------
 *
 * tcsetpgrp() from the background raises SIGTTOU. loop_open() blocks SIGTTOU,
 * so the call succeeds. */

static bool has_terminal(const struct child *child, pid_t group)
{
    return child->tty >= 0 && tcgetpgrp(child->tty) == group;
}

static void give_terminal(const struct child *child)
{
    if (has_terminal(child, getpgrp()))
        (void)tcsetpgrp(child->tty, child->pid);
}

static bool take_terminal(const struct child *child)
{
    if (!has_terminal(child, child->pid))
        return false;
    (void)tcsetpgrp(child->tty, getpgrp());
    return true;
}

static bool is_pipe(int fd)
{
    struct stat status;

    return !fstat(fd, &status) && S_ISFIFO(status.st_mode);
}

/* Returns true if this process is part of a pipeline. The shell may not have
 * started the other processes of the pipeline yet, so a standard descriptor
 * that is a pipe counts too. */
static bool is_in_pipeline(void)
{
    return is_pipe(STDIN_FILENO) || is_pipe(STDOUT_FILENO) ||
           is_pipe(STDERR_FILENO) || descendants_group_is_shared();
}

/* ---- Starting -----------------------------------------------------------*/

/* Execute the command. This runs in the forked child, so it may call only
 * async-signal-safe functions; execvp() of glibc is one. */
static void exec_command(struct child *child, char **argv,
                         const struct loop *loop, pid_t parent, bool foreground)
{
    int err;

    /* The kernel sends the signal only if the parent dies after this call, so
     * check that the parent still exists. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
        _exit(STATUS_NOT_EXECUTABLE);
    (void)setpgid(0, 0);
    if (foreground)
        (void)tcsetpgrp(child->tty, getpid());
    (void)sigaction(SIGCHLD, &loop->children, NULL);
    (void)sigprocmask(SIG_SETMASK, &loop->before, NULL);
    (void)execvp(argv[0], argv);
    err = errno;
    (void)!write(child->failure, &err, sizeof(err));
    _exit(err == ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE);
}

int child_start(struct child *child, char **argv, const struct loop *loop,
                bool detached)
{
    pid_t parent = getpid();
    bool foreground;
    int pipe[2], err;

    *child = (struct child){.tty = -1, .failure = -1, .detached = detached};
    if (pipe2(pipe, O_CLOEXEC | O_NONBLOCK))
        return errno;
    child->tty = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    foreground = has_terminal(child, getpgrp());
    child->pipeline = foreground && is_in_pipeline();
    foreground = foreground && !child->pipeline;
    if (!detached)
        descendants_init(&child->descendants);
    child->failure = pipe[1];
    child->pid = fork();
    if (child->pid == 0)
        exec_command(child, argv, loop, parent, foreground);
    err = errno;
    (void)close(pipe[1]);
    child->failure = pipe[0];
    if (child->pid < 0) {
        child_end(child);
        return err;
    }
    if (!detached)
        descendants_begin(&child->descendants, child->pid);
    /* The child calls setpgid() too, because either process may run first. */
    (void)setpgid(child->pid, child->pid);
    if (foreground)
        give_terminal(child);
    return 0;
}

/* The bit of set-group-ID has this meaning only if the group may execute the
 * file. */
static enum child_privilege file_privilege(const char *path)
{
    const mode_t set_group = S_ISGID | S_IXGRP;
    struct stat status;

    if (stat(path, &status) || !S_ISREG(status.st_mode))
        return CHILD_ORDINARY;
    if ((status.st_mode & S_ISUID) && status.st_uid != geteuid())
        return geteuid() == 0 ? CHILD_LEAVES_US : CHILD_OTHER_USER;
    if ((status.st_mode & set_group) == set_group && status.st_gid != getegid())
        return CHILD_LEAVES_US;
    return CHILD_ORDINARY;
}

enum child_privilege child_find_privilege(const char *name)
{
    const char *path = getenv("PATH");
    char file[4096];

    if (strchr(name, '/'))
        return file_privilege(name);
    while (path && *path) {
        size_t size = strcspn(path, ":");

        (void)snprintf(file, sizeof(file), "%.*s/%s", (int)size, path, name);
        if (!access(file, X_OK))
            return file_privilege(file);
        path += size + (path[size] == ':');
    }
    return CHILD_ORDINARY;
}

/* ---- Signals and states -------------------------------------------------*/

void child_signal(const struct child *child, int signal)
{
    (void)kill(-child->pid, signal);
}

void child_adopt(void)
{
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static bool is_group_only(const struct child *child)
{
    return child->detached;
}

/* Returns true if the process group can be signalled. Once the command is
 * reaped and its group is empty, the kernel may give the group's id to an
 * unrelated process. */
static bool has_group(const struct child *child)
{
    return !child->reaped || is_group_only(child) ||
           descendants_have_group(&child->descendants, child->pid);
}

/* Signal the group first, because finding the other processes takes longer. */
pid_t child_signal_all(const struct child *child, int signal)
{
    pid_t group = has_group(child) ? child->pid : 0;
    pid_t refused = 0;

    if (group)
        child_signal(child, signal);
    if (!is_group_only(child))
        refused = descendants_signal(&child->descendants, signal, group);
    if (!child->reaped && kill(child->pid, 0) && errno == EPERM)
        refused = child->pid;
    return refused;
}

bool child_is_left(const struct child *child)
{
    if (!is_group_only(child))
        return descendants_exist(&child->descendants);
    return !kill(-child->pid, 0) || errno != ESRCH;
}

static void record_end(struct child *child, const siginfo_t *info)
{
    bool killed = info->si_code != CLD_EXITED;
    int err;

    child->reaped = true;
    child->foreground = take_terminal(child);
    child->signal = killed ? info->si_status : 0;
    child->status = killed ? STATUS_SIGNAL + info->si_status : info->si_status;
    if (read(child->failure, &err, sizeof(err)) == (ssize_t)sizeof(err))
        child->exec_err = err;
}

/* Reap one process. If it is the command, record how it ended. Returns false if
 * no process has ended. */
static bool reap_one(struct child *child)
{
    siginfo_t info = {0};

    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) || info.si_pid == 0)
        return false;
    if (info.si_pid == child->pid && !child->reaped)
        record_end(child, &info);
    return true;
}

int child_reap(struct child *child)
{
    siginfo_t info = {0};

    while (reap_one(child))
        continue;
    if (child->reaped ||
        waitid(P_PID, (id_t)child->pid, &info, WSTOPPED | WNOHANG) ||
        info.si_pid == 0)
        return 0;
    return info.si_status;
}

bool child_follow(struct child *child, int signal)
{
    bool asks = signal == SIGTTIN || signal == SIGTTOU;

    /* Without a terminal, nobody would continue us, so keep running and
     * renewing the lock until the process that stopped the command continues
     * it. */
    if (child->tty < 0)
        return false;
    /* SIGTTIN and SIGTTOU show that the command needs the terminal. If our
     * group has it, pass it on. */
    if (asks && has_terminal(child, getpgrp())) {
        give_terminal(child);
        return true;
    }
    (void)take_terminal(child);
    /* Stop our whole group, as the terminal would, so that a script that
     * started us stops too and the user gets the prompt back. */
    loop_stop(asks ? signal : SIGTSTP, true);
    return true;
}

void child_resume(struct child *child)
{
    if (!child->pipeline && !child->reaped)
        give_terminal(child);
    if (child->reaped)
        (void)child_signal_all(child, SIGCONT);
    else
        child_signal(child, SIGCONT);
}

void child_end(struct child *child)
{
    if (child->pid > 0)
        (void)take_terminal(child);
    if (child->tty >= 0)
        (void)close(child->tty);
    if (child->failure >= 0)
        (void)close(child->failure);
    child->tty = -1;
    child->failure = -1;
}
