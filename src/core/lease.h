/* lease.h - which leases end when: a heap of deadlines.
 *
 * For whoever drives the table, which itself has no instants. Pure: the caller
 * passes `now`, so a test or a replay can pass any instant. Leases are
 * embedded in what they belong to, and the heap owns nothing.
 *
 * Always true:
 *   1. a lease never ends early, and ends once;
 *   2. a later deadline replaces an earlier one, never the other way. */
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

/* Zeroed leases are empty ones. */
void hf_leases_fini(struct hf_leases *leases);

/* Make room for one more, so that the next hf_leases_set() cannot fail. */
enum hf_err hf_leases_reserve(struct hf_leases *leases);

/* End `lease` at `deadline`, or leave it if it ends later already. */
void hf_leases_set(struct hf_leases *leases, struct hf_lease *lease,
                   hf_time deadline);

/* Forget `lease`; nothing happens if it is not here. */
void hf_leases_drop(struct hf_leases *leases, struct hf_lease *lease);

/* The lease that ends first, if its deadline has come, or NULL. It stays
 * until it is dropped. */
struct hf_lease *hf_leases_due(const struct hf_leases *leases, hf_time now);

/* When to look again; HF_NEVER if nothing is held. */
hf_time hf_leases_next_deadline(const struct hf_leases *leases);

/* When `lease` ends; HF_NEVER if it is not here. */
hf_time hf_leases_deadline(const struct hf_leases *leases,
                           const struct hf_lease *lease);

#endif
