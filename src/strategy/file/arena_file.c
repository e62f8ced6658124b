/* arena_file.c - decides whether to use an existing arena file, to replace it
 * or to refuse it, and creates new ones.
 *
 * All of this happens with the file "lock" locked, so only one client at a time
 * decides which arena is used. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/crash_point.h"
#include "strategy/file/clock.h"
#include "strategy/file/guard.h"
#include "strategy/file/layout.h"

#define MAGIC UINT64_C(0x414e455241464821) /* "!HFARENA" */
#define UNFINISHED (~MAGIC) /* magic of a file that is being rewritten */
#define VERSION 4
#define LOCK_TRIES 100 /* attempts to lock the directory, 10 ms apart */

static enum hf_err read_boot(char boot[36], struct hf_error *error)
{
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? -1 : read(file, boot, 36);

    if (file >= 0)
        (void)close(file);
    if (size < 36)
        return hf_error_set(error, HF_ESYSTEM,
                            "file: cannot read the boot id from "
                            "/proc/sys/kernel/random/boot_id");
    return HF_OK;
}

static uint32_t fold_inode(const struct stat *st)
{
    uint64_t inode = (uint64_t)st->st_ino;

    return (uint32_t)(inode ^ inode >> 32);
}

/* ---- Whether clients have the arena open --------------------------------*/

/* Besides the lock on its own slot, every client has a shared lock on the byte
 * after the slots. A client takes this lock while the file "lock" is locked,
 * and the kernel drops it with the process, so the byte is locked while any
 * client uses the arena. */
static struct flock user_lock(short type)
{
    return (struct flock){
        .l_type = type,
        .l_whence = SEEK_SET,
        .l_start = HF_ARENA_SLOTS,
        .l_len = 1,
    };
}

static enum hf_err lock_as_user(struct hf_arena *arena, struct hf_error *error)
{
    struct flock lock = user_lock(F_RDLCK);

    if (fcntl(arena->file, F_OFD_SETLK, &lock))
        return hf_arena_fail(arena, error, "arena", "cannot lock it");
    return HF_OK;
}

/* Check for a lock on any byte, because another version may use other bytes for
 * its slots. */
static bool is_in_use(int file)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    return fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* Lock the directory. Returns false if clients still use the store: each has a
 * shared lock on the directory, even if the arena was removed. A process that
 * is being killed may drop that lock a little later than its lock on the file
 * "lock", so retry for a second. */
static bool lock_directory(int directory)
{
    const struct timespec moment = {.tv_nsec = 10000000};
    bool locked = false;

    for (int i = 0; i < LOCK_TRIES && !locked; i++) {
        if (i > 0)
            (void)nanosleep(&moment, NULL);
        locked = flock(directory, LOCK_EX | LOCK_NB) == 0;
    }
    return locked;
}

/* ---- Creating an arena --------------------------------------------------*/

static int allocate_first(int file)
{
    int failed = ftruncate(file, sizeof(struct hf_arena_header)) ? errno : 0;

    if (!failed)
        failed = hf_arena_allocate_ring(file, HF_ARENA_RING_FIRST);
    if (!failed)
        failed = hf_arena_allocate_halves(file, HF_ARENA_HALF_FIRST);
    return failed;
}

static bool write_at(int file, const void *data, size_t size, size_t at)
{
    return pwrite(file, data, size, (off_t)at) == (ssize_t)size;
}

static bool write_label(int file, struct hf_arena_label label, uint64_t reserve)
{
    const uint64_t rooms[] = {HF_ARENA_RING_FIRST, HF_ARENA_HALF_FIRST};
    struct stat st;

    if (fstat(file, &st))
        return false;
    label.inode = fold_inode(&st);
    return write_at(file, &label, sizeof(label), 0) &&
           write_at(file, rooms, sizeof(rooms),
                    offsetof(struct hf_arena_header, ring_room)) &&
           write_at(file, &reserve, sizeof(reserve),
                    offsetof(struct hf_arena_header, token_reserve)) &&
           fsync(file) == 0;
}

/* Mark the arena as unfinished: if we are killed after this, the next client
 * rewrites it. */
static bool truncate_arena(int file)
{
    const uint64_t unfinished = UNFINISHED;

    return write_at(file, &unfinished, sizeof(unfinished), 0) &&
           !ftruncate(file, sizeof(unfinished)) && !fsync(file);
}

/* Write a new arena to `file`, whose name is `name`. If `name` is "arena", the
 * file is rewritten in place. */
static enum hf_err fill_arena(struct hf_arena *arena, int file,
                              const char *name,
                              const struct hf_arena_label *label,
                              struct hf_error *error)
{
    bool is_in_place = strcmp(name, "arena") == 0;
    char temporary[HF_SHARE_NAME];
    uint64_t reserve;

    hf_share_temporary_name(temporary, "token");
    if (hf_token_file_raise(arena->directory, label->first_token, &reserve))
        return hf_arena_fail(arena, error, temporary, "cannot write it");
    if (is_in_place && !truncate_arena(file))
        return hf_arena_fail(arena, error, name, "cannot write it");
    errno = allocate_first(file);
    if (errno)
        return hf_arena_fail(arena, error, name, "cannot allocate it");
    HF_CRASH_POINT(19);
    if (!write_label(file, *label, reserve) ||
        (!is_in_place &&
         renameat(arena->directory, name, arena->directory, "arena")))
        return hf_arena_fail(arena, error, name, "cannot write it");
    HF_CRASH_POINT(20);
    return HF_OK;
}

/* A file system that copies on write needs new blocks for each page that is
 * written, although the file is allocated. If it ran out of them, touching the
 * mapping would raise SIGBUS. Where copying cannot be switched off, the guard
 * handles the SIGBUS, and hf_arena_recover() maps the file again. */
static void disable_copy_on_write(int file)
{
    struct statfs fs;
    int flags;

    if (fstatfs(file, &fs) || fs.f_type != BTRFS_SUPER_MAGIC ||
        ioctl(file, FS_IOC_GETFLAGS, &flags))
        return;
    flags |= FS_NOCOW_FL;
    (void)ioctl(file, FS_IOC_SETFLAGS, &flags);
}

/* The file has a temporary name until it is complete, so that a client which
 * dies here leaves no partial arena. */
static int create_arena_file(struct hf_arena *arena, const char *name,
                             struct hf_error *error)
{
    int file;

    (void)unlinkat(arena->directory, name, 0);
    file = hf_share_create(arena->directory, name);
    if (file < 0)
        hf_arena_fail(arena, error, name, "cannot create it");
    HF_CRASH_POINT(18);
    if (file >= 0)
        disable_copy_on_write(file);
    return file;
}

/* In a sticky directory the arena of another user cannot be replaced, so it is
 * rewritten in place. `old` is the existing arena, or -1. */
static enum hf_err create_arena(struct hf_arena *arena, int old,
                                const struct hf_arena_label *label,
                                struct hf_error *error)
{
    bool is_in_place = old >= 0 && !hf_share_can_replace(arena->directory, old);
    char name[HF_SHARE_NAME] = "arena";
    enum hf_err err;
    sigset_t before;
    int file = old;

    if (!is_in_place) {
        hf_share_temporary_name(name, "arena");
        file = create_arena_file(arena, name, error);
    }
    if (file < 0)
        return HF_ESYSTEM;
    hf_guard_block_sigxfsz(&before);
    err = fill_arena(arena, file, name, label, error);
    hf_guard_restore_sigxfsz(&before);
    if (!err)
        arena->file = file;
    else if (!is_in_place)
        (void)close(file);
    return err;
}

/* Tokens continue above the number in the file "token" and above those of the
 * replaced arena, because either file may have been lost. */
static enum hf_err find_first_token(struct hf_arena *arena, uint64_t in_arena,
                                    uint64_t *token, struct hf_error *error)
{
    uint64_t saved_token;
    enum hf_err err = hf_token_file_read(arena->directory, &saved_token);

    if (err == HF_EPROTO)
        return hf_error_set(error, err,
                            "file:%s/token: does not contain a number; restore "
                            "it, or write a number above every token used",
                            arena->path);
    if (err)
        return hf_arena_fail(arena, error, "token", "cannot read it");
    if (saved_token < in_arena)
        saved_token = in_arena;
    *token = saved_token > 0 ? saved_token : hf_token_file_from_clock();
    return HF_OK;
}

/* ---- Existing arenas ----------------------------------------------------*/

struct found_arena {
    struct hf_arena_label label;
    bool is_current; /* version and size of the arena are ours */
    bool is_unfinished;
    bool is_whole;
    bool is_of_this_boot;
    bool is_copy; /* the file is a copy of an arena, perhaps an old one */
    bool is_in_use;
    bool is_replaceable; /* the arena may be replaced, or there is none */
    uint64_t token;      /* no larger token was granted; 0: unknown */
    hf_time now;
    hf_time stamped; /* this and idle_at are copied from the header */
    hf_time idle_at;
};

static void read_at(int file, uint64_t *number, size_t at)
{
    if (pread(file, number, sizeof(*number), (off_t)at) !=
        (ssize_t)sizeof(*number))
        *number = 0;
}

static void read_times(int file, struct found_arena *found)
{
    uint64_t stamped, idle_at;

    read_at(file, &stamped, offsetof(struct hf_arena_header, stamped));
    read_at(file, &idle_at, offsetof(struct hf_arena_header, idle_at));
    found->stamped = (hf_time)stamped;
    found->idle_at = (hf_time)idle_at;
}

/* Returns true if a lease may still run. That is possible even if no client has
 * the arena open, because `holdfast lock` exits and leaves its lock held. If
 * the clock is behind the last command, the machine was rebooted since, and no
 * lease runs. */
static bool may_have_leases(const struct found_arena *found)
{
    return found->now >= found->stamped && found->now < found->idle_at;
}

static enum hf_err examine_arena(struct hf_arena *arena, const char *boot,
                                 struct found_arena *found,
                                 struct hf_error *error)
{
    struct hf_arena_label *label = &found->label;
    ssize_t size = pread(arena->file, label, sizeof(*label), 0);
    struct stat st;

    found->is_unfinished = size >= 8 && label->magic == UNFINISHED;
    found->is_in_use = is_in_use(arena->file);
    if (found->is_unfinished && !found->is_in_use)
        return HF_OK;
    if (size != (ssize_t)sizeof(*label) || fstat(arena->file, &st) ||
        label->magic != MAGIC || label->first_token > HF_TOKEN_FILE_MAX)
        return hf_error_set(error, HF_EPROTO,
                            "file:%s/arena: is not an arena of holdfast; if no "
                            "program uses it, remove it",
                            arena->path);
    found->is_current = label->version == VERSION &&
                        label->size == sizeof(struct hf_arena_header);
    found->is_whole = (uint64_t)st.st_size >= sizeof(struct hf_arena_header);
    found->is_of_this_boot =
        memcmp(label->boot, boot, sizeof(label->boot)) == 0;
    found->is_copy = label->inode != 0 && label->inode != fold_inode(&st);
    read_times(arena->file, found);
    if (found->is_current)
        read_at(arena->file, &found->token,
                offsetof(struct hf_arena_header, token_reserve));
    if (found->token > HF_TOKEN_FILE_MAX)
        found->token = 0;
    return hf_clock_now(&found->now, error);
}

/* Decide about an existing arena. HF_OK: use it, or replace it if
 * `is_replaceable` is set. HF_EUNAVAIL: refuse it until its leases have
 * expired. HF_EPROTO: refuse it, because another version of holdfast uses it or
 * it was truncated.
 *
 * An arena of another boot has no holders. But a different boot id does not
 * prove a different boot, because a container may have a boot id of its own. So
 * an arena that other clients have open is not replaced, whatever its boot id,
 * and neither is an arena whose leases still run.
 *
 * In a copy, such as a restored backup, tokens would continue where they were
 * when the copy was made, and larger ones may have been granted since. So a
 * copy is replaced too, and tokens continue above the reserve. */
static enum hf_err classify_arena(const struct hf_arena *arena,
                                  struct found_arena *found,
                                  struct hf_error *error)
{
    bool is_ours =
        found->is_current && !found->is_copy && found->is_of_this_boot;

    found->is_replaceable =
        found->is_unfinished ||
        (!is_ours && !found->is_in_use && !may_have_leases(found));
    if (found->is_replaceable)
        return HF_OK;
    if (!is_ours && !found->is_in_use)
        return hf_error_set(error, HF_EUNAVAIL,
                            "file:%s/arena: was created by another version of "
                            "holdfast, in another boot or in another "
                            "directory, and its leases may run for another "
                            "%lld ms; try again then",
                            arena->path,
                            (long long)(found->idle_at - found->now));
    if (!found->is_current)
        return hf_error_set(error, HF_EPROTO,
                            "file:%s/arena: is in use by another version of "
                            "holdfast (layout %u, ours is %u); stop the "
                            "programs that use it first",
                            arena->path, found->label.version, VERSION);
    if (!found->is_whole)
        return hf_error_set(error, HF_EPROTO,
                            "file:%s/arena: was truncated; if no program uses "
                            "it, remove it",
                            arena->path);
    return HF_OK;
}

/* ---- Opening ------------------------------------------------------------*/

static enum hf_err replace_arena(struct hf_arena *arena, const char *boot,
                                 uint64_t token, struct hf_error *error)
{
    struct hf_arena_label label = {
        .magic = MAGIC,
        .version = VERSION,
        .size = sizeof(struct hf_arena_header),
    };
    enum hf_err err = find_first_token(arena, token, &label.first_token, error);
    int old = arena->file;

    arena->file = -1;
    memcpy(label.boot, boot, sizeof(label.boot));
    arena->first_token = label.first_token;
    if (!err)
        err = create_arena(arena, old, &label, error);
    if (old >= 0 && old != arena->file)
        (void)close(old);
    return err;
}

/* Open and examine the existing arena, if there is one. Sets `is_replaceable`
 * in `found` if the caller has to create a new arena. */
static enum hf_err open_existing(struct hf_arena *arena, const char *boot,
                                 struct found_arena *found,
                                 struct hf_error *error)
{
    enum hf_err err;

    *found = (struct found_arena){.is_replaceable = true};
    if (arena->file >= 0)
        (void)close(arena->file);
    arena->file = hf_share_open(arena->directory, "arena", O_RDWR);
    if (arena->file < 0 && errno == ENOENT)
        return HF_OK;
    if (arena->file < 0)
        return hf_arena_fail(arena, error, "arena", "cannot open it");
    err = hf_arena_check_plain(arena, arena->file, "arena", error);
    if (!err)
        err = examine_arena(arena, boot, found, error);
    arena->first_token = found->label.first_token;
    return err ? err : classify_arena(arena, found, error);
}

/* An arena is created only with the directory locked, for two reasons. If
 * somebody removed the file "lock", two clients may get here at once, so look
 * again after locking: the second client then finds the arena of the first. And
 * clients of an arena that was removed or replaced may still hold locks; while
 * they do, the directory cannot be locked. */
static enum hf_err open_or_create_arena(struct hf_arena *arena,
                                        const char *boot,
                                        struct hf_error *error)
{
    struct found_arena found;
    enum hf_err err = open_existing(arena, boot, &found, error);

    if (err || !found.is_replaceable)
        return err;
    if (!lock_directory(arena->directory))
        return hf_error_set(error, HF_EUNAVAIL,
                            "file:%s/arena: was removed or replaced while "
                            "other programs use it; stop them first",
                            arena->path);
    err = open_existing(arena, boot, &found, error);
    if (err || !found.is_replaceable)
        return err;
    return replace_arena(arena, boot, found.token, error);
}

enum hf_err hf_arena_file_open(struct hf_arena *arena, struct hf_error *error)
{
    char boot[36];
    enum hf_err err = read_boot(boot, error);

    if (!err)
        err = open_or_create_arena(arena, boot, error);
    return err ? err : lock_as_user(arena, error);
}
