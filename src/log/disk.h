/* disk.h - the file operations of a node's directory, as a table.
 *
 * The write-ahead log and the snapshots reach files only through this table.
 * disk_posix.c has the real operations; tests/sim/sim_disk.c has a simulated
 * disk that loses and tears what was not synced.
 *
 * A disk is one directory. Names are plain file names in it, without a slash.
 * Operations return 0, or a negative errno value. Threads may use different
 * files at the same time, and may list, rename and remove files meanwhile.
 *
 * What is durable: bytes and size of a file after `sync` of the file; names
 * after `sync_directory`. Everything else may be lost, in any combination. */
#ifndef HF_LOG_DISK_H
#define HF_LOG_DISK_H

#include <sys/types.h>

#include "base/error.h"

#define HF_DISK_NAME 64 /* bytes of a file name, with its NUL */

struct hf_disk {
    const struct hf_disk_ops *ops;
    const char *path; /* of the directory, for error messages */
};

struct hf_disk_file {
    struct hf_disk *disk;
    char name[HF_DISK_NAME]; /* for error messages */
};

typedef void hf_disk_name_fn(void *arg, const char *name);

struct hf_disk_ops {
    /* Call `each` for every name. `each` must not change the directory. */
    int (*list)(struct hf_disk *disk, hf_disk_name_fn *each, void *arg);

    /* Create an empty file with mode 0600; -EEXIST if the name is in use. */
    int (*create)(struct hf_disk *disk, const char *name,
                  struct hf_disk_file **file);

    /* Open a regular file for reading and writing; -ELOOP for a symbolic link,
     * -EINVAL or another error for anything else that is not a regular file. */
    int (*open)(struct hf_disk *disk, const char *name,
                struct hf_disk_file **file);
    void (*close)(struct hf_disk_file *file);

    int (*size)(struct hf_disk_file *file, uint64_t *size);

    /* Both return the number of bytes, which may be less than `size`;
     * hf_disk_read() and hf_disk_write() repeat the call. `read` returns 0 at
     * the end of the file. */
    ssize_t (*read)(struct hf_disk_file *file, uint64_t offset, void *to,
                    size_t size);
    ssize_t (*write)(struct hf_disk_file *file, uint64_t offset,
                     const void *from, size_t size);

    /* Extend a shorter file to `size` with zeros that are written, not only
     * allocated: overwriting written blocks needs no space, and no change of
     * metadata that `sync` would have to wait for. -ENOSPC without writing
     * anything if the space left is obviously too small. */
    int (*prewrite)(struct hf_disk_file *file, uint64_t size);
    int (*truncate)(struct hf_disk_file *file, uint64_t size);
    int (*sync)(struct hf_disk_file *file);

    int (*sync_directory)(struct hf_disk *disk);
    int (*rename)(struct hf_disk *disk, const char *from, const char *to);
    int (*remove)(struct hf_disk *disk, const char *name);

    /* Set `*bytes` to the space that this user can still allocate. */
    int (*space)(struct hf_disk *disk, uint64_t *bytes);

    /* Lock the file `name`, which is created if necessary, until the disk is
     * closed or the process ends; -EWOULDBLOCK if another process, or another
     * disk, has it locked. */
    int (*lock)(struct hf_disk *disk, const char *name);
    void (*close_directory)(struct hf_disk *disk);
};

/* Open the directory at `path`. If it does not exist: with `create`, create it
 * with mode 0700, otherwise return -ENOENT. */
int hf_disk_posix_open(const char *path, bool create, struct hf_disk **disk);

/* Read `size` bytes, or less at the end of the file. Returns how many, or a
 * negative errno value. */
ssize_t hf_disk_read(struct hf_disk_file *file, uint64_t offset, void *to,
                     size_t size);

/* Write all bytes, or return an error. */
int hf_disk_write(struct hf_disk_file *file, uint64_t offset, const void *from,
                  size_t size);

/* Close `file` unless it is NULL. */
void hf_disk_close(struct hf_disk_file *file);

/* Rename or remove a file, and make the change durable. Returns -EIO if the
 * change was made, but may not be durable. */
int hf_disk_rename(struct hf_disk *disk, const char *from, const char *to);
int hf_disk_remove(struct hf_disk *disk, const char *name);

/* Returns true if `rc`, the result of an operation, says that the disk or the
 * quota is full. */
bool hf_disk_is_full(int rc);

/* Returns true if `rc` says that memory or descriptors are exhausted. The
 * operation may succeed later. */
bool hf_disk_is_short(int rc);

/* The next step after a directory has lost what was durable: the end of error
 * messages. */
#define HF_DISK_LOST                                                           \
    "Keep this node stopped and its directory as it is. An earlier copy is "   \
    "not safe: it has forgotten votes. The cluster runs with the other "       \
    "nodes; adding members is not supported yet."

/* Set `*error` to "PATH/NAME: what: strerror", or "PATH: what: strerror" if
 * `name` is "". `rc` is the result of the operation that failed. Returns the
 * error's code: HF_ELIMIT if the disk is full, HF_ENOMEM if memory or
 * descriptors are exhausted, otherwise HF_ESYSTEM. */
enum hf_err hf_disk_error(struct hf_error *error, const struct hf_disk *disk,
                          const char *name, const char *what, int rc);

#endif
