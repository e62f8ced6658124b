/* lease.h - when leases expire: a heap of deadlines.
 *
 * The lock table has no clock, so its driver keeps the deadlines here. Pure:
 * the caller passes `now`, so a test or a replay can pass any instant. Leases
 * are embedded in the objects they belong to; the heap owns none of them.
 *
 * Always true:
 *   1. a lease never expires early, and expires once;
 *   2. a later deadline replaces an earlier deadline, never the reverse. */
#ifndef HF_CORE_LEASE_H
#define HF_CORE_LEASE_H

#include "base/error.h"
#include "base/heap.h"
#include "base/time.h"

struct hf_lease {
    struct hf_heap_link link;
};

struct hf_leases {
    struct hf_heap heap; /* earliest first */
};

/* A zeroed struct has no leases: there is no hf_leases_init(). */
void hf_leases_fini(struct hf_leases *leases);

/* Make room for one more lease. Call this before hf_leases_set() adds a
 * lease. */
enum hf_err hf_leases_reserve(struct hf_leases *leases);

/* Let `lease` expire at `deadline`, unless it expires later already. */
void hf_leases_set(struct hf_leases *leases, struct hf_lease *lease,
                   hf_time deadline);

/* Remove `lease`; does nothing if it has no deadline. */
void hf_leases_drop(struct hf_leases *leases, struct hf_lease *lease);

/* A lease whose deadline has passed, the earliest first; NULL if there is none.
 * The lease stays in the heap until the caller drops it. */
struct hf_lease *hf_leases_due(const struct hf_leases *leases, hf_time now);

/* The earliest deadline; HF_NEVER if there is no lease. */
hf_time hf_leases_next_deadline(const struct hf_leases *leases);

/* The deadline of `lease`; HF_NEVER if it has none. */
hf_time hf_leases_deadline(const struct hf_leases *leases,
                           const struct hf_lease *lease);

#endif
