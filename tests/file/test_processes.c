/* Many processes over one directory: do they exclude each other, also when
 * they are killed at any instant? */
#include <fcntl.h>
#include <holdfast.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/folder.h"
#include "lib/runner.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080 /* older than its header */
#endif

#define WORKERS 16
#define KEYS 3

/* What the processes share besides the locks. The counter is plain memory, and
 * a pause between its load and its store gives others the time to interfere. */
struct shared {
    atomic_bool stop;
    atomic_uint grants;
    atomic_uint broken; /* what must never happen has happened */
    struct cell {
        unsigned counter;
        atomic_uint increments;
        atomic_uint inside; /* the process that has the lock */
        atomic_ullong token;
    } cells[KEYS];
};

static char directory[] = HF_TEST_FOLDER;
static char url[64];
static struct shared *shared;

static int set_up(void **state)
{
    (void)state;
    if (!hf_test_folder_make(directory))
        return -1;
    (void)snprintf(url, sizeof(url), "file:%s/locks", directory);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    return hf_test_folder_remove(directory) ? 0 : -1;
}

static void pause_us(long us)
{
    const struct timespec span = {.tv_nsec = us * 1000};

    nanosleep(&span, NULL);
}

static struct hf_client *open_client(void)
{
    struct hf_client *client;
    struct hf_client_opts opts;
    struct hf_error error = {.text = ""};
    enum hf_err err;

    hf_client_opts_init(&opts);
    opts.error = &error;
    err = hf_open(url, &opts, &client);
    if (err) {
        print_error("open: %s: %s\n", hf_err_name(err), error.text);
        _exit(3);
    }
    return client;
}

/* The work that the lock protects; false: somebody else was there. */
static bool increment(struct cell *cell, struct hf_lock *lock)
{
    unsigned me = (unsigned)getpid();
    unsigned seen = cell->counter;
    bool alone = atomic_exchange(&cell->token, hf_token(lock)) < hf_token(lock);

    atomic_store(&cell->inside, me);
    pause_us(20);
    if (hf_valid_for(lock, 0)) {
        alone = alone && atomic_load(&cell->inside) == me;
        cell->counter = seen + 1;
        atomic_fetch_add(&cell->increments, 1);
    }
    return alone;
}

static void work(unsigned rounds, uint32_t ttl_ms)
{
    struct hf_client *client = open_client();
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = ttl_ms;
    opts.wait_ms = 20000;
    for (unsigned i = 0; i < rounds && !atomic_load(&shared->stop); i++) {
        unsigned key = i % KEYS;
        char name[8];
        struct hf_lock *lock;
        enum hf_err err;

        (void)snprintf(name, sizeof(name), "key-%u", key);
        err = hf_lock(client, hf_key(name), &opts, &lock);
        if (err) {
            print_error("lock: %s\n", hf_err_name(err));
            _exit(4);
        }
        atomic_fetch_add(&shared->grants, 1);
        if (!increment(&shared->cells[key], lock))
            atomic_fetch_add(&shared->broken, 1);
        err = hf_unlock(lock);
        if (err && err != HF_EEXPIRED)
            _exit(5);
        hf_lock_free(lock);
    }
    hf_close(client, 1000);
}

static pid_t start_worker(unsigned rounds, uint32_t ttl_ms)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        work(rounds, ttl_ms);
        _exit(0);
    }
    return pid;
}

static void expect_good_end(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* GO-27 */
static void counter_is_exact_with_sixteen_processes(void **state)
{
    pid_t pids[WORKERS];
    unsigned rounds = 60 / hf_test_slowness() + 3;

    (void)state;
    for (unsigned i = 0; i < WORKERS; i++)
        pids[i] = start_worker(rounds, 10000);
    for (unsigned i = 0; i < WORKERS; i++)
        expect_good_end(pids[i]);
    assert_int_equal(shared->broken, 0);
    assert_int_equal(shared->cells[0].counter + shared->cells[1].counter +
                         shared->cells[2].counter,
                     WORKERS * rounds);
}

/* Somebody is granted a key, however slow the machine. */
static void wait_for_a_grant(void)
{
    unsigned before = atomic_load(&shared->grants);

    for (int i = 0; i < 30000 && atomic_load(&shared->grants) == before; i++)
        pause_us(1000);
    assert_true(atomic_load(&shared->grants) != before);
}

/* Killed inside the section, in line or holding: no key is wedged, no token
 * comes twice, and nobody ever overlaps. LK-23 */
static void killed_processes_wedge_nothing(void **state)
{
    enum {
        KILLS = 2000
    };
    unsigned kills = KILLS / hf_test_slowness();
    pid_t pids[6];
    struct hf_client *client;
    struct hf_lock *lock;
    unsigned seed = 1;

    (void)state;
    for (unsigned i = 0; i < 6; i++)
        pids[i] = start_worker(UINT32_MAX, 100);
    for (unsigned i = 0; i < kills; i++) {
        unsigned victim = (unsigned)rand_r(&seed) % 6;

        pause_us(rand_r(&seed) % 3000);
        kill(pids[victim], SIGKILL);
        assert_int_equal(waitpid(pids[victim], NULL, 0), pids[victim]);
        pids[victim] = start_worker(UINT32_MAX, 100);
        if (i % 25 == 24)
            wait_for_a_grant();
    }
    atomic_store(&shared->stop, true);
    for (unsigned i = 0; i < 6; i++)
        expect_good_end(pids[i]);
    assert_int_equal(shared->broken, 0);
    client = open_client();
    for (unsigned i = 0; i < KEYS; i++) {
        char name[8];

        (void)snprintf(name, sizeof(name), "key-%u", i);
        assert_int_equal(hf_lock(client, hf_key(name), NULL, &lock), HF_OK);
        assert_true(hf_token(lock) > shared->cells[i].token);
        assert_int_equal(hf_unlock(lock), HF_OK);
        hf_lock_free(lock);
    }
    assert_int_equal(hf_close(client, 1000), HF_OK);
}

/* MS-04, MS-05 */
static void tokens_outlive_everything_but_their_mark(void **state)
{
    uint64_t before = 0;

    (void)state;
    for (int round = 0; round < 4; round++) {
        struct hf_client *client = open_client();
        struct hf_lock *lock;
        char path[64];

        assert_int_equal(hf_lock(client, hf_key("k"), NULL, &lock), HF_OK);
        assert_true(hf_token(lock) > before);
        before = hf_token(lock);
        assert_int_equal(hf_unlock(lock), HF_OK);
        hf_lock_free(lock);
        assert_int_equal(hf_close(client, 1000), HF_OK);
        (void)snprintf(path, sizeof(path), "%s/locks/arena", directory);
        if (round % 2)
            assert_int_equal(remove(path), 0);
    }
}

/* The lock that a process leaves behind is held for its lease. */
static void lock_outlives_its_process_for_its_lease(void **state)
{
    pid_t pid = fork();
    struct hf_lock_opts opts;
    struct hf_client *client;
    struct hf_lock *lock;
    struct hf_info info;

    (void)state;
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 400;
    if (pid == 0) {
        if (hf_lock(open_client(), hf_key("k"), &opts, &lock))
            _exit(1);
        _exit(0);
    }
    expect_good_end(pid);
    client = open_client();
    assert_int_equal(hf_read(client, hf_key("k"), HF_LINEARIZABLE, &info),
                     HF_OK);
    assert_true(info.held);
    hf_info_fini(&info);
    opts.wait_ms = 0;
    assert_int_equal(hf_lock(client, hf_key("k"), &opts, &lock), HF_EBUSY);
    opts.wait_ms = 5000;
    assert_int_equal(hf_lock(client, hf_key("k"), &opts, &lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, 1000), HF_OK);
}

static pid_t start_waiter(uint32_t ttl_ms, int done)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    hf_lock_opts_init(&opts);
    opts.ttl_ms = ttl_ms;
    opts.wait_ms = 30000;
    if (hf_lock(open_client(), hf_key("k"), &opts, &lock))
        _exit(1);
    if (write(done, "", 1) != 1)
        _exit(2);
    _exit(0);
}

static void await_waiters(struct hf_client *client, uint32_t count)
{
    struct hf_info info = {0};

    for (int i = 0; i < 5000 && info.waiters < count; i++) {
        hf_info_fini(&info);
        assert_int_equal(hf_read(client, hf_key("k"), HF_LINEARIZABLE, &info),
                         HF_OK);
        pause_us(1000);
    }
    assert_int_equal(info.waiters, count);
    hf_info_fini(&info);
}

/* Who died in line costs the others nothing, however long its lease. */
static void dead_waiters_are_passed_over_at_once(void **state)
{
    struct hf_client *client = open_client();
    struct hf_lock *lock;
    struct timespec before, after;
    int done[2];
    pid_t dead, alive;
    char byte;

    (void)state;
    assert_int_equal(pipe(done), 0);
    assert_int_equal(hf_lock(client, hf_key("k"), NULL, &lock), HF_OK);
    dead = start_waiter(60000, done[1]);
    await_waiters(client, 1);
    alive = start_waiter(1000, done[1]);
    await_waiters(client, 2);
    kill(dead, SIGKILL);
    assert_int_equal(waitpid(dead, NULL, 0), dead);
    clock_gettime(CLOCK_MONOTONIC, &before);
    assert_int_equal(hf_unlock(lock), HF_OK);
    assert_int_equal(read(done[0], &byte, 1), 1);
    clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true(after.tv_sec - before.tv_sec < 10);
    expect_good_end(alive);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, 1000), HF_OK);
}

static void on_expiry(const struct hf_event *event, void *arg)
{
    (void)event;
    atomic_store((atomic_bool *)arg, true);
}

/* In a time namespace whose boot-time clock is behind the machine's. */
static void watch_behind_the_clock(void)
{
    struct hf_client *client = open_client();
    struct hf_watch_opts opts;
    struct hf_watch *watch;
    struct hf_lock_opts lock_opts;
    struct hf_lock *lock;
    atomic_bool expired = false;

    hf_watch_opts_init(&opts);
    opts.kinds = HF_EVENT_EXPIRED;
    hf_lock_opts_init(&lock_opts);
    lock_opts.ttl_ms = 200;
    if (hf_watch(client, hf_key("k"), &opts, on_expiry, &expired, &watch) ||
        hf_lock(client, hf_key("k"), &lock_opts, &lock))
        _exit(1);
    for (int i = 0; i < 5000 && !atomic_load(&expired); i++)
        pause_us(1000);
    _exit(atomic_load(&expired) ? 0 : 2);
}

static void watcher_behind_the_clock_hears_of_the_end(void **state)
{
    int offsets = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    pid_t pid;

    (void)state;
    if (unshare(CLONE_NEWTIME) || offsets < 0 ||
        write(offsets, "boottime -60 0", 14) != 14)
        hf_test_skip("a time namespace needs root");
    close(offsets);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        watch_behind_the_clock();
    expect_good_end(pid);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(counter_is_exact_with_sixteen_processes),
        CASE(killed_processes_wedge_nothing),
        CASE(tokens_outlive_everything_but_their_mark),
        CASE(lock_outlives_its_process_for_its_lease),
        CASE(dead_waiters_are_passed_over_at_once),
        CASE(watcher_behind_the_clock_hears_of_the_end),
    };

    return hf_test_main("processes", cases, HF_TEST_COUNT(cases), 0);
}
