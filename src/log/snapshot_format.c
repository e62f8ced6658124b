#include "log/snapshot_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

#define MAGIC UINT64_C(0x31504e5346482121) /* "!!HFSNP1" */

/* The bytes of the header before its checksum. After the checksum, zeros pad
 * the header up to HF_SNAPSHOT_FORMAT_START. */
#define HEADER_SIZE 72

static uint64_t header_sum(const void *data)
{
    static const struct hf_seed zero;

    return hf_siphash(&zero, data, HEADER_SIZE);
}

void hf_snapshot_format_encode(const struct hf_snapshot_header *header,
                               uint8_t to[HF_SNAPSHOT_FORMAT_START])
{
    memset(to, 0, HF_SNAPSHOT_FORMAT_START);
    hf_bytes_put_u64(to, MAGIC);
    hf_bytes_put_u32(to + 8, HF_SNAPSHOT_FORMAT_VERSION);
    hf_bytes_put_u32(to + 12, header->config_size);
    memcpy(to + 16, header->cluster.bytes, sizeof(header->cluster.bytes));
    hf_bytes_put_u64(to + 32, header->index);
    hf_bytes_put_u64(to + 40, header->term);
    hf_bytes_put_u64(to + 48, header->config_index);
    hf_bytes_put_u64(to + 56, header->data_size);
    hf_bytes_put_u64(to + 64, header->body_sum);
    hf_bytes_put_u64(to + HEADER_SIZE, header_sum(to));
}

enum hf_err hf_snapshot_format_decode(
    const uint8_t from[HF_SNAPSHOT_FORMAT_START],
    struct hf_snapshot_header *header)
{
    struct hf_reader reader = {.data = from, .size = HF_SNAPSHOT_FORMAT_START};
    uint64_t magic = hf_reader_u64(&reader);

    header->version = hf_reader_u32(&reader);
    header->config_size = hf_reader_u32(&reader);
    hf_reader_raw(&reader, header->cluster.bytes,
                  sizeof(header->cluster.bytes));
    header->index = hf_reader_u64(&reader);
    header->term = hf_reader_u64(&reader);
    header->config_index = hf_reader_u64(&reader);
    header->data_size = hf_reader_u64(&reader);
    header->body_sum = hf_reader_u64(&reader);
    if (magic != MAGIC || hf_reader_u64(&reader) != header_sum(from))
        return HF_EPROTO;
    if (header->version > HF_SNAPSHOT_FORMAT_VERSION)
        return HF_EUNSUPPORTED;
    if (header->config_size > HF_SNAPSHOT_CONFIG_MAX ||
        header->data_size > INT64_MAX / 2)
        return HF_EPROTO;
    return HF_OK;
}

uint64_t hf_snapshot_format_size(const struct hf_snapshot_header *header)
{
    return HF_SNAPSHOT_FORMAT_START + header->config_size + header->data_size;
}

void hf_snapshot_format_sum(struct hf_snapshot_sum *sum, const void *block,
                            size_t size)
{
    struct hf_seed key;

    hf_bytes_put_u64(key.bytes, sum->sum);
    hf_bytes_put_u64(key.bytes + 8, sum->blocks++);
    sum->sum = hf_siphash(&key, block, size);
}

/* ---- Verifying ----------------------------------------------------------*/

static enum hf_err refuse_snapshot(const struct hf_disk_file *file,
                                   enum hf_err code, const char *why,
                                   struct hf_error *error)
{
    return hf_error_set(error, code, "%s/%s: %s", file->disk->path, file->name,
                        why);
}

static enum hf_err read_exactly(struct hf_disk_file *file, uint64_t offset,
                                void *to, size_t size, struct hf_error *error)
{
    ssize_t got = hf_disk_read(file, offset, to, size);

    if (got < 0)
        return hf_disk_error(error, file->disk, file->name, "cannot read",
                             (int)got);
    if ((size_t)got < size)
        return refuse_snapshot(file, HF_EPROTO, "the snapshot is truncated",
                               error);
    return HF_OK;
}

static enum hf_err check_header(struct hf_disk_file *file,
                                const struct hf_log_cluster *cluster,
                                struct hf_snapshot_header *header,
                                struct hf_error *error)
{
    uint8_t bytes[HF_SNAPSHOT_FORMAT_START];
    enum hf_err err = read_exactly(file, 0, bytes, sizeof(bytes), error);

    if (err)
        return err;
    err = hf_snapshot_format_decode(bytes, header);
    if (err == HF_EUNSUPPORTED)
        return refuse_snapshot(
            file, err,
            "written by a newer version of holdfast: upgrade this "
            "node first",
            error);
    if (err)
        return refuse_snapshot(file, err, "bad snapshot header at offset 0",
                               error);
    if (memcmp(&header->cluster, cluster, sizeof(*cluster)) != 0)
        return refuse_snapshot(file, HF_EINVAL, "a snapshot of another cluster",
                               error);
    return HF_OK;
}

static enum hf_err check_snapshot_size(struct hf_disk_file *file,
                                       const struct hf_snapshot_header *header,
                                       struct hf_error *error)
{
    uint64_t expected = hf_snapshot_format_size(header);
    uint64_t size = 0;
    int rc = file->disk->ops->size(file, &size);

    if (rc)
        return hf_disk_error(error, file->disk, file->name, "cannot read", rc);
    if (size == expected)
        return HF_OK;
    return hf_error_set(error, HF_EPROTO,
                        "%s/%s: has %" PRIu64 " bytes instead of %" PRIu64
                        ": the snapshot is damaged",
                        file->disk->path, file->name, size, expected);
}

static enum hf_err check_body(struct hf_disk_file *file,
                              const struct hf_snapshot_header *header,
                              uint8_t *block, struct hf_error *error)
{
    struct hf_snapshot_sum sum = {0};
    uint64_t at = HF_SNAPSHOT_FORMAT_START;
    uint64_t left = hf_snapshot_format_size(header) - at;

    while (left > 0) {
        size_t size = left < HF_SNAPSHOT_FORMAT_BLOCK
                          ? (size_t)left
                          : HF_SNAPSHOT_FORMAT_BLOCK;
        enum hf_err err = read_exactly(file, at, block, size, error);

        if (err)
            return err;
        hf_snapshot_format_sum(&sum, block, size);
        at += size;
        left -= size;
    }
    if (sum.sum != header->body_sum)
        return refuse_snapshot(
            file, HF_EPROTO,
            "the checksum of the snapshot is wrong: it is damaged", error);
    return HF_OK;
}

enum hf_err hf_snapshot_format_verify(struct hf_disk_file *file,
                                      const struct hf_log_cluster *cluster,
                                      struct hf_snapshot_header *header,
                                      struct hf_error *error)
{
    struct hf_snapshot_header found;
    uint8_t *block;
    enum hf_err err = check_header(file, cluster, &found, error);

    if (!err)
        err = check_snapshot_size(file, &found, error);
    if (err)
        return err;
    block = malloc(HF_SNAPSHOT_FORMAT_BLOCK);
    if (!block)
        return hf_error_set_code(error, HF_ENOMEM);
    err = check_body(file, &found, block, error);
    free(block);
    if (!err)
        *header = found;
    return err;
}
