/* tests/lib/death.c */
#include "lib/death.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STOPPED = 42,
    WENT_ON = 43,
};

/* There in a build that measures coverage: what a process has reached is
 * otherwise written when it exits, and this one does not. */
extern void __gcov_dump(void) __attribute__((weak));

static void on_trap(int number)
{
    (void)number;
    if (__gcov_dump)
        __gcov_dump();
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
