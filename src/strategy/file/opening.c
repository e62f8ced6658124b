/* opening.c - the directory of an arena, its files, and whether they are what
 * they should be. */
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
#include <unistd.h>

#include "base/mutant.h"
#include "base/step.h"
#include "strategy/file/guard.h"
#include "strategy/file/layout.h"
#include "strategy/file/place.h"

#define MAGIC UINT64_C(0x414e455241464821) /* "!HFARENA" */
#define VERSION 3

enum hf_err hf_arena_fail(const struct hf_arena *arena, struct hf_error *error,
                          const char *name, const char *what)
{
    bool read_only = errno == EACCES || errno == EROFS || errno == EPERM;

    return hf_error_set(error, errno == EACCES ? HF_EUNAVAIL : HF_ESYSTEM,
                        "file:%s%s%s: %s: %s%s", arena->path, *name ? "/" : "",
                        name, what, strerror(errno),
                        read_only ? HF_PLACE_ADVICE : "");
}

static enum hf_err check_directory(struct hf_arena *arena, mode_t mode,
                                   struct hf_error *error)
{
    struct statfs fs;
    struct stat st;

    if (fstat(arena->directory, &st) || fstatfs(arena->directory, &fs))
        return hf_arena_fail(arena, error, "", "cannot look at it");
    if (hf_place_network(&fs))
        return hf_error_set(error, HF_EUNSUPPORTED,
                            "file:%s: is on a network file system (%s), which "
                            "cannot share memory between machines",
                            arena->path, hf_place_network(&fs));
    if (!(mode & 022) && st.st_uid != geteuid())
        return hf_error_set(error, HF_EUNAVAIL,
                            "file:%s: belongs to user %u; share it with "
                            "?mode=, as in ?mode=0770",
                            arena->path, (unsigned)st.st_uid);
    if (st.st_mode & 022 & ~mode)
        return hf_error_set(error, HF_EUNAVAIL,
                            "file:%s: others may write to it (mode %04o); say "
                            "so with ?mode=, or take that away",
                            arena->path, (unsigned)(st.st_mode & 07777));
    return HF_OK;
}

static enum hf_err open_directory(struct hf_arena *arena, mode_t mode,
                                  struct hf_error *error)
{
    if (mkdir(arena->path, mode) == 0)
        (void)chmod(arena->path, mode); /* whatever the umask */
    else if (errno != EEXIST)
        return hf_arena_fail(arena, error, "", "cannot make it");
    arena->directory =
        open(arena->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (arena->directory < 0)
        return hf_arena_fail(arena, error, "", "cannot open it");
    return check_directory(arena, mode, error);
}

static enum hf_err read_boot(char boot[40], struct hf_error *error)
{
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? -1 : read(file, boot, 39);

    if (file >= 0)
        (void)close(file);
    if (size < 36)
        return hf_error_set(error, HF_ESYSTEM,
                            "file: cannot tell which boot this is");
    memset(boot + 36, 0, 4);
    return HF_OK;
}

/* A fresh arena, under another name until it is whole. */
static enum hf_err make(struct hf_arena *arena, const char *boot, mode_t mode,
                        struct hf_error *error)
{
    struct hf_arena_label label = {
        .magic = MAGIC,
        .version = VERSION,
        .size = sizeof(struct hf_arena_header),
    };
    const uint64_t rooms[] = {HF_ARENA_RING_FIRST, HF_ARENA_HALF_FIRST};
    enum hf_err err = hf_mark_read(arena->directory, &label.first_token);
    int file;

    if (err)
        return hf_error_set(error, err,
                            "file:%s/token: is no number; restore it, or "
                            "write there one above every token used",
                            arena->path);
    (void)unlinkat(arena->directory, "arena.new", 0);
    file = openat(arena->directory, "arena.new",
                  O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (file < 0)
        return hf_arena_fail(arena, error, "arena.new", "cannot make it");
    HF_STEP(18);
    (void)fchmod(file, mode & 0666);
    errno = ftruncate(file, sizeof(struct hf_arena_header)) ? errno : 0;
    if (!errno)
        errno = hf_arena_allocate_ring(file, HF_ARENA_RING_FIRST);
    if (!errno)
        errno = hf_arena_allocate_halves(file, HF_ARENA_HALF_FIRST);
    if (errno) {
        hf_arena_fail(arena, error, "arena.new", "no room for it");
        (void)close(file);
        return HF_ESYSTEM;
    }
    HF_STEP(19);
    memcpy(label.boot, boot, sizeof(label.boot));
    if (pwrite(file, &label, sizeof(label), 0) != (ssize_t)sizeof(label) ||
        pwrite(file, rooms, sizeof(rooms),
               offsetof(struct hf_arena_header, ring_room)) !=
            (ssize_t)sizeof(rooms) ||
        renameat(arena->directory, "arena.new", arena->directory, "arena")) {
        hf_arena_fail(arena, error, "arena.new", "cannot write it");
        (void)close(file);
        return HF_ESYSTEM;
    }
    HF_STEP(20);
    arena->file = file;
    return HF_OK;
}

/* HF_OK: it is ours to use; HF_ENOTHELD: it is to be made anew. */
static enum hf_err check_label(struct hf_arena *arena, const char *boot,
                               struct hf_error *error)
{
    struct hf_arena_label label;
    struct stat st;

    if (pread(arena->file, &label, sizeof(label), 0) !=
            (ssize_t)sizeof(label) ||
        fstat(arena->file, &st) || label.magic != MAGIC)
        return hf_error_set(error, HF_EPROTO,
                            "file:%s/arena: is no arena; if nobody uses it, "
                            "remove it",
                            arena->path);
    if (memcmp(label.boot, boot, sizeof(label.boot)) != 0 && !HF_MUTANT(51))
        return HF_ENOTHELD; /* nobody outlived the reboot */
    if (label.version != VERSION ||
        label.size != sizeof(struct hf_arena_header) ||
        (uint64_t)st.st_size < sizeof(struct hf_arena_header))
        return hf_error_set(error, HF_EPROTO,
                            "file:%s/arena: is from another version (%u), or "
                            "cut short; if nobody uses it, remove it",
                            arena->path, label.version);
    return HF_OK;
}

/* With the file "lock" locked: one at a time decides what the arena is. */
static enum hf_err open_or_make(struct hf_arena *arena, mode_t mode,
                                struct hf_error *error)
{
    char boot[40];
    enum hf_err err = read_boot(boot, error);

    if (err)
        return err;
    arena->file =
        openat(arena->directory, "arena", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (arena->file < 0 && errno != ENOENT)
        return hf_arena_fail(arena, error, "arena", "cannot open it");
    if (arena->file >= 0) {
        err = check_label(arena, boot, error);
        if (err != HF_ENOTHELD)
            return err;
        (void)close(arena->file);
        arena->file = -1;
    } else if (flock(arena->directory, LOCK_EX | LOCK_NB)) {
        return hf_error_set(error, HF_EUNAVAIL,
                            "file:%s/arena: was removed while others use it; "
                            "end them first",
                            arena->path);
    }
    return make(arena, boot, mode, error);
}

static enum hf_err open_file(struct hf_arena *arena, mode_t mode,
                             struct hf_error *error)
{
    int lock = openat(arena->directory, "lock",
                      O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, mode & 0666);
    enum hf_err err;

    if (lock < 0)
        return hf_arena_fail(arena, error, "lock", "cannot open it");
    (void)fchmod(lock, mode & 0666);
    while (flock(lock, LOCK_EX)) {
        if (errno != EINTR) {
            hf_arena_fail(arena, error, "lock", "cannot lock it");
            (void)close(lock);
            return HF_ESYSTEM;
        }
    }
    err = open_or_make(arena, mode, error);
    if (!err)
        (void)flock(arena->directory, LOCK_SH);
    /* Closing alone is not enough: a child that another thread forked
     * meanwhile has a copy of the descriptor, which would keep the lock. */
    if (!HF_MUTANT(201))
        (void)flock(lock, LOCK_UN);
    (void)close(lock);
    return err;
}

static enum hf_err map(struct hf_arena *arena, struct hf_error *error)
{
    void *mapped = mmap(NULL, sizeof(struct hf_arena_header),
                        PROT_READ | PROT_WRITE, MAP_SHARED, arena->file, 0);

    if (mapped == MAP_FAILED)
        return hf_arena_fail(arena, error, "arena", "cannot map it");
    if (hf_guard_add(mapped, sizeof(struct hf_arena_header))) {
        (void)munmap(mapped, sizeof(struct hf_arena_header));
        return hf_error_set(error, HF_ELIMIT,
                            "file:%s: this process has %d arenas open already",
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
        .bell = -1,
    };
    arena->path = strdup(path);
    if (!arena->path)
        return hf_error_code(error, HF_ENOMEM);
    err = open_directory(arena, mode, error);
    if (!err)
        err = open_file(arena, mode, error);
    if (!err)
        err = map(arena, error);
    if (!err)
        err = hf_slot_take(arena, mode, error);
    if (err)
        hf_arena_close(arena);
    return err;
}

static void close_fd(int *fd)
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
    close_fd(&arena->fifo);
    close_fd(&arena->bell);
    close_fd(&arena->file);
    close_fd(&arena->directory);
    free(arena->path);
    arena->path = NULL;
}

enum hf_err hf_arena_check(const struct hf_arena *arena, struct hf_error *error)
{
    struct stat file, named;

    if (fstat(arena->file, &file) ||
        (uint64_t)file.st_size < sizeof(struct hf_arena_header))
        return hf_error_set(error, HF_EPROTO, "file:%s/arena: was cut short",
                            arena->path);
    if (fstatat(arena->directory, "arena", &named, AT_SYMLINK_NOFOLLOW) ||
        named.st_ino != file.st_ino || named.st_dev != file.st_dev)
        return hf_error_set(error, HF_EPROTO,
                            "file:%s/arena: was removed or replaced",
                            arena->path);
    return HF_OK;
}
