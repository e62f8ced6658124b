/* heap.h - what comes first: a binary heap of instants.
 *
 * Links are embedded in what they belong to; the heap owns only its array,
 * which shrinks again. Room is made ahead by hf_heap_reserve(), the one call
 * that can fail. */
#ifndef HF_BASE_HEAP_H
#define HF_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/container.h"
#include "base/error.h"
#include "base/time.h"

struct hf_heap_link {
    size_t position; /* in the array, from 1; 0: in no heap */
};

struct hf_heap_slot {
    hf_time key;
    struct hf_heap_link *link;
};

struct hf_heap {
    struct hf_heap_slot *slots;
    size_t count;
    size_t capacity;
    size_t reserved; /* the array never shrinks below this */
};

/* A zeroed heap is an empty one. */
void hf_heap_fini(struct hf_heap *heap);

/* Keep room for `count` links in all, until told another number. */
enum hf_err hf_heap_reserve(struct hf_heap *heap, size_t count);

/* Add `link`, or move it if it is here. There must be room. */
void hf_heap_set(struct hf_heap *heap, struct hf_heap_link *link, hf_time key);

/* Take it out; nothing happens if it is not here. */
void hf_heap_drop(struct hf_heap *heap, struct hf_heap_link *link);

static inline bool hf_heap_has(const struct hf_heap_link *link)
{
    return link->position != 0;
}

/* The earliest link, or NULL, and its key, or HF_NEVER. */
static inline struct hf_heap_link *hf_heap_top(const struct hf_heap *heap)
{
    return heap->count > 0 ? heap->slots[0].link : NULL;
}

static inline hf_time hf_heap_top_key(const struct hf_heap *heap)
{
    return heap->count > 0 ? heap->slots[0].key : HF_NEVER;
}

/* The key of a link that is here. */
static inline hf_time hf_heap_key(const struct hf_heap *heap,
                                  const struct hf_heap_link *link)
{
    return heap->slots[link->position - 1].key;
}

#endif
