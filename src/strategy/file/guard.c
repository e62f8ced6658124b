#include "strategy/file/guard.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

/* The guarded mappings. An entry is reserved while its size is not 0, and
 * guards a mapping while its start is not 0. */
static struct {
    _Atomic uintptr_t start;
    _Atomic size_t size;
} ranges[HF_GUARDS_MAX];

static pthread_once_t handler_once = PTHREAD_ONCE_INIT;
static struct sigaction old_action;

static bool replace_mapping(uintptr_t address)
{
    for (size_t i = 0; i < HF_GUARDS_MAX; i++) {
        uintptr_t start = atomic_load(&ranges[i].start);
        size_t size = atomic_load(&ranges[i].size);

        if (start != 0 && address >= start && address - start < size)
            return mmap((void *)start, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                        0) != MAP_FAILED;
    }
    return false;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    if (replace_mapping((uintptr_t)info->si_addr))
        return;
    if (old_action.sa_flags & SA_SIGINFO) {
        old_action.sa_sigaction(number, info, context);
    } else if (old_action.sa_handler != SIG_DFL &&
               old_action.sa_handler != SIG_IGN) {
        old_action.sa_handler(number);
    } else {
        (void)signal(number, SIG_DFL);
        (void)raise(number);
    }
}

static void install_handler(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error,
                               .sa_flags = SA_SIGINFO | SA_RESTART};

    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGBUS, &action, &old_action);
}

enum hf_err hf_guard_add(void *start, size_t size)
{
    (void)pthread_once(&handler_once, install_handler);
    for (size_t i = 0; i < HF_GUARDS_MAX; i++) {
        size_t unused = 0;

        /* A nonzero size reserves the entry for this mapping. */
        if (atomic_compare_exchange_strong(&ranges[i].size, &unused, size)) {
            atomic_store(&ranges[i].start, (uintptr_t)start);
            return HF_OK;
        }
    }
    return HF_ELIMIT;
}

void hf_guard_remove(void *start)
{
    for (size_t i = 0; i < HF_GUARDS_MAX; i++) {
        if (atomic_load(&ranges[i].start) == (uintptr_t)start) {
            atomic_store(&ranges[i].start, 0);
            atomic_store(&ranges[i].size, 0);
            return;
        }
    }
}

void hf_guard_block_sigxfsz(sigset_t *mask)
{
    sigset_t large;

    (void)sigemptyset(&large);
    (void)sigaddset(&large, SIGXFSZ);
    (void)pthread_sigmask(SIG_BLOCK, &large, mask);
}

/* A SIGXFSZ that was raised meanwhile is pending for this thread. Consume it
 * before the mask is restored. If the program itself had blocked SIGXFSZ, leave
 * the signal to the program. */
void hf_guard_restore_sigxfsz(const sigset_t *mask)
{
    const struct timespec now = {0};
    int saved = errno;
    sigset_t large;

    (void)sigemptyset(&large);
    (void)sigaddset(&large, SIGXFSZ);
    if (sigismember(mask, SIGXFSZ) == 0)
        (void)sigtimedwait(&large, NULL, &now);
    (void)pthread_sigmask(SIG_SETMASK, mask, NULL);
    errno = saved;
}
