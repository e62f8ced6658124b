/* test_wal_threads.c - one thread appends while two others flush and maintain
 * the log. Under ThreadSanitizer, it fails if the threads race. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>

#include "lib/expect.h"
#include "lib/folder.h"
#include "lib/runner.h"
#include "log/directory.h"
#include "log/wal.h"

#define ENTRIES 3000

static const struct hf_log_identity identity = {
    .cluster = {"cluster"},
    .node = 1,
    .secret = {"secret"},
    .segment_size = 65536,
};

/* A thread that runs one job at a time. */
struct worker {
    pthread_t thread;
    sem_t start, done;
    bool is_over, is_busy;
    struct hf_wal_flush flush;
    struct hf_wal_upkeep upkeep;
    void (*run)(struct worker *worker);
};

static void run_flush(struct worker *worker)
{
    hf_wal_flush_run(&worker->flush);
}

static void run_upkeep(struct worker *worker)
{
    hf_wal_upkeep_run(&worker->upkeep);
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;

    while (!sem_wait(&worker->start) && !worker->is_over) {
        worker->run(worker);
        (void)sem_post(&worker->done);
    }
    return NULL;
}

static void start_worker(struct worker *worker, void (*run)(struct worker *))
{
    *worker = (struct worker){.run = run};
    assert_int_equal(sem_init(&worker->start, 0, 0), 0);
    assert_int_equal(sem_init(&worker->done, 0, 0), 0);
    assert_int_equal(pthread_create(&worker->thread, NULL, worker_main, worker),
                     0);
}

static void stop_worker(struct worker *worker)
{
    worker->is_over = true;
    (void)sem_post(&worker->start);
    assert_int_equal(pthread_join(worker->thread, NULL), 0);
    (void)sem_destroy(&worker->start);
    (void)sem_destroy(&worker->done);
}

/* Returns true if a job of the worker has ended since the last call. With
 * `wait`, waits for the end of the job. */
static bool has_ended(struct worker *worker, bool wait)
{
    if (!worker->is_busy)
        return false;
    if (wait ? sem_wait(&worker->done) : sem_trywait(&worker->done))
        return false;
    worker->is_busy = false;
    return true;
}

static void start_job(struct worker *worker)
{
    worker->is_busy = true;
    (void)sem_post(&worker->start);
}

/* As the thread that owns the log, end the jobs that have run, and start those
 * that are due. With `wait`, wait for running jobs first. */
static void turn(struct hf_wal *wal, struct worker *flusher,
                 struct worker *keeper, bool wait)
{
    if (has_ended(flusher, wait))
        expect_ok(hf_wal_flush_end(wal, &flusher->flush));
    if (has_ended(keeper, wait))
        expect_ok(hf_wal_upkeep_end(wal, &keeper->upkeep));
    if (!keeper->is_busy && hf_wal_upkeep_begin(wal, &keeper->upkeep))
        start_job(keeper);
    if (!flusher->is_busy && hf_wal_flush_begin(wal, &flusher->flush))
        start_job(flusher);
}

static void on_base(void *arg, uint64_t index, uint64_t term)
{
    (void)term;
    *(uint64_t *)arg = index;
}

static enum hf_err on_entry(void *arg, uint64_t index,
                            const struct hf_log_entry *entry)
{
    assert_int_equal(entry->data.size, 200);
    assert_int_equal(((const uint8_t *)entry->data.data)[199], (uint8_t)index);
    *(uint64_t *)arg = index;
    return HF_OK;
}

static struct hf_wal *open_wal(struct hf_disk *disk,
                               struct hf_log_snapshot snapshot, uint64_t *last)
{
    const struct hf_log_visitor visitor = {on_base, on_entry, last};
    struct hf_wal_opts opts = {.identity = identity, .snapshot = snapshot};
    struct hf_wal_recovered recovered;
    struct hf_error error;
    struct hf_wal *wal;

    *last = 0;
    expect_ok(hf_wal_open(disk, &opts, &visitor, &wal, &recovered, &error));
    return wal;
}

static void append_entries(struct hf_wal *wal, struct worker *flusher,
                           struct worker *keeper)
{
    for (uint64_t index = 1; index <= ENTRIES; index++) {
        uint8_t data[200] = {0};
        struct hf_log_entry entry = {1, 0, {data, sizeof(data)}};

        data[199] = (uint8_t)index;
        expect_ok(hf_wal_append_entries(wal, index, &entry, 1));
        if (index % 500 == 0 && hf_wal_durable(wal).last_index > 100)
            hf_wal_compact(wal, hf_wal_durable(wal).last_index - 100);
        turn(wal, flusher, keeper, index % 10 == 0);
    }
    while (hf_wal_is_pending(wal) || flusher->is_busy || keeper->is_busy)
        turn(wal, flusher, keeper, true);
}

static void batches_are_built_while_others_are_flushed(void **state)
{
    char folder[] = HF_TEST_FOLDER;
    struct hf_disk *disk;
    struct worker flusher, keeper;
    struct hf_error error;
    struct hf_wal *wal;
    uint64_t last;

    (void)state;
    assert_true(hf_test_folder_make(folder));
    assert_int_equal(hf_disk_posix_open(folder, false, &disk), 0);
    expect_ok(hf_log_directory_init(disk, &identity, &error));
    wal = open_wal(disk, (struct hf_log_snapshot){0}, &last);
    expect_ok(hf_wal_append_state(wal, 1, 1));
    start_worker(&flusher, run_flush);
    start_worker(&keeper, run_upkeep);
    append_entries(wal, &flusher, &keeper);
    stop_worker(&flusher);
    stop_worker(&keeper);
    assert_true(hf_wal_durable(wal).last_index == ENTRIES);
    hf_wal_close(wal);
    wal = open_wal(disk, (struct hf_log_snapshot){ENTRIES, 1}, &last);
    assert_true(last == ENTRIES);
    hf_wal_close(wal);
    disk->ops->close_directory(disk);
    assert_true(hf_test_folder_remove(folder));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(batches_are_built_while_others_are_flushed),
    };

    return hf_test_main("wal_threads", cases, HF_TEST_COUNT(cases), 0);
}
