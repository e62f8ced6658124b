/* snapshot_writer.c - make a snapshot file, from this node's data or from the
 * bytes that another node sends. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "log/segment.h"
#include "log/snapshot_format.h"
#include "log/wal.h"

#define TMP_WRITER HF_SEGMENT_TMP "snapshot"
#define TMP_TRANSFER HF_SEGMENT_TMP "transfer"

/* ---- The temporary file -------------------------------------------------*/

/* Open the temporary file `name`. It is the reserve under a new name, so that
 * writing needs no space on the disk, or a new file if there is no reserve. */
static enum hf_err open_temporary(struct hf_disk *disk, const char *name,
                                  struct hf_disk_file **file,
                                  struct hf_error *error)
{
    int rc = disk->ops->remove(disk, name);

    if (!rc || rc == -ENOENT)
        rc = disk->ops->rename(disk, HF_WAL_RESERVE_FILE, name);
    if (!rc)
        rc = disk->ops->open(disk, name, file);
    else if (rc == -ENOENT)
        rc = disk->ops->create(disk, name, file);
    return rc ? hf_disk_error(error, disk, name, "cannot create", rc) : HF_OK;
}

/* Close and remove the temporary file. */
static void drop_temporary(struct hf_disk_file *file)
{
    struct hf_disk *disk = file->disk;
    char name[HF_DISK_NAME];

    memcpy(name, file->name, sizeof(name));
    hf_disk_close(file);
    (void)disk->ops->remove(disk, name);
}

/* Give the complete file its name. The order matters: the bytes are durable
 * before the rename, and the name is durable before the caller relies on it. */
static enum hf_err publish_temporary(struct hf_disk_file *file, uint64_t size,
                                     uint64_t index, struct hf_error *error)
{
    struct hf_disk *disk = file->disk;
    char name[HF_DISK_NAME];
    int rc = disk->ops->truncate(file, size);

    hf_segment_name(name, HF_SNAPSHOT_FORMAT_NAME, index);
    if (!rc)
        rc = disk->ops->sync(file);
    if (!rc)
        rc = disk->ops->rename(disk, file->name, name);
    if (!rc) {
        rc = disk->ops->sync_directory(disk);
        if (rc) /* A snapshot that was reported as failed must not be found. */
            (void)disk->ops->remove(disk, name);
    }
    return rc ? hf_disk_error(error, disk, name, "cannot write the snapshot",
                              rc)
              : HF_OK;
}

/* ---- Our own snapshot ---------------------------------------------------*/

struct hf_snapshot_writer {
    struct hf_disk_file *file;
    struct hf_snapshot_header header;
    struct hf_snapshot_sum sum;
    uint64_t written; /* bytes of the body in the file */
    size_t used;      /* bytes in `block` */
    uint8_t block[HF_SNAPSHOT_FORMAT_BLOCK];
};

static enum hf_err write_snapshot_at(struct hf_disk_file *file, uint64_t offset,
                                     const void *data, size_t size,
                                     struct hf_error *error)
{
    int rc = hf_disk_write(file, offset, data, size);

    return rc ? hf_disk_error(error, file->disk, file->name,
                              "cannot write the snapshot", rc)
              : HF_OK;
}

static enum hf_err write_block(struct hf_snapshot_writer *writer,
                               struct hf_error *error)
{
    enum hf_err err = write_snapshot_at(
        writer->file, HF_SNAPSHOT_FORMAT_START + writer->written, writer->block,
        writer->used, error);

    if (err)
        return err;
    hf_snapshot_format_sum(&writer->sum, writer->block, writer->used);
    writer->written += writer->used;
    writer->used = 0;
    return HF_OK;
}

static enum hf_err add_body(struct hf_snapshot_writer *writer, const void *data,
                            size_t size, struct hf_error *error)
{
    const uint8_t *from = data;
    enum hf_err err = HF_OK;

    while (size > 0 && !err) {
        size_t room = HF_SNAPSHOT_FORMAT_BLOCK - writer->used;
        size_t step = size < room ? size : room;

        memcpy(writer->block + writer->used, from, step);
        writer->used += step;
        from += step;
        size -= step;
        if (writer->used == HF_SNAPSHOT_FORMAT_BLOCK)
            err = write_block(writer, error);
    }
    return err;
}

enum hf_err hf_snapshot_writer_open(struct hf_disk *disk,
                                    const struct hf_log_cluster *cluster,
                                    const struct hf_snapshot_meta *meta,
                                    struct hf_snapshot_writer **writer,
                                    struct hf_error *error)
{
    struct hf_snapshot_writer *opened;
    enum hf_err err;

    if (meta->config.size > HF_SNAPSHOT_CONFIG_MAX)
        return hf_error_set_code(error, HF_ELIMIT);
    opened = calloc(1, sizeof(*opened));
    if (!opened)
        return hf_error_set_code(error, HF_ENOMEM);
    opened->header = (struct hf_snapshot_header){
        .config_size = (uint32_t)meta->config.size,
        .cluster = *cluster,
        .index = meta->index,
        .term = meta->term,
        .config_index = meta->config_index,
    };
    err = open_temporary(disk, TMP_WRITER, &opened->file, error);
    if (err) {
        free(opened);
        return err;
    }
    err = add_body(opened, meta->config.data, meta->config.size, error);
    if (err)
        hf_snapshot_writer_cancel(opened);
    else
        *writer = opened;
    return err;
}

enum hf_err hf_snapshot_writer_add(struct hf_snapshot_writer *writer,
                                   const void *data, size_t size,
                                   struct hf_error *error)
{
    writer->header.data_size += size;
    return add_body(writer, data, size, error);
}

static enum hf_err write_snapshot_header(struct hf_snapshot_writer *writer,
                                         struct hf_error *error)
{
    uint8_t bytes[HF_SNAPSHOT_FORMAT_START];

    writer->header.body_sum = writer->sum.sum;
    hf_snapshot_format_encode(&writer->header, bytes);
    return write_snapshot_at(writer->file, 0, bytes, sizeof(bytes), error);
}

enum hf_err hf_snapshot_writer_finish(struct hf_snapshot_writer *writer,
                                      struct hf_error *error)
{
    enum hf_err err = writer->used > 0 ? write_block(writer, error) : HF_OK;

    if (!err)
        err = write_snapshot_header(writer, error);
    if (!err)
        err = publish_temporary(writer->file,
                                hf_snapshot_format_size(&writer->header),
                                writer->header.index, error);
    if (err) {
        hf_snapshot_writer_cancel(writer);
        return err;
    }
    hf_disk_close(writer->file);
    free(writer);
    return HF_OK;
}

void hf_snapshot_writer_cancel(struct hf_snapshot_writer *writer)
{
    if (!writer)
        return;
    drop_temporary(writer->file);
    free(writer);
}

/* ---- A snapshot from another node ---------------------------------------*/

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
    err = open_temporary(disk, TMP_TRANSFER, &opened->file, error);
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
    err = write_snapshot_at(transfer->file, transfer->have,
                            (const uint8_t *)data + known, size - known, error);
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
        err = publish_temporary(transfer->file, transfer->size, transfer->index,
                                error);
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
    drop_temporary(transfer->file);
    free(transfer);
}
