#include "node/journal.h"

#include "base/limits.h"

#define CHUNK 64 /* log entries that are appended at a time */

/* Every node must be able to store every entry, and an entry may fill at most a
 * quarter of a segment. Only tests use smaller segments, with small entries. */
_Static_assert(HF_WAL_SEGMENT_SIZE / 4 >= HF_RAFT_ENTRY_MAX + 4096,
               "an entry does not fit into a segment");

void hf_journal_fini(struct hf_journal *journal)
{
    hf_wal_close(journal->wal);
    hf_ring_fini(&journal->writes);
    *journal = (struct hf_journal){0};
}

/* ---- Writes -------------------------------------------------------------*/

static struct hf_journal_write *journal_write_at(
    const struct hf_journal *journal, size_t i)
{
    return hf_ring_at(&journal->writes, sizeof(struct hf_journal_write), i);
}

/* The entries from `first` on are replaced. hf_wal_durable() then reports an
 * index below `first` until the new entries are durable, so earlier writes must
 * not wait for more. */
static void replace_from(struct hf_journal *journal, uint64_t first)
{
    for (size_t i = journal->writes.count; i-- > 0;) {
        struct hf_journal_write *write = journal_write_at(journal, i);

        if (write->last >= first) /* a write of hard state has no entries */
            write->last = first - 1;
    }
}

/* ---- Appending ----------------------------------------------------------*/

static enum hf_err store_entries(struct hf_journal *journal,
                                 const struct hf_entries *log, uint64_t first,
                                 uint64_t last, size_t *size)
{
    struct hf_log_entry chunk[CHUNK];
    enum hf_err err = HF_OK;

    while (first <= last && !err) {
        size_t count = 0;

        for (; count < CHUNK && first + count <= last; count++) {
            const struct hf_entry *entry = hf_entries_find(log, first + count);

            chunk[count] = (struct hf_log_entry){
                entry->term, (uint8_t)entry->kind, entry->data};
            *size += entry->data.size;
        }
        err = hf_wal_append_entries(journal->wal, first, chunk, count);
        first += count;
    }
    return err;
}

enum hf_err hf_journal_store(struct hf_journal *journal,
                             const struct hf_entries *log,
                             const struct hf_engine_snapshot *snapshot,
                             const struct hf_engine_update *update)
{
    struct hf_journal_write write = {update->write, update->term, update->vote,
                                     0, 0};
    struct hf_journal_write *pushed;
    enum hf_err err;

    if (update->write == 0)
        return HF_OK;
    err = hf_ring_reserve(&journal->writes, sizeof(*pushed));
    if (!err && (update->changes & HF_ENGINE_HARD_STATE))
        err = hf_wal_append_state(journal->wal, update->term, update->vote);
    if (!err && (update->changes & (HF_ENGINE_INSTALL | HF_ENGINE_RESET))) {
        struct hf_log_snapshot base = {snapshot->index, snapshot->term};

        replace_from(journal, 1);
        err = hf_wal_append_base(journal->wal, base);
        write.last = base.index;
    }
    if (!err && (update->changes & HF_ENGINE_ENTRIES)) {
        replace_from(journal, update->first);
        err = store_entries(journal, log, update->first, update->last,
                            &write.size);
        write.last = update->last;
    }
    if (err)
        return err;
    journal->pending_bytes += write.size;
    pushed = hf_ring_push(&journal->writes, sizeof(*pushed));
    *pushed = write;
    return HF_OK;
}

/* ---- Flushes ------------------------------------------------------------*/

/* Returns true if the term and vote of `write` are durable. The term never
 * decreases, and within a term the vote changes once at most, from none to a
 * node. */
static bool has_hard_state(const struct hf_log_state *state,
                           const struct hf_journal_write *write)
{
    if (state->term != write->term)
        return state->term > write->term;
    return write->vote == 0 || state->vote == write->vote;
}

bool hf_journal_settle(struct hf_journal *journal)
{
    struct hf_log_state state = hf_wal_durable(journal->wal);
    uint64_t before = journal->durable;

    while (journal->writes.count > 0) {
        const struct hf_journal_write *write = journal_write_at(journal, 0);

        if (!has_hard_state(&state, write) || state.last_index < write->last)
            break;
        journal->durable = write->number;
        journal->pending_bytes -= write->size;
        hf_ring_drop_first(&journal->writes);
    }
    return journal->durable > before;
}
