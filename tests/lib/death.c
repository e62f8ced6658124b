#include "lib/death.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STOPPED = 42,
    RETURNED = 43,
};

/* Defined in a coverage build, where exit() writes the counts, and _exit()
 * would lose them. */
extern void __gcov_init(void *about) __attribute__((weak));

static void on_trap(int number)
{
    (void)number;
    /* The trap comes from HF_ASSERT, so exit() is safe here. */
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
        _exit(RETURNED);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == STOPPED;
}
