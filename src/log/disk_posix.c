/* disk_posix.c - the operations of disk.h on a directory of the file system. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/container.h"
#include "log/disk.h"

#define ZEROS_SIZE 262144

struct posix_disk {
    struct hf_disk disk;
    int fd;
    int lock; /* -1 if not locked */
    char path[];
};

struct posix_file {
    struct hf_disk_file file;
    int fd;
};

static struct posix_disk *disk_of(struct hf_disk *disk)
{
    return HF_CONTAINER(disk, struct posix_disk, disk);
}

static int fd_of(struct hf_disk_file *file)
{
    return HF_CONTAINER(file, struct posix_file, file)->fd;
}

static int result_of(int rc)
{
    return rc < 0 ? -errno : 0;
}

static int list_names(struct hf_disk *disk, hf_disk_name_fn *each, void *arg)
{
    int fd = openat(disk_of(disk)->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    int rc;

    if (!stream) {
        rc = -errno;
        if (fd >= 0)
            (void)close(fd);
        return rc;
    }
    while (errno = 0, (entry = readdir(stream))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            each(arg, entry->d_name);
    }
    rc = -errno;
    (void)closedir(stream);
    return rc;
}

/* Make a file object that owns `fd`. If this fails, `fd` is closed. */
static int adopt_descriptor(struct hf_disk *disk, const char *name, int fd,
                            struct hf_disk_file **file)
{
    struct posix_file *opened = malloc(sizeof(*opened));

    if (!opened) {
        (void)close(fd);
        return -ENOMEM;
    }
    opened->fd = fd;
    opened->file.disk = disk;
    (void)snprintf(opened->file.name, sizeof(opened->file.name), "%s", name);
    *file = &opened->file;
    return 0;
}

static int create_file(struct hf_disk *disk, const char *name,
                       struct hf_disk_file **file)
{
    int fd = openat(disk_of(disk)->fd, name,
                    O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    return fd < 0 ? -errno : adopt_descriptor(disk, name, fd, file);
}

static int open_file(struct hf_disk *disk, const char *name,
                     struct hf_disk_file **file)
{
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    int fd = openat(disk_of(disk)->fd, name,
                    O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat about;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &about) || !S_ISREG(about.st_mode)) {
        (void)close(fd);
        return -EINVAL;
    }
    return adopt_descriptor(disk, name, fd, file);
}

static void close_file(struct hf_disk_file *file)
{
    (void)close(fd_of(file));
    free(HF_CONTAINER(file, struct posix_file, file));
}

static int file_size(struct hf_disk_file *file, uint64_t *size)
{
    struct stat about;

    if (fstat(fd_of(file), &about))
        return -errno;
    *size = (uint64_t)about.st_size;
    return 0;
}

static ssize_t read_file(struct hf_disk_file *file, uint64_t offset, void *to,
                         size_t size)
{
    ssize_t got;

    do {
        got = pread(fd_of(file), to, size, (off_t)offset);
    } while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

static ssize_t disk_write_file(struct hf_disk_file *file, uint64_t offset,
                               const void *from, size_t size)
{
    ssize_t put;

    do {
        put = pwrite(fd_of(file), from, size, (off_t)offset);
    } while (put < 0 && errno == EINTR);
    return put < 0 ? -errno : put;
}

static int space_left(struct hf_disk *disk, uint64_t *bytes)
{
    struct statvfs about;

    if (fstatvfs(disk_of(disk)->fd, &about))
        return -errno;
    *bytes = (uint64_t)about.f_bavail * about.f_frsize;
    return 0;
}

static int prewrite_file(struct hf_disk_file *file, uint64_t size)
{
    static const uint8_t zeros[ZEROS_SIZE];
    uint64_t at = 0, left = 0;
    int rc = file_size(file, &at);

    if (!rc)
        rc = space_left(file->disk, &left);
    if (!rc && at < size && size - at > left)
        rc = -ENOSPC;
    while (!rc && at < size) {
        size_t step = size - at < ZEROS_SIZE ? (size_t)(size - at) : ZEROS_SIZE;

        rc = hf_disk_write(file, at, zeros, step);
        at += step;
    }
    return rc;
}

static int truncate_file(struct hf_disk_file *file, uint64_t size)
{
    return result_of(ftruncate(fd_of(file), (off_t)size));
}

static int sync_file(struct hf_disk_file *file)
{
    return result_of(fdatasync(fd_of(file)));
}

static int disk_sync_directory(struct hf_disk *disk)
{
    return result_of(fsync(disk_of(disk)->fd));
}

static int rename_file(struct hf_disk *disk, const char *from, const char *to)
{
    int fd = disk_of(disk)->fd;

    return result_of(renameat(fd, from, fd, to));
}

static int remove_file(struct hf_disk *disk, const char *name)
{
    return result_of(unlinkat(disk_of(disk)->fd, name, 0));
}

/* A lock of flock() belongs to the open file, so it does not disappear when
 * the process closes another descriptor of the same file. */
static int disk_lock_file(struct hf_disk *disk, const char *name)
{
    struct posix_disk *self = disk_of(disk);
    int fd =
        openat(self->fd, name,
               O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    int rc;

    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        rc = -errno;
        (void)close(fd);
        return rc;
    }
    self->lock = fd;
    return 0;
}

static void close_directory(struct hf_disk *disk)
{
    struct posix_disk *self = disk_of(disk);

    if (self->lock >= 0)
        (void)close(self->lock);
    (void)close(self->fd);
    free(self);
}

static const struct hf_disk_ops posix_ops = {
    .list = list_names,
    .create = create_file,
    .open = open_file,
    .close = close_file,
    .size = file_size,
    .read = read_file,
    .write = disk_write_file,
    .prewrite = prewrite_file,
    .truncate = truncate_file,
    .sync = sync_file,
    .sync_directory = disk_sync_directory,
    .rename = rename_file,
    .remove = remove_file,
    .space = space_left,
    .lock = disk_lock_file,
    .close_directory = close_directory,
};

/* Make the name of a new directory durable, in its parent. */
static int sync_parent(int fd)
{
    int parent = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc;

    if (parent < 0)
        return -errno;
    rc = result_of(fsync(parent));
    (void)close(parent);
    return rc;
}

int hf_disk_posix_open(const char *path, bool create, struct hf_disk **disk)
{
    size_t size = strlen(path) + 1;
    struct posix_disk *self;
    bool created = create && !mkdir(path, 0700);
    int rc = 0;

    if (create && !created && errno != EEXIST)
        return -errno;
    self = malloc(sizeof(*self) + size);
    if (!self)
        return -ENOMEM;
    self->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (self->fd < 0)
        rc = -errno;
    else if (created)
        rc = sync_parent(self->fd);
    if (rc) {
        if (self->fd >= 0)
            (void)close(self->fd);
        free(self);
        return rc;
    }
    self->lock = -1;
    memcpy(self->path, path, size);
    self->disk = (struct hf_disk){.ops = &posix_ops, .path = self->path};
    *disk = &self->disk;
    return 0;
}
