#include "strategy/mongo/in_doubt.h"

#include <stdlib.h>

#define IN_DOUBT_MAX 4096

struct entry {
    struct hf_dlist link;
    struct hf_nonce nonce;
    unsigned copies; /* copies of the LOCK that may still reach a server */
};

static struct entry *in_doubt_entry_of(struct hf_dlist *link)
{
    return HF_CONTAINER(link, struct entry, link);
}

void hf_mongo_in_doubt_init(struct hf_mongo_in_doubt *in_doubt)
{
    hf_dlist_init(&in_doubt->list);
}

void hf_mongo_in_doubt_fini(struct hf_mongo_in_doubt *in_doubt)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&in_doubt->list)))
        free(in_doubt_entry_of(link));
}

static struct entry *find_entry(const struct hf_mongo_in_doubt *in_doubt,
                                const struct hf_nonce *nonce)
{
    for (struct hf_dlist *link = in_doubt->list.next; link != &in_doubt->list;
         link = link->next)
        if (hf_nonce_equal(&in_doubt_entry_of(link)->nonce, nonce))
            return in_doubt_entry_of(link);
    return NULL;
}

static void remove_entry(struct hf_mongo_in_doubt *in_doubt,
                         struct entry *entry)
{
    hf_dlist_remove(&entry->link);
    in_doubt->count--;
    free(entry);
}

static struct entry *add_entry(struct hf_mongo_in_doubt *in_doubt,
                               const struct hf_nonce *nonce)
{
    struct entry *entry = calloc(1, sizeof(*entry));

    if (!entry)
        return NULL;
    if (in_doubt->count >= IN_DOUBT_MAX) /* make room: forget the oldest */
        remove_entry(in_doubt, in_doubt_entry_of(in_doubt->list.next));
    entry->nonce = *nonce;
    hf_dlist_push_back(&in_doubt->list, &entry->link);
    in_doubt->count++;
    return entry;
}

bool hf_mongo_in_doubt_has(const struct hf_mongo_in_doubt *in_doubt,
                           const struct hf_nonce *nonce)
{
    return find_entry(in_doubt, nonce) != NULL;
}

void hf_mongo_in_doubt_add(struct hf_mongo_in_doubt *in_doubt,
                           const struct hf_nonce *nonce)
{
    struct entry *entry = find_entry(in_doubt, nonce);

    if (!entry)
        entry = add_entry(in_doubt, nonce);
    if (entry)
        entry->copies++;
}

void hf_mongo_in_doubt_resolve(struct hf_mongo_in_doubt *in_doubt,
                               const struct hf_nonce *nonce)
{
    struct entry *entry = find_entry(in_doubt, nonce);

    if (entry && --entry->copies == 0)
        remove_entry(in_doubt, entry);
}

void hf_mongo_in_doubt_remove(struct hf_mongo_in_doubt *in_doubt,
                              const struct hf_nonce *nonce)
{
    struct entry *entry = find_entry(in_doubt, nonce);

    if (entry)
        remove_entry(in_doubt, entry);
}
