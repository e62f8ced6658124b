/* watches.h - the list of a client's watches, for strategies.
 *
 * A strategy embeds a struct hf_watch_entry at the start of its own struct.
 * Functions of hf_host_ops may remove watches, so a strategy that calls them
 * while it iterates over the list sets `busy` meanwhile. While `busy` is set,
 * removed entries are skipped but not freed; the next hf_watches_sweep() frees
 * them. */
#ifndef HF_STRATEGY_WATCHES_H
#define HF_STRATEGY_WATCHES_H

#include "base/dlist.h"
#include "strategy/strategy.h"

struct hf_watches {
    struct hf_dlist list; /* entries; the strategy may change their order */
    bool busy;            /* the strategy is iterating; entries must not be
                             freed */
};

struct hf_watch_entry {
    struct hf_dlist link;
    uint64_t number;   /* request->watch */
    struct hf_key key; /* a prefix, unless `exact` is set */
    bool exact;        /* match only `key` itself */
    bool removed;      /* to be freed by hf_watches_sweep() */
};

void hf_watches_init(struct hf_watches *watches);

/* Remove and free all entries; `on_free` as in hf_watches_sweep(). */
void hf_watches_fini(struct hf_watches *watches,
                     void (*on_free)(void *entry, void *arg), void *arg);
bool hf_watches_is_empty(const struct hf_watches *watches);

/* Add an entry of `size` bytes for a WATCH request, with a copy of the key. The
 * members that the strategy adds are zero. Returns NULL if memory is
 * exhausted. */
void *hf_watches_add(struct hf_watches *watches,
                     const struct hf_request *request, size_t size);

/* The entry with this number, or NULL. */
void *hf_watches_find(const struct hf_watches *watches, uint64_t number);

/* Iterate over the entries that are not removed: pass NULL first, then the
 * previous entry; NULL ends the iteration. */
void *hf_watches_next(const struct hf_watches *watches, const void *entry);

/* Returns true if this watch reports events of `key`. */
bool hf_watches_match(const struct hf_watch_entry *entry, struct hf_key key);

/* Remove an entry; hf_watches_sweep() frees it. */
void hf_watches_remove(struct hf_watch_entry *entry);

/* Free the removed entries unless the list is busy. Calls `on_free`, which may
 * be NULL, with each entry before freeing it. */
void hf_watches_sweep(struct hf_watches *watches,
                      void (*on_free)(void *entry, void *arg), void *arg);

#endif
