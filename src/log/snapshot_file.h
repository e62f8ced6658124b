/* snapshot_file.h - snapshots of the lock table on disk.
 *
 *     snapshot-INDEX:  header, configuration, data
 *
 * The header has the checksum of the rest and is itself checksummed. A file
 * gets its name when it is complete and synced. It is verified as a whole
 * before any of it is used. Its bytes do not depend on the node, so a transfer
 * to another node copies the file.
 *
 * snapshot_writer.h and snapshot_transfer.h make such files.
 *
 * These functions block; call them from a worker thread. A file is used by one
 * thread at a time. */
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

/* Open and verify the snapshot at `index`, whether or not there are newer ones.
 * Returns HF_ESTATE if there is none, and otherwise the errors of
 * hf_snapshot_file_open(). */
enum hf_err hf_snapshot_file_open_at(struct hf_disk *disk,
                                     const struct hf_log_cluster *cluster,
                                     uint64_t index,
                                     struct hf_snapshot_file **snapshot,
                                     struct hf_error *error);

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

/* Remove the snapshot at `index`, if there is one. Returns HF_ESYSTEM if it
 * cannot be removed. */
enum hf_err hf_snapshot_file_remove(struct hf_disk *disk, uint64_t index,
                                    struct hf_error *error);

#endif
