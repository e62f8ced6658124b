#include "log/snapshot_file.h"

#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "log/segment.h"
#include "log/snapshot_format.h"

struct hf_snapshot_file {
    struct hf_disk_file *file;
    struct hf_snapshot_header header;
    struct hf_snapshot_meta meta;
    uint8_t config[];
};

/* ---- The list of snapshots ----------------------------------------------*/

struct snapshot_list {
    uint64_t indexes[HF_SNAPSHOTS_MAX]; /* the newest, in ascending order */
    size_t count;
};

/* Insert the index of a snapshot in order. If the list is full, leave out the
 * oldest one. */
static void on_snapshot_name(void *arg, const char *name)
{
    struct snapshot_list *list = arg;
    uint64_t index;
    size_t at;

    if (!hf_segment_parse(name, HF_SNAPSHOT_FORMAT_NAME, &index))
        return;
    if (list->count == HF_SNAPSHOTS_MAX) {
        if (index < list->indexes[0])
            return;
        memmove(list->indexes, list->indexes + 1,
                --list->count * sizeof(list->indexes[0]));
    }
    for (at = list->count++; at > 0 && list->indexes[at - 1] > index; at--)
        list->indexes[at] = list->indexes[at - 1];
    list->indexes[at] = index;
}

static enum hf_err list_snapshots(struct hf_disk *disk,
                                  struct snapshot_list *list,
                                  struct hf_error *error)
{
    int rc;

    list->count = 0;
    rc = disk->ops->list(disk, on_snapshot_name, list);
    return rc ? hf_disk_error(error, disk, "", "cannot list", rc) : HF_OK;
}

/* ---- Opening ------------------------------------------------------------*/

static enum hf_err read_config(struct hf_snapshot_file *snapshot,
                               struct hf_error *error)
{
    struct hf_disk_file *file = snapshot->file;
    size_t size = snapshot->header.config_size;
    ssize_t got =
        hf_disk_read(file, HF_SNAPSHOT_FORMAT_START, snapshot->config, size);

    if (got < 0 || (size_t)got < size)
        return hf_disk_error(error, file->disk, file->name, "cannot read",
                             got < 0 ? (int)got : 0);
    snapshot->meta = (struct hf_snapshot_meta){
        .index = snapshot->header.index,
        .term = snapshot->header.term,
        .config_index = snapshot->header.config_index,
        .config = {snapshot->config, size},
    };
    return HF_OK;
}

/* Verify an open file, and make a snapshot object that owns `file`. */
static enum hf_err adopt_file(struct hf_disk_file *file,
                              const struct hf_log_cluster *cluster,
                              uint64_t index, struct hf_snapshot_file **adopted,
                              struct hf_error *error)
{
    struct hf_snapshot_header header;
    struct hf_snapshot_file *snapshot;
    enum hf_err err = hf_snapshot_format_verify(file, cluster, &header, error);

    if (err)
        return err;
    if (header.index != index)
        return hf_error_set(error, HF_EPROTO,
                            "%s/%s: the snapshot has the name of another one",
                            file->disk->path, file->name);
    snapshot = calloc(1, sizeof(*snapshot) + header.config_size);
    if (!snapshot)
        return hf_error_set_code(error, HF_ENOMEM);
    snapshot->file = file;
    snapshot->header = header;
    err = read_config(snapshot, error);
    if (err)
        free(snapshot);
    else
        *adopted = snapshot;
    return err;
}

enum hf_err hf_snapshot_file_open_at(struct hf_disk *disk,
                                     const struct hf_log_cluster *cluster,
                                     uint64_t index,
                                     struct hf_snapshot_file **snapshot,
                                     struct hf_error *error)
{
    struct hf_disk_file *file;
    char name[HF_DISK_NAME];
    enum hf_err err;
    int rc;

    hf_segment_name(name, HF_SNAPSHOT_FORMAT_NAME, index);
    rc = disk->ops->open(disk, name, &file);
    if (rc == -ENOENT)
        return hf_error_set(error, HF_ESTATE, "%s/%s: does not exist",
                            disk->path, name);
    if (rc)
        return hf_disk_error(error, disk, name, "cannot open", rc);
    err = adopt_file(file, cluster, index, snapshot, error);
    if (err)
        hf_disk_close(file);
    return err;
}

enum hf_err hf_snapshot_file_open(struct hf_disk *disk,
                                  const struct hf_log_cluster *cluster,
                                  struct hf_snapshot_file **file,
                                  struct hf_error *damaged,
                                  struct hf_error *error)
{
    struct hf_snapshot_file *snapshot = NULL;
    struct snapshot_list list;
    enum hf_err err = list_snapshots(disk, &list, error);

    memset(damaged, 0, sizeof(*damaged));
    while (!err && !snapshot && list.count > 0) {
        struct hf_error why = {0};

        err = hf_snapshot_file_open_at(
            disk, cluster, list.indexes[--list.count], &snapshot, &why);
        if (err)
            *error = why;
        if (err == HF_EPROTO && !damaged->code)
            *damaged = why;
        if (err == HF_EPROTO && list.count > 0)
            err = HF_OK; /* try the next older one */
    }
    if (!err)
        *file = snapshot;
    return err;
}

void hf_snapshot_file_close(struct hf_snapshot_file *file)
{
    if (!file)
        return;
    hf_disk_close(file->file);
    free(file);
}

/* ---- Reading ------------------------------------------------------------*/

const struct hf_snapshot_meta *hf_snapshot_file_meta(
    const struct hf_snapshot_file *file)
{
    return &file->meta;
}

uint64_t hf_snapshot_file_data_size(const struct hf_snapshot_file *file)
{
    return file->header.data_size;
}

uint64_t hf_snapshot_file_size(const struct hf_snapshot_file *file)
{
    return hf_snapshot_format_size(&file->header);
}

enum hf_err hf_snapshot_file_read(struct hf_snapshot_file *file,
                                  uint64_t offset, void *to, size_t size,
                                  struct hf_error *error)
{
    struct hf_disk_file *disk_file = file->file;
    ssize_t got = hf_disk_read(disk_file, offset, to, size);

    if (got < 0)
        return hf_disk_error(error, disk_file->disk, disk_file->name,
                             "cannot read", (int)got);
    if ((size_t)got < size)
        return hf_error_set(error, HF_EPROTO,
                            "%s/%s: the snapshot is truncated",
                            disk_file->disk->path, disk_file->name);
    return HF_OK;
}

enum hf_err hf_snapshot_file_read_data(struct hf_snapshot_file *file,
                                       uint64_t offset, void *to, size_t size,
                                       struct hf_error *error)
{
    return hf_snapshot_file_read(
        file, HF_SNAPSHOT_FORMAT_START + file->header.config_size + offset, to,
        size, error);
}

enum hf_err hf_snapshot_file_remove(struct hf_disk *disk, uint64_t index,
                                    struct hf_error *error)
{
    char name[HF_DISK_NAME];
    int rc;

    hf_segment_name(name, HF_SNAPSHOT_FORMAT_NAME, index);
    rc = disk->ops->remove(disk, name);
    return rc && rc != -ENOENT
               ? hf_disk_error(error, disk, name, "cannot remove", rc)
               : HF_OK;
}

enum hf_err hf_snapshot_file_remove_old(struct hf_disk *disk, uint64_t index,
                                        struct hf_error *error)
{
    struct snapshot_list list;
    enum hf_err err = list_snapshots(disk, &list, error);

    for (size_t i = 0; i < list.count && !err; i++) {
        if (list.indexes[i] >= index)
            break;
        err = hf_snapshot_file_remove(disk, list.indexes[i], error);
    }
    return err;
}
