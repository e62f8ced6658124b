#include "node/list_cursors.h"

static void forget_cursor(struct hf_list_cursors *cursors, unsigned i)
{
    if (cursors->list[i].token != 0)
        hf_table_walk_end(&cursors->list[i].walk);
    cursors->list[i].token = 0;
}

/* A walk at the end of the table has no key to continue at. It is not kept: it
 * would miss keys that are granted later. */
void hf_list_cursors_keep(struct hf_list_cursors *cursors,
                          struct hf_table *table,
                          const struct hf_table_walk *walk, uint64_t token)
{
    unsigned i = cursors->next;

    if (!walk->next || token == 0)
        return;
    cursors->next = (i + 1) % HF_LIST_CURSORS;
    forget_cursor(cursors, i);
    hf_table_walk_begin(table, &cursors->list[i].walk);
    cursors->list[i].walk.next = walk->next;
    cursors->list[i].token = token;
}

/* The holds are in order of their tokens, so no key before the walk has a
 * higher token, even if keys were released or granted meanwhile. */
void hf_list_cursors_take(struct hf_list_cursors *cursors,
                          struct hf_table_walk *walk, uint64_t token)
{
    for (unsigned i = 0; token != 0 && i < HF_LIST_CURSORS; i++) {
        if (cursors->list[i].token != token)
            continue;
        if (cursors->list[i].walk.next)
            walk->next = cursors->list[i].walk.next;
        forget_cursor(cursors, i);
        return;
    }
}

void hf_list_cursors_clear(struct hf_list_cursors *cursors)
{
    for (unsigned i = 0; i < HF_LIST_CURSORS; i++)
        forget_cursor(cursors, i);
}
