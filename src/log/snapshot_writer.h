/* snapshot_writer.h - write a snapshot of this node's lock table.
 *
 * A writer overwrites the file HF_WAL_RESERVE_FILE in place, if there is one,
 * so a full disk does not prevent a snapshot that fits into it. See
 * hf_wal_reserve_lend().
 *
 * These functions block; call them from a worker thread. A writer is used by
 * one thread at a time. */
#ifndef HF_LOG_SNAPSHOT_WRITER_H
#define HF_LOG_SNAPSHOT_WRITER_H

#include "log/snapshot_file.h"

struct hf_snapshot_writer;

/* Start a snapshot of this node. Returns HF_ELIMIT if the disk is full or
 * meta->config has more than HF_SNAPSHOT_CONFIG_MAX bytes, HF_ESYSTEM or
 * HF_ENOMEM. */
enum hf_err hf_snapshot_writer_open(struct hf_disk *disk,
                                    const struct hf_log_cluster *cluster,
                                    const struct hf_snapshot_meta *meta,
                                    struct hf_snapshot_writer **writer,
                                    struct hf_error *error);

/* Add the next `size` bytes of the data. Returns HF_ELIMIT if the disk is full,
 * or HF_ESYSTEM. */
enum hf_err hf_snapshot_writer_add(struct hf_snapshot_writer *writer,
                                   const void *data, size_t size,
                                   struct hf_error *error);

/* Make the snapshot durable, and give it its name, so that
 * hf_snapshot_file_open() finds it. Returns HF_ELIMIT if the disk is full, or
 * HF_ESYSTEM. The writer is freed even if this fails. */
enum hf_err hf_snapshot_writer_finish(struct hf_snapshot_writer *writer,
                                      struct hf_error *error);

/* Drop the snapshot, and free the writer. Accepts NULL. */
void hf_snapshot_writer_cancel(struct hf_snapshot_writer *writer);

#endif
