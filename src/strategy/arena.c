#include "strategy/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mutant.h"
#include "base/step.h"
#include "strategy/guard.h"

#define MAGIC UINT64_C(0x414e455241464821) /* "!HFARENA" */
#define VERSION 1
#define RING_SIZE (UINT64_C(1) << 20)
#define HALF_SIZE (UINT64_C(64) << 20) /* at most: room is made as needed */
#define HALF_FIRST (UINT64_C(256) << 10)
#define TOKENS_AHEAD (UINT64_C(1) << 20)

#define SPINS 200            /* a section takes about a microsecond */
#define PATIENCE_NS 10000000 /* then it is asked whether its owner lives */

/* The word: 0, or the slot inside plus one; the top bit: somebody sleeps. */
#define SLEEPERS UINT32_C(0x80000000)

struct half {
    uint64_t position; /* in the ring: it holds all before that */
    uint64_t size;
    uint8_t bytes[HALF_SIZE];
};

/* What never changes once it is made. */
struct label {
    uint64_t magic;
    uint32_t version;
    uint32_t size; /* of the whole */
    char boot[40]; /* the boot that it was made in */
    uint64_t first_token;
};

struct hf_arena_header {
    struct label label;
    _Alignas(64) _Atomic uint32_t word;
    _Alignas(64) _Atomic uint64_t tail; /* of the entries that are published */
    _Atomic uint64_t head;              /* entries before this are gone */
    _Atomic uint64_t snapshot;          /* its number: the half is its parity */
    _Atomic uint64_t half_room; /* bytes of each half that the disk has */
    _Atomic uint64_t token_reserve;
    _Atomic uint32_t slots; /* that were ever used */

    _Alignas(64) struct hf_arena_slot slot[HF_ARENA_SLOTS];
    _Alignas(64) uint8_t ring[RING_SIZE];
    _Alignas(64) struct half half[2];
};

struct entry {
    uint32_t size; /* of the whole, aligned; 0: the ring starts over */
    uint32_t bytes;
    hf_time stamp;
    uint8_t data[];
};

#define ALIGNMENT _Alignof(struct entry)
#define ROUND(size) (((size) + ALIGNMENT - 1) & ~(ALIGNMENT - 1))

/* ---- Going inside -------------------------------------------------------*/

static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *timeout)
{
    return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static bool take(struct hf_arena_header *header, uint32_t mine)
{
    uint32_t none = 0;

    return atomic_compare_exchange_strong(&header->word, &none, mine);
}

static void nap(struct hf_arena_header *header, uint32_t word)
{
    const struct timespec timeout = {.tv_nsec = PATIENCE_NS};

    if (!(word & SLEEPERS) &&
        !atomic_compare_exchange_strong(&header->word, &word, word | SLEEPERS))
        return; /* it changed: look again */
    (void)futex(&header->word, FUTEX_WAIT, word | SLEEPERS, &timeout);
}

/* Its owner is dead: take the word from it. What it had not published was
 * never there. A word that names our own slot is that of who had it before us
 * and died inside. */
static bool take_over(struct hf_arena *arena, uint32_t word, uint32_t mine)
{
    unsigned owner = (word & ~SLEEPERS) - 1;

    if (HF_MUTANT(60) || (HF_MUTANT(61) && owner == arena->slot))
        return false;
    if (owner >= HF_ARENA_SLOTS ||
        (owner != arena->slot && hf_arena_alive(arena, owner)))
        return false;
    if (!atomic_compare_exchange_strong(&arena->header->word, &word,
                                        mine | SLEEPERS))
        return false;
    HF_STEP(2);
    return true;
}

/* Nobody but a stranger writes anything else there. */
static bool is_sound(const struct hf_arena_header *header)
{
    uint64_t tail = atomic_load(&header->tail);
    uint64_t head = atomic_load(&header->head);
    uint64_t room = atomic_load(&header->half_room);

    return tail % ALIGNMENT == 0 && head <= tail && tail - head <= RING_SIZE &&
           room >= HALF_FIRST && room <= HALF_SIZE;
}

enum hf_err hf_arena_enter(struct hf_arena *arena, pid_t *pid)
{
    struct hf_arena_header *header = arena->header;
    uint32_t mine = arena->slot + 1;
    uint32_t word = 0;

    for (int i = 0; i < SPINS; i++) {
        if (take(header, mine))
            goto inside;
        relax();
    }
    for (int i = 0; i < 2; i++) {
        word = atomic_load(&header->word);
        if (word != 0)
            nap(header, word);
        /* Others may sleep: they are to be woken when we leave. */
        if (take(header, mine | SLEEPERS))
            goto inside;
    }
    word = atomic_load(&header->word);
    if (word != 0 && take_over(arena, word, mine))
        goto inside;
    if ((word & ~SLEEPERS) > HF_ARENA_SLOTS)
        return HF_EPROTO;
    if (word & ~SLEEPERS)
        *pid = hf_arena_slot(arena, (word & ~SLEEPERS) - 1)->pid;
    return HF_EBUSY;

inside:
    HF_STEP(1);
    if (!is_sound(header)) {
        hf_arena_leave(arena);
        return HF_EPROTO;
    }
    arena->pending = atomic_load_explicit(&header->tail, memory_order_acquire);
    return HF_OK;
}

void hf_arena_leave(struct hf_arena *arena)
{
    bool sleepers;

    HF_STEP(3);
    sleepers = atomic_exchange(&arena->header->word, 0) & SLEEPERS;
    HF_STEP(4);
    if (sleepers)
        (void)futex(&arena->header->word, FUTEX_WAKE, 1, NULL);
}

/* ---- The ring -----------------------------------------------------------*/

static struct entry *entry_at(const struct hf_arena *arena, uint64_t position)
{
    return (struct entry *)(void *)(arena->header->ring + position % RING_SIZE);
}

static uint64_t room_at(uint64_t position)
{
    return RING_SIZE - position % RING_SIZE;
}

bool hf_arena_has(const struct hf_arena *arena, uint64_t position)
{
    return position >= atomic_load(&arena->header->head);
}

enum hf_err hf_arena_read(const struct hf_arena *arena, uint64_t *position,
                          hf_time *stamp, struct hf_bytes *bytes)
{
    uint64_t tail =
        atomic_load_explicit(&arena->header->tail, memory_order_acquire);
    const struct entry *entry;

    if (!hf_arena_has(arena, *position) && !HF_MUTANT(55))
        return HF_ELIMIT;
    if (*position == tail)
        return HF_ENOTHELD;
    if (*position > tail || *position % ALIGNMENT != 0)
        return HF_EPROTO;
    entry = entry_at(arena, *position);
    if (entry->size == 0) { /* nothing more fits before the end */
        *position += room_at(*position);
        return hf_arena_read(arena, position, stamp, bytes);
    }
    if (entry->size % ALIGNMENT != 0 || entry->size < sizeof(*entry) ||
        entry->size > room_at(*position) || entry->size > tail - *position ||
        entry->bytes > entry->size - sizeof(*entry))
        return HF_EPROTO;
    *stamp = entry->stamp;
    *bytes = (struct hf_bytes){entry->data, entry->bytes};
    *position += entry->size;
    return HF_OK;
}

enum hf_err hf_arena_write(struct hf_arena *arena, hf_time stamp,
                           struct hf_bytes bytes)
{
    uint64_t size = ROUND(sizeof(struct entry) + bytes.size);
    uint64_t filler =
        room_at(arena->pending) < size ? room_at(arena->pending) : 0;
    struct entry *entry;

    if (arena->pending + filler + size - atomic_load(&arena->header->head) >
        RING_SIZE)
        return HF_ELIMIT;
    if (filler > 0) {
        entry_at(arena, arena->pending)->size = 0;
        HF_STEP(5);
        arena->pending += filler;
    }
    entry = entry_at(arena, arena->pending);
    entry->size = (uint32_t)size;
    if (HF_MUTANT(65))
        atomic_store(&arena->header->tail, arena->pending + size);
    HF_STEP(6);
    entry->bytes = (uint32_t)bytes.size;
    entry->stamp = stamp;
    hf_copy(entry->data, bytes.data, bytes.size);
    HF_STEP(7);
    arena->pending += size;
    return HF_OK;
}

void hf_arena_discard(struct hf_arena *arena)
{
    arena->pending = atomic_load(&arena->header->tail);
}

void hf_arena_publish(struct hf_arena *arena)
{
    atomic_store_explicit(&arena->header->tail, arena->pending,
                          memory_order_release);
    HF_STEP(8);
}

/* ---- Snapshots ----------------------------------------------------------*/

struct hf_bytes hf_arena_snapshot(const struct hf_arena *arena,
                                  uint64_t *position)
{
    uint64_t number = atomic_load(&arena->header->snapshot);
    const struct half *half = &arena->header->half[number % 2];

    if (number == 0 || half->size > HALF_SIZE) {
        *position = 0;
        return (struct hf_bytes){0};
    }
    *position = half->position;
    return (struct hf_bytes){half->bytes, half->size};
}

static off_t half_offset(unsigned half)
{
    return (off_t)(offsetof(struct hf_arena_header, half) +
                   half * sizeof(struct half) + offsetof(struct half, bytes));
}

/* Blocks are taken ahead, so that a full disk is an error here and never a
 * SIGBUS in the middle of a snapshot. */
static int allocate_halves(int file, uint64_t size)
{
    int failed = posix_fallocate(file, half_offset(0), (off_t)size);

    return failed ? failed : posix_fallocate(file, half_offset(1), (off_t)size);
}

enum hf_err hf_arena_reserve_snapshot(struct hf_arena *arena, size_t size)
{
    uint64_t room = atomic_load(&arena->header->half_room);

    if (size <= room)
        return HF_OK;
    while (room < size)
        room *= 2;
    if (room > HALF_SIZE || allocate_halves(arena->file, room))
        return HF_ELIMIT;
    HF_STEP(13);
    atomic_store(&arena->header->half_room, room);
    return HF_OK;
}

enum hf_err hf_arena_set_snapshot(struct hf_arena *arena, struct hf_bytes bytes)
{
    struct hf_arena_header *header = arena->header;
    uint64_t number = atomic_load(&header->snapshot) + (HF_MUTANT(67) ? 2 : 1);
    struct half *half = &header->half[number % 2];

    if (hf_arena_reserve_snapshot(arena, bytes.size))
        return HF_ELIMIT;
    half->position = atomic_load(&header->tail);
    half->size = bytes.size;
    if (HF_MUTANT(66))
        atomic_store(&header->snapshot, number);
    HF_STEP(9);
    hf_copy(half->bytes, bytes.data, bytes.size);
    HF_STEP(10);
    atomic_store_explicit(&header->snapshot, number, memory_order_release);
    HF_STEP(11); /* the ring is longer than it need be */
    atomic_store_explicit(&header->head, half->position, memory_order_release);
    HF_STEP(12);
    return HF_OK;
}

/* ---- Slots --------------------------------------------------------------*/

struct hf_arena_slot *hf_arena_slot(const struct hf_arena *arena, unsigned slot)
{
    return &arena->header->slot[slot];
}

unsigned hf_arena_slots(const struct hf_arena *arena)
{
    unsigned slots = atomic_load(&arena->header->slots);

    return slots < HF_ARENA_SLOTS ? slots : HF_ARENA_SLOTS;
}

static struct flock lock_of(unsigned slot)
{
    return (struct flock){
        .l_type = F_WRLCK,
        .l_whence = SEEK_SET,
        .l_start = (off_t)slot,
        .l_len = 1,
    };
}

/* Which numbers of processes mean the same; 0: not known. */
static uint64_t pid_namespace(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) ? 0 : (uint64_t)st.st_ino;
}

/* A child that was forked keeps its parent's lock after the parent's death,
 * which then shows by its number, where the same process would have it here. */
static bool is_gone(const struct hf_arena *arena, unsigned slot)
{
    const struct hf_arena_slot *other = hf_arena_slot(arena, slot);
    uint64_t here = hf_arena_slot(arena, arena->slot)->pid_namespace;

    if (HF_MUTANT(50))
        return false;
    return here != 0 && other->pid_namespace == here && other->pid > 0 &&
           kill(other->pid, 0) && errno == ESRCH;
}

bool hf_arena_alive(const struct hf_arena *arena, unsigned slot)
{
    struct flock lock = lock_of(slot);

    if (slot == arena->slot)
        return true;
    if (HF_MUTANT(30))
        return !is_gone(arena, slot);
    if (fcntl(arena->file, HF_MUTANT(29) ? F_GETLK : F_OFD_GETLK, &lock))
        return true; /* not known to be dead */
    return lock.l_type != F_UNLCK && !is_gone(arena, slot);
}

static void name_fifo(char name[32], unsigned slot)
{
    (void)snprintf(name, 32, "wake.%u", slot);
}

void hf_arena_ring(const struct hf_arena *arena, unsigned slot)
{
    char name[32];
    int fifo;

    if (HF_MUTANT(62))
        return;
    HF_STEP(14);
    name_fifo(name, slot);
    fifo = openat(arena->directory, name,
                  O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fifo < 0)
        return; /* nobody listens: then nobody waits */
    if (write(fifo, "", 1) < 0)
        HF_ASSERT(errno != EBADF); /* full: it will look anyway */
    (void)close(fifo);
}

void hf_arena_hear(const struct hf_arena *arena)
{
    char bytes[256];

    while (read(arena->fifo, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes))
        continue;
}

/* ---- Tokens -------------------------------------------------------------*/

static bool write_all(int file, const char *text)
{
    size_t size = strlen(text);

    return write(file, text, size) == (ssize_t)size && !fsync(file);
}

/* The mark is replaced whole, and never lowered. */
static enum hf_err write_mark(int directory, uint64_t token)
{
    char text[32];
    int file =
        openat(directory, "token.new",
               O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    bool written;

    if (file < 0)
        return HF_ESYSTEM;
    HF_STEP(15);
    (void)snprintf(text, sizeof(text), "%llu\n", (unsigned long long)token);
    written = write_all(file, text);
    (void)close(file);
    HF_STEP(16);
    if (!written || renameat(directory, "token.new", directory, "token") ||
        fsync(directory))
        return HF_ESYSTEM;
    return HF_OK;
}

/* HF_EPROTO: it is there and cannot be read. */
static enum hf_err read_mark(int directory, uint64_t *token)
{
    int file = openat(directory, "token", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char text[32] = "";
    char *end = text;
    ssize_t size;

    *token = 0;
    if (file < 0)
        return errno == ENOENT ? HF_OK : HF_ESYSTEM;
    size = read(file, text, sizeof(text) - 1);
    (void)close(file);
    errno = 0;
    if (size > 0 && text[0] >= '0' && text[0] <= '9')
        *token = strtoull(text, &end, 10);
    return end == text || *end != '\n' || errno ? HF_EPROTO : HF_OK;
}

enum hf_err hf_arena_reserve_tokens(struct hf_arena *arena, uint64_t token)
{
    struct hf_arena_header *header = arena->header;
    uint64_t mark;
    enum hf_err err;

    if (token <= atomic_load(&header->token_reserve))
        return HF_OK;
    err = read_mark(arena->directory, &mark);
    if (err == HF_EPROTO || mark < token)
        mark = token; /* scribbled: what the arena knows is at least right */
    mark += TOKENS_AHEAD;
    err = HF_MUTANT(64) ? HF_OK : write_mark(arena->directory, mark);
    HF_STEP(17);
    if (!err)
        atomic_store(&header->token_reserve, mark);
    return err;
}

uint64_t hf_arena_first_token(const struct hf_arena *arena)
{
    return arena->header->label.first_token;
}

/* ---- Opening ------------------------------------------------------------*/

static enum hf_err fail(const struct hf_arena *arena, struct hf_error *error,
                        const char *name, const char *what)
{
    return hf_error_set(error, errno == EACCES ? HF_EUNAVAIL : HF_ESYSTEM,
                        "file:%s%s%s: %s: %s", arena->path, *name ? "/" : "",
                        name, what, strerror(errno));
}

/* Leases are shared through the page cache of one kernel. */
static const char *network_name(const struct statfs *fs)
{
    static const struct {
        unsigned long magic;
        const char *name;
    } networks[] = {
        {NFS_SUPER_MAGIC, "NFS"},   {SMB_SUPER_MAGIC, "SMB"},
        {0xff534d42, "CIFS"},       {0xfe534d42, "SMB2"},
        {CODA_SUPER_MAGIC, "Coda"}, {AFS_SUPER_MAGIC, "AFS"},
        {V9FS_MAGIC, "9p"},         {OCFS2_SUPER_MAGIC, "OCFS2"},
        {CEPH_SUPER_MAGIC, "Ceph"}, {0x01161970, "GFS2"},
        {0x0bd00bd0, "Lustre"},     {0x65735546, "FUSE"},
    };

    for (size_t i = 0; i < sizeof(networks) / sizeof(networks[0]); i++) {
        if ((unsigned long)fs->f_type == networks[i].magic)
            return networks[i].name;
    }
    return NULL;
}

static enum hf_err check_directory(struct hf_arena *arena, mode_t mode,
                                   struct hf_error *error)
{
    struct statfs fs;
    struct stat st;

    if (fstat(arena->directory, &st) || fstatfs(arena->directory, &fs))
        return fail(arena, error, "", "cannot look at it");
    if (network_name(&fs))
        return hf_error_set(error, HF_EUNSUPPORTED,
                            "file:%s: is on a network file system (%s), which "
                            "cannot share memory between machines",
                            arena->path, network_name(&fs));
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
        return fail(arena, error, "", "cannot make it");
    arena->directory =
        open(arena->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (arena->directory < 0)
        return fail(arena, error, "", "cannot open it");
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
    struct label label = {
        .magic = MAGIC,
        .version = VERSION,
        .size = sizeof(struct hf_arena_header),
    };
    const uint64_t first = HALF_FIRST;
    enum hf_err err = read_mark(arena->directory, &label.first_token);
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
        return fail(arena, error, "arena.new", "cannot make it");
    HF_STEP(18);
    (void)fchmod(file, mode & 0666);
    errno = ftruncate(file, sizeof(struct hf_arena_header)) ? errno : 0;
    if (!errno)
        errno =
            posix_fallocate(file, 0, offsetof(struct hf_arena_header, half));
    if (!errno)
        errno = allocate_halves(file, HALF_FIRST);
    if (errno) {
        fail(arena, error, "arena.new", "no room for it");
        (void)close(file);
        return HF_ESYSTEM;
    }
    HF_STEP(19);
    memcpy(label.boot, boot, sizeof(label.boot));
    if (pwrite(file, &label, sizeof(label), 0) != (ssize_t)sizeof(label) ||
        pwrite(file, &first, sizeof(first),
               offsetof(struct hf_arena_header, half_room)) !=
            (ssize_t)sizeof(first) ||
        renameat(arena->directory, "arena.new", arena->directory, "arena")) {
        fail(arena, error, "arena.new", "cannot write it");
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
    struct label label;
    struct stat st;

    if (pread(arena->file, &label, sizeof(label), 0) !=
            (ssize_t)sizeof(label) ||
        fstat(arena->file, &st) || label.magic != MAGIC)
        return hf_error_set(error, HF_EPROTO,
                            "file:%s/arena: is no arena; if nobody uses it, "
                            "remove it",
                            arena->path);
    if (memcmp(label.boot, boot, sizeof(label.boot)) != 0)
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
        return fail(arena, error, "arena", "cannot open it");
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
        return fail(arena, error, "lock", "cannot open it");
    (void)fchmod(lock, mode & 0666);
    while (flock(lock, LOCK_EX)) {
        if (errno != EINTR) {
            fail(arena, error, "lock", "cannot lock it");
            (void)close(lock);
            return HF_ESYSTEM;
        }
    }
    err = open_or_make(arena, mode, error);
    if (!err)
        (void)flock(arena->directory, LOCK_SH);
    (void)close(lock);
    return err;
}

/* Who has the slot now, before it goes inside by it. */
static void sign_slot(struct hf_arena *arena)
{
    struct hf_arena_slot *slot = hf_arena_slot(arena, arena->slot);

    HF_STEP(21);
    slot->pid_namespace = pid_namespace();
    HF_STEP(22);
    slot->pid = (int32_t)getpid();
}

static enum hf_err take_slot(struct hf_arena *arena, struct hf_error *error)
{
    for (unsigned i = 0; i < HF_ARENA_SLOTS; i++) {
        struct flock lock = lock_of(i);

        if (fcntl(arena->file, HF_MUTANT(29) ? F_SETLK : F_OFD_SETLK, &lock) ==
            0) {
            arena->slot = i;
            sign_slot(arena);
            return HF_OK;
        }
        if (errno != EAGAIN && errno != EACCES)
            return fail(arena, error, "arena", "cannot lock a slot");
    }
    return hf_error_set(error, HF_ELIMIT, "file:%s: %d clients use it already",
                        arena->path, HF_ARENA_SLOTS);
}

/* Opened for writing too, so that it never ends. */
static enum hf_err open_fifo(struct hf_arena *arena, mode_t mode,
                             struct hf_error *error)
{
    char name[32];

    name_fifo(name, arena->slot);
    (void)unlinkat(arena->directory, name, 0);
    HF_STEP(23);
    if (mkfifoat(arena->directory, name, mode & 0666) ||
        fchmodat(arena->directory, name, mode & 0666, 0))
        return fail(arena, error, name, "cannot make it");
    arena->fifo = openat(arena->directory, name,
                         O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (arena->fifo < 0)
        return fail(arena, error, name, "cannot open it");
    return HF_OK;
}

static enum hf_err map(struct hf_arena *arena, struct hf_error *error)
{
    void *mapped = mmap(NULL, sizeof(struct hf_arena_header),
                        PROT_READ | PROT_WRITE, MAP_SHARED, arena->file, 0);

    if (mapped == MAP_FAILED)
        return fail(arena, error, "arena", "cannot map it");
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

static void count_slot(struct hf_arena *arena)
{
    uint32_t slots = atomic_load(&arena->header->slots);

    while (slots <= arena->slot &&
           !atomic_compare_exchange_weak(&arena->header->slots, &slots,
                                         arena->slot + 1))
        continue;
}

enum hf_err hf_arena_open(struct hf_arena *arena, const char *path, mode_t mode,
                          struct hf_error *error)
{
    enum hf_err err;

    *arena = (struct hf_arena){.directory = -1, .file = -1, .fifo = -1};
    arena->path = strdup(path);
    if (!arena->path)
        return hf_error_code(error, HF_ENOMEM);
    err = open_directory(arena, mode, error);
    if (!err)
        err = open_file(arena, mode, error);
    if (!err)
        err = map(arena, error);
    if (!err)
        err = take_slot(arena, error);
    if (!err)
        err = open_fifo(arena, mode, error);
    if (err)
        hf_arena_close(arena);
    else
        count_slot(arena);
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
    char name[32];

    if (arena->fifo >= 0) {
        name_fifo(name, arena->slot);
        (void)unlinkat(arena->directory, name, 0);
    }
    if (arena->header) {
        hf_guard_remove(arena->header);
        (void)munmap(arena->header, arena->size);
    }
    arena->header = NULL;
    close_fd(&arena->fifo);
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
