#include "strategy/waker.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"

struct hf_waker *hf_waker_new(void)
{
    struct hf_waker *waker = malloc(sizeof(*waker));

    if (!waker)
        return NULL;
    atomic_init(&waker->references, 1);
    atomic_init(&waker->signaled, false);
    waker->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return waker;
}

void hf_waker_unref(struct hf_waker *waker)
{
    if (atomic_fetch_sub(&waker->references, 1) > 1)
        return;
    (void)close(waker->fd);
    free(waker);
}

struct hf_waker *hf_waker_ref(struct hf_waker *waker)
{
    atomic_fetch_add(&waker->references, 1);
    return waker;
}

void hf_waker_wake(struct hf_waker *waker)
{
    uint64_t one = 1;

    /* One write is enough until hf_waker_clear(). The counter is at most 1, so
     * the write does not fail with EAGAIN. */
    if (!atomic_exchange(&waker->signaled, true) &&
        write(waker->fd, &one, sizeof(one)) < 0)
        atomic_store(&waker->signaled, false);
    hf_waker_unref(waker);
}

void hf_waker_clear(struct hf_waker *waker)
{
    uint64_t count;

    if (read(waker->fd, &count, sizeof(count)) < 0)
        HF_ASSERT(errno == EAGAIN || errno == EINTR);
    atomic_store(&waker->signaled, false);
}
