#include "log/disk.h"

#include <errno.h>

ssize_t hf_disk_read(struct hf_disk_file *file, uint64_t offset, void *to,
                     size_t size)
{
    size_t done = 0;

    while (done < size) {
        ssize_t got = file->disk->ops->read(file, offset + done,
                                            (char *)to + done, size - done);

        if (got < 0)
            return got;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

int hf_disk_write(struct hf_disk_file *file, uint64_t offset, const void *from,
                  size_t size)
{
    size_t done = 0;

    while (done < size) {
        ssize_t put = file->disk->ops->write(
            file, offset + done, (const char *)from + done, size - done);

        if (put < 0)
            return (int)put;
        if (put == 0)
            return -EIO;
        done += (size_t)put;
    }
    return 0;
}

void hf_disk_close(struct hf_disk_file *file)
{
    if (file)
        file->disk->ops->close(file);
}

/* Make names that were changed durable. Any failure is -EIO, even on a full
 * disk: the change was made, so the caller must not try it again. */
static int sync_names(struct hf_disk *disk)
{
    return disk->ops->sync_directory(disk) ? -EIO : 0;
}

int hf_disk_rename(struct hf_disk *disk, const char *from, const char *to)
{
    int rc = disk->ops->rename(disk, from, to);

    return rc ? rc : sync_names(disk);
}

int hf_disk_remove(struct hf_disk *disk, const char *name)
{
    int rc = disk->ops->remove(disk, name);

    return rc ? rc : sync_names(disk);
}

bool hf_disk_is_full(int rc)
{
    return rc == -ENOSPC || rc == -EDQUOT;
}

bool hf_disk_is_short(int rc)
{
    return rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE;
}

/* Describe an error. For these two errors of `open`, the text of strerror()
 * says nothing about the file. */
static const char *describe_disk_error(int rc, char *text, size_t size)
{
    if (rc == -ELOOP)
        return "it is a symbolic link";
    if (rc == -EINVAL)
        return "it is not a regular file";
    if (rc == -EACCES)
        return "permission denied; the owner of the directory must run this "
               "node";
    return strerror_r(-rc, text, size);
}

enum hf_err hf_disk_error(struct hf_error *error, const struct hf_disk *disk,
                          const char *name, const char *what, int rc)
{
    enum hf_err code = hf_disk_is_full(rc)    ? HF_ELIMIT
                       : hf_disk_is_short(rc) ? HF_ENOMEM
                                              : HF_ESYSTEM;
    char text[128];

    return hf_error_set(error, code, "%s%s%s: %s: %s", disk->path,
                        *name ? "/" : "", name, what,
                        describe_disk_error(rc, text, sizeof(text)));
}
