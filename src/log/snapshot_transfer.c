#include "log/snapshot_transfer.h"

#include <stdlib.h>

#include "log/segment.h"
#include "log/snapshot_format.h"
#include "log/snapshot_temporary.h"

#define TMP_TRANSFER HF_SEGMENT_TMP "transfer"

struct hf_snapshot_transfer {
    struct hf_disk_file *file;
    struct hf_log_cluster cluster;
    uint64_t index, term, size;
    uint64_t have;
};

enum hf_err hf_snapshot_transfer_open(struct hf_disk *disk,
                                      const struct hf_log_cluster *cluster,
                                      uint64_t index, uint64_t term,
                                      uint64_t size,
                                      struct hf_snapshot_transfer **transfer,
                                      struct hf_error *error)
{
    struct hf_snapshot_transfer *opened = calloc(1, sizeof(*opened));
    enum hf_err err;

    if (!opened)
        return hf_error_set_code(error, HF_ENOMEM);
    opened->cluster = *cluster;
    opened->index = index;
    opened->term = term;
    opened->size = size;
    err = hf_snapshot_temporary_open(disk, TMP_TRANSFER, &opened->file, error);
    if (err)
        free(opened);
    else
        *transfer = opened;
    return err;
}

uint64_t hf_snapshot_transfer_have(const struct hf_snapshot_transfer *transfer)
{
    return transfer->have;
}

enum hf_err hf_snapshot_transfer_add(struct hf_snapshot_transfer *transfer,
                                     uint64_t offset, const void *data,
                                     size_t size, struct hf_error *error)
{
    enum hf_err err;
    size_t known;

    if (size > transfer->size || offset > transfer->size - size)
        return hf_error_set(error, HF_EPROTO,
                            "%s: the snapshot is longer than announced",
                            transfer->file->disk->path);
    if (offset > transfer->have || offset + size <= transfer->have)
        return HF_OK;
    known = (size_t)(transfer->have - offset);
    err = hf_snapshot_temporary_write(transfer->file, transfer->have,
                                      (const uint8_t *)data + known,
                                      size - known, error);
    if (!err)
        transfer->have = offset + size;
    return err;
}

static enum hf_err check_transfer(const struct hf_snapshot_transfer *transfer,
                                  struct hf_error *error)
{
    struct hf_snapshot_header header;
    enum hf_err err;

    if (transfer->have < transfer->size)
        return hf_error_set(error, HF_EPROTO, "%s: the snapshot is incomplete",
                            transfer->file->disk->path);
    err = hf_snapshot_format_verify(transfer->file, &transfer->cluster, &header,
                                    error);
    if (err)
        return err;
    if (header.index != transfer->index || header.term != transfer->term)
        return hf_error_set(error, HF_EPROTO,
                            "%s: received another snapshot than announced",
                            transfer->file->disk->path);
    return HF_OK;
}

enum hf_err hf_snapshot_transfer_finish(struct hf_snapshot_transfer *transfer,
                                        struct hf_error *error)
{
    struct hf_disk *disk = transfer->file->disk;
    /* The file may have been the reserve, and longer than the snapshot. */
    int rc = disk->ops->truncate(transfer->file, transfer->size);
    enum hf_err err;

    if (rc)
        err = hf_disk_error(error, disk, transfer->file->name,
                            "cannot truncate", rc);
    else
        err = check_transfer(transfer, error);
    if (!err)
        err = hf_snapshot_temporary_publish(transfer->file, transfer->size,
                                            transfer->index, error);
    if (err) {
        hf_snapshot_transfer_cancel(transfer);
        return err;
    }
    hf_disk_close(transfer->file);
    free(transfer);
    return HF_OK;
}

void hf_snapshot_transfer_cancel(struct hf_snapshot_transfer *transfer)
{
    if (!transfer)
        return;
    hf_snapshot_temporary_drop(transfer->file);
    free(transfer);
}
