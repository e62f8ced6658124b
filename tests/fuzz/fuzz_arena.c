/* fuzz_arena.c - a replica reads any bytes in an arena, or reports damage; it
 * never crashes, hangs or breaks the rules of the table.
 *
 * The input is a list of writes: one byte for the kind, two for the size, then
 * the bytes. The kinds are: an entry of the log; a snapshot, unchanged or with
 * a correct checksum; an entry whose header is part of the input; an offset in
 * the file and the bytes to store there; a well-formed command that is built
 * from the bytes. After each write, a replica catches up, runs a command and
 * expires the leases that are due. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/siphash.h"
#include "lib/folder.h"
#include "lib/twin.h"
#include "strategy/file/replica.h"

#define ENTRY_HEAD 16          /* size of the header of an entry */
#define HEAD_SIZE 65536        /* bytes that are restored before each input */
#define REACH (5 << 18)        /* a write at an offset starts below this */
#define NOW (INT64_C(1) << 40) /* current time when leases are expired */
#define WRITE_MAX (64 << 10)   /* size of the largest entry or snapshot */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct hf_seed seed;
static char directory[] = HF_TEST_FOLDER;
static struct hf_arena arena;
static uint8_t head[HEAD_SIZE];

static void clean_up(void)
{
    hf_arena_close(&arena);
    (void)hf_test_folder_remove(directory);
}

static void set_up(void)
{
    struct hf_error error = {.text = ""};

    if (!hf_test_folder_make(directory) ||
        hf_arena_open(&arena, directory, 0700, &error)) {
        (void)fprintf(stderr, "%s\n", error.text);
        abort();
    }
    memcpy(head, arena.header, sizeof(head));
    (void)atexit(clean_up);
}

static void on_event(void *arg, const struct hf_table_event *event)
{
    (void)arg;
    (void)event;
}

static void reset(struct hf_replica *replica)
{
    memcpy(arena.header, head, sizeof(head));
    hf_replica_init(replica, &arena, &seed, on_event, NULL);
}

/* Write a snapshot: the table's part, which is `data` and its correct checksum,
 * and then the size of that part. */
static void set_valid_snapshot(const uint8_t *data, size_t size)
{
    static uint8_t bytes[WRITE_MAX + 16];
    uint64_t sum, table = size + 8;

    memcpy(bytes, data, size);
    sum = hf_siphash(&seed, bytes, size);
    for (size_t i = 0; i < 8; i++) {
        bytes[size + i] = (uint8_t)(sum >> (8 * i));
        bytes[size + 8 + i] = (uint8_t)(table >> (8 * i));
    }
    (void)hf_arena_set_snapshot(&arena, (struct hf_bytes){bytes, size + 16});
}

/* Write an entry, and overwrite its header with the first bytes of `data`. */
static void write_broken_entry(const uint8_t *data, size_t size)
{
    uint64_t position = arena.pending;
    struct hf_bytes bytes = {data + ENTRY_HEAD, size - ENTRY_HEAD};
    hf_time stamp;

    if (hf_arena_write(&arena, 1, bytes) != HF_OK)
        return;
    hf_arena_publish(&arena);
    if (hf_arena_read(&arena, &position, &stamp, &bytes) == HF_ARENA_ENTRY_READ)
        memcpy((uint8_t *)(uintptr_t)bytes.data - ENTRY_HEAD, data, ENTRY_HEAD);
}

/* ---- Well-formed commands -----------------------------------------------*/

struct input {
    const uint8_t *data;
    size_t size;
};

static uint8_t next_byte(struct input *input)
{
    if (input->size == 0)
        return 0;
    input->size--;
    return *input->data++;
}

/* Returns a small number, a number near UINT64_MAX, or one near a power of
 * two. */
static uint64_t next_number(struct input *input)
{
    uint8_t byte = next_byte(input);

    if (byte < 0x80)
        return byte;
    if (byte < 0xc0)
        return UINT64_MAX - (byte & 0x3f);
    return (UINT64_C(1) << (byte & 0x3f)) - (byte & 1);
}

static void write_command(const uint8_t *data, size_t size)
{
    static const char text[] = "abcdefgh";
    struct input input = {data, size};
    struct hf_command command = {.kind = next_byte(&input) % HF_COMMAND_KINDS};
    uint8_t flags = next_byte(&input);
    struct hf_buf buf = {0};
    hf_time stamp;

    command.queue = flags & 1;
    command.now = (flags & 2) != 0;
    command.has_expected = (flags & 4) != 0;
    command.session = next_number(&input);
    command.sequence = next_number(&input);
    command.done = next_number(&input);
    command.token = next_number(&input);
    command.generation = (uint32_t)next_number(&input);
    command.lease_ms = (uint32_t)next_number(&input);
    command.nonce.bytes[0] = next_byte(&input) & 3;
    command.key = (struct hf_key){text + (flags >> 6), 1};
    command.value = (struct hf_bytes){text, (flags >> 3) & 7};
    stamp = (hf_time)next_number(&input);
    if (!hf_command_is_valid(&command))
        return;
    hf_command_encode(&command, HF_VERSION_NEWEST, &buf);
    if (!buf.failed &&
        hf_arena_write(&arena, stamp, (struct hf_bytes){buf.data, buf.size}) ==
            HF_OK)
        hf_arena_publish(&arena);
    hf_buf_fini(&buf);
}

static void apply_write(uint8_t kind, const uint8_t *data, size_t size)
{
    struct hf_bytes bytes = {data, size};
    uint32_t offset;

    switch (kind % 6) {
    case 0:
        if (hf_arena_write(&arena, 1, bytes) == HF_OK)
            hf_arena_publish(&arena);
        return;
    case 1:
        (void)hf_arena_set_snapshot(&arena, bytes);
        return;
    case 2:
        set_valid_snapshot(data, size);
        return;
    case 3:
        if (size >= ENTRY_HEAD)
            write_broken_entry(data, size);
        return;
    case 5:
        write_command(data, size);
        return;
    default:
        if (size < sizeof(offset))
            return;
        memcpy(&offset, data, sizeof(offset));
        memcpy((uint8_t *)arena.header + offset % REACH, data + sizeof(offset),
               size - sizeof(offset));
    }
}

static void check_table(const struct hf_replica *replica)
{
    const char *wrong = hf_table_check(&replica->store.table);

    if (wrong) {
        (void)fprintf(stderr, "%s\n", wrong);
        abort();
    }
}

/* Check that each entry, with its header, ends before the next entry begins. */
static void check_log(uint64_t position)
{
    uint64_t start = position;
    struct hf_bytes bytes;
    hf_time stamp;

    while (hf_arena_read(&arena, &position, &stamp, &bytes) ==
           HF_ARENA_ENTRY_READ) {
        if (position - start < bytes.size + ENTRY_HEAD)
            abort();
        start = position;
    }
}

/* Expire the leases that are due, as a client does. The loop must end: each
 * EXPIRE ends a hold or fails. */
static void expire_due(struct hf_replica *replica)
{
    const struct hf_table *table = &replica->store.table;
    size_t most = table->holds.count + table->waiting.count;
    struct hf_command expire;
    struct hf_result result;

    while (hf_store_take_due(&replica->store, NOW, &expire, 1) > 0) {
        hf_replica_run(replica, NOW, &expire, &result);
        if (result.err == HF_ENOTHELD || most-- == 0)
            abort(); /* a client would loop for ever */
        if (result.err) {
            hf_store_retry_due(&replica->store);
            return;
        }
    }
}

/* Catch up, run a command and expire leases. Returns false if the replica
 * reports damage. */
static bool use_replica(struct hf_replica *replica)
{
    const struct hf_command command = {
        .kind = HF_COMMAND_OPEN,
        .note = {"fuzz", 4},
    };
    struct hf_result result;
    enum hf_err err;

    check_log(replica->position);
    err = hf_replica_catch_up(replica);
    if (err)
        return false;
    check_table(replica);
    hf_replica_run(replica, 2, &command, &result);
    check_table(replica);
    expire_due(replica);
    check_table(replica);
    return true;
}

static bool lock_arena(void)
{
    pid_t pid;

    /* If the input has marked the arena as locked by another client, this call
     * fails after a short wait. */
    return hf_arena_lock(&arena, &pid) == HF_ARENA_LOCKED;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hf_replica replica;
    bool usable = true;

    if (!arena.header)
        set_up();
    reset(&replica);
    while (usable && size >= 3) {
        size_t count = (size_t)(data[1] | data[2] << 8);
        uint8_t kind = data[0];

        data += 3;
        size -= 3;
        if (count > size)
            count = size;
        usable = lock_arena();
        if (usable) {
            apply_write(kind, data, count);
            hf_arena_unlock(&arena);
            usable = lock_arena();
        }
        if (usable) {
            usable = use_replica(&replica);
            hf_arena_unlock(&arena);
        }
        data += count;
        size -= count;
    }
    hf_replica_fini(&replica);
    return 0;
}
