/* heap.h - an intrusive binary heap of instants, the earliest first.
 *
 * The heap owns only its array, which grows in hf_heap_reserve() and shrinks as
 * links are removed. hf_heap_reserve() is the only call that can fail: reserve
 * room for a link before adding it. */
#ifndef HF_BASE_HEAP_H
#define HF_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/container.h"
#include "base/error.h"
#include "base/time.h"

struct hf_heap_link {
    size_t position; /* in the array, counted from 1; 0: in no heap */
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

/* A zeroed struct is an empty heap: there is no hf_heap_init(). */
void hf_heap_fini(struct hf_heap *heap);

/* Ensure room for `count` links in total. The array does not shrink below this
 * size until the next call. On HF_ENOMEM the heap is unchanged. */
enum hf_err hf_heap_reserve(struct hf_heap *heap, size_t count);

/* Add `link` with the instant `key`, or change the key of a link that is in the
 * heap. A new link needs room: see hf_heap_reserve(). */
void hf_heap_set(struct hf_heap *heap, struct hf_heap_link *link, hf_time key);

/* Remove `link`; does nothing if it is not in the heap. */
void hf_heap_drop(struct hf_heap *heap, struct hf_heap_link *link);

static inline bool hf_heap_has(const struct hf_heap_link *link)
{
    return link->position != 0;
}

/* The link with the earliest key, or NULL if the heap is empty. */
static inline struct hf_heap_link *hf_heap_top(const struct hf_heap *heap)
{
    return heap->count > 0 ? heap->slots[0].link : NULL;
}

/* The earliest key, or HF_NEVER if the heap is empty. */
static inline hf_time hf_heap_top_key(const struct hf_heap *heap)
{
    return heap->count > 0 ? heap->slots[0].key : HF_NEVER;
}

/* The key of `link`, which must be in the heap. */
static inline hf_time hf_heap_key(const struct hf_heap *heap,
                                  const struct hf_heap_link *link)
{
    return heap->slots[link->position - 1].key;
}

#endif
