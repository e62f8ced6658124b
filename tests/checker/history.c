/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "history.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

static const char *const kind_names[HISTORY_KINDS] = {
    [HISTORY_LOCK] = "lock",   [HISTORY_UNLOCK] = "unlock",
    [HISTORY_RENEW] = "renew", [HISTORY_UPDATE] = "update",
    [HISTORY_READ] = "read",   [HISTORY_WRITE] = "write",
    [HISTORY_FORCE] = "force",
};

static const char *const result_names[HISTORY_RESULTS] = {
    [HISTORY_UNKNOWN] = "unknown",
    [HISTORY_OK] = "ok",
    [HISTORY_FAIL] = "fail",
};

void history_init(struct history *h, bool fifo)
{
    *h = (struct history){.fifo = fifo};
    words_init(&h->words);
}

void history_fini(struct history *h)
{
    words_fini(&h->words);
    free(h->ops);
    free(h->deaths);
    free(h->losts);
    free(h->notes);
    *h = (struct history){0};
}

struct history_op history_op(enum history_kind kind, uint32_t client,
                             uint64_t invoke)
{
    return (struct history_op){
        .kind = (uint8_t)kind,
        .client = client,
        .invoke = invoke,
        .answer = HISTORY_NEVER,
        .deadline = HISTORY_NEVER,
        .queued = HISTORY_NEVER,
        .fenced = true,
    };
}

size_t history_add(struct history *h, const struct history_op *op)
{
    h->ops = memory_grow(h->ops, &h->op_room, h->op_count, sizeof *h->ops);
    h->ops[h->op_count] = *op;
    return h->op_count++;
}

void history_add_death(struct history *h, struct history_death death)
{
    h->deaths = memory_grow(h->deaths, &h->death_room, h->death_count,
                            sizeof *h->deaths);
    h->deaths[h->death_count++] = death;
}

void history_add_lost(struct history *h, struct history_lost lost)
{
    h->losts =
        memory_grow(h->losts, &h->lost_room, h->lost_count, sizeof *h->losts);
    h->losts[h->lost_count++] = lost;
}

void history_add_note(struct history *h, struct history_note note)
{
    h->notes =
        memory_grow(h->notes, &h->note_room, h->note_count, sizeof *h->notes);
    h->notes[h->note_count++] = note;
}

static enum history_error error_of(const char *name, size_t len)
{
    static const struct {
        const char *name;
        enum history_error error;
    } known[] = {
        {"HF_EBUSY", HISTORY_ERROR_BUSY},
        {"HF_EEXPIRED", HISTORY_ERROR_ENDED},
        {"HF_ENOTOWNER", HISTORY_ERROR_ENDED},
        {"HF_ENOTHELD", HISTORY_ERROR_ENDED},
    };

    if (!len)
        return HISTORY_ERROR_NONE;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].name) == len && !memcmp(known[i].name, name, len))
            return known[i].error;
    }
    return HISTORY_ERROR_OTHER;
}

void history_set_error(struct history *h, struct history_op *op,
                       const char *name, size_t len)
{
    op->error = (uint8_t)error_of(name, len);
    op->error_name = words_add(&h->words, name, len);
}

static bool is_time(uint64_t time)
{
    return time <= HISTORY_TIME_MAX || time == HISTORY_NEVER;
}

static const char *time_fault(const struct history_op *op)
{
    if (op->invoke > HISTORY_TIME_MAX || op->lease > HISTORY_TIME_MAX ||
        !is_time(op->answer) || !is_time(op->deadline) || !is_time(op->queued))
        return "a time beyond 2^63 - 1 ns";
    if (op->answer < op->invoke)
        return "it returns before its invocation";
    if (op->queued < op->invoke)
        return "it is queued before its invocation";
    if (op->queued != HISTORY_NEVER && op->queued > op->answer)
        return "it is queued after its return";
    return NULL;
}

static const char *result_fault(const struct history_op *op)
{
    bool returns = op->answer != HISTORY_NEVER;

    if (returns && !op->answered)
        return "a return without a result";
    if (!returns && op->result != HISTORY_UNKNOWN)
        return "a result that is not unknown, without a return";
    if (op->result == HISTORY_OK && op->error != HISTORY_ERROR_NONE)
        return "an error on an operation that is ok";
    return NULL;
}

static const char *lock_fault(const struct history_op *op)
{
    bool ok = op->result == HISTORY_OK;

    if (ok && !op->token)
        return "a granted lock without a token";
    if (!ok && op->token)
        return "a token on a lock that was not granted";
    if (!ok && op->deadline != HISTORY_NEVER)
        return "a deadline on a lock that was not granted";
    if (ok && op->lease && op->deadline == HISTORY_NEVER)
        return "a granted lock with a lease but no deadline";
    return NULL;
}

static const char *kind_fault(const struct history_op *op)
{
    bool ok = op->result == HISTORY_OK;

    if (op->kind == HISTORY_LOCK)
        return lock_fault(op);
    if (op->queued != HISTORY_NEVER)
        return "only a lock waits in line";
    if (op->kind != HISTORY_RENEW &&
        (op->deadline != HISTORY_NEVER || op->lease))
        return "only a lock or a renewal has a deadline or a lease";
    if (op->kind != HISTORY_READ && ok && !op->token)
        return "an operation on a grant that is ok, without a token";
    return NULL;
}

const char *history_op_fault(const struct history_op *op)
{
    const char *fault = time_fault(op);

    if (!fault)
        fault = result_fault(op);
    if (!fault)
        fault = kind_fault(op);
    if (fault)
        return fault;
    if (!op->key)
        return "an empty key";
    if ((op->kind == HISTORY_WRITE) != (op->cell != 0))
        return "a write has a cell, and nothing else has";
    return NULL;
}

static int by_client(const void *left, const void *right)
{
    const struct history_death *a = left, *b = right;

    if (a->client != b->client)
        return a->client < b->client ? -1 : 1;
    return a->time < b->time ? -1 : a->time > b->time;
}

static int by_client_alone(const void *left, const void *right)
{
    const struct history_death *a = left, *b = right;

    return a->client < b->client ? -1 : a->client > b->client;
}

struct history_death *history_find_death(struct history_death *deaths,
                                         size_t count, uint32_t client)
{
    struct history_death wanted = {.client = client};

    return bsearch(&wanted, deaths, count, sizeof *deaths, by_client_alone);
}

/* The last instant at which its client was surely alive. */
static uint64_t last_act(const struct history_op *op)
{
    return op->answer == HISTORY_NEVER ? op->invoke : op->answer;
}

struct history_death *history_deaths(const struct history *h, size_t *count)
{
    struct history_death *deaths = memory_new(h->death_count, sizeof *deaths);

    *count = 0;
    if (!h->death_count)
        return deaths;
    memcpy(deaths, h->deaths, h->death_count * sizeof *deaths);
    qsort(deaths, h->death_count, sizeof *deaths, by_client);
    for (size_t i = 0; i < h->death_count; i++) {
        if (!*count || deaths[*count - 1].client != deaths[i].client)
            deaths[(*count)++] = deaths[i];
    }
    for (size_t i = 0; i < h->op_count; i++) {
        struct history_death *death =
            history_find_death(deaths, *count, h->ops[i].client);

        if (death && death->time < last_act(&h->ops[i]))
            death->time = last_act(&h->ops[i]);
    }
    return deaths;
}

const char *history_kind_name(enum history_kind kind)
{
    return kind_names[kind];
}

const char *history_result_name(enum history_result result)
{
    return result_names[result];
}
