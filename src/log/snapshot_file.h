/* snapshot_file.h - snapshots of the lock table on disk.
 *
 *     snapshot-INDEX:  header, configuration, data
 *
 * The header has the checksum of the rest and is itself checksummed. A file
 * gets its name when it is complete and synced. It is verified as a whole
 * before any of it is used. Its bytes do not depend on the node, so a transfer
 * to another node copies the file.
 *
 * These functions block; call them from a worker thread. A file, a writer or a
 * transfer is used by one thread at a time. */
#ifndef HF_LOG_SNAPSHOT_FILE_H
#define HF_LOG_SNAPSHOT_FILE_H

#include "log/disk.h"
#include "log/identity.h"

/* Which state a snapshot contains. */
struct hf_snapshot_meta {
    uint64_t index; /* of the last entry that it contains */
    uint64_t term;
    uint64_t config_index;  /* of the entry with the configuration */
    struct hf_bytes config; /* configuration of the cluster, as of `index` */
};

/* ---- Reading ------------------------------------------------------------*/

struct hf_snapshot_file;

/* Open and verify the newest valid snapshot; `*file` is NULL if there is none.
 * If a newer snapshot is damaged, `*damaged` describes the newest one of these;
 * otherwise its code is HF_OK. hf_wal_open() checks that the log continues from
 * the snapshot that was opened.
 *
 * HF_EPROTO        there are snapshots, and all are damaged
 * HF_EINVAL        a snapshot of another cluster
 * HF_EUNSUPPORTED  a snapshot of a newer version
 * HF_ESYSTEM, HF_ENOMEM */
enum hf_err hf_snapshot_file_open(struct hf_disk *disk,
                                  const struct hf_log_cluster *cluster,
                                  struct hf_snapshot_file **file,
                                  struct hf_error *damaged,
                                  struct hf_error *error);
void hf_snapshot_file_close(struct hf_snapshot_file *file);

/* The result is valid until the file is closed. */
const struct hf_snapshot_meta *hf_snapshot_file_meta(
    const struct hf_snapshot_file *file);

/* The number of bytes of the data. */
uint64_t hf_snapshot_file_data_size(const struct hf_snapshot_file *file);
/* The number of bytes of the whole file. */
uint64_t hf_snapshot_file_size(const struct hf_snapshot_file *file);

/* Read exactly `size` bytes of the data, from `offset` on. Returns HF_EPROTO if
 * the file has fewer bytes, or HF_ESYSTEM. */
enum hf_err hf_snapshot_file_read_data(struct hf_snapshot_file *file,
                                       uint64_t offset, void *to, size_t size,
                                       struct hf_error *error);

/* The same, but `offset` counts from the start of the file, which a transfer
 * copies as a whole. */
enum hf_err hf_snapshot_file_read(struct hf_snapshot_file *file,
                                  uint64_t offset, void *to, size_t size,
                                  struct hf_error *error);

/* Remove snapshots that are older than `index`. A reader that has one open can
 * still read it; its space is freed when the reader closes it. Returns
 * HF_ESYSTEM if a file cannot be removed, or HF_ENOMEM. */
enum hf_err hf_snapshot_file_remove_old(struct hf_disk *disk, uint64_t index,
                                        struct hf_error *error);

/* ---- Writing ------------------------------------------------------------
 *
 * A writer overwrites the file HF_WAL_RESERVE_FILE in place, if there is one,
 * so a full disk does not prevent a snapshot that fits into it. See
 * hf_wal_reserve_lend(). */

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

/* ---- Receiving ----------------------------------------------------------*/

struct hf_snapshot_transfer;

/* Start to receive a snapshot of the state after the entry `index` of `term`.
 * `size` is what hf_snapshot_file_size() returns on the sending node. Returns
 * HF_ELIMIT if the disk is full, HF_ESYSTEM or HF_ENOMEM. */
enum hf_err hf_snapshot_transfer_open(struct hf_disk *disk,
                                      const struct hf_log_cluster *cluster,
                                      uint64_t index, uint64_t term,
                                      uint64_t size,
                                      struct hf_snapshot_transfer **transfer,
                                      struct hf_error *error);

/* Returns how many bytes have arrived: the offset at which the sender
 * continues. */
uint64_t hf_snapshot_transfer_have(const struct hf_snapshot_transfer *transfer);

/* Add bytes at `offset`. Bytes that have arrived already are ignored, and so
 * are bytes after a gap. Returns HF_EPROTO if the bytes end after the announced
 * size, HF_ELIMIT if the disk is full, or HF_ESYSTEM. */
enum hf_err hf_snapshot_transfer_add(struct hf_snapshot_transfer *transfer,
                                     uint64_t offset, const void *data,
                                     size_t size, struct hf_error *error);

/* Verify the snapshot, make it durable, and give it its name, so that
 * hf_snapshot_file_open() finds it. Returns HF_EPROTO if it is incomplete,
 * damaged, or not of the announced entry, HF_EINVAL if it is of another
 * cluster, HF_EUNSUPPORTED if it is of a newer version, HF_ELIMIT if the disk
 * is full, HF_ESYSTEM or HF_ENOMEM. The transfer is freed even if this
 * fails. */
enum hf_err hf_snapshot_transfer_finish(struct hf_snapshot_transfer *transfer,
                                        struct hf_error *error);
void hf_snapshot_transfer_cancel(struct hf_snapshot_transfer *transfer);

#endif
