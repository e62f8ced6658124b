/* idle.c - what do idle sessions cost a node?
 *
 * Child processes open the clients, all of them at the leader, and then only
 * let each do what it has to: a PING every ten seconds. The processor time and
 * the memory of the nodes are those that the kernel reports. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "lib/process.h"
#include "raft/raft.h"

#define SESSIONS 10000
#define CHILDREN 4
#define SPAN_MS 20000 /* two PINGs of each session */

struct shared {
    struct bench_gate opened;
};

static struct shared *shared;

static void child_main(void *arg)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    char url[BENCH_URL_SIZE];

    (void)arg;
    bench_cluster_url(BENCH_HOLDFAST, url);
    for (unsigned i = 0; i < SESSIONS / CHILDREN; i++) {
        struct hf_client *client = bench_cluster_open(url);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};

        if (epoll_ctl(epoll, EPOLL_CTL_ADD, hf_fd(client), &event))
            bench_fail("epoll_ctl");
    }
    bench_gate_open(&shared->opened);
    for (;;) {
        struct epoll_event events[64];
        int count = epoll_wait(epoll, events, 64, -1);

        for (int i = 0; i < count; i++)
            bench_check("hf_process", hf_process(events[i].data.ptr));
    }
}

struct usage {
    double cpu_s, resident_mib;
};

static struct usage read_usage(pid_t pid)
{
    unsigned long long user = 0, system = 0, pages = 0;
    struct usage usage;
    char path[64];
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (!file ||
        /* NOLINTNEXTLINE(cert-err34-c): the kernel writes numbers. */
        fscanf(file,
               "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu",
               &user, &system) != 2)
        bench_fail(path);
    (void)fclose(file);
    (void)snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    file = fopen(path, "re");
    /* NOLINTNEXTLINE(cert-err34-c): the kernel writes numbers. */
    if (!file || fscanf(file, "%*u %llu", &pages) != 1)
        bench_fail(path);
    (void)fclose(file);
    usage.cpu_s = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
    usage.resident_mib =
        (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
    return usage;
}

/* A fresh cluster: the memory is that of the sessions, not that of earlier
 * measurements. */
static void start_cluster(void)
{
    hf_test_cluster_stop(&bench_raft.cluster);
    if (!hf_test_cluster_start(&bench_raft.cluster, bench_folder(),
                               BENCH_NODES))
        bench_fail("cannot start the cluster");
    (void)bench_leader_find(&bench_raft.cluster);
}

static double larger_of(double a, double b)
{
    return a > b ? a : b;
}

/* Add a row for each node, and return the largest figures; `cpu_s` is per
 * second. */
static struct usage measure(struct bench_table *table, unsigned sessions)
{
    struct usage most = {0};
    struct usage before[BENCH_NODES];
    unsigned leader = bench_leader_find(&bench_raft.cluster);
    uint64_t began = bench_now();

    for (unsigned i = 0; i < BENCH_NODES; i++)
        before[i] = read_usage(bench_raft.cluster.nodes[i].pid);
    bench_sleep_ms(SPAN_MS);
    for (unsigned i = 0; i < BENCH_NODES; i++) {
        unsigned node = (leader + i) % BENCH_NODES;
        struct usage after = read_usage(bench_raft.cluster.nodes[node].pid);
        double span_s = (double)(bench_now() - began) / 1e9;
        double share = (after.cpu_s - before[node].cpu_s) / span_s;

        bench_table_number(table, sessions);
        bench_table_text(table, i == 0 ? "leader" : "follower");
        bench_table_number(table,
                           100 * (after.cpu_s - before[node].cpu_s) / span_s);
        bench_table_number(table, after.resident_mib);
        most.cpu_s = larger_of(most.cpu_s, share);
        most.resident_mib = larger_of(most.resident_mib, after.resident_mib);
    }
    return most;
}

void bench_idle_run(struct bench *bench)
{
    static const struct bench_column columns[] = {
        {"sessions", "sessions", 0},
        {"node", "node", BENCH_TEXT},
        {"% of a core", "percent_of_core", 1},
        {"MiB resident", "resident_mib", 1},
        {NULL, NULL, 0},
    };
    static struct bench_table table;
    struct usage most;

    bench_progress(bench, 0, "idle sessions");
    bench_table_init(&table, "Idle sessions", "raft_idle", columns);
    bench_quorum_stop(&bench_raft.etcd);
    bench_quorum_stop(&bench_raft.zookeeper);
    start_cluster();
    (void)measure(&table, 0);
    shared = bench_share(sizeof(*shared));
    for (unsigned i = 0; i < CHILDREN; i++)
        (void)bench_start(child_main, NULL);
    bench_gate_wait(&shared->opened, CHILDREN);
    most = measure(&table, SESSIONS);
    bench_table_print(bench, &table);
    bench_aim_at_most("10,000 idle sessions, % of a core of a node", 5,
                      (struct bench_range){100 * most.cpu_s, NAN, NAN});
    bench_aim_at_most("10,000 idle sessions, MiB of a node", 60,
                      (struct bench_range){most.resident_mib, NAN, NAN});
}
