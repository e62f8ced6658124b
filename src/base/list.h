/* list.h - a doubly linked ring, embedded in what it links.
 *
 * A list's head and its links are the same struct. A link that is in no list
 * points to itself or is zeroed; both count as absent. */
#ifndef HF_BASE_LIST_H
#define HF_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/container.h"

struct hf_list {
    struct hf_list *next;
    struct hf_list *prev;
};

static inline void hf_list_init(struct hf_list *list)
{
    list->next = list;
    list->prev = list;
}

static inline bool hf_list_empty(const struct hf_list *list)
{
    return list->next == list || !list->next;
}

/* The same test, asked of a link. */
static inline bool hf_list_linked(const struct hf_list *link)
{
    return !hf_list_empty(link);
}

static inline void hf_list_insert(struct hf_list *before, struct hf_list *link)
{
    link->prev = before->prev;
    link->next = before;
    before->prev->next = link;
    before->prev = link;
}

static inline void hf_list_push_back(struct hf_list *list, struct hf_list *link)
{
    hf_list_insert(list, link);
}

static inline void hf_list_push_front(struct hf_list *list,
                                      struct hf_list *link)
{
    hf_list_insert(list->next, link);
}

/* Nothing happens if it is in no list. */
static inline void hf_list_remove(struct hf_list *link)
{
    if (!hf_list_linked(link))
        return;
    link->prev->next = link->next;
    link->next->prev = link->prev;
    hf_list_init(link);
}

/* The first link, or NULL. */
static inline struct hf_list *hf_list_first(const struct hf_list *list)
{
    return hf_list_empty(list) ? NULL : list->next;
}

/* Remove and return the first link, or NULL. */
static inline struct hf_list *hf_list_take(struct hf_list *list)
{
    struct hf_list *link = hf_list_first(list);

    if (link) {
        list->next = link->next;
        link->next->prev = list;
        hf_list_init(link);
    }
    return link;
}

#endif
