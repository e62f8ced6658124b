/* redlock_doubt.c - where a lock may be held by another token than its own. */
#include <stdlib.h>

#include "strategy/redis/redlock.h"

/* A server that was asked before the token was known, and has not answered or
 * has given another: there the lock is given back by its nonce alone. */
struct doubt {
    struct hf_list link;
    struct hf_nonce nonce;
    unsigned servers; /* bits */
};

unsigned hf_redlock_take_doubts(struct hf_redlock *redlock,
                                const struct hf_nonce *nonce)
{
    unsigned servers = 0;
    struct hf_list *link = redlock->doubts.next;

    while (link != &redlock->doubts) {
        struct doubt *doubt = HF_CONTAINER(link, struct doubt, link);

        link = link->next;
        if (!hf_nonce_equal(&doubt->nonce, nonce))
            continue;
        servers |= doubt->servers;
        hf_list_remove(&doubt->link);
        free(doubt);
    }
    return servers;
}

void hf_redlock_note_doubts(const struct hf_redlock_poll *poll)
{
    struct doubt *doubt;
    unsigned servers = 0;

    for (unsigned i = 0; i < poll->redlock->count; i++) {
        const struct hf_redlock_vote *vote = &poll->votes[i];

        if (vote->asked && vote->blind && !vote->sure)
            servers |= 1u << i;
    }
    if (servers == 0)
        return;
    servers |= hf_redlock_take_doubts(poll->redlock, &poll->command.nonce);
    doubt = calloc(1, sizeof(*doubt));
    if (!doubt)
        return; /* it ends with its lease */
    doubt->nonce = poll->command.nonce;
    doubt->servers = servers;
    hf_list_push_back(&poll->redlock->doubts, &doubt->link);
}

void hf_redlock_forget_doubts(struct hf_redlock *redlock)
{
    struct hf_list *link;

    while ((link = hf_list_take(&redlock->doubts)))
        free(HF_CONTAINER(link, struct doubt, link));
}
