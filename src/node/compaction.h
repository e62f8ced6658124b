/* compaction.h - replace log entries by a snapshot of the table.
 *
 * A job builds a second table from the last snapshot and the entries since, a
 * part at a time, and writes it as the next snapshot; so the table that answers
 * clients is never read for it. */
#ifndef HF_NODE_COMPACTION_H
#define HF_NODE_COMPACTION_H

#include "base/time.h"
#include "core/table.h"

struct hf_node;
struct hf_node_job;

struct hf_compaction {
    uint64_t bytes;  /* of entries that were applied since the last one */
    uint64_t size;   /* of the last snapshot file; 0: unknown */
    uint64_t target; /* index of the snapshot that is being made; 0: none */
    uint64_t target_bytes;
    struct hf_table *table; /* the second table */
    struct hf_table *trash; /* is freed by a job, because that takes long */
    uint64_t applied;       /* entries that are in it */
    uint64_t obsolete;      /* remove snapshots before this index; 0: none */
    hf_time retry;          /* the disk was full; 0: it was not */
    uint64_t count;         /* snapshots made by this process */
};

void hf_compaction_fini(struct hf_node *node);

/* The next part of a snapshot, or NULL. */
struct hf_node_job *hf_compaction_job(struct hf_node *node);

/* A snapshot of another node was installed: what is being made is obsolete. */
void hf_compaction_restart(struct hf_node *node);

#endif
