#include "strategy/watches.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/bytes.h"

static struct hf_watch_entry *entry_of(const struct hf_dlist *link)
{
    return HF_CONTAINER(link, struct hf_watch_entry, link);
}

void hf_watches_init(struct hf_watches *watches)
{
    *watches = (struct hf_watches){.busy = false};
    hf_dlist_init(&watches->list);
}

bool hf_watches_is_empty(const struct hf_watches *watches)
{
    return hf_dlist_is_empty(&watches->list);
}

void *hf_watches_add(struct hf_watches *watches,
                     const struct hf_request *request, size_t size)
{
    struct hf_key key = request->command.key;
    struct hf_watch_entry *entry = calloc(1, size + key.size);
    uint8_t *copy;

    HF_ASSERT(size >= sizeof(*entry));
    if (!entry)
        return NULL;
    copy = (uint8_t *)entry + size;
    hf_copy(copy, key.data, key.size);
    entry->key = (struct hf_key){copy, key.size};
    entry->number = request->watch;
    entry->exact = request->exact;
    hf_dlist_push_back(&watches->list, &entry->link);
    return entry;
}

void *hf_watches_next(const struct hf_watches *watches, const void *entry)
{
    const struct hf_watch_entry *before = entry;
    const struct hf_dlist *link = before ? &before->link : &watches->list;

    for (link = link->next; link != &watches->list; link = link->next) {
        if (!entry_of(link)->removed)
            return entry_of(link);
    }
    return NULL;
}

void *hf_watches_find(const struct hf_watches *watches, uint64_t number)
{
    struct hf_watch_entry *entry = hf_watches_next(watches, NULL);

    while (entry && entry->number != number)
        entry = hf_watches_next(watches, entry);
    return entry;
}

bool hf_watches_match(const struct hf_watch_entry *entry, struct hf_key key)
{
    if (entry->removed)
        return false;
    return entry->exact ? hf_key_equal(key, entry->key)
                        : hf_key_has_prefix(key, entry->key);
}

void hf_watches_remove(struct hf_watch_entry *entry)
{
    entry->removed = true;
}

void hf_watches_sweep(struct hf_watches *watches,
                      void (*on_free)(void *entry, void *arg), void *arg)
{
    struct hf_dlist *link = watches->list.next;

    while (!watches->busy && link != &watches->list) {
        struct hf_watch_entry *entry = entry_of(link);

        link = link->next;
        if (!entry->removed)
            continue;
        hf_dlist_remove(&entry->link);
        if (on_free)
            on_free(entry, arg);
        free(entry);
    }
}

void hf_watches_fini(struct hf_watches *watches,
                     void (*on_free)(void *entry, void *arg), void *arg)
{
    struct hf_watch_entry *entry = NULL;

    while ((entry = hf_watches_next(watches, entry)))
        hf_watches_remove(entry);
    watches->busy = false;
    hf_watches_sweep(watches, on_free, arg);
}
