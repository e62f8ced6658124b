/* fuzz_log.c - recover a write-ahead log of arbitrary bytes. If that succeeds,
 * it must be possible to append an entry, and the next recovery must find the
 * same content and the new entry.
 *
 * The input is the content of two segments after their headers. Each input is
 * tried twice: unchanged, and with the checksums and the chain of its records
 * corrected, because almost no random input is valid. It is also opened as a
 * snapshot file. */
#include <stdlib.h>
#include <string.h>

#include "log/directory.h"
#include "log/segment.h"
#include "log/snapshot_file.h"
#include "log/wal.h"
#include "sim/sim_disk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SEGMENT_SIZE 4096
#define CONTENT_SIZE (SEGMENT_SIZE - HF_SEGMENT_START)

static const struct hf_log_identity identity = {
    .cluster = {"cluster"},
    .node = 1,
    .secret = {"secret"},
    .segment_size = SEGMENT_SIZE,
};

/* What a recovery has found; `sum` is a digest of the entries. */
struct found {
    uint64_t base, last;
    uint64_t sum;
};

static void on_base(void *arg, uint64_t index, uint64_t term)
{
    *(struct found *)arg = (struct found){index, index, term};
}

static enum hf_err on_entry(void *arg, uint64_t index,
                            const struct hf_log_entry *entry)
{
    struct found *found = arg;
    const uint8_t *bytes = entry->data.data;

    if (index == 0 || index > found->last + 1 || entry->term == 0)
        abort();
    found->last = index;
    found->sum = found->sum * 31 + entry->term + entry->kind;
    for (size_t i = 0; i < entry->data.size; i++)
        found->sum = found->sum * 31 + bytes[i];
    return HF_OK;
}

static struct hf_wal *open_wal(struct hf_disk *disk, struct found *found,
                               struct hf_wal_recovered *recovered)
{
    const struct hf_log_visitor visitor = {on_base, on_entry, found};
    struct hf_wal_opts opts = {.identity = identity};
    struct hf_error error;
    struct hf_wal *wal;

    *found = (struct found){0};
    if (hf_wal_open(disk, &opts, &visitor, &wal, recovered, &error)) {
        if (!error.code || !*error.text)
            abort();
        return NULL;
    }
    if (recovered->state.last_index != found->last)
        abort();
    return wal;
}

static void add_entry(struct hf_wal *wal, uint64_t last, uint64_t term)
{
    struct hf_log_entry entry = {term + 1, 1, {"new", 3}};
    struct hf_wal_flush flush;

    if (hf_wal_append_state(wal, term + 1, 1) ||
        hf_wal_append_entries(wal, last + 1, &entry, 1) ||
        !hf_wal_flush_begin(wal, &flush))
        abort();
    hf_wal_flush_run(&flush);
    if (hf_wal_flush_end(wal, &flush))
        abort();
}

static void continue_log(struct hf_disk *disk)
{
    struct hf_wal_recovered recovered, again;
    struct found found = {0}, second = {0};
    struct hf_wal *wal = open_wal(disk, &found, &recovered);

    if (!wal)
        return;
    hf_wal_close(wal);
    wal = open_wal(disk, &second, &again);
    if (!wal || memcmp(&found, &second, sizeof(found)) != 0 ||
        memcmp(&recovered.state, &again.state, sizeof(again.state)) != 0)
        abort();
    /* After an index or a term near the end of its range, no entry can be
     * appended. */
    if (found.last < UINT64_MAX / 2 && recovered.state.term < UINT64_MAX / 2) {
        add_entry(wal, found.last, recovered.state.term);
        hf_wal_close(wal);
        wal = open_wal(disk, &second, &again);
        if (!wal || second.last != found.last + 1 || again.state.vote != 1)
            abort();
    }
    hf_wal_close(wal);
}

/* Create segment `epoch`, with a valid header, and write `data` after it. */
static void write_segment(struct hf_disk *disk, uint64_t epoch,
                          const uint8_t *data, size_t size)
{
    struct hf_disk_file *file;

    if (hf_segment_prepare(disk, &identity, epoch, NULL, &file) ||
        hf_disk_write(file, HF_SEGMENT_START, data, size))
        abort();
    hf_disk_close(file);
}

static void try_log(const uint8_t *data, size_t size)
{
    struct sim_disk *sim = sim_disk_new();
    struct hf_disk *disk = sim_disk_attach(sim);
    size_t first = size < CONTENT_SIZE ? size : CONTENT_SIZE;

    write_segment(disk, 1, data, first);
    write_segment(disk, 2, data + first, size - first);
    continue_log(disk);
    disk->ops->close_directory(disk);
    sim_disk_free(sim);
}

static void try_snapshot(const uint8_t *data, size_t size)
{
    struct sim_disk *sim = sim_disk_new();
    struct hf_disk *disk = sim_disk_attach(sim);
    struct hf_snapshot_file *snapshot = NULL;
    struct hf_error damaged, error;
    struct hf_disk_file *file;

    if (disk->ops->create(disk, "snapshot-0000000000000001", &file) ||
        hf_disk_write(file, 0, data, size))
        abort();
    hf_disk_close(file);
    (void)hf_snapshot_file_open(disk, &identity.cluster, &snapshot, &damaged,
                                &error);
    hf_snapshot_file_close(snapshot);
    disk->ops->close_directory(disk);
    sim_disk_free(sim);
}

static uint32_t load_u32(const uint8_t *from)
{
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
           (uint32_t)from[3] << 24;
}

static uint64_t load_u64(const uint8_t *from)
{
    return load_u32(from) | (uint64_t)load_u32(from + 4) << 32;
}

/* Correct the headers of the records in segment `epoch`, whose content is
 * `data`. `previous` is the checksum of the record before them. Returns the
 * checksum of the last record. */
static uint64_t fix_records(uint8_t *data, size_t size, uint64_t epoch,
                            uint64_t previous)
{
    size_t at = 0;

    while (size - at >= HF_RECORD_SECTOR) {
        struct hf_record record = {
            .size = load_u32(data + at + 12),
            .epoch = epoch,
            .previous = previous,
            .state = {load_u64(data + at + 32), load_u64(data + at + 40),
                      load_u64(data + at + 48), load_u64(data + at + 56)},
        };
        size_t padded = hf_record_padded(record.size);

        if (record.size < HF_RECORD_HEADER || padded > size - at)
            break;
        hf_record_seal(data + at, padded, &record, &identity.secret);
        previous = record.checksum;
        at += padded;
    }
    return previous;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t content[2 * CONTENT_SIZE] = {0};
    uint64_t last;

    try_snapshot(data, size);
    if (size > sizeof(content))
        size = sizeof(content);
    if (size > 0)
        memcpy(content, data, size);
    try_log(content, size);
    last = fix_records(content, CONTENT_SIZE, 1, 0);
    (void)fix_records(content + CONTENT_SIZE, CONTENT_SIZE, 2, last);
    try_log(content, sizeof(content));
    return 0;
}
