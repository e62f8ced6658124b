/* dlist.h - an intrusive doubly linked list.
 *
 * The head and the links are the same struct and form a ring. A link that is in
 * no list points to itself or is zeroed. */
#ifndef HF_BASE_DLIST_H
#define HF_BASE_DLIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/container.h"

struct hf_dlist {
    struct hf_dlist *next;
    struct hf_dlist *prev;
};

static inline void hf_dlist_init(struct hf_dlist *list)
{
    list->next = list;
    list->prev = list;
}

static inline bool hf_dlist_is_empty(const struct hf_dlist *list)
{
    return list->next == list || !list->next;
}

static inline bool hf_dlist_is_linked(const struct hf_dlist *link)
{
    return !hf_dlist_is_empty(link);
}

static inline void hf_dlist_insert(struct hf_dlist *before,
                                   struct hf_dlist *link)
{
    link->prev = before->prev;
    link->next = before;
    before->prev->next = link;
    before->prev = link;
}

static inline void hf_dlist_push_back(struct hf_dlist *list,
                                      struct hf_dlist *link)
{
    hf_dlist_insert(list, link);
}

static inline void hf_dlist_push_front(struct hf_dlist *list,
                                       struct hf_dlist *link)
{
    hf_dlist_insert(list->next, link);
}

/* Does nothing if `link` is in no list. */
static inline void hf_dlist_remove(struct hf_dlist *link)
{
    if (!hf_dlist_is_linked(link))
        return;
    link->prev->next = link->next;
    link->next->prev = link->prev;
    hf_dlist_init(link);
}

/* The first link, or NULL. */
static inline struct hf_dlist *hf_dlist_first(const struct hf_dlist *list)
{
    return hf_dlist_is_empty(list) ? NULL : list->next;
}

/* Remove and return the first link, or NULL. */
static inline struct hf_dlist *hf_dlist_take(struct hf_dlist *list)
{
    struct hf_dlist *link = hf_dlist_first(list);

    if (link) {
        list->next = link->next;
        link->next->prev = list;
        hf_dlist_init(link);
    }
    return link;
}

#endif
