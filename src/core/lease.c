#include "core/lease.h"

/* A taken lease stays in the heap, with a key that is never due. Its deadline
 * is not needed any more, because it has passed. */
#define TAKEN HF_NEVER
#define DEADLINE_MAX (HF_NEVER - 1)
#define LONG_AGO 0

void hf_leases_fini(struct hf_leases *leases)
{
    hf_heap_fini(&leases->heap);
    leases->taken = 0;
}

enum hf_err hf_leases_reserve(struct hf_leases *leases)
{
    return hf_heap_reserve(&leases->heap, leases->heap.count + 1);
}

static bool is_taken(const struct hf_leases *leases,
                     const struct hf_lease *lease)
{
    return hf_heap_key(&leases->heap, &lease->link) == TAKEN;
}

void hf_leases_set(struct hf_leases *leases, struct hf_lease *lease,
                   hf_time deadline)
{
    if (deadline > DEADLINE_MAX)
        deadline = DEADLINE_MAX;
    if (hf_heap_has(&lease->link)) {
        if (is_taken(leases, lease))
            leases->taken--;
        else if (hf_heap_key(&leases->heap, &lease->link) >= deadline)
            return;
    }
    hf_heap_set(&leases->heap, &lease->link, deadline);
}

void hf_leases_drop(struct hf_leases *leases, struct hf_lease *lease)
{
    if (!hf_heap_has(&lease->link))
        return;
    if (is_taken(leases, lease))
        leases->taken--;
    /* hf_leases_reserve() reserves room for one more lease than there are.
     * After the drop there is one lease less, so lower the reservation, and
     * the array can shrink with the number of leases. */
    leases->heap.reserved = leases->heap.count;
    hf_heap_drop(&leases->heap, &lease->link);
}

struct hf_lease *hf_leases_take(struct hf_leases *leases, hf_time now)
{
    struct hf_heap_link *top = hf_heap_top(&leases->heap);
    hf_time deadline = hf_heap_top_key(&leases->heap);

    if (!top || deadline > now || deadline == TAKEN)
        return NULL;
    hf_heap_set(&leases->heap, top, TAKEN);
    leases->taken++;
    return HF_CONTAINER(top, struct hf_lease, link);
}

/* Moving a slot to the front changes only the slots before it, which this loop
 * has visited. */
void hf_leases_retry(struct hf_leases *leases)
{
    for (size_t i = 0; leases->taken > 0; i++) {
        if (leases->heap.slots[i].key != TAKEN)
            continue;
        hf_heap_set(&leases->heap, leases->heap.slots[i].link, LONG_AGO);
        leases->taken--;
    }
}

hf_time hf_leases_deadline(const struct hf_leases *leases,
                           const struct hf_lease *lease)
{
    if (!hf_heap_has(&lease->link))
        return HF_NEVER;
    return is_taken(leases, lease) ? LONG_AGO
                                   : hf_heap_key(&leases->heap, &lease->link);
}
