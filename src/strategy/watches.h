/* watches.h - the watches of one client, as its strategy keeps them.
 *
 * A strategy's own struct begins with a struct hf_watch_entry. Callbacks of
 * hf_host_ops may remove any watch, so a strategy that walks over its watches
 * and calls the host on the way sets `busy` meanwhile: then removed entries are
 * skipped, and freed by the next sweep. */
#ifndef HF_STRATEGY_WATCHES_H
#define HF_STRATEGY_WATCHES_H

#include "base/dlist.h"
#include "strategy/strategy.h"

struct hf_watches {
    struct hf_dlist list; /* in the order in which they were added */
    bool busy;
};

struct hf_watch_entry {
    struct hf_dlist link;
    uint64_t number;   /* the client's, of the request */
    struct hf_key key; /* or prefix */
    bool exact;        /* of `key` alone */
    bool removed;
};

void hf_watches_init(struct hf_watches *watches);

/* Free all entries, as hf_watches_sweep() does. */
void hf_watches_fini(struct hf_watches *watches,
                     void (*on_free)(void *entry, void *arg), void *arg);
bool hf_watches_is_empty(const struct hf_watches *watches);

/* Add an entry of `size` bytes for a WATCH request: zeroed but for the members
 * above, and with a copy of the key. NULL: out of memory. */
void *hf_watches_add(struct hf_watches *watches,
                     const struct hf_request *request, size_t size);

/* The entry with that number, or NULL. */
void *hf_watches_find(const struct hf_watches *watches, uint64_t number);

/* Walk over the entries, from NULL until NULL. */
void *hf_watches_next(const struct hf_watches *watches, const void *entry);

/* Whether an event of `key` is for this watch. */
bool hf_watches_match(const struct hf_watch_entry *entry, struct hf_key key);

/* Remove an entry. It is freed by hf_watches_sweep(). */
void hf_watches_remove(struct hf_watch_entry *entry);

/* Free the entries that were removed, unless the list is busy. `on_free`, which
 * may be NULL, is called with each of them before. */
void hf_watches_sweep(struct hf_watches *watches,
                      void (*on_free)(void *entry, void *arg), void *arg);

#endif
