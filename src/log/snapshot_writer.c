#include "log/snapshot_writer.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "log/segment.h"
#include "log/snapshot_format.h"
#include "log/snapshot_temporary.h"

#define TMP_WRITER HF_SEGMENT_TMP "snapshot"

struct hf_snapshot_writer {
    struct hf_disk_file *file;
    struct hf_snapshot_header header;
    struct hf_snapshot_sum sum;
    uint64_t written; /* bytes of the body in the file */
    size_t used;      /* bytes in `block` */
    uint8_t block[HF_SNAPSHOT_FORMAT_BLOCK];
};

static enum hf_err write_block(struct hf_snapshot_writer *writer,
                               struct hf_error *error)
{
    enum hf_err err = hf_snapshot_temporary_write(
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
    err = hf_snapshot_temporary_open(disk, TMP_WRITER, &opened->file, error);
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
    return hf_snapshot_temporary_write(writer->file, 0, bytes, sizeof(bytes),
                                       error);
}

enum hf_err hf_snapshot_writer_finish(struct hf_snapshot_writer *writer,
                                      struct hf_error *error)
{
    enum hf_err err = writer->used > 0 ? write_block(writer, error) : HF_OK;

    if (!err)
        err = write_snapshot_header(writer, error);
    if (!err)
        err = hf_snapshot_temporary_publish(
            writer->file, hf_snapshot_format_size(&writer->header),
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
    hf_snapshot_temporary_drop(writer->file);
    free(writer);
}
