#include "daemon/pid_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum hf_err lock_pid_file(int fd, const char *path,
                                 struct hf_error *error)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (fcntl(fd, F_SETLK, &lock) == 0)
        return HF_OK;
    if (errno != EAGAIN && errno != EACCES)
        return hf_error_set(error, HF_ESYSTEM, "%s: cannot lock: %s", path,
                            strerror(errno));
    if (fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK)
        return hf_error_set(error, HF_EBUSY,
                            "%s: process %ld runs this node already. Stop it "
                            "first.",
                            path, (long)lock.l_pid);
    return hf_error_set(error, HF_EBUSY,
                        "%s: another process runs this node already. Stop it "
                        "first.",
                        path);
}

/* The content of the file is only for people, so errors are ignored. */
static void write_pid(int fd)
{
    char text[32];
    int size = snprintf(text, sizeof(text), "%ld\n", (long)getpid());

    if (ftruncate(fd, 0) == 0)
        (void)!pwrite(fd, text, (size_t)size, 0);
}

enum hf_err hf_pid_file_lock(const char *directory, struct hf_error *error)
{
    char path[PATH_MAX];
    enum hf_err err;
    int fd;

    if (snprintf(path, sizeof(path), "%s/" HF_PID_FILE, directory) >=
        (int)sizeof(path))
        return hf_error_set(error, HF_EINVAL, "the path is too long: %.80s...",
                            directory);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return hf_error_set(error, HF_ESYSTEM, "%s: cannot open: %s", path,
                            strerror(errno));
    err = lock_pid_file(fd, path, error);
    if (err) {
        (void)close(fd);
        return err;
    }
    write_pid(fd); /* `fd` stays open, because closing it would unlock */
    return HF_OK;
}
