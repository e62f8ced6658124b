#include "log/snapshot_temporary.h"

#include <errno.h>
#include <string.h>

#include "log/segment.h"
#include "log/snapshot_format.h"
#include "log/wal.h"

enum hf_err hf_snapshot_temporary_open(struct hf_disk *disk, const char *name,
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

void hf_snapshot_temporary_drop(struct hf_disk_file *file)
{
    struct hf_disk *disk = file->disk;
    char name[HF_DISK_NAME];

    memcpy(name, file->name, sizeof(name));
    hf_disk_close(file);
    (void)disk->ops->remove(disk, name);
}

/* The order matters: the bytes are durable before the rename, and the name is
 * durable before the caller relies on it. */
enum hf_err hf_snapshot_temporary_publish(struct hf_disk_file *file,
                                          uint64_t size, uint64_t index,
                                          struct hf_error *error)
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

enum hf_err hf_snapshot_temporary_write(struct hf_disk_file *file,
                                        uint64_t offset, const void *data,
                                        size_t size, struct hf_error *error)
{
    int rc = hf_disk_write(file, offset, data, size);

    return rc ? hf_disk_error(error, file->disk, file->name,
                              "cannot write the snapshot", rc)
              : HF_OK;
}
