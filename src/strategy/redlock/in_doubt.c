/* in_doubt.c - where a lock may be held by another token than its own. */
#include <stdlib.h>

#include "strategy/redlock/redlock.h"

/* A server that was asked before the token was known, and has not answered or
 * has given another: there the lock is given back by its nonce alone. */
struct in_doubt {
    struct hf_dlist link;
    struct hf_nonce nonce;
    unsigned servers; /* bits */
};

unsigned hf_redlock_in_doubt_take(struct hf_redlock *redlock,
                                  const struct hf_nonce *nonce)
{
    unsigned servers = 0;
    struct hf_dlist *link = redlock->in_doubt.next;

    while (link != &redlock->in_doubt) {
        struct in_doubt *entry = HF_CONTAINER(link, struct in_doubt, link);

        link = link->next;
        if (!hf_nonce_equal(&entry->nonce, nonce))
            continue;
        servers |= entry->servers;
        hf_dlist_remove(&entry->link);
        free(entry);
    }
    return servers;
}

void hf_redlock_in_doubt_add(const struct hf_redlock_vote *vote)
{
    struct in_doubt *entry;
    unsigned servers = 0;

    for (unsigned i = 0; i < vote->redlock->count; i++) {
        const struct hf_redlock_ballot *ballot = &vote->ballots[i];

        if (ballot->is_sent && ballot->without_token && !ballot->has_granted)
            servers |= 1u << i;
    }
    if (servers == 0)
        return;
    servers |= hf_redlock_in_doubt_take(vote->redlock, &vote->command.nonce);
    entry = calloc(1, sizeof(*entry));
    if (!entry)
        return; /* it ends with its lease */
    entry->nonce = vote->command.nonce;
    entry->servers = servers;
    hf_dlist_push_back(&vote->redlock->in_doubt, &entry->link);
}

void hf_redlock_in_doubt_fini(struct hf_redlock *redlock)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&redlock->in_doubt)))
        free(HF_CONTAINER(link, struct in_doubt, link));
}
