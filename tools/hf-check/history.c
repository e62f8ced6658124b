/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "history.h"

#include "array.h"

#include <stdlib.h>
#include <string.h>

void hf_check_history_init(struct hf_check_history *h, bool fifo)
{
    *h = (struct hf_check_history){.fifo = fifo};
    hf_intern_init(&h->strings);
}

void hf_check_history_fini(struct hf_check_history *h)
{
    hf_intern_fini(&h->strings);
    free(h->ops);
    free(h->deaths);
    free(h->losts);
    free(h->notes);
    *h = (struct hf_check_history){0};
}

size_t hf_check_history_add(struct hf_check_history *h, const struct hf_op *op)
{
    h->ops = hf_array_grow(h->ops, &h->op_room, h->op_count, sizeof *h->ops);
    h->ops[h->op_count] = *op;
    return h->op_count++;
}

void hf_check_history_add_death(struct hf_check_history *h,
                                struct hf_op_death death)
{
    h->deaths = hf_array_grow(h->deaths, &h->death_room, h->death_count,
                              sizeof *h->deaths);
    h->deaths[h->death_count++] = death;
}

void hf_check_history_add_lost(struct hf_check_history *h,
                               struct hf_op_lost lost)
{
    h->losts =
        hf_array_grow(h->losts, &h->lost_room, h->lost_count, sizeof *h->losts);
    h->losts[h->lost_count++] = lost;
}

void hf_check_history_add_note(struct hf_check_history *h,
                               struct hf_op_note note)
{
    h->notes =
        hf_array_grow(h->notes, &h->note_room, h->note_count, sizeof *h->notes);
    h->notes[h->note_count++] = note;
}

static int compare_deaths(const void *left, const void *right)
{
    const struct hf_op_death *a = left, *b = right;

    if (a->client != b->client)
        return a->client < b->client ? -1 : 1;
    return a->time < b->time ? -1 : a->time > b->time;
}

static int compare_clients(const void *left, const void *right)
{
    const struct hf_op_death *a = left, *b = right;

    return a->client < b->client ? -1 : a->client > b->client;
}

struct hf_op_death *hf_check_history_find_death(struct hf_op_death *deaths,
                                                size_t count, uint32_t client)
{
    struct hf_op_death wanted = {.client = client};

    return bsearch(&wanted, deaths, count, sizeof *deaths, compare_clients);
}

/* Return the last instant at which the client of `op` was surely alive. */
static uint64_t last_act(const struct hf_op *op)
{
    return op->answer == HF_OP_NEVER ? op->invoke : op->answer;
}

struct hf_op_death *hf_check_history_deaths(const struct hf_check_history *h,
                                            size_t *count)
{
    struct hf_op_death *deaths = hf_array_new(h->death_count, sizeof *deaths);

    *count = 0;
    if (!h->death_count)
        return deaths;
    memcpy(deaths, h->deaths, h->death_count * sizeof *deaths);
    qsort(deaths, h->death_count, sizeof *deaths, compare_deaths);
    for (size_t i = 0; i < h->death_count; i++) {
        if (!*count || deaths[*count - 1].client != deaths[i].client)
            deaths[(*count)++] = deaths[i];
    }
    for (size_t i = 0; i < h->op_count; i++) {
        struct hf_op_death *death =
            hf_check_history_find_death(deaths, *count, h->ops[i].client);

        if (death && death->time < last_act(&h->ops[i]))
            death->time = last_act(&h->ops[i]);
    }
    return deaths;
}
