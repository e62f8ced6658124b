#include "base/ring.h"

#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 16

void hf_ring_fini(struct hf_ring *ring)
{
    free(ring->slots);
    *ring = (struct hf_ring){0};
}

enum hf_err hf_ring_reserve(struct hf_ring *ring, size_t size)
{
    size_t capacity = ring->capacity > 0 ? ring->capacity * 2 : CAPACITY_MIN;
    uint8_t *slots;

    if (ring->count < ring->capacity)
        return HF_OK;
    slots = malloc(capacity * size);
    if (!slots)
        return HF_ENOMEM;
    for (size_t i = 0; i < ring->count; i++)
        memcpy(slots + i * size, hf_ring_at(ring, size, i), size);
    free(ring->slots);
    ring->slots = slots;
    ring->head = 0;
    ring->capacity = capacity;
    return HF_OK;
}
