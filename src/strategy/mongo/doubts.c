#include "strategy/mongo/doubts.h"

#include <stdlib.h>

#define DOUBTS_MAX 4096

struct doubt {
    struct hf_list link;
    struct hf_nonce nonce;
    unsigned copies;
};

static struct doubt *doubt_of(struct hf_list *link)
{
    return HF_CONTAINER(link, struct doubt, link);
}

void hf_mongo_doubts_init(struct hf_mongo_doubts *doubts)
{
    hf_list_init(&doubts->list);
}

void hf_mongo_doubts_fini(struct hf_mongo_doubts *doubts)
{
    struct hf_list *link;

    while ((link = hf_list_take(&doubts->list)))
        free(doubt_of(link));
}

static struct doubt *find(const struct hf_mongo_doubts *doubts,
                          const struct hf_nonce *nonce)
{
    for (struct hf_list *link = doubts->list.next; link != &doubts->list;
         link = link->next)
        if (hf_nonce_equal(&doubt_of(link)->nonce, nonce))
            return doubt_of(link);
    return NULL;
}

static void drop(struct hf_mongo_doubts *doubts, struct doubt *doubt)
{
    hf_list_remove(&doubt->link);
    doubts->count--;
    free(doubt);
}

static struct doubt *add(struct hf_mongo_doubts *doubts,
                         const struct hf_nonce *nonce)
{
    struct doubt *doubt = calloc(1, sizeof(*doubt));

    if (!doubt)
        return NULL;
    if (doubts->count >= DOUBTS_MAX)
        drop(doubts, doubt_of(doubts->list.next));
    doubt->nonce = *nonce;
    hf_list_push_back(&doubts->list, &doubt->link);
    doubts->count++;
    return doubt;
}

bool hf_mongo_doubts_has(const struct hf_mongo_doubts *doubts,
                         const struct hf_nonce *nonce)
{
    return find(doubts, nonce) != NULL;
}

void hf_mongo_doubts_add(struct hf_mongo_doubts *doubts,
                         const struct hf_nonce *nonce)
{
    struct doubt *doubt = find(doubts, nonce);

    if (!doubt)
        doubt = add(doubts, nonce);
    if (doubt)
        doubt->copies++;
}

void hf_mongo_doubts_settle(struct hf_mongo_doubts *doubts,
                            const struct hf_nonce *nonce)
{
    struct doubt *doubt = find(doubts, nonce);

    if (doubt && --doubt->copies == 0)
        drop(doubts, doubt);
}

void hf_mongo_doubts_drop(struct hf_mongo_doubts *doubts,
                          const struct hf_nonce *nonce)
{
    struct doubt *doubt = find(doubts, nonce);

    if (doubt)
        drop(doubts, doubt);
}
