/* journal.h - stores the engine's writes in the write-ahead log.
 *
 * The engine numbers its writes. The log does not know these numbers, and
 * reports which index, term and vote are durable. The journal derives from that
 * which writes are durable. */
#ifndef HF_NODE_JOURNAL_H
#define HF_NODE_JOURNAL_H

#include "base/ring.h"
#include "log/wal.h"
#include "raft/engine.h"

/* A write that is not durable yet. It is durable when hf_wal_durable() reports
 * its term, its vote and the index `last`, or later ones. */
struct hf_journal_write {
    uint64_t number;
    uint64_t term, vote;
    uint64_t last; /* index of its last entry or of its snapshot, or less if
                      later writes replaced entries; 0: has neither */
    size_t size;   /* bytes of its entries */
};

struct hf_journal {
    struct hf_wal *wal;
    struct hf_ring writes; /* of struct hf_journal_write */
    size_t pending_bytes;  /* bytes of entries that are not durable */
    uint64_t durable;      /* number of the last durable write */
};

/* Free the journal, and close `journal->wal` unless it is NULL. */
void hf_journal_fini(struct hf_journal *journal);

/* Append what `update` asks for to the log, without flushing it. `log` and
 * `snapshot` are the engine's. After an error the node must stop. */
enum hf_err hf_journal_store(struct hf_journal *journal,
                             const struct hf_entries *log,
                             const struct hf_engine_snapshot *snapshot,
                             const struct hf_engine_update *update);

/* After a flush: find out which writes are durable now. Returns true if more
 * are durable than before. */
bool hf_journal_settle(struct hf_journal *journal);

#endif
