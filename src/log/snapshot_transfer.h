/* snapshot_transfer.h - receive a snapshot file from another node.
 *
 * A transfer overwrites the reserve, as a writer does (snapshot_writer.h).
 *
 * These functions block; call them from a worker thread. A transfer is used by
 * one thread at a time. */
#ifndef HF_LOG_SNAPSHOT_TRANSFER_H
#define HF_LOG_SNAPSHOT_TRANSFER_H

#include "log/disk.h"
#include "log/identity.h"

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
