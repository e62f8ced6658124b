/* in_doubt.c - servers that may hold a lock with a token other than that
 * of the vote. */
#include <stdlib.h>

#include "strategy/redlock/redlock.h"

/* The servers that were sent the LOCK of `nonce` before its token was known,
 * and whose grant of that token has not arrived. Such a server may have granted
 * another token. An UNLOCK with the token of the vote would miss that grant, so
 * these servers get a CANCEL, which needs only the nonce. */
struct in_doubt {
    struct hf_dlist link;
    struct hf_nonce nonce;
    unsigned servers; /* a bit is set for each server in doubt */
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
        return; /* a grant of another token ends with its lease */
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
