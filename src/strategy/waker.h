/* waker.h - wake the thread that drives a client.
 *
 * hf_host_ops.post returns a waker. The caller wakes it once it has unlocked
 * the mutexes that the woken thread will lock. By then the client may be freed,
 * so wakers are reference-counted. Any thread may call these functions. */
#ifndef HF_STRATEGY_WAKER_H
#define HF_STRATEGY_WAKER_H

#include <stdatomic.h>
#include <stdbool.h>

struct hf_waker {
    atomic_uint references;
    atomic_bool signaled; /* set from hf_waker_wake() to hf_waker_clear() */
    int fd;
};

/* Returns NULL if memory is exhausted. `fd` is -1 if no descriptor is
 * available. */
struct hf_waker *hf_waker_new(void);

/* Add a reference for the thread that will call hf_waker_wake(). */
struct hf_waker *hf_waker_ref(struct hf_waker *waker);
void hf_waker_unref(struct hf_waker *waker);

/* Wake the client and drop the reference. */
void hf_waker_wake(struct hf_waker *waker);

/* Reset the waker. Threads post before they wake, so the client must check its
 * posts after this call, not before. */
void hf_waker_clear(struct hf_waker *waker);

#endif
