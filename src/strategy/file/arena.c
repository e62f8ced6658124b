#include "strategy/file/arena.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/crash_point.h"
#include "base/limits.h"
#include "strategy/file/layout.h"

#define SLEEP_MAX_NS                                                           \
    10000000 /* longest sleep; after it, check whether the owner is alive */

struct entry {
    uint32_t size; /* size with this header; 0: go on at the ring's start */
    uint32_t bytes;
    hf_time stamp;
    uint8_t data[];
};

/* 32-bit and 64-bit programs share an arena, so the alignment must not depend
 * on the word size. */
#define ALIGNMENT UINT64_C(8)
#define ROUND(size) (((size) + ALIGNMENT - 1) & ~(ALIGNMENT - 1))

_Static_assert(sizeof(struct entry) == 16, "entries are the same everywhere");
_Static_assert(offsetof(struct entry, stamp) == 8,
               "stamps are the same everywhere");
_Static_assert(HF_FITS(HF_ARENA_RING, uint32_t), "a size fits any entry");

/* ---- The arena lock -----------------------------------------------------*/

static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *timeout)
{
    return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Sleep for at most SLEEP_MAX_NS, because the client that should wake us may be
 * killed before it does. */
static void sleep_on_word(_Atomic uint64_t *word, uint64_t seen)
{
    const struct timespec timeout = {.tv_nsec = SLEEP_MAX_NS};

    (void)futex(hf_word_futex(word), FUTEX_WAIT, hf_word_futex_value(seen),
                &timeout);
}

static bool is_power_of_two(uint64_t size)
{
    return (size & (size - 1)) == 0;
}

/* Read the header once, and use the checked copy in the critical section: a
 * hostile process may overwrite the header at any time. */
static bool read_header(struct hf_arena *arena)
{
    const struct hf_arena_header *header = arena->header;
    uint64_t tail = atomic_load(&header->tail);
    uint64_t head = atomic_load(&header->head);
    uint64_t ring = atomic_load(&header->ring_room);
    uint64_t room = atomic_load(&header->half_room);

    arena->ring_room = ring;
    arena->half_room = room;
    arena->head = head;
    arena->tail = tail;
    arena->pending = tail;
    return tail % ALIGNMENT == 0 && head <= tail && tail - head <= ring &&
           is_power_of_two(ring) && ring >= HF_ARENA_RING_FIRST &&
           ring <= HF_ARENA_RING && room >= HF_ARENA_HALF_FIRST &&
           room <= HF_ARENA_HALF;
}

/* Make the next step of an attempt. Sleep or check the owner if the state asks
 * for that, because hf_word_step() only accesses the word. */
static void advance_attempt(struct hf_arena *arena,
                            struct hf_word_attempt *attempt)
{
    _Atomic uint64_t *word = &arena->header->word;

    if (attempt->state == HF_WORD_CHECK_OWNER) {
        hf_word_set_owner_alive(
            attempt, hf_slot_is_alive(arena, hf_word_owner(attempt->seen)));
        return;
    }
    if (attempt->state == HF_WORD_SLEEP)
        sleep_on_word(word, attempt->seen);
    else if (attempt->state == HF_WORD_TRY)
        cpu_relax();
    hf_word_step(attempt, word);
}

/* Acquire the word. If the result is HF_ARENA_BUSY because the owner is alive,
 * `*pid` is set to its process. If several clients kept entering the critical
 * section, `*pid` is left alone. */
static enum hf_arena_access acquire_word(struct hf_arena *arena, pid_t *pid)
{
    struct hf_word_attempt *attempt = &arena->attempt;
    enum hf_word_state last = HF_WORD_TRY;

    hf_word_start(attempt, arena->slot, &arena->header->slot[arena->slot].tag);
    hf_word_step(attempt, &arena->header->word);
    while (attempt->state < HF_WORD_OWNED) {
        last = attempt->state;
        advance_attempt(arena, attempt);
    }
    if (attempt->state == HF_WORD_OWNED)
        return HF_ARENA_LOCKED;
    if (attempt->state == HF_WORD_BROKEN)
        return HF_ARENA_BAD_HEADER;
    if (last == HF_WORD_CHECK_OWNER)
        *pid = hf_slot_at(arena, hf_word_owner(attempt->seen))->pid;
    return HF_ARENA_BUSY;
}

enum hf_arena_access hf_arena_lock(struct hf_arena *arena, pid_t *pid)
{
    enum hf_arena_access access;

    *pid = 0;
    access = acquire_word(arena, pid);
    if (access != HF_ARENA_LOCKED)
        return access;
    HF_CRASH_POINT(1);
    if (!read_header(arena)) {
        bool lost = hf_arena_is_lost(arena);

        hf_arena_unlock(arena);
        return lost && !hf_arena_is_lost(arena) ? HF_ARENA_UNWRITABLE
                                                : HF_ARENA_BAD_HEADER;
    }
    return HF_ARENA_LOCKED;
}

/* Returns true if we still own the arena lock. If the guard has replaced the
 * mapping, map the file again: our changes since then did not reach the file,
 * so the word there may be ours or another client's. */
static bool owns_word(struct hf_arena *arena)
{
    if (!hf_arena_is_lost(arena))
        return true;
    return hf_arena_recover(arena) &&
           hf_word_is_ours(&arena->attempt, atomic_load(&arena->header->word));
}

void hf_arena_unlock(struct hf_arena *arena)
{
    bool sleepers;

    HF_CRASH_POINT(3);
    if (!owns_word(arena))
        return;
    sleepers = hf_word_release(&arena->header->word);
    HF_CRASH_POINT(4);
    if (sleepers)
        (void)futex(hf_word_futex(&arena->header->word), FUTEX_WAKE, 1, NULL);
}

/* ---- The ring -----------------------------------------------------------*/

static struct entry *entry_at(const struct hf_arena *arena, uint64_t position)
{
    return (struct entry *)(void *)(arena->header->ring +
                                    (position & (arena->ring_room - 1)));
}

static uint64_t room_at(const struct hf_arena *arena, uint64_t position)
{
    return arena->ring_room - (position & (arena->ring_room - 1));
}

/* The log may grow to the size of the snapshot that it follows, at least to
 * HF_ARENA_RING_FIRST and at most to the size of the ring. So the cost of
 * snapshots stays proportional to the log, however many keys are held. */
static uint64_t log_limit(const struct hf_arena *arena)
{
    uint64_t position;
    uint64_t size = hf_arena_snapshot(arena, &position).size;

    if (size < HF_ARENA_RING_FIRST)
        return HF_ARENA_RING_FIRST;
    return size < arena->ring_room ? size : arena->ring_room;
}

bool hf_arena_has_entry(const struct hf_arena *arena, uint64_t position)
{
    return position >= arena->head;
}

/* Load shared memory once, because it may change between a check and the use of
 * the checked value. */
static uint32_t read_once(const uint32_t *shared)
{
    return *(const volatile uint32_t *)shared;
}

enum hf_arena_entry hf_arena_read(const struct hf_arena *arena,
                                  uint64_t *position, hf_time *stamp,
                                  struct hf_bytes *bytes)
{
    uint64_t tail = arena->tail;
    const struct entry *entry;
    uint32_t size, used;

    if (!hf_arena_has_entry(arena, *position))
        return HF_ARENA_ENTRY_GONE;
    if (*position == tail)
        return HF_ARENA_ENTRY_NONE;
    if (*position > tail || *position % ALIGNMENT != 0)
        return HF_ARENA_ENTRY_DAMAGED;
    entry = entry_at(arena, *position);
    size = read_once(&entry->size);
    used = read_once(&entry->bytes);
    if (size == 0) { /* the next entry is at the start of the ring */
        *position += room_at(arena, *position);
        return hf_arena_read(arena, position, stamp, bytes);
    }
    if (size % ALIGNMENT != 0 || size < sizeof(*entry) ||
        size > room_at(arena, *position) || size > tail - *position ||
        used > size - sizeof(*entry))
        return HF_ARENA_ENTRY_DAMAGED;
    *stamp = entry->stamp;
    *bytes = (struct hf_bytes){entry->data, used};
    *position += size;
    return HF_ARENA_ENTRY_READ;
}

enum hf_err hf_arena_write(struct hf_arena *arena, hf_time stamp,
                           struct hf_bytes bytes)
{
    uint64_t size = ROUND(sizeof(struct entry) + bytes.size);
    uint64_t filler = room_at(arena, arena->pending) < size
                          ? room_at(arena, arena->pending)
                          : 0;
    struct entry *entry;

    if (arena->pending + filler + size - arena->head > log_limit(arena))
        return HF_ELIMIT;
    if (filler > 0) {
        entry_at(arena, arena->pending)->size = 0;
        HF_CRASH_POINT(5);
        arena->pending += filler;
    }
    entry = entry_at(arena, arena->pending);
    entry->size = (uint32_t)size;
    HF_CRASH_POINT(6);
    entry->bytes = (uint32_t)bytes.size;
    entry->stamp = stamp;
    hf_copy(entry->data, bytes.data, bytes.size);
    HF_CRASH_POINT(7);
    arena->pending += size;
    return HF_OK;
}

/* A waiter's lease starts when the waiter is granted the key, which any later
 * command may do. So `idle_at` is the time of the last command plus the longest
 * lease that was requested since the arena was last idle. A client that is
 * killed between the two stores leaves `idle_at` too late, never too early. */
void hf_arena_record_lease(struct hf_arena *arena, hf_time now,
                           uint32_t lease_ms)
{
    struct hf_arena_header *header = arena->header;
    hf_time stamped =
        atomic_load_explicit(&header->stamped, memory_order_relaxed);
    hf_time idle_at =
        atomic_load_explicit(&header->idle_at, memory_order_relaxed);
    uint64_t longest =
        idle_at > stamped ? (uint64_t)idle_at - (uint64_t)stamped : 0;

    if (longest < lease_ms)
        longest = lease_ms;
    atomic_store_explicit(&header->idle_at, hf_time_add(now, longest),
                          memory_order_relaxed);
    atomic_store_explicit(&header->stamped, now, memory_order_release);
}

void hf_arena_record_idle(struct hf_arena *arena, hf_time now)
{
    atomic_store_explicit(&arena->header->idle_at, now, memory_order_relaxed);
}

void hf_arena_discard(struct hf_arena *arena)
{
    arena->pending = arena->tail;
}

bool hf_arena_publish(struct hf_arena *arena)
{
    uint64_t before = arena->tail;

    arena->tail = arena->pending;
    atomic_store_explicit(&arena->header->tail, arena->tail,
                          memory_order_release);
    HF_CRASH_POINT(8);
    if (!hf_arena_is_lost(arena))
        return true;
    if (hf_arena_recover(arena) &&
        atomic_load(&arena->header->tail) == arena->tail)
        return true;
    arena->tail = before;
    hf_arena_discard(arena);
    return false;
}

/* ---- Snapshots ----------------------------------------------------------*/

struct hf_bytes hf_arena_snapshot(const struct hf_arena *arena,
                                  uint64_t *position)
{
    uint64_t number = atomic_load(&arena->header->snapshot);
    const struct hf_arena_half *half = &arena->header->half[number % 2];
    uint64_t size = *(const volatile uint64_t *)&half->size;

    if (number == 0 || size > HF_ARENA_HALF) {
        *position = 0;
        return (struct hf_bytes){0};
    }
    *position = half->position;
    return (struct hf_bytes){half->bytes, (size_t)size};
}

static off_t half_offset(unsigned half)
{
    return (off_t)(offsetof(struct hf_arena_header, half) +
                   half * sizeof(struct hf_arena_half) +
                   offsetof(struct hf_arena_half, bytes));
}

int hf_arena_allocate_ring(int file, uint64_t size)
{
    return posix_fallocate(
        file, 0, (off_t)(offsetof(struct hf_arena_header, ring) + size));
}

int hf_arena_allocate_halves(int file, uint64_t size)
{
    int code = posix_fallocate(file, half_offset(0), (off_t)size);

    return code ? code : posix_fallocate(file, half_offset(1), (off_t)size);
}

enum hf_err hf_arena_reserve_snapshot(struct hf_arena *arena, size_t size)
{
    uint64_t room = arena->half_room;

    if (size <= room)
        return HF_OK;
    while (room < size)
        room *= 2;
    if (room > HF_ARENA_HALF || hf_arena_allocate_halves(arena->file, room))
        return HF_ELIMIT;
    HF_CRASH_POINT(13);
    arena->half_room = room;
    atomic_store(&arena->header->half_room, room);
    return HF_OK;
}

/* Grow the ring with the snapshot, if the disk has room. Only an empty ring can
 * grow, because the place of an entry depends on the ring's size. */
static void grow_ring(struct hf_arena *arena, uint64_t size)
{
    uint64_t room = arena->ring_room;

    while (room < size && room < HF_ARENA_RING)
        room *= 2;
    if (room <= arena->ring_room || hf_arena_allocate_ring(arena->file, room))
        return;
    arena->ring_room = room;
    atomic_store(&arena->header->ring_room, room);
}

enum hf_err hf_arena_set_snapshot(struct hf_arena *arena, struct hf_bytes bytes)
{
    struct hf_arena_header *header = arena->header;
    uint64_t number = atomic_load(&header->snapshot) + 1;
    struct hf_arena_half *half = &header->half[number % 2];

    if (hf_arena_reserve_snapshot(arena, bytes.size))
        return HF_ELIMIT;
    half->position = arena->tail;
    half->size = bytes.size;
    HF_CRASH_POINT(9);
    hf_copy(half->bytes, bytes.data, bytes.size);
    HF_CRASH_POINT(10);
    atomic_store_explicit(&header->snapshot, number, memory_order_release);
    HF_CRASH_POINT(11); /* the ring has entries that the snapshot covers */
    arena->head = arena->tail;
    atomic_store_explicit(&header->head, arena->head, memory_order_release);
    /* Readers without the arena lock must see the new head before entries are
     * overwritten. */
    atomic_thread_fence(memory_order_seq_cst);
    HF_CRASH_POINT(12);
    grow_ring(arena, bytes.size);
    return HF_OK;
}

/* ---- Reading without the arena lock ---------------------------------------
 *
 * This is a sequence lock: a reader checks afterwards that the data has not
 * changed. A writer changes the snapshot number and the head before it
 * overwrites data that they covered, and the size of the ring before it
 * publishes the first entry that is placed by the new size. */

bool hf_arena_begin_read(struct hf_arena *arena)
{
    arena->read_snapshot = atomic_load(&arena->header->snapshot);
    return read_header(arena);
}

bool hf_arena_end_read(const struct hf_arena *arena)
{
    const struct hf_arena_header *header = arena->header;

    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load(&header->snapshot) == arena->read_snapshot &&
           atomic_load(&header->head) == arena->head &&
           atomic_load(&header->ring_room) == arena->ring_room;
}
