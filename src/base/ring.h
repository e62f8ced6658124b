/* ring.h - a queue of elements of one size, in an array that grows.
 *
 * The caller passes the size of an element to each call; wrap the calls in
 * functions that have the type. hf_ring_reserve() is the only call that can
 * fail: reserve room for an element before adding it. The array is freed by
 * hf_ring_fini() only. */
#ifndef HF_BASE_RING_H
#define HF_BASE_RING_H

#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/error.h"

struct hf_ring {
    uint8_t *slots;
    size_t head;     /* slot of the first element */
    size_t count;    /* elements */
    size_t capacity; /* slots: 0, or a power of two */
};

/* A zeroed struct is an empty ring: there is no hf_ring_init(). */
void hf_ring_fini(struct hf_ring *ring);

/* Ensure room for one element more. On HF_ENOMEM the ring is unchanged. */
enum hf_err hf_ring_reserve(struct hf_ring *ring, size_t size);

/* The element `i`; 0 is the first one. The pointer is valid until the next
 * hf_ring_reserve(). */
static inline void *hf_ring_at(const struct hf_ring *ring, size_t size,
                               size_t i)
{
    HF_ASSERT(i < ring->count);
    return ring->slots + ((ring->head + i) & (ring->capacity - 1)) * size;
}

/* Append an element, and return it for the caller to fill in. It needs room:
 * see hf_ring_reserve(). */
static inline void *hf_ring_push(struct hf_ring *ring, size_t size)
{
    HF_ASSERT(ring->count < ring->capacity);
    ring->count++;
    return hf_ring_at(ring, size, ring->count - 1);
}

/* Remove the first element. */
static inline void hf_ring_drop_first(struct hf_ring *ring)
{
    HF_ASSERT(ring->count > 0);
    ring->head = (ring->head + 1) & (ring->capacity - 1);
    ring->count--;
}

/* Remove the last element. */
static inline void hf_ring_drop_last(struct hf_ring *ring)
{
    HF_ASSERT(ring->count > 0);
    ring->count--;
}

/* Remove all elements. */
static inline void hf_ring_clear(struct hf_ring *ring)
{
    ring->head = ring->count = 0;
}

#endif
