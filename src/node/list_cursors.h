/* list_cursors.h - where the pages of plain LISTs ended.
 *
 * The reply to a plain LIST is one page. To continue, the client sends another
 * LIST with the cursor of that page, a token. The table cannot find a key by
 * its token, so the node remembers where the last pages ended: otherwise each
 * page of a long list would visit all keys before it.
 *
 * For each cursor it keeps a walk over the table. A walk costs time when a key
 * is released, so there are few. */
#ifndef HF_NODE_LIST_CURSORS_H
#define HF_NODE_LIST_CURSORS_H

#include "core/table.h"

#define HF_LIST_CURSORS 8

struct hf_list_cursors {
    struct {
        struct hf_table_walk walk;
        uint64_t token; /* of the last key before `walk`; 0: unused */
    } list[HF_LIST_CURSORS];
    unsigned next; /* index in `list` of the oldest one, which is reused next */
};

/* A page has ended with the key of `token`, and `walk` continues after it. */
void hf_list_cursors_keep(struct hf_list_cursors *cursors,
                          struct hf_table *table,
                          const struct hf_table_walk *walk, uint64_t token);

/* If the cursor `token` is known, let `walk`, which has begun, continue after
 * its key, and forget the cursor. */
void hf_list_cursors_take(struct hf_list_cursors *cursors,
                          struct hf_table_walk *walk, uint64_t token);

/* Forget all cursors. Call this before the table is freed, or replaced. */
void hf_list_cursors_clear(struct hf_list_cursors *cursors);

#endif
