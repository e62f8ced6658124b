#include "base/heap.h"

#include <stdlib.h>

#include "base/assert.h"

#define CAPACITY_MIN 8

void hf_heap_fini(struct hf_heap *heap)
{
    free(heap->slots);
    *heap = (struct hf_heap){0};
}

/* Halve the array when at most a quarter of it is used, but keep the reserved
 * slots. If realloc() fails, the array just stays larger than necessary. */
static void shrink_heap(struct hf_heap *heap)
{
    size_t capacity = heap->capacity / 2;
    struct hf_heap_slot *slots;

    if (capacity < CAPACITY_MIN || capacity < heap->reserved ||
        heap->count > capacity / 2)
        return;
    slots = realloc(heap->slots, capacity * sizeof(*slots));
    if (!slots)
        return;
    heap->slots = slots;
    heap->capacity = capacity;
}

enum hf_err hf_heap_reserve(struct hf_heap *heap, size_t count)
{
    size_t capacity = heap->capacity > 0 ? heap->capacity : CAPACITY_MIN;
    struct hf_heap_slot *slots;

    if (count <= heap->capacity) {
        heap->reserved = count;
        shrink_heap(heap);
        return HF_OK;
    }
    while (capacity < count)
        capacity *= 2;
    slots = realloc(heap->slots, capacity * sizeof(*slots));
    if (!slots)
        return HF_ENOMEM;
    heap->slots = slots;
    heap->capacity = capacity;
    heap->reserved = count;
    return HF_OK;
}

static void put_slot(struct hf_heap *heap, size_t at, struct hf_heap_slot slot)
{
    heap->slots[at] = slot;
    slot.link->position = at + 1;
}

/* Put `slot` into the free position `at`, then move it up or down until the
 * heap is ordered. */
static void sift_slot(struct hf_heap *heap, size_t at, struct hf_heap_slot slot)
{
    while (at > 0 && slot.key < heap->slots[(at - 1) / 2].key) {
        put_slot(heap, at, heap->slots[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * at + 1;

        if (child + 1 < heap->count &&
            heap->slots[child + 1].key < heap->slots[child].key)
            child++;
        if (child >= heap->count || slot.key <= heap->slots[child].key)
            break;
        put_slot(heap, at, heap->slots[child]);
        at = child;
    }
    put_slot(heap, at, slot);
}

void hf_heap_set(struct hf_heap *heap, struct hf_heap_link *link, hf_time key)
{
    struct hf_heap_slot slot = {key, link};

    if (!hf_heap_has(link)) {
        HF_ASSERT(heap->count < heap->capacity);
        link->position = ++heap->count;
        heap->slots[link->position - 1] = slot;
    }
    sift_slot(heap, link->position - 1, slot);
}

void hf_heap_drop(struct hf_heap *heap, struct hf_heap_link *link)
{
    size_t at = link->position - 1;

    if (!hf_heap_has(link))
        return;
    link->position = 0;
    heap->count--;
    if (at < heap->count)
        sift_slot(heap, at, heap->slots[heap->count]);
    shrink_heap(heap);
}
