#include "sim/storage.h"

#include <stdlib.h>

#include "lib/runner.h"

static void copy_entries(struct hf_entries *to, const struct hf_entries *from,
                         uint64_t first, uint64_t last)
{
    for (uint64_t i = first; i <= last; i++) {
        const struct hf_entry *entry = hf_entries_find(from, i);

        assert_non_null(entry);
        assert_int_equal(hf_entries_append(to, entry, 1), HF_OK);
    }
}

/* ---- Writes -------------------------------------------------------------*/

/* Replace the tail of the log with up to `max` entries of the write. */
static void apply_entries(struct sim_storage *storage, struct sim_write *write,
                          uint64_t max)
{
    uint64_t last = write->entries.last;

    if (last > write->entries.base_index + max)
        last = write->entries.base_index + max;
    if (write->first <= storage->log.last)
        hf_entries_cut(&storage->log, write->first);
    assert_int_equal(storage->log.last + 1, write->first);
    copy_entries(&storage->log, &write->entries, write->first, last);
}

static void apply_write(struct sim_storage *storage, struct sim_write *write)
{
    switch (write->kind) {
    case SIM_WRITE_HARD_STATE:
        assert_true(write->term >= storage->term);
        storage->term = write->term;
        storage->vote = write->vote;
        break;
    case SIM_WRITE_ENTRIES:
        apply_entries(storage, write, UINT64_MAX / 2);
        break;
    case SIM_WRITE_SNAPSHOT:
        storage->snapshot = write->snapshot;
        break;
    case SIM_WRITE_RESET:
        hf_entries_reset(&storage->log, write->snapshot.index,
                         write->snapshot.term);
        break;
    case SIM_WRITE_COMPACT:
        hf_entries_compact(&storage->log, write->first);
        break;
    }
}

static void free_write(struct sim_write *write)
{
    hf_entries_fini(&write->entries);
    free(write);
}

static struct sim_write *take_write(struct sim_storage *storage)
{
    struct hf_dlist *link = hf_dlist_take(&storage->queue);

    return link ? HF_CONTAINER(link, struct sim_write, link) : NULL;
}

/* ---- Flushes ------------------------------------------------------------*/

void sim_storage_flush(struct sim_storage *storage)
{
    size_t count = 0;

    if (storage->flushing > 0)
        return;
    for (struct hf_dlist *link = storage->queue.next; link != &storage->queue;
         link = link->next)
        count++;
    storage->flushing = count;
    if (count > 0)
        sim_schedule_set(
            storage->schedule, &storage->flushed,
            storage->schedule->now + 1 +
                hf_random_below(storage->random, storage->flush_ms));
}

static void on_flushed(struct sim_event *event)
{
    struct sim_storage *storage =
        HF_CONTAINER(event, struct sim_storage, flushed);
    uint64_t number = 0;

    while (storage->flushing > 0) {
        struct sim_write *write = take_write(storage);

        apply_write(storage, write);
        if (write->number > number)
            number = write->number;
        free_write(write);
        storage->flushing--;
    }
    sim_storage_flush(storage);
    storage->on_flushed(storage->arg, number);
}

void sim_storage_init(struct sim_storage *storage,
                      struct sim_schedule *schedule, struct hf_random *random)
{
    *storage = (struct sim_storage){
        .schedule = schedule,
        .random = random,
        .flush_ms = 2,
        .flushed = {.fire = on_flushed},
    };
    hf_dlist_init(&storage->queue);
}

static void drop_queue(struct sim_storage *storage)
{
    for (struct sim_write *write = take_write(storage); write;
         write = take_write(storage))
        free_write(write);
    storage->flushing = 0;
    sim_schedule_cancel(storage->schedule, &storage->flushed);
}

void sim_storage_fini(struct sim_storage *storage)
{
    drop_queue(storage);
    hf_entries_fini(&storage->log);
}

struct sim_write *sim_storage_write(struct sim_storage *storage,
                                    enum sim_write_kind kind, uint64_t number)
{
    struct sim_write *write = calloc(1, sizeof(*write));

    assert_non_null(write);
    write->kind = kind;
    write->number = number;
    hf_dlist_push_back(&storage->queue, &write->link);
    return write;
}

void sim_storage_write_entries(struct sim_storage *storage, uint64_t number,
                               const struct hf_entries *log, uint64_t first,
                               uint64_t last)
{
    struct sim_write *write =
        sim_storage_write(storage, SIM_WRITE_ENTRIES, number);

    write->first = first;
    hf_entries_reset(&write->entries, first - 1, 0);
    copy_entries(&write->entries, log, first, last);
}

/* ---- Crashes ------------------------------------------------------------*/

/* Keep some writes from the beginning of the queue, and perhaps a part of the
 * next one. */
void sim_storage_crash(struct sim_storage *storage)
{
    struct sim_write *write = take_write(storage);

    while (write && hf_random_below(storage->random, 3) > 0) {
        apply_write(storage, write);
        free_write(write);
        write = take_write(storage);
    }
    if (write && write->kind == SIM_WRITE_ENTRIES)
        apply_entries(storage, write, hf_random_below(storage->random, 4));
    if (write)
        free_write(write);
    drop_queue(storage);
}

bool sim_storage_has(const struct sim_storage *storage, uint64_t index,
                     uint64_t term)
{
    return index <= storage->snapshot.index ||
           hf_entries_term(&storage->log, index) == term;
}
