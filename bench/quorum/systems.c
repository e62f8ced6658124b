/* systems.c - the servers: three processes of the floor, and clusters of three
 * nodes, one of which is killed in every second cluster.
 *
 * A master that is started again decides nothing for the maximum lease, so no
 * cluster changes between the two states. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "quorum/quorum.h"

#define NODES 3
#define READY_MS 120000

struct floor bench_floor;

static struct hf_test_cluster clusters[BENCH_RAFT_DOWN + 1];
static bool has_quorum;
static pid_t owner;

static bool is_quorum(enum bench_system system)
{
    return system == BENCH_QUORUM || system == BENCH_QUORUM_DOWN;
}

bool bench_system_is_available(enum bench_system system)
{
    return !is_quorum(system) || has_quorum;
}

void bench_system_url(enum bench_system system, char url[BENCH_URL_SIZE])
{
    const struct hf_test_cluster *cluster = &clusters[system];

    if (is_quorum(system))
        hf_test_cluster_url(cluster, url, BENCH_URL_SIZE, "");
    else
        bench_leader_url(cluster, bench_leader_find(cluster), "", url);
}

/* Runs at exit, before bench/lib/process waits for all children. */
static void stop_clusters(void)
{
    if (getpid() != owner)
        return;
    for (size_t i = 0; i <= BENCH_RAFT_DOWN; i++)
        (void)hf_test_cluster_stop(&clusters[i]);
}

static void start_cluster(enum bench_system system)
{
    struct hf_test_cluster *cluster = &clusters[system];
    char folder[96];

    (void)snprintf(folder, sizeof(folder), "%s/%d", bench_folder(), system);
    if (mkdir(folder, 0700))
        bench_fail(folder);
    if (is_quorum(system) ? !hf_test_cluster_start_masters(
                                cluster, folder, NODES, HF_QUORUM_LEASE_MS)
                          : !hf_test_cluster_start(cluster, folder, NODES))
        bench_fail("cannot start a cluster");
}

/* Masters may be quiet at first. */
static void await_quorum(enum bench_system system)
{
    char url[BENCH_URL_SIZE];
    struct bench bench = {.url = url};
    struct hf_lock_opts opts;
    struct hf_client *client;
    struct hf_lock *lock;

    bench_system_url(system, url);
    client = bench_open(&bench);
    hf_lock_opts_init(&opts);
    opts.wait_ms = READY_MS;
    opts.timeout_ms = READY_MS;
    bench_check("hf_acquire",
                hf_acquire(client, hf_key_of("first"), &opts, &lock));
    bench_unlock(lock);
    bench_close(client);
}

static void start_quorum(void)
{
    struct hf_client *client = NULL;

    /* The URL is incomplete, which is another error if there is quorum:. */
    has_quorum = hf_open("quorum:", NULL, &client) != HF_EUNSUPPORTED;
    if (!has_quorum) {
        (void)fprintf(stderr, "bench: skipping quorum: this build has none\n");
        return;
    }
    for (int i = BENCH_QUORUM; i <= BENCH_QUORUM_DOWN; i++) {
        start_cluster((enum bench_system)i);
        await_quorum((enum bench_system)i);
    }
    hf_test_cluster_kill(&clusters[BENCH_QUORUM_DOWN], NODES - 1);
}

static void start_raft(void)
{
    struct hf_test_cluster *down = &clusters[BENCH_RAFT_DOWN];

    start_cluster(BENCH_RAFT);
    start_cluster(BENCH_RAFT_DOWN);
    hf_test_cluster_kill(down, (bench_leader_find(down) + 1) % NODES);
}

void bench_systems_start(void)
{
    floor_start(&bench_floor);
    owner = getpid();
    if (atexit(stop_clusters))
        bench_fail("atexit");
    start_quorum();
    start_raft();
}
