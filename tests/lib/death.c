/* tests/lib/death.c */
#include "lib/death.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STOPPED = 42,
    WENT_ON = 43,
};

/* There in a build that measures coverage, where what a process has reached is
 * written when it exits. */
extern void __gcov_init(void *about) __attribute__((weak));

static void on_trap(int number)
{
    (void)number;
    /* Where the trap comes from is known, and exit() is not running there. */
    if (__gcov_init)
        exit(STOPPED); /* NOLINT(bugprone-signal-handler,cert-sig30-c) */
    _exit(STOPPED);
}

bool hf_test_dies(void (*act)(void *arg), void *arg)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        (void)signal(SIGILL, on_trap);
        (void)signal(SIGTRAP, on_trap);
        act(arg);
        _exit(WENT_ON);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == STOPPED;
}
