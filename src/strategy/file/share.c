/* share.c - files in a directory that several users may write to.
 *
 * Another user can put anything in the place of a file: a link to a file
 * elsewhere, a FIFO, a device. So files are opened without following links and
 * without blocking, and group and mode are changed through the descriptor, and
 * only if the file belongs to us. In a sticky directory a user cannot remove or
 * replace files of other users, so temporary names differ from user to user. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "strategy/file/layout.h"

#define SAFE_FLAGS (O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)

int hf_share_open(int directory, const char *name, int flags)
{
    return openat(directory, name, flags | SAFE_FLAGS);
}

bool hf_share_is_plain(int file)
{
    struct stat st;

    return !fstat(file, &st) && S_ISREG(st.st_mode) && st.st_nlink <= 1;
}

bool hf_share_is_fifo(int file)
{
    struct stat st;

    return !fstat(file, &st) && S_ISFIFO(st.st_mode);
}

/* Set the group first, because changing it may clear mode bits. A process that
 * is not in the group cannot set it, so a failure is ignored. */
void hf_share_file(int directory, int file)
{
    struct stat shared, st;
    int saved = errno;

    if (!fstat(directory, &shared) && !fstat(file, &st) &&
        st.st_uid == geteuid()) {
        if (st.st_gid != shared.st_gid)
            (void)!fchown(file, (uid_t)-1, shared.st_gid);
        (void)fchmod(file, shared.st_mode & 0666);
    }
    errno = saved;
}

int hf_share_create(int directory, const char *name)
{
    int file =
        openat(directory, name, O_RDWR | O_CREAT | O_EXCL | SAFE_FLAGS, 0600);

    if (file >= 0)
        hf_share_file(directory, file);
    return file;
}

void hf_share_temporary_name(char name[HF_SHARE_NAME], const char *of)
{
    (void)snprintf(name, HF_SHARE_NAME, "%s.%u.new", of, (unsigned)geteuid());
}

bool hf_share_can_replace(int directory, int file)
{
    struct stat shared, st;

    if (fstat(directory, &shared) || fstat(file, &st))
        return false;
    return !(shared.st_mode & S_ISVTX) || geteuid() == 0 ||
           geteuid() == shared.st_uid || geteuid() == st.st_uid;
}
