#include "strategy/file/arena.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/mutant.h"
#include "base/step.h"
#include "strategy/file/layout.h"

#define SPINS 200            /* a section takes about a microsecond */
#define PATIENCE_NS 10000000 /* then it is asked whether its owner lives */

/* The word's top bit: somebody sleeps. */
#define SLEEPERS UINT32_C(0x80000000)

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

    return tail % ALIGNMENT == 0 && head <= tail &&
           tail - head <= HF_ARENA_RING && room >= HF_ARENA_HALF_FIRST &&
           room <= HF_ARENA_HALF;
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
    return (struct entry *)(void *)(arena->header->ring +
                                    position % HF_ARENA_RING);
}

static uint64_t room_at(uint64_t position)
{
    return HF_ARENA_RING - position % HF_ARENA_RING;
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
        HF_ARENA_RING)
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
    const struct hf_arena_half *half = &arena->header->half[number % 2];

    if (number == 0 || half->size > HF_ARENA_HALF) {
        *position = 0;
        return (struct hf_bytes){0};
    }
    *position = half->position;
    return (struct hf_bytes){half->bytes, half->size};
}

static off_t half_offset(unsigned half)
{
    return (off_t)(offsetof(struct hf_arena_header, half) +
                   half * sizeof(struct hf_arena_half) +
                   offsetof(struct hf_arena_half, bytes));
}

int hf_arena_allocate_halves(int file, uint64_t size)
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
    if (room > HF_ARENA_HALF || hf_arena_allocate_halves(arena->file, room))
        return HF_ELIMIT;
    HF_STEP(13);
    atomic_store(&arena->header->half_room, room);
    return HF_OK;
}

enum hf_err hf_arena_set_snapshot(struct hf_arena *arena, struct hf_bytes bytes)
{
    struct hf_arena_header *header = arena->header;
    uint64_t number = atomic_load(&header->snapshot) + (HF_MUTANT(67) ? 2 : 1);
    struct hf_arena_half *half = &header->half[number % 2];

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
