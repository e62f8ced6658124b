/* compaction.h - replace log entries by a snapshot of the table.
 *
 * Jobs build a second table from the last snapshot and the entries after it, a
 * part at a time, and write that table as the next snapshot. They never read
 * the table that answers clients, so clients do not wait for them. */
#ifndef HF_NODE_COMPACTION_H
#define HF_NODE_COMPACTION_H

#include "base/time.h"
#include "core/table.h"

struct hf_entry;
struct hf_node;
struct hf_node_job;

struct hf_compaction {
    uint64_t bytes;   /* of the entries applied since the last snapshot */
    uint64_t backlog; /* of the entries found at the start, not applied yet */
    uint64_t size;    /* of the last snapshot's table in bytes; 0: none */
    uint64_t target;  /* index of the snapshot being made; 0: none */
    uint64_t target_bytes;  /* `bytes` when the target was chosen */
    struct hf_table *table; /* the second table; NULL: none, or a job uses it */
    struct hf_table *trash; /* an obsolete table, which a job frees */
    uint64_t applied;       /* index of the last entry in the second table */
    uint64_t obsolete;      /* remove snapshots before this index; 0: none */
    hf_time retry;  /* after a failure, start no snapshot before this time */
    uint64_t count; /* snapshots made by this process */
};

void hf_compaction_fini(struct hf_node *node);

/* Returns the next job: build or write a part of a snapshot, or remove what is
 * obsolete. NULL if there is nothing to do now, memory is short, or the job
 * cannot start yet. */
struct hf_node_job *hf_compaction_job(struct hf_node *node);

/* An entry was recovered from the log, or applied. */
void hf_compaction_recovered(struct hf_node *node,
                             const struct hf_entry *entry);
void hf_compaction_applied(struct hf_node *node, const struct hf_entry *entry);

/* Tell the log how much space to keep for snapshots of the table. */
void hf_compaction_reserve(struct hf_node *node);

/* A snapshot of another node, of `size` bytes, was installed, which makes the
 * one being made obsolete: give that one up, and continue from the installed
 * one. */
void hf_compaction_restart(struct hf_node *node, uint64_t size);

#endif
