#include "core/lease.h"

void hf_leases_fini(struct hf_leases *leases)
{
    hf_heap_fini(&leases->heap);
}

enum hf_err hf_leases_reserve(struct hf_leases *leases)
{
    return hf_heap_reserve(&leases->heap, leases->heap.count + 1);
}

void hf_leases_set(struct hf_leases *leases, struct hf_lease *lease,
                   hf_time deadline)
{
    if (hf_heap_has(&lease->link) &&
        hf_heap_key(&leases->heap, &lease->link) >= deadline)
        return;
    hf_heap_set(&leases->heap, &lease->link, deadline);
}

void hf_leases_drop(struct hf_leases *leases, struct hf_lease *lease)
{
    if (!hf_heap_has(&lease->link))
        return;
    /* hf_leases_reserve() reserves room for one more lease than exist. One
     * lease less exists after the drop, so lower the reservation, and the array
     * can shrink with the number of leases. */
    leases->heap.reserved = leases->heap.count;
    hf_heap_drop(&leases->heap, &lease->link);
}

struct hf_lease *hf_leases_due(const struct hf_leases *leases, hf_time now)
{
    struct hf_heap_link *top = hf_heap_top(&leases->heap);

    if (!top || hf_heap_top_key(&leases->heap) > now)
        return NULL;
    return HF_CONTAINER(top, struct hf_lease, link);
}

hf_time hf_leases_next_deadline(const struct hf_leases *leases)
{
    return hf_heap_top_key(&leases->heap);
}

hf_time hf_leases_deadline(const struct hf_leases *leases,
                           const struct hf_lease *lease)
{
    if (!hf_heap_has(&lease->link))
        return HF_NEVER;
    return hf_heap_key(&leases->heap, &lease->link);
}
