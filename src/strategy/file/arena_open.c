/* arena_open.c - opens the directory of an arena and its files, and checks that
 * they are what they should be. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "base/crash_point.h"
#include "strategy/file/directory.h"
#include "strategy/file/guard.h"
#include "strategy/file/layout.h"

/* Attempts to open or create "lock", which others may remove meanwhile. */
#define CREATE_TRIES 100
#define LOCK_MS 5000 /* the longest wait for "lock" or the directory */
#define LOCK_DELAY_NS 500000
#define LOCK_DELAY_MAX_NS 50000000

enum hf_err hf_arena_fail(const struct hf_arena *arena, struct hf_error *error,
                          const char *name, const char *what)
{
    const char *advice = "";

    if (errno == EACCES || errno == EROFS || errno == EPERM)
        advice = HF_DIRECTORY_ADVICE;
    else if (errno == EFBIG)
        advice = "; raise the limit on the size of files (ulimit -f)";
    return hf_error_set(error, errno == EACCES ? HF_EUNAVAIL : HF_ESYSTEM,
                        "file:%s%s%s: %s: %s%s", arena->path, *name ? "/" : "",
                        name, what, strerror(errno), advice);
}

/* Store an absolute path, because the program may change its working directory
 * later. */
static enum hf_err resolve_directory(struct hf_arena *arena, const char *path,
                                     struct hf_error *error)
{
    struct stat root;
    char *here = *path == '/' ? NULL : getcwd(NULL, 0);

    if (stat("/", &root) || (*path != '/' && !here)) {
        (void)hf_error_set(error, HF_ESYSTEM,
                           "file:%s: cannot resolve the path: %s", path,
                           strerror(errno));
        free(here);
        return HF_ESYSTEM;
    }
    arena->root_dev = root.st_dev;
    arena->root_ino = root.st_ino;
    if (asprintf(&arena->path, "%s%s%s", here ? here : "", here ? "/" : "",
                 path) < 0)
        arena->path = NULL;
    free(here);
    return arena->path ? HF_OK : hf_error_set_code(error, HF_ENOMEM);
}

static enum hf_err check_directory(struct hf_arena *arena, mode_t mode,
                                   struct hf_error *error)
{
    struct statfs fs;
    struct stat st;

    if (fstat(arena->directory, &st) || fstatfs(arena->directory, &fs))
        return hf_arena_fail(arena, error, "", "cannot read its attributes");
    if (hf_directory_network_name(&fs))
        return hf_error_set(error, HF_EUNSUPPORTED,
                            "file:%s: is on a network file system (%s), which "
                            "cannot share memory between machines",
                            arena->path, hf_directory_network_name(&fs));
    if (!(mode & 022) && st.st_uid != geteuid())
        return hf_error_set(error, HF_EUNAVAIL,
                            "file:%s: belongs to user %u; share it with "
                            "?mode=, as in ?mode=0770",
                            arena->path, (unsigned)st.st_uid);
    if (st.st_mode & 022 & ~mode)
        return hf_error_set(error, HF_EUNAVAIL,
                            "file:%s: other users may write to it (mode %04o); "
                            "allow that with ?mode=, or remove the "
                            "permission",
                            arena->path, (unsigned)(st.st_mode & 07777));
    return HF_OK;
}

/* Give the new directory the mode in the URL, whatever the umask. Keep a
 * set-group-ID bit that the directory inherited from its parent. */
static void share_directory(const struct hf_arena *arena, mode_t mode)
{
    struct stat st;

    if (!fstat(arena->directory, &st) && st.st_uid == geteuid())
        (void)fchmod(arena->directory, mode | (st.st_mode & S_ISGID));
}

static enum hf_err open_directory(struct hf_arena *arena, mode_t mode,
                                  struct hf_error *error)
{
    bool is_new = mkdir(arena->path, mode & 0777) == 0;

    if (!is_new && errno != EEXIST)
        return hf_arena_fail(arena, error, "", "cannot create it");
    arena->directory =
        open(arena->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (arena->directory < 0)
        return hf_arena_fail(arena, error, "", "cannot open it");
    if (is_new)
        share_directory(arena, mode);
    return check_directory(arena, mode, error);
}

enum hf_err hf_arena_check_plain(const struct hf_arena *arena, int file,
                                 const char *name, struct hf_error *error)
{
    if (hf_share_is_plain(file))
        return HF_OK;
    return hf_error_set(error, HF_EPROTO,
                        "file:%s/%s: is not a regular file, or has a second "
                        "hard link; if no program uses it, remove it",
                        arena->path, name);
}

/* ---- The file "lock" ----------------------------------------------------*/

/* Returns true if the mode of the file "lock" may not have been set: the file
 * is empty and belongs to us, so the client that created it may have been
 * killed before it set the mode. The mode of any other file is left alone. */
static bool may_lack_mode(int lock)
{
    struct stat st;

    return !fstat(lock, &st) && st.st_uid == geteuid() && st.st_size == 0;
}

/* Open and create are separate calls, because in a sticky directory the kernel
 * may refuse O_CREAT for files of other users (fs.protected_regular). */
static int open_or_create_lock(int directory)
{
    int lock = -1;

    for (int i = 0; i < CREATE_TRIES && lock < 0; i++) {
        lock = hf_share_open(directory, "lock", O_RDWR);
        if (lock >= 0 || errno != ENOENT)
            break;
        lock = hf_share_create(directory, "lock");
        if (lock < 0 && errno != EEXIST)
            break;
    }
    return lock;
}

static enum hf_err open_lock(struct hf_arena *arena, int *lock,
                             struct hf_error *error)
{
    enum hf_err err;

    *lock = open_or_create_lock(arena->directory);
    if (*lock < 0)
        return hf_arena_fail(arena, error, "lock", "cannot open it");
    err = hf_arena_check_plain(arena, *lock, "lock", error);
    if (!err && may_lack_mode(*lock))
        hf_share_file(arena->directory, *lock);
    if (err)
        (void)close(*lock);
    return err;
}

/* Lock the file `name`, or the directory if `name` is "". Any process that can
 * open it can keep it locked, so give up after LOCK_MS. */
static enum hf_err lock_file(const struct hf_arena *arena, int lock,
                             int operation, const char *name,
                             struct hf_error *error)
{
    hf_time until = hf_time_add(hf_time_on(CLOCK_MONOTONIC), LOCK_MS);
    struct timespec delay = {.tv_nsec = LOCK_DELAY_NS};

    while (flock(lock, operation | LOCK_NB)) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return hf_arena_fail(arena, error, name, "cannot lock it");
        if (hf_time_on(CLOCK_MONOTONIC) >= until)
            return hf_error_set(error, HF_EUNAVAIL,
                                "file:%s%s%s: another process has locked it "
                                "for %d ms; end that process, or try again",
                                arena->path, *name ? "/" : "", name, LOCK_MS);
        (void)nanosleep(&delay, NULL);
        if (delay.tv_nsec < LOCK_DELAY_MAX_NS)
            delay.tv_nsec *= 2;
    }
    return HF_OK;
}

static enum hf_err open_arena_file(struct hf_arena *arena,
                                   struct hf_error *error)
{
    int lock;
    enum hf_err err = open_lock(arena, &lock, error);

    if (err)
        return err;
    err = lock_file(arena, lock, LOCK_EX, "lock", error);
    if (!err)
        err = hf_arena_file_open(arena, error);
    if (!err)
        err = lock_file(arena, arena->directory, LOCK_SH, "", error);
    /* Closing is not enough, because a child that another thread forks has a
     * copy of the descriptor, which would keep the lock. */
    (void)flock(lock, LOCK_UN);
    (void)close(lock);
    return err;
}

static enum hf_err map_arena(struct hf_arena *arena, struct hf_error *error)
{
    void *mapped = mmap(NULL, sizeof(struct hf_arena_header),
                        PROT_READ | PROT_WRITE, MAP_SHARED, arena->file, 0);

    if (mapped == MAP_FAILED)
        return hf_arena_fail(arena, error, "arena", "cannot map it");
    if (hf_guard_add(mapped, sizeof(struct hf_arena_header))) {
        (void)munmap(mapped, sizeof(struct hf_arena_header));
        return hf_error_set(error, HF_ELIMIT,
                            "file:%s: this process already has %d arenas open",
                            arena->path, HF_GUARDS_MAX);
    }
    arena->header = mapped;
    arena->size = sizeof(struct hf_arena_header);
    return HF_OK;
}

enum hf_err hf_arena_open(struct hf_arena *arena, const char *path, mode_t mode,
                          struct hf_error *error)
{
    enum hf_err err;

    *arena = (struct hf_arena){
        .directory = -1,
        .file = -1,
        .fifo = -1,
        .inherited = -1,
        .woken_fifo = -1,
    };
    err = resolve_directory(arena, path, error);
    if (!err)
        err = open_directory(arena, mode, error);
    if (!err)
        err = open_arena_file(arena, error);
    if (!err)
        err = map_arena(arena, error);
    if (!err)
        err = hf_slot_take(arena, error);
    if (err)
        hf_arena_close(arena);
    return err;
}

static void close_and_clear(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

void hf_arena_close(struct hf_arena *arena)
{
    hf_slot_give(arena);
    if (arena->header) {
        hf_guard_remove(arena->header);
        (void)munmap(arena->header, arena->size);
    }
    arena->header = NULL;
    close_and_clear(&arena->fifo);
    close_and_clear(&arena->woken_fifo);
    close_and_clear(&arena->inherited);
    close_and_clear(&arena->file);
    close_and_clear(&arena->directory);
    free(arena->path);
    arena->path = NULL;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

/* Returns true if a client that opens the path now would find our directory.
 * Also returns true if this process cannot tell, because it has changed its
 * root or lost permissions. */
static bool is_directory_in_place(const struct hf_arena *arena)
{
    struct stat root, ours, named;

    if (stat("/", &root) || root.st_dev != arena->root_dev ||
        root.st_ino != arena->root_ino)
        return true;
    if (lstat(arena->path, &named))
        return errno != ENOENT && errno != ENOTDIR;
    return !fstat(arena->directory, &ours) && is_same_file(&ours, &named);
}

enum hf_err hf_arena_check(struct hf_arena *arena, struct hf_error *error)
{
    struct stat file, named;

    if (!is_directory_in_place(arena))
        return hf_error_set(error, HF_EPROTO,
                            "file:%s: the directory was removed, renamed or "
                            "replaced while it is in use; open it again",
                            arena->path);

    if (fstat(arena->file, &file) ||
        (uint64_t)file.st_size < sizeof(struct hf_arena_header))
        return hf_error_set(error, HF_EPROTO, "file:%s/arena: was truncated",
                            arena->path);
    if (fstatat(arena->directory, "arena", &named, AT_SYMLINK_NOFOLLOW) ||
        !is_same_file(&named, &file))
        return hf_error_set(error, HF_EPROTO,
                            "file:%s/arena: was removed or replaced",
                            arena->path);
    arena->token_file_missing = hf_token_file_is_missing(arena->directory);
    return HF_OK;
}
