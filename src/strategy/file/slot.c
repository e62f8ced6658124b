/* slot.c - the slots of an arena: whether their clients are alive, and how to
 * wake them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/crash_point.h"
#include "strategy/file/layout.h"

#define READS_MAX 256 /* reads of 256 bytes: enough for a full FIFO */

struct hf_slot *hf_slot_at(const struct hf_arena *arena, unsigned slot)
{
    return &arena->header->slot[slot];
}

unsigned hf_slot_count(const struct hf_arena *arena)
{
    unsigned slots = atomic_load(&arena->header->slots);

    return slots < HF_ARENA_SLOTS ? slots : HF_ARENA_SLOTS;
}

static struct flock slot_lock(unsigned slot)
{
    return (struct flock){
        .l_type = F_WRLCK,
        .l_whence = SEEK_SET,
        .l_start = (off_t)slot,
        .l_len = 1,
    };
}

/* The pid namespace of this process, or 0 if it is unknown. */
static uint64_t pid_namespace(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) ? 0 : (uint64_t)st.st_ino;
}

bool hf_slot_is_locked(const struct hf_arena *arena, unsigned slot)
{
    struct flock lock = slot_lock(slot);

    if (slot == arena->slot)
        return true;
    if (fcntl(arena->file, F_OFD_GETLK, &lock))
        return true; /* cannot tell, so assume that it is locked */
    return lock.l_type != F_UNLCK;
}

/* The pid of the client in `slot`, or 0 if it may belong to another pid
 * namespace. */
static pid_t find_pid(const struct hf_arena *arena, unsigned slot)
{
    const struct hf_slot *other = hf_slot_at(arena, slot);
    uint64_t here = hf_slot_at(arena, arena->slot)->pid_namespace;
    pid_t pid = *(const volatile int32_t *)&other->pid;

    return here != 0 && other->pid_namespace == here && pid > 0 ? pid : 0;
}

int hf_slot_open_process(const struct hf_arena *arena, unsigned slot)
{
    pid_t pid = find_pid(arena, slot);

    return pid ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

bool hf_slot_has_process_ended(const struct hf_arena *arena, unsigned slot,
                               int pidfd)
{
    struct pollfd process = {.fd = pidfd, .events = POLLIN};
    pid_t pid = find_pid(arena, slot);

    if (pidfd >= 0)
        return poll(&process, 1, 0) > 0;
    return pid && kill(pid, 0) && errno == ESRCH;
}

bool hf_slot_is_alive(const struct hf_arena *arena, unsigned slot)
{
    bool has_ended;
    int pidfd;

    if (slot == arena->slot)
        return true;
    if (!hf_slot_is_locked(arena, slot))
        return false;
    pidfd = hf_slot_open_process(arena, slot);
    has_ended = hf_slot_has_process_ended(arena, slot, pidfd);
    if (pidfd >= 0)
        (void)close(pidfd);
    return !has_ended;
}

/* Prefer a high descriptor number, because programs and scripts often use low
 * ones without checking that they are free. With a small RLIMIT_NOFILE, use any
 * number above the standard streams. */
#define INHERITED_FD 100
#define INHERITED_FD_MIN 3

enum hf_err hf_slot_inherit(struct hf_arena *arena, struct hf_error *error)
{
    arena->inherited = fcntl(arena->file, F_DUPFD, INHERITED_FD);
    if (arena->inherited < 0)
        arena->inherited = fcntl(arena->file, F_DUPFD, INHERITED_FD_MIN);
    if (arena->inherited >= 0)
        return HF_OK;
    return hf_error_set(error, HF_ESYSTEM,
                        "file:%s: no descriptor is free for executed programs "
                        "to inherit: %s; raise the limit on open files (ulimit "
                        "-n), or do without it (run --close)",
                        arena->path, strerror(errno));
}

static void name_fifo(char name[32], unsigned slot)
{
    (void)snprintf(name, 32, "wake.%u", slot);
}

/* Open the FIFO for reading too, because a write to a FIFO without readers
 * raises SIGPIPE, and its client may close it at any time. Another user may
 * have put a different file in its place, so check that it is a FIFO before
 * writing to it. */
static void open_woken_fifo(struct hf_arena *arena, unsigned slot,
                            uint64_t session)
{
    char name[32];

    if (arena->woken_fifo >= 0)
        (void)close(arena->woken_fifo);
    name_fifo(name, slot);
    arena->woken_fifo = hf_share_open(arena->directory, name, O_RDWR);
    if (arena->woken_fifo >= 0 && !hf_share_is_fifo(arena->woken_fifo)) {
        (void)close(arena->woken_fifo);
        arena->woken_fifo = -1;
    }
    arena->woken_session = session;
}

void hf_slot_wake(struct hf_arena *arena, unsigned slot)
{
    uint64_t session = hf_slot_at(arena, slot)->session;

    HF_CRASH_POINT(14);
    if (arena->woken_fifo < 0 || arena->woken_session != session)
        open_woken_fifo(arena, slot, session);
    /* If there is no FIFO, the client is closed; if the FIFO is full, the
     * client has unread wake-ups. So neither is an error. */
    if (arena->woken_fifo >= 0 && write(arena->woken_fifo, "", 1) < 0)
        HF_ASSERT(errno != EBADF);
}

void hf_slot_clear_wakes(const struct hf_arena *arena)
{
    char bytes[256];

    for (int i = 0; i < READS_MAX; i++) {
        if (read(arena->fifo, bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes))
            break;
    }
}

/* ---- Taking a slot ------------------------------------------------------*/

/* Record our process in the slot before the first transaction, so that other
 * clients can check whether the owner of the arena lock is alive. */
static void record_process(struct hf_arena *arena)
{
    struct hf_slot *slot = hf_slot_at(arena, arena->slot);

    HF_CRASH_POINT(21);
    slot->pid_namespace = pid_namespace();
    HF_CRASH_POINT(22);
    slot->pid = (int32_t)getpid();
}

static bool lock_slot(struct hf_arena *arena, unsigned slot)
{
    struct flock lock = slot_lock(slot);

    arena->slot = slot;
    return fcntl(arena->file, F_OFD_SETLK, &lock) == 0;
}

static void unlock_slot(struct hf_arena *arena)
{
    struct flock lock = slot_lock(arena->slot);

    lock.l_type = F_UNLCK;
    (void)fcntl(arena->file, F_OFD_SETLK, &lock);
}

/* Open the FIFO for writing too, so that a read never reports the end of the
 * file. */
static bool open_own_fifo(struct hf_arena *arena, const char *name)
{
    arena->fifo = hf_share_open(arena->directory, name, O_RDWR);
    if (arena->fifo < 0)
        return false;
    if (hf_share_is_fifo(arena->fifo))
        return true;
    (void)close(arena->fifo);
    arena->fifo = -1;
    errno = EEXIST;
    return false;
}

/* Open our FIFO. The FIFO of the slot's previous client is used again, because
 * creating and removing a FIFO takes longer than everything else in an
 * uncontended lock. In a sticky directory another user's FIFO could not be
 * removed anyway. Sets `*is_blocked` if another file is in its place and cannot
 * be removed. */
static enum hf_err open_fifo(struct hf_arena *arena, bool *is_blocked,
                             struct hf_error *error)
{
    char name[32];

    name_fifo(name, arena->slot);
    if (open_own_fifo(arena, name)) {
        hf_slot_clear_wakes(arena);
        return HF_OK;
    }
    (void)unlinkat(arena->directory, name, 0);
    HF_CRASH_POINT(23);
    if (mkfifoat(arena->directory, name, 0600) == 0) {
        if (open_own_fifo(arena, name)) {
            hf_share_file(arena->directory, arena->fifo);
            return HF_OK;
        }
    } else if (errno != EEXIST) {
        return hf_arena_fail(arena, error, name, "cannot create it");
    }
    *is_blocked = true;
    return hf_arena_fail(arena, error, name, "cannot be used as a FIFO");
}

/* Take the first free slot whose FIFO can be opened. */
static enum hf_err take_free_slot(struct hf_arena *arena,
                                  struct hf_error *error)
{
    enum hf_err err = HF_OK;
    bool any_blocked = false;

    for (unsigned i = 0; i < HF_ARENA_SLOTS; i++) {
        if (lock_slot(arena, i)) {
            bool is_blocked = false;

            err = open_fifo(arena, &is_blocked, error);
            if (!err)
                record_process(arena);
            if (!is_blocked)
                return err;
            unlock_slot(arena);
            any_blocked = true;
        } else if (errno != EAGAIN && errno != EACCES) {
            return hf_arena_fail(arena, error, "arena", "cannot lock a slot");
        }
    }
    if (any_blocked)
        return HF_ESYSTEM;
    return hf_error_set(error, HF_ELIMIT,
                        "file:%s: already has %d clients, the maximum",
                        arena->path, HF_ARENA_SLOTS);
}

static void count_slot(struct hf_arena *arena)
{
    uint32_t slots = atomic_load(&arena->header->slots);

    while (slots <= arena->slot &&
           !atomic_compare_exchange_weak(&arena->header->slots, &slots,
                                         arena->slot + 1))
        continue;
}

enum hf_err hf_slot_take(struct hf_arena *arena, struct hf_error *error)
{
    enum hf_err err = take_free_slot(arena, error);

    if (!err)
        count_slot(arena);
    return err;
}

void hf_slot_give(struct hf_arena *arena)
{
    /* Closing the file is not enough: a child process that inherited the
     * descriptor would keep the lock. */
    if (arena->fifo >= 0)
        unlock_slot(arena);
}
