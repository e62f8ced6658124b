/* log - how much slower is a flush of a raft node's write-ahead log than the
 * bare disk?
 *
 * Measures flushes of 1, 16 and 64 entries, and compares them with a bare loop
 * that writes as many bytes as the entries have, over a file that was written
 * before, and calls fdatasync(). The two alternate flush by flush, because the
 * speed of a disk changes from second to second. The time of a flush includes
 * appending to the batch, but not the upkeep of segments, which a node does in
 * another thread. To measure a particular disk, give the absolute path of a
 * directory on it as the argument. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/bench.h"
#include "lib/folder.h"
#include "log/directory.h"
#include "log/wal.h"

#define FLUSHES 200 /* per level and round */
#define ENTRY_SIZE 100
#define BARE_SIZE (8 << 20)

static const size_t levels[] = {1, 16, 64};

#define LEVELS (sizeof(levels) / sizeof(levels[0]))
#define ENTRIES_MAX 64

/* ---- The log ------------------------------------------------------------*/

static const struct hf_log_identity identity = {
    .cluster = {"bench"},
    .node = 1,
    .secret = {"secret"},
};

static void on_base(void *arg, uint64_t index, uint64_t term)
{
    (void)arg;
    (void)index;
    (void)term;
}

static enum hf_err on_entry(void *arg, uint64_t index,
                            const struct hf_log_entry *entry)
{
    (void)arg;
    (void)index;
    (void)entry;
    return HF_OK;
}

static struct hf_wal *open_wal(const char *path, struct hf_disk **disk)
{
    const struct hf_log_visitor visitor = {on_base, on_entry, NULL};
    struct hf_wal_recovered recovered;
    struct hf_wal_opts opts = {0};
    struct hf_error error;
    struct hf_wal *wal;

    if (hf_disk_posix_open(path, true, disk))
        bench_fail(path);
    if (hf_log_directory_init(*disk, &identity, &error))
        bench_fail(error.text);
    (*disk)->ops->close_directory(*disk);
    if (hf_disk_posix_open(path, false, disk))
        bench_fail(path);
    if (hf_log_directory_open(*disk, &identity.cluster, 1, &opts.identity,
                              &error) ||
        hf_wal_open(*disk, &opts, &visitor, &wal, &recovered, &error))
        bench_fail(error.text);
    return wal;
}

static void keep_up(struct hf_wal *wal)
{
    struct hf_wal_upkeep upkeep;

    while (hf_wal_upkeep_begin(wal, &upkeep)) {
        hf_wal_upkeep_run(&upkeep);
        bench_check("hf_wal_upkeep_end", hf_wal_upkeep_end(wal, &upkeep));
    }
}

/* Append and flush `count` entries; return microseconds. */
static double flush_wal(struct hf_wal *wal, size_t count)
{
    static const uint8_t data[ENTRY_SIZE];
    struct hf_log_entry entries[ENTRIES_MAX];
    uint64_t last = hf_wal_durable(wal).last_index;
    struct hf_wal_flush flush;
    uint64_t from;

    for (size_t i = 0; i < count; i++)
        entries[i] = (struct hf_log_entry){1, 1, {data, sizeof(data)}};
    if (last > 1000)
        hf_wal_compact(wal, last - 1000);
    keep_up(wal);
    from = bench_now();
    bench_check("hf_wal_append_entries",
                hf_wal_append_entries(wal, last + 1, entries, count));
    if (!hf_wal_flush_begin(wal, &flush))
        bench_fail("hf_wal_flush_begin");
    hf_wal_flush_run(&flush);
    bench_check("hf_wal_flush_end", hf_wal_flush_end(wal, &flush));
    return (double)(bench_now() - from) / 1e3;
}

/* ---- The bare loop ------------------------------------------------------*/

struct bare {
    int file;
    off_t offset;
};

static struct bare open_bare(const char *folder)
{
    static const char block[65536] = "x";
    struct bare bare = {0};
    char path[4096];

    (void)snprintf(path, sizeof(path), "%s/bare", folder);
    bare.file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (bare.file < 0)
        bench_fail(path);
    for (off_t at = 0; at < BARE_SIZE; at += (off_t)sizeof(block)) {
        if (pwrite(bare.file, block, sizeof(block), at) !=
            (ssize_t)sizeof(block))
            bench_fail(path);
    }
    if (fsync(bare.file))
        bench_fail(path);
    return bare;
}

static double flush_bare(struct bare *bare, size_t count)
{
    static const uint8_t data[ENTRY_SIZE * ENTRIES_MAX];
    ssize_t size = (ssize_t)(ENTRY_SIZE * count);
    uint64_t from = bench_now();

    if (bare->offset + size > BARE_SIZE)
        bare->offset = 0;
    if (pwrite(bare->file, data, (size_t)size, bare->offset) != size ||
        fdatasync(bare->file))
        bench_fail("pwrite, fdatasync");
    bare->offset += size;
    return (double)(bench_now() - from) / 1e3;
}

/* ---- Rounds -------------------------------------------------------------*/

struct figures {
    struct bench_samples wal, wal_p99, bare, bare_p99; /* microseconds */
};

static void add_quantiles(double *micros, struct bench_samples *median,
                          struct bench_samples *p99)
{
    bench_sort(micros, FLUSHES);
    bench_add(median, bench_quantile(micros, FLUSHES, 0.5));
    bench_add(p99, bench_quantile(micros, FLUSHES, 0.99));
}

static void measure(struct hf_wal *wal, struct bare *bare, size_t count,
                    struct figures *figures)
{
    double with_wal[FLUSHES], without[FLUSHES];

    for (unsigned i = 0; i < FLUSHES; i++) {
        with_wal[i] = flush_wal(wal, count);
        without[i] = flush_bare(bare, count);
    }
    add_quantiles(with_wal, &figures->wal, &figures->wal_p99);
    add_quantiles(without, &figures->bare, &figures->bare_p99);
}

static void print_figures(struct bench *bench, const struct figures *figures)
{
    static const struct bench_column columns[] = {
        {"entries", "entries", 0},
        {"log µs", "log_us", 0},
        {"99 %", "log_us_p99", 0},
        {"bare µs", "bare_us", 0},
        {"99 %", "bare_us_p99", 0},
        {"ratio", "ratio", 2},
        {"log entries/s", "log_per_s", 0},
        {"bare entries/s", "bare_per_s", 0},
        {NULL, NULL, 0},
    };
    static struct bench_table table;

    bench_table_init(&table, "A flush of the write-ahead log", "flush",
                     columns);
    for (size_t i = 0; i < LEVELS; i++) {
        double wal = bench_median(&figures[i].wal);
        double bare = bench_median(&figures[i].bare);

        bench_table_number(&table, (double)levels[i]);
        bench_table_number(&table, wal);
        bench_table_number(&table, bench_median(&figures[i].wal_p99));
        bench_table_number(&table, bare);
        bench_table_number(&table, bench_median(&figures[i].bare_p99));
        bench_table_number(&table, wal / bare);
        bench_table_number(&table, (double)levels[i] * 1e6 / wal);
        bench_table_number(&table, (double)levels[i] * 1e6 / bare);
    }
    bench_table_print(bench, &table);
}

int main(int argc, char **argv)
{
    struct bench bench = {.name = "log", .rounds = 9};
    static struct figures figures[LEVELS];
    const char *folder;
    char path[4096];
    struct hf_disk *disk;
    struct hf_wal *wal;
    struct bare bare;

    bench_init(&bench, argc, argv);
    folder = bench.url && *bench.url == '/' ? bench.url : bench_folder();
    (void)snprintf(path, sizeof(path), "%s/node", folder);
    wal = open_wal(path, &disk);
    bench_check("hf_wal_append_state", hf_wal_append_state(wal, 1, 1));
    bare = open_bare(folder);
    for (unsigned round = 0; round < bench.rounds; round++) {
        for (size_t i = 0; i < LEVELS; i++) {
            bench_progress(&bench, round, "flushes");
            measure(wal, &bare, levels[i], &figures[i]);
        }
    }
    hf_wal_close(wal);
    disk->ops->close_directory(disk);
    (void)close(bare.file);
    (void)hf_test_folder_remove(path);
    print_figures(&bench, figures);
    return 0;
}
