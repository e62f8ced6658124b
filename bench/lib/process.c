#include "lib/process.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/bench.h"

#define CHECK_S 1 /* seconds between checks for failed children at a gate */

void *bench_share(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        bench_fail("out of memory");
    return memory;
}

/* ---- Children -----------------------------------------------------------*/

static struct {
    pid_t parent;
    pid_t pids[BENCH_CHILDREN_MAX];
    size_t count;
} children;

static void forget_child(pid_t pid)
{
    size_t i = 0;

    while (i < children.count && children.pids[i] != pid)
        i++;
    if (i < children.count)
        children.pids[i] = children.pids[--children.count];
}

/* Runs at exit, before the temporary folder that the children use is
 * removed. */
static void kill_children(void)
{
    if (getpid() != children.parent) /* children kill no siblings */
        return;
    for (size_t i = 0; i < children.count; i++)
        (void)kill(children.pids[i], SIGKILL);
    while (wait(NULL) > 0)
        continue;
}

pid_t bench_start(void (*run)(void *arg), void *arg)
{
    pid_t parent = getpid();
    pid_t child;

    if (children.count >= BENCH_CHILDREN_MAX)
        bench_fail("too many children");
    if (!children.parent && atexit(kill_children))
        bench_fail("atexit");
    children.parent = parent;
    child = fork();
    if (child < 0)
        bench_fail("cannot start a process");
    if (child > 0) {
        children.pids[children.count++] = child;
        return child;
    }
    /* The kernel sends the signal only if the parent dies after this call, so
     * check that the parent has not died before. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
        _exit(1);
    run(arg);
    _exit(0);
}

static void reap_children(int options)
{
    int status = 0;
    pid_t child;

    do {
        child = waitpid(-1, &status, options);
        if (child > 0)
            forget_child(child);
        if (child > 0 && status != 0)
            bench_fail("a child failed");
    } while (child > 0 || (child < 0 && errno == EINTR));
}

void bench_check_children(void)
{
    reap_children(WNOHANG);
}

void bench_join_children(void)
{
    reap_children(0);
}

/* ---- Gates --------------------------------------------------------------*/

void bench_gate_open(struct bench_gate *gate)
{
    atomic_fetch_add(&gate->count, 1);
    (void)syscall(SYS_futex, &gate->count, FUTEX_WAKE, INT_MAX);
}

void bench_gate_wait(struct bench_gate *gate, unsigned count)
{
    const struct timespec timeout = {.tv_sec = CHECK_S};
    unsigned seen;

    while ((seen = atomic_load(&gate->count)) < count) {
        (void)syscall(SYS_futex, &gate->count, FUTEX_WAIT, seen, &timeout);
        bench_check_children();
    }
}
