#include "fault/load.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/expect.h"
#include "lib/folder.h"
#include "lib/recorded.h"

#define KEYS 3

/* Shared by the processes. To detect two holders at once, the counter is not
 * atomic, and there is a pause between its load and its store. */
struct cell {
    unsigned counter;
    atomic_uint increments;
    atomic_ullong token; /* the highest of a holder so far */
};

struct shared {
    atomic_bool stop;
    atomic_uint grants;
    atomic_uint waits; /* claims that were queued */
    atomic_uint kills; /* of client processes */
    struct cell cells[KEYS];
};

struct hf_test_cluster hf_load_cluster;
static char folder[] = HF_TEST_FOLDER;
static struct shared *shared;
static pid_t pids[HF_LOAD_CLIENTS];
static uint32_t client_ttl_ms;
static const char *const keys[KEYS] = {"key-0", "key-1", "key-2"};

/* ---- The cluster --------------------------------------------------------*/

static void prepare_load(bool is_fair)
{
    if (!hf_test_cluster_found())
        hf_test_skip(HF_TEST_CLUSTER_NONE);
    hf_test_faults_enable();
    shared = hf_child_share(sizeof(*shared));
    hf_test_set_defaults();
    recorded_init(is_fair);
    assert_true(hf_test_folder_make(folder));
    hf_test_network_enter();
}

void hf_load_open(unsigned nodes)
{
    prepare_load(true);
    assert_true(hf_test_cluster_start(&hf_load_cluster, folder, nodes));
    hf_test_network_keep_ports();
}

void hf_load_open_masters(unsigned masters, uint32_t lease_max_ms)
{
    prepare_load(false); /* order is not promised if masters fail */
    assert_true(hf_test_cluster_start_masters(&hf_load_cluster, folder, masters,
                                              lease_max_ms));
    hf_test_network_keep_ports();
}

int hf_load_set_up(void **state)
{
    (void)state;
    hf_load_open(3);
    return 0;
}

/* A case that fails may leave nodes stopped, which would not end. */
int hf_load_tear_down(void **state)
{
    bool sound;

    (void)state;
    for (unsigned i = 0; i < hf_load_cluster.count; i++)
        if (hf_load_cluster.nodes[i].pid > 0)
            hf_test_node_continue(&hf_load_cluster, i);
    sound = hf_test_cluster_stop(&hf_load_cluster);
    (void)hf_test_folder_remove(folder);
    return sound ? 0 : -1;
}

static struct hf_client *open_url(const char *url)
{
    struct hf_client *client;

    while (hf_open(url, NULL, &client))
        hf_test_pause();
    return client;
}

struct hf_client *hf_load_client(void)
{
    char url[256];

    hf_test_cluster_url(&hf_load_cluster, url, sizeof(url), "");
    return open_url(url);
}

struct hf_client *hf_load_client_of(unsigned node)
{
    char url[64];

    (void)snprintf(url, sizeof(url), "raft://127.0.0.1:%d?route=any",
                   hf_load_cluster.nodes[node].client_port);
    return open_url(url);
}

struct hf_lock_opts hf_load_opts(void)
{
    return hf_test_opts(HF_TEST_LONG_MS, HF_FOREVER, HF_TEST_LONG_MS);
}

/* ---- Client processes ---------------------------------------------------*/

/* Increment the counter under the lock. A client whose validity has ended does
 * not store. */
static void increment(struct cell *cell, struct hf_lock *lock)
{
    unsigned before = cell->counter;

    assert_true(atomic_exchange(&cell->token, hf_lock_token(lock)) <
                hf_lock_token(lock));
    (void)usleep(20);
    if (!hf_lock_valid_for(lock, 1000))
        return;
    cell->counter = before + 1;
    atomic_fetch_add(&cell->increments, 1);
}

/* With the long ttl, each call must succeed, however often the leader changes.
 * A short ttl may pass while there is no leader. Masters of a quorum may forget
 * a lock; then nothing shows whether a lost copy of its release was
 * executed. */
static bool may_be_released(enum hf_err err, const struct hf_lock_opts *opts)
{
    if (err == HF_EINDOUBT)
        return hf_load_cluster.is_quorum;
    return err == HF_OK ||
           (err == HF_EEXPIRED && opts->ttl_ms != HF_TEST_LONG_MS);
}

static void use_lock(struct hf_client *client, unsigned number,
                     const struct hf_lock_opts *opts)
{
    struct hf_lock *lock;
    enum hf_err err =
        recorded_acquire(client, hf_key_of(keys[number]), opts, &lock);

    expect_ok(err);
    if (hf_lock_valid_for(lock, 0))
        increment(&shared->cells[number], lock);
    err = recorded_release(client, lock);
    if (!may_be_released(err, opts))
        expect_ok(err);
    hf_lock_free(lock);
    atomic_fetch_add(&shared->grants, 1);
}

/* With a callback, it is recorded when a claim was queued. */
static void on_event(struct hf_lock *lock, enum hf_lock_event event, void *arg)
{
    (void)lock;
    (void)arg;
    if (event == HF_LOCK_EVENT_WAITING)
        atomic_fetch_add(&shared->waits, 1);
}

static void client_main(void *arg)
{
    struct hf_lock_opts opts = hf_load_opts();
    struct hf_client *client = hf_load_client();

    (void)arg;
    opts.ttl_ms = client_ttl_ms;
    opts.on_event = on_event;
    for (unsigned i = (unsigned)getpid(); !atomic_load(&shared->stop); i++)
        use_lock(client, i % KEYS, &opts);
    expect_ok(recorded_close(client, HF_TEST_TIMEOUT_MS));
}

void hf_load_start(uint32_t ttl_ms)
{
    client_ttl_ms = ttl_ms;
    for (unsigned i = 0; i < HF_LOAD_CLIENTS; i++)
        pids[i] = hf_child_start(client_main, NULL);
}

void hf_load_kill_client(unsigned client)
{
    atomic_fetch_add(&shared->kills, 1);
    recorded_kill(pids[client]);
    pids[client] = hf_child_start(client_main, NULL);
}

void hf_load_await_grants(unsigned count)
{
    unsigned before = atomic_load(&shared->grants);

    while (atomic_load(&shared->grants) - before < count)
        hf_test_pause();
}

void hf_load_await_waiters(struct hf_client *client, uint32_t count)
{
    uint32_t waiters = UINT32_MAX;

    while (waiters != count) {
        struct hf_info info;

        expect_ok(hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info));
        waiters = info.waiters;
        hf_info_fini(&info);
        hf_test_pause();
    }
}

/* ---- The end ------------------------------------------------------------*/

static void expect_larger_token(struct hf_client *client, unsigned number)
{
    struct hf_lock_opts opts = hf_load_opts();
    struct hf_lock *lock;

    opts.ttl_ms = client_ttl_ms;
    expect_ok(recorded_acquire(client, hf_key_of(keys[number]), &opts, &lock));
    assert_true(hf_lock_token(lock) > shared->cells[number].token);
    expect_ok(recorded_release(client, lock));
    hf_lock_free(lock);
}

void hf_load_check(void)
{
    struct hf_client *client;

    /* On a busy machine, the clients may not have met yet. */
    while (atomic_load(&shared->waits) == 0)
        (void)poll(NULL, 0, 10);
    atomic_store(&shared->stop, true);
    for (unsigned i = 0; i < HF_LOAD_CLIENTS; i++)
        hf_child_join(pids[i]);
    client = hf_load_client();
    for (unsigned i = 0; i < KEYS; i++) {
        /* A client may have been killed after it incremented only the first. */
        assert_in_range(shared->cells[i].counter - shared->cells[i].increments,
                        0, shared->kills);
        expect_larger_token(client, i);
    }
    expect_ok(recorded_close(client, HF_TEST_TIMEOUT_MS));
    assert_int_equal(recorded_check("case"), 0);
}

static double seconds_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

bool hf_load_goes_on(unsigned round, unsigned rounds)
{
    static double started;
    const char *seconds = getenv("HF_TORTURE_SECONDS");

    if (!seconds)
        return round < rounds;
    if (round == 0)
        started = seconds_now();
    return seconds_now() - started < strtod(seconds, NULL);
}
