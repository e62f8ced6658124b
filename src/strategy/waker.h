/* waker.h - wakes a client that sleeps.
 *
 * It is rung once every lock is dropped, because who is woken wants them; by
 * then the client may be gone, so it is counted. Any thread may call these. */
#ifndef HF_STRATEGY_WAKER_H
#define HF_STRATEGY_WAKER_H

#include <stdatomic.h>
#include <stdbool.h>

struct hf_waker {
    atomic_uint references;
    atomic_bool signaled; /* until the client has heard it */
    int fd;
};

/* NULL: no memory. Its descriptor is -1 where none can be had. */
struct hf_waker *hf_waker_new(void);

/* One more reference, for who is to ring it. */
struct hf_waker *hf_waker_ref(struct hf_waker *waker);
void hf_waker_unref(struct hf_waker *waker);

/* Ring, and give the reference back. */
void hf_waker_wake(struct hf_waker *waker);

/* It has rung. Whoever rang has posted before: look at the posts after this. */
void hf_waker_clear(struct hf_waker *waker);

#endif
