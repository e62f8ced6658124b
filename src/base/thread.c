#include "base/thread.h"

#include <signal.h>

/* Nesting depth and saved cancel state of this thread. With the default TLS
 * model of a shared library each access would be a function call, so use the
 * initial-exec model. */
static _Thread_local unsigned disable_depth
    __attribute__((tls_model("initial-exec")));
static _Thread_local int state_before
    __attribute__((tls_model("initial-exec")));

int hf_thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    int failed;

    /* Do not block SIGBUS, which file: handles: the kernel delivers SIGBUS to
     * the thread that caused it, and kills the process if that thread blocks
     * it. */
    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGBUS);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(thread, NULL, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

void hf_thread_disable_cancel(void)
{
    if (disable_depth++ == 0)
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state_before);
}

void hf_thread_restore_cancel(void)
{
    if (--disable_depth == 0)
        (void)pthread_setcancelstate(state_before, NULL);
}
