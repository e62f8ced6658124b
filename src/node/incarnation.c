#include "node/incarnation.h"

#include <errno.h>

#include "base/buf.h"
#include "base/siphash.h"

#define NAME "incarnation"
#define TMP "tmp-incarnation"
#define SIZE 16 /* the number, and its checksum */

static const struct hf_seed seed = {"incarnation"};

static int read_incarnation(struct hf_disk *disk, uint64_t *number)
{
    uint8_t bytes[SIZE];
    struct hf_reader reader = {.data = bytes, .size = sizeof(bytes)};
    struct hf_disk_file *file;
    ssize_t got;
    int rc = disk->ops->open(disk, NAME, &file);

    *number = 0;
    if (rc == -ENOENT)
        return 0;
    if (rc)
        return rc;
    got = hf_disk_read(file, 0, bytes, sizeof(bytes));
    hf_disk_close(file);
    if (got < 0)
        return (int)got;
    *number = hf_reader_u64(&reader);
    if (got != SIZE || hf_reader_u64(&reader) != hf_siphash(&seed, bytes, 8))
        return -EBADMSG;
    return 0;
}

static int write_incarnation(struct hf_disk *disk, uint64_t number)
{
    struct hf_disk_file *file;
    struct hf_buf buf = {0};
    int rc;

    hf_buf_u64(&buf, number);
    if (!buf.failed)
        hf_buf_u64(&buf, hf_siphash(&seed, buf.data, 8));
    if (buf.failed)
        return -ENOMEM;
    rc = disk->ops->create(disk, TMP, &file);
    if (!rc) {
        rc = hf_disk_write(file, 0, buf.data, buf.size);
        if (!rc)
            rc = disk->ops->sync(file);
        hf_disk_close(file);
    }
    hf_buf_fini(&buf);
    return rc ? rc : hf_disk_rename(disk, TMP, NAME);
}

enum hf_err hf_incarnation_raise(struct hf_disk *disk, uint64_t *incarnation,
                                 struct hf_error *error)
{
    uint64_t number;
    int rc = read_incarnation(disk, &number);

    if (rc)
        return hf_disk_error(error, disk, NAME, "cannot read", rc);
    rc = write_incarnation(disk, number + 1);
    if (rc)
        return hf_disk_error(error, disk, NAME, "cannot write", rc);
    *incarnation = number + 1;
    return HF_OK;
}
