/* journal.h - the engine's writes, as records of the write-ahead log.
 *
 * The engine numbers its writes; the log reports which index, term and vote are
 * durable. The journal translates. */
#ifndef HF_NODE_JOURNAL_H
#define HF_NODE_JOURNAL_H

#include "log/wal.h"
#include "raft/engine.h"

/* A write that is not durable yet, as it shows in hf_wal_durable(). */
struct hf_journal_write {
    uint64_t number;
    uint64_t term, vote;
    uint64_t last; /* entries of it that later writes have left */
    size_t size;
};

struct hf_journal {
    struct hf_wal *wal;
    struct hf_journal_write *writes; /* a ring */
    size_t head, count, capacity;
    size_t pending_bytes; /* of entries that are not durable */
    uint64_t durable;     /* number of the last durable write */
};

/* `wal` may be NULL; otherwise it is closed. */
void hf_journal_fini(struct hf_journal *journal);

/* Append what `update` asks for. `log` is the engine's. After an error the node
 * must stop. */
enum hf_err hf_journal_store(struct hf_journal *journal,
                             const struct hf_entries *log,
                             const struct hf_engine_snapshot *snapshot,
                             const struct hf_engine_update *update);

/* After a flush: find out which writes are durable. Returns whether more are
 * than before. */
bool hf_journal_settle(struct hf_journal *journal);

#endif
