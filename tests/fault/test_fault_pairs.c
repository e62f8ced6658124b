/* A cluster that has granted and released very many locks takes no more disk
 * space and memory than before. */
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "fault/load.h"
#include "lib/expect.h"
#include "lib/sanitized.h"

#define cluster hf_load_cluster
#define NODES 3
#define AT_ONCE 500   /* pairs in progress */
#define PAIRS 1000000 /* ... in all, if HF_TORTURE_SECONDS is set */
#define PAIRS_FEW 20000
#define SAMPLES 100 /* measurements */
#define EARLY 20    /* by then, log and history have reached their size */

/* How much larger the largest of the later measurements may be. When a snapshot
 * frees a part of the log, and how many of its files are kept, varies. In
 * memory, the history may not have been full. Without compaction, a million
 * pairs are more than 200 MB of log. */
#define DISK_GROWTH                                                            \
    (HF_NODE_SNAPSHOT_BYTES + HF_WAL_SPARES_MAX * HF_WAL_SEGMENT_SIZE)
#define MEMORY_GROWTH (HF_NODE_SNAPSHOT_BYTES + HF_NODE_HISTORY_BYTES)

struct pair {
    struct hf_lock *lock;
    uint64_t token;
};

struct size {
    uint64_t disk, memory; /* bytes */
};

static struct pair pairs[AT_ONCE];
static unsigned started, ended, wanted;
static struct size early[NODES], late[NODES]; /* the largest measured */

/* ---- Sizes --------------------------------------------------------------*/

/* The node may remove a file meanwhile. */
static uint64_t directory_size(unsigned node)
{
    DIR *stream = opendir(hf_test_node_path(&cluster, node, NULL));
    struct dirent *entry;
    uint64_t bytes = 0;

    assert_non_null(stream);
    while ((entry = readdir(stream))) {
        struct stat about;

        if (!fstatat(dirfd(stream), entry->d_name, &about, 0) &&
            S_ISREG(about.st_mode))
            bytes += (uint64_t)about.st_blocks * 512;
    }
    (void)closedir(stream);
    return bytes;
}

static uint64_t resident_size(unsigned node)
{
    char path[64], line[256];
    unsigned long kib = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/status",
                   (int)cluster.nodes[node].pid);
    file = fopen(path, "re");
    assert_non_null(file);
    while (kib == 0 && fgets(line, sizeof(line), file))
        /* NOLINTNEXTLINE(cert-err34-c): the kernel writes numbers. */
        (void)sscanf(line, "VmRSS: %lu", &kib);
    (void)fclose(file);
    assert_true(kib > 0);
    return (uint64_t)kib * 1024;
}

static void measure_nodes(struct size *largest)
{
    for (unsigned i = 0; i < NODES; i++) {
        uint64_t disk = directory_size(i), memory = resident_size(i);

        if (disk > largest[i].disk)
            largest[i].disk = disk;
        if (memory > largest[i].memory)
            largest[i].memory = memory;
    }
}

/* ---- Pairs --------------------------------------------------------------*/

static void on_released(enum hf_err err, void *arg);

static void on_acquired(enum hf_err err, void *arg)
{
    struct pair *pair = arg;

    expect_ok(err);
    assert_true(hf_lock_token(pair->lock) > pair->token);
    pair->token = hf_lock_token(pair->lock);
    expect_ok(hf_release_start(pair->lock, on_released, pair, NULL));
}

static void start_pair(struct pair *pair)
{
    started++;
    expect_ok(hf_lock_acquire_start(pair->lock, on_acquired, pair, NULL));
}

static void on_released(enum hf_err err, void *arg)
{
    expect_ok(err);
    ended++;
    if (started < wanted)
        start_pair(arg);
}

static struct hf_lock *new_lock(struct hf_client *client, unsigned number)
{
    struct hf_lock_opts opts = hf_load_opts();
    struct hf_lock *lock;
    char key[32];

    (void)snprintf(key, sizeof(key), "key-%u", number);
    opts.idle = true;
    expect_ok(hf_lock_new(client, hf_key_of(key), &opts, &lock));
    return lock;
}

static void run_pairs(struct hf_client *client)
{
    struct pollfd fd = {.fd = hf_fd(client), .events = POLLIN};
    unsigned samples = 0;

    for (unsigned i = 0; i < AT_ONCE; i++)
        pairs[i].lock = new_lock(client, i);
    for (unsigned i = 0; i < AT_ONCE; i++)
        start_pair(&pairs[i]);
    while (ended < wanted) {
        (void)poll(&fd, 1, -1);
        expect_ok(hf_process(client));
        if (ended / (wanted / SAMPLES) == samples)
            continue;
        measure_nodes(samples < EARLY ? early : late);
        samples = ended / (wanted / SAMPLES);
    }
    for (unsigned i = 0; i < AT_ONCE; i++)
        hf_lock_free(pairs[i].lock);
}

/* ---- Cases --------------------------------------------------------------*/

/* The sizes are shown if the case fails. Sanitizers keep freed memory. */
static void expect_bounded(unsigned node)
{
    const struct size *before = &early[node], *after = &late[node];

    (void)printf("node %u: %llu, later %llu KiB of disk; %llu, later %llu KiB "
                 "of memory\n",
                 node + 1, (unsigned long long)before->disk / 1024,
                 (unsigned long long)after->disk / 1024,
                 (unsigned long long)before->memory / 1024,
                 (unsigned long long)after->memory / 1024);
    assert_true(before->disk > 0 && after->disk > 0);
    assert_true(after->disk < before->disk + DISK_GROWTH);
    if (!HF_TEST_SANITIZED)
        assert_true(after->memory < before->memory + MEMORY_GROWTH);
}

static uint64_t info_of(unsigned node, const char *name)
{
    uint64_t number;

    while (!hf_test_node_info(&cluster, node, name, &number))
        hf_test_pause();
    return number;
}

/* G2-10. Each node has compacted its log, and keeps nothing of the locks. */
static void a_million_pairs_leave_disk_and_memory_bounded(void **state)
{
    struct hf_client *client;

    (void)state;
    wanted = getenv("HF_TORTURE_SECONDS") ? PAIRS : PAIRS_FEW;
    client = hf_load_client();
    run_pairs(client);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
    for (unsigned i = 0; i < NODES; i++) {
        expect_bounded(i);
        while (info_of(i, "applied") < 2UL * wanted)
            hf_test_pause();
        assert_int_equal(info_of(i, "holds"), 0);
        if (wanted == PAIRS)
            assert_true(info_of(i, "snapshot") > PAIRS);
    }
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, hf_load_set_up, hf_load_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_million_pairs_leave_disk_and_memory_bounded),
    };

    return hf_test_main("fault_pairs", cases, HF_TEST_COUNT(cases), 0);
}
