/* claims.c - claims that wait in the queue of a key, by nonce.
 *
 * A grant comes with an age: how long the claim had waited when the leader
 * submitted the command that granted the key, counted from when the leader
 * applied the LOCK. The leader applied the LOCK after its *first* copy was
 * sent, but perhaps before the other copies were. So the lease did not start
 * before the time of the first copy plus the age (struct hf_anchor). */
#include <stdlib.h>

#include "strategy/raft/raft.h"

struct hf_raft_claim {
    struct hf_map_link by_nonce;
    struct hf_nonce nonce;
    hf_time first_sent;
};

static struct hf_raft_claim *find_claim(const struct hf_raft *raft,
                                        const struct hf_nonce *nonce)
{
    struct hf_map_link *link =
        hf_map_find(&raft->claims, hf_nonce_own_hash(nonce));

    for (; link; link = hf_map_find_next(link)) {
        struct hf_raft_claim *claim =
            HF_CONTAINER(link, struct hf_raft_claim, by_nonce);

        if (hf_nonce_equal(&claim->nonce, nonce))
            return claim;
    }
    return NULL;
}

/* If memory is exhausted, the grant will have no anchor. Then the client has to
 * assume that the lease began when the LOCK was first sent, and may renew the
 * lock before it reports the grant. */
void hf_raft_claims_add(struct hf_raft *raft, const struct hf_nonce *nonce,
                        hf_time first_sent)
{
    struct hf_raft_claim *claim = find_claim(raft, nonce);

    if (claim)
        return; /* an earlier LOCK of this claim was queued */
    claim = calloc(1, sizeof(*claim));
    if (!claim)
        return;
    claim->nonce = *nonce;
    claim->first_sent = first_sent;
    hf_map_insert(&raft->claims, &claim->by_nonce, hf_nonce_own_hash(nonce));
}

hf_time hf_raft_claims_find(const struct hf_raft *raft,
                            const struct hf_nonce *nonce)
{
    const struct hf_raft_claim *claim = find_claim(raft, nonce);

    return claim ? claim->first_sent : HF_NEVER;
}

void hf_raft_claims_remove(struct hf_raft *raft, const struct hf_nonce *nonce)
{
    struct hf_raft_claim *claim = find_claim(raft, nonce);

    if (!claim)
        return;
    hf_map_remove(&raft->claims, &claim->by_nonce);
    free(claim);
}

/* The grant may arrive before the reply to its LOCK. */
void hf_raft_claims_on_grant(struct hf_raft *raft,
                             const struct hf_mux_push *push)
{
    hf_time sent = hf_raft_claims_find(raft, &push->nonce);
    struct hf_push_grant grant = {
        .nonce = push->nonce,
        .token = push->token,
    };

    if (sent == HF_NEVER)
        sent = hf_raft_requests_find_lock(raft, &push->nonce);
    if (sent != HF_NEVER)
        grant.anchor = hf_raft_anchor(sent, push->age_ms);
    hf_raft_claims_remove(raft, &push->nonce);
    raft->net.host->ops->grant(raft->net.host, &grant);
}

void hf_raft_claims_nudge(struct hf_raft *raft)
{
    struct hf_map_link *link = NULL;

    while ((link = hf_map_next(&raft->claims, link)))
        raft->net.host->ops->nudge(
            raft->net.host,
            &HF_CONTAINER(link, struct hf_raft_claim, by_nonce)->nonce);
}

void hf_raft_claims_fini(struct hf_raft *raft)
{
    struct hf_map_link *link = hf_map_next(&raft->claims, NULL);

    while (link) {
        struct hf_raft_claim *claim =
            HF_CONTAINER(link, struct hf_raft_claim, by_nonce);

        link = hf_map_next(&raft->claims, link);
        free(claim);
    }
    hf_map_fini(&raft->claims);
}
