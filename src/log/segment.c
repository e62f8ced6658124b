#include "log/segment.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hex.h"

#define MAGIC UINT64_C(0x3147534c46482121) /* "!!HFLSG1" */

/* The bytes of the header before its checksum. After the checksum, zeros pad
 * the header up to HF_SEGMENT_START. */
#define HEADER_SIZE 60

#define DIGITS 16
#define TMP_NAME HF_SEGMENT_TMP "segment"

void hf_segment_name(char name[HF_DISK_NAME], const char *prefix,
                     uint64_t number)
{
    (void)snprintf(name, HF_DISK_NAME, "%s%016" PRIx64, prefix, number);
}

bool hf_segment_parse(const char *name, const char *prefix, uint64_t *number)
{
    size_t start = strlen(prefix);
    uint64_t parsed = 0;

    if (strncmp(name, prefix, start) != 0 || strlen(name) != start + DIGITS)
        return false;
    for (const char *at = name + start; *at; at++) {
        int digit = hf_hex_digit(*at);

        if (digit < 0 || (*at >= 'A' && *at <= 'F'))
            return false;
        parsed = parsed << 4 | (unsigned)digit;
    }
    *number = parsed;
    return true;
}

/* ---- The header ---------------------------------------------------------*/

static uint64_t header_checksum(const void *data)
{
    static const struct hf_seed zero;

    return hf_siphash(&zero, data, HEADER_SIZE);
}

static void encode_header(struct hf_buf *buf,
                          const struct hf_log_identity *identity,
                          uint64_t epoch)
{
    static const uint8_t zeros[HF_SEGMENT_START];

    hf_buf_u64(buf, MAGIC);
    hf_buf_u32(buf, HF_SEGMENT_VERSION);
    hf_buf_raw(buf, identity->cluster.bytes, sizeof(identity->cluster.bytes));
    hf_buf_u64(buf, identity->node);
    hf_buf_u64(buf, identity->segment_size);
    hf_buf_u64(buf, epoch);
    hf_buf_u64(buf, 0); /* reserved */
    if (!buf->failed)
        hf_buf_u64(buf, header_checksum(buf->data));
    hf_buf_raw(buf, zeros, HF_SEGMENT_START - buf->size);
}

static int write_segment_header(struct hf_disk_file *file,
                                const struct hf_log_identity *identity,
                                uint64_t epoch)
{
    struct hf_buf buf = {0};
    int rc;

    encode_header(&buf, identity, epoch);
    rc = buf.failed ? -ENOMEM : hf_disk_write(file, 0, buf.data, buf.size);
    hf_buf_fini(&buf);
    return rc;
}

struct header {
    uint64_t magic;
    uint32_t version;
    struct hf_log_cluster cluster;
    uint64_t node, size, epoch, checksum;
};

static struct header decode_segment_header(const uint8_t *data)
{
    struct hf_reader reader = {.data = data, .size = HF_SEGMENT_START};
    struct header header = {0};

    header.magic = hf_reader_u64(&reader);
    header.version = hf_reader_u32(&reader);
    hf_reader_raw(&reader, header.cluster.bytes, sizeof(header.cluster.bytes));
    header.node = hf_reader_u64(&reader);
    header.size = hf_reader_u64(&reader);
    header.epoch = hf_reader_u64(&reader);
    (void)hf_reader_u64(&reader);
    header.checksum = hf_reader_u64(&reader);
    return header;
}

static enum hf_err refuse_segment(const struct hf_disk_file *file,
                                  enum hf_err code, struct hf_error *error,
                                  const char *why)
{
    return hf_error_set(error, code, "%s/%s: %s%s", file->disk->path,
                        file->name, why,
                        code == HF_EUNSUPPORTED ? "" : ". " HF_DISK_LOST);
}

static enum hf_err check_segment_size(const struct hf_disk_file *file,
                                      uint64_t size, uint64_t wanted,
                                      struct hf_error *error)
{
    if (size == wanted)
        return HF_OK;
    return hf_error_set(error, HF_EPROTO,
                        "%s/%s: has %" PRIu64 " bytes instead of %" PRIu64
                        ": it was truncated or extended. " HF_DISK_LOST,
                        file->disk->path, file->name, size, wanted);
}

enum hf_err hf_segment_check(const struct hf_disk_file *file,
                             const uint8_t *data, uint64_t size,
                             const struct hf_log_identity *identity,
                             uint64_t epoch, struct hf_error *error)
{
    enum hf_err err =
        check_segment_size(file, size, identity->segment_size, error);
    struct header header;

    if (err)
        return err;
    header = decode_segment_header(data);
    if (header.magic != MAGIC)
        return refuse_segment(file, HF_EPROTO, error,
                              "bad header at offset 0: not a log segment");
    if (header.checksum != header_checksum(data))
        return refuse_segment(file, HF_EPROTO, error,
                              "bad header at offset 0: wrong checksum");
    if (header.version > HF_SEGMENT_VERSION)
        return refuse_segment(
            file, HF_EUNSUPPORTED, error,
            "written by a newer version of holdfast: upgrade this "
            "node first");
    if (memcmp(&header.cluster, &identity->cluster, sizeof(header.cluster)) !=
            0 ||
        header.node != identity->node)
        return refuse_segment(file, HF_EINVAL, error,
                              "belongs to another cluster or node");
    if (header.epoch != epoch || header.size != size)
        return refuse_segment(
            file, HF_EPROTO, error,
            "bad header at offset 0: belongs to another file");
    return HF_OK;
}

/* ---- Making files -------------------------------------------------------*/

/* Close and remove a temporary file. Errors are ignored, because files with the
 * prefix HF_SEGMENT_TMP are removed at the next start anyway. */
static void drop_file(struct hf_disk *disk, struct hf_disk_file *file,
                      const char *name)
{
    hf_disk_close(file);
    (void)disk->ops->remove(disk, name);
}

/* Create a file of written and synced zeros: overwriting it needs no space. */
static int create_written(struct hf_disk *disk, const char *name, uint64_t size,
                          struct hf_disk_file **file)
{
    struct hf_disk_file *created;
    int rc = disk->ops->remove(disk, name);

    if (rc && rc != -ENOENT)
        return rc;
    rc = disk->ops->create(disk, name, &created);
    if (rc)
        return rc;
    rc = disk->ops->prewrite(created, size);
    if (!rc)
        rc = disk->ops->sync(created);
    if (rc) {
        drop_file(disk, created, name);
        return rc;
    }
    *file = created;
    return 0;
}

/* Make the header durable before the rename, so that a file with the name of a
 * segment always has the header of that segment. */
static int become_segment(struct hf_disk_file *file, const char *name,
                          const struct hf_log_identity *identity,
                          uint64_t epoch)
{
    struct hf_disk *disk = file->disk;
    char final[HF_DISK_NAME];
    int rc = write_segment_header(file, identity, epoch);

    hf_segment_name(final, HF_SEGMENT_LOG, epoch);
    if (!rc)
        rc = disk->ops->sync(file);
    if (!rc)
        rc = hf_disk_rename(disk, name, final);
    if (!rc)
        memcpy(file->name, final, sizeof(final));
    return rc;
}

int hf_segment_prepare(struct hf_disk *disk,
                       const struct hf_log_identity *identity, uint64_t epoch,
                       const char *spare, struct hf_disk_file **file)
{
    const char *name = spare ? spare : TMP_NAME;
    struct hf_disk_file *opened = NULL;
    int rc;

    if (spare)
        rc = disk->ops->open(disk, spare, &opened);
    else
        rc = create_written(disk, name, identity->segment_size, &opened);
    if (!rc)
        rc = become_segment(opened, name, identity, epoch);
    if (rc) {
        hf_disk_close(opened);
        return rc;
    }
    *file = opened;
    return 0;
}

int hf_segment_make_spare(struct hf_disk *disk, uint64_t size, const char *name)
{
    struct hf_disk_file *file;
    int rc = create_written(disk, TMP_NAME, size, &file);

    if (rc)
        return rc;
    hf_disk_close(file);
    return hf_disk_rename(disk, TMP_NAME, name);
}
