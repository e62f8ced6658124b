/* lease.h - when leases expire: a heap of deadlines.
 *
 * The lock table has no clock, so its driver keeps the deadlines here. Pure:
 * the caller passes `now`, so a test or a replay can pass any instant. Leases
 * are embedded in the objects they belong to; the heap owns none of them.
 *
 * A lease that is due is *taken* by its driver, which sends an EXPIRE. Until
 * the EXPIRE takes effect, the lease is not due again.
 *
 * Always true:
 *   1. a lease is never due early, and is taken once, unless it is extended or
 *      hf_leases_retry() is called;
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
    struct hf_heap heap; /* earliest first; taken leases last */
    size_t taken;        /* number of taken leases */
};

/* A zeroed struct has no leases: there is no hf_leases_init(). */
void hf_leases_fini(struct hf_leases *leases);

/* Make room for one more lease. Call this before hf_leases_set() adds a lease.
 * Can fail with HF_ENOMEM. */
enum hf_err hf_leases_reserve(struct hf_leases *leases);

/* Let `lease` expire at `deadline`, unless it expires later already. A lease
 * that was taken is no longer taken: it was extended before it expired. */
void hf_leases_set(struct hf_leases *leases, struct hf_lease *lease,
                   hf_time deadline);

/* Remove `lease`; does nothing if it has no deadline. */
void hf_leases_drop(struct hf_leases *leases, struct hf_lease *lease);

/* Take a lease whose deadline has passed, the earliest first; NULL if there is
 * none. The lease stays in the heap until the caller drops it. */
struct hf_lease *hf_leases_take(struct hf_leases *leases, hf_time now);

/* Make all taken leases due again, because their EXPIREs may be lost. */
void hf_leases_retry(struct hf_leases *leases);

/* The earliest deadline of the leases that are not taken; HF_NEVER if there is
 * none. */
static inline hf_time hf_leases_next_deadline(const struct hf_leases *leases)
{
    return hf_heap_top_key(&leases->heap);
}

/* The deadline of `lease`, or an earlier instant if it was taken; HF_NEVER if
 * it has none. */
hf_time hf_leases_deadline(const struct hf_leases *leases,
                           const struct hf_lease *lease);

#endif
