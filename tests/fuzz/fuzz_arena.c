/* fuzz_arena.c - whatever is written into an arena, by a broken client or by a
 * stranger, a copy of the table reads it or says that it is damaged.
 *
 * The input is a list of scribbles: one byte for what, two for the size, then
 * the bytes: an entry of the log, a snapshot (as it is, or with the checksum
 * that it would need), an entry whose header is part of the input, a place in the file and
 * what to put there, or a well-formed command made from the bytes. After each, a
 * copy catches up, runs a command and ends the leases that are due. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/siphash.h"
#include "lib/folder.h"
#include "lib/twin.h"
#include "strategy/file/replica.h"

#define ENTRY_HEAD 16   /* bytes of the log before an entry's own */
#define HEAD_SIZE 65536 /* what is put back before each input */
#define REACH (5 << 18) /* header, slots, ring, start of the first half */
#define NOW (INT64_C(1) << 40) /* when leases are due */
#define WRITE_MAX (64 << 10)   /* of one entry or snapshot */

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

static void begin(struct hf_replica *replica)
{
    memcpy(arena.header, head, sizeof(head));
    hf_replica_init(replica, &arena, &seed, on_event, NULL);
}

/* As snapshots end: the size of the table's part, here all of it, whose last
 * eight bytes are its checksum. */
static void set_sound_snapshot(const uint8_t *data, size_t size)
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

/* An entry, and then something else in place of its head. */
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

/* Small, or next to one of the ends. */
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
    hf_command_encode(&command, &buf);
    if (!buf.failed &&
        hf_arena_write(&arena, stamp, (struct hf_bytes){buf.data, buf.size}) ==
            HF_OK)
        hf_arena_publish(&arena);
    hf_buf_fini(&buf);
}

static void scribble(uint8_t what, const uint8_t *data, size_t size)
{
    struct hf_bytes bytes = {data, size};
    uint32_t place;

    switch (what % 6) {
    case 0:
        if (hf_arena_write(&arena, 1, bytes) == HF_OK)
            hf_arena_publish(&arena);
        return;
    case 1:
        (void)hf_arena_set_snapshot(&arena, bytes);
        return;
    case 2:
        set_sound_snapshot(data, size);
        return;
    case 3:
        if (size >= ENTRY_HEAD)
            write_broken_entry(data, size);
        return;
    case 5:
        write_command(data, size);
        return;
    default:
        if (size < sizeof(place))
            return;
        memcpy(&place, data, sizeof(place));
        memcpy((uint8_t *)arena.header + place % REACH, data + sizeof(place),
               size - sizeof(place));
    }
}

static void check(const struct hf_replica *replica)
{
    const char *wrong = hf_table_check(&replica->store.table);

    if (wrong) {
        (void)fprintf(stderr, "%s\n", wrong);
        abort();
    }
}

/* What is read lies inside what was written. */
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

/* As a client does: each has an end, unless its lease begins later than now. */
static void expire_due(struct hf_replica *replica)
{
    const struct hf_table *table = &replica->store.table;
    size_t most = table->holds.count + table->waiting.count;
    struct hf_command expire;
    struct hf_result result;

    while (hf_store_find_due(&replica->store, NOW, &expire)) {
        hf_replica_run(replica, NOW, &expire, &result);
        if (result.err == HF_ENOTHELD || most-- == 0)
            abort(); /* a client would go on like this for ever */
        if (result.err)
            return;
    }
}

/* Go in, read what is there, write something. False: it is damaged. */
static bool use(struct hf_replica *replica)
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
    check(replica);
    hf_replica_run(replica, 2, &command, &result);
    check(replica);
    expire_due(replica);
    check(replica);
    return true;
}

static bool go_in(void)
{
    pid_t pid;

    /* A word of another's takes the patience of the arena to refuse. */
    return hf_arena_lock(&arena, &pid) == HF_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hf_replica replica;
    bool sound = true;

    if (!arena.header)
        set_up();
    begin(&replica);
    while (sound && size >= 3) {
        size_t count = (size_t)(data[1] | data[2] << 8);
        uint8_t what = data[0];

        data += 3;
        size -= 3;
        if (count > size)
            count = size;
        sound = go_in();
        if (sound) {
            scribble(what, data, count);
            hf_arena_unlock(&arena);
            sound = go_in();
        }
        if (sound) {
            sound = use(&replica);
            hf_arena_unlock(&arena);
        }
        data += count;
        size -= count;
    }
    hf_replica_fini(&replica);
    return 0;
}
