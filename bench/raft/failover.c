/* failover.c - how long after the leader is killed, or stopped, does a
 * connected client get a lock?
 *
 * The client is connected to the leader. It asks for a lock as soon as the
 * signal was sent, and the time until it has the lock is measured. Then the old
 * leader is started again, or continued, and the next failure waits until all
 * nodes are up and the client has moved to the new leader. */
#include <signal.h>
#include <stdlib.h>

#include "raft/raft.h"

#define KILLS 8 /* in one round */
#define STOPS 2
#define SAMPLES_MAX (BENCH_ROUNDS_MAX * KILLS)
#define MOVE_MS 20000 /* a client that has not moved by then has failed */

static const struct scene {
    const char *what;
    enum bench_system system;
    int signal;
    unsigned times; /* in one round */
} scenes[] = {
    {"holdfast, kill -9", BENCH_HOLDFAST, SIGKILL, KILLS},
    {"holdfast, SIGSTOP", BENCH_HOLDFAST, SIGSTOP, STOPS},
    {"etcd, kill -9", BENCH_ETCD, SIGKILL, 1},
    {"ZooKeeper, kill -9", BENCH_ZOOKEEPER, SIGKILL, 1},
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

static struct figures {
    double seconds[SAMPLES_MAX];
    size_t count;
} figures[SCENES];

/* ---- holdfast -----------------------------------------------------------*/

static unsigned await_client_at_leader(void)
{
    for (unsigned i = 0; i < MOVE_MS / 10; i++) {
        unsigned leader = bench_leader_find(&bench_raft.cluster);

        if (bench_leader_clients(&bench_raft.cluster, leader) > 0)
            return leader;
        bench_sleep_ms(10);
    }
    bench_fail("the client has not moved to the leader");
}

static double fail_leader(struct hf_client *client, int number)
{
    unsigned leader = await_client_at_leader();
    pid_t pid = bench_raft.cluster.nodes[leader].pid;
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    uint64_t began, ended;

    hf_lock_opts_init(&opts);
    opts.wait_ms = 30000;
    opts.timeout_ms = 30000;
    bench_check("hf_acquire", /* to be sure that the client is connected */
                hf_acquire(client, hf_key_of("before"), &opts, &lock));
    bench_unlock(lock);
    began = bench_now();
    (void)kill(pid, number);
    bench_check("hf_acquire",
                hf_acquire(client, hf_key_of("first"), &opts, &lock));
    ended = bench_now();
    bench_unlock(lock);
    if (number == SIGSTOP) {
        (void)kill(pid, SIGCONT);
    } else {
        hf_test_cluster_kill(&bench_raft.cluster, leader); /* and reap it */
        if (!hf_test_cluster_restart(&bench_raft.cluster, leader))
            bench_fail("cannot restart a node");
    }
    return (double)(ended - began) / 1e9;
}

static void run_nodes(const struct scene *scene, struct figures *of)
{
    struct hf_client *client = bench_cluster_open_all();

    for (unsigned i = 0; i < scene->times; i++)
        of->seconds[of->count++] = fail_leader(client, scene->signal);
    (void)bench_leader_find(&bench_raft.cluster);
    bench_close(client);
}

/* ---- etcd and ZooKeeper -------------------------------------------------*/

static void run_quorum(const struct scene *scene, struct figures *of)
{
    struct bench_quorum *quorum = bench_system_quorum(scene->system);
    unsigned leader = bench_quorum_leader(quorum);
    uint64_t began;
    double ended;

    bench_peer_order(&quorum->peer, "first"); /* to be sure, as above */
    bench_peer_numbers(&quorum->peer, &ended, 1);
    began = bench_now();
    bench_quorum_kill(quorum, leader);
    bench_peer_order(&quorum->peer, "first");
    bench_peer_numbers(&quorum->peer, &ended, 1);
    of->seconds[of->count++] = (ended - (double)began) / 1e9;
    bench_quorum_restart(quorum, leader);
    bench_sleep_ms(2000); /* until it follows the new leader */
}

/* ---- Scenes -------------------------------------------------------------*/

void bench_failovers_run(struct bench *bench, unsigned round)
{
    for (size_t i = 0; i < SCENES; i++) {
        if (!bench_system_is_available(scenes[i].system))
            continue;
        bench_progress(bench, round, scenes[i].what);
        if (scenes[i].system == BENCH_HOLDFAST)
            run_nodes(&scenes[i], &figures[i]);
        else
            run_quorum(&scenes[i], &figures[i]);
    }
}

/* The quantile `part` of the figures, which must be sorted, and the least and
 * the most of them. */
static struct bench_range range_of(const struct figures *of, double part)
{
    return (struct bench_range){
        bench_quantile(of->seconds, of->count, part),
        of->seconds[0],
        of->seconds[of->count - 1],
    };
}

void bench_failovers_print(struct bench *bench)
{
    static const struct bench_column columns[] = {
        {"what", "what", BENCH_TEXT}, {"times", "times", 0},
        {"p50 s", "p50_s", 3},        {"p99 s", "p99_s", 3},
        {"most s", "most_s", 3},      {NULL, NULL, 0},
    };
    static struct bench_table table;

    bench_table_init(&table, "First grant after the leader has failed",
                     "raft_failover", columns);
    for (size_t i = 0; i < SCENES; i++) {
        struct figures *of = &figures[i];

        if (!bench_system_is_available(scenes[i].system))
            continue;
        bench_sort(of->seconds, of->count);
        bench_table_text(&table, scenes[i].what);
        bench_table_number(&table, (double)of->count);
        bench_table_number(&table, bench_quantile(of->seconds, of->count, 0.5));
        bench_table_number(&table,
                           bench_quantile(of->seconds, of->count, 0.99));
        bench_table_number(&table, of->seconds[of->count - 1]);
    }
    bench_table_print(bench, &table);
    bench_aim_at_most("first grant after kill -9, p50 s", 0.15,
                      range_of(&figures[0], 0.5));
    bench_aim_at_most("first grant after kill -9, p99 s", 1.2,
                      range_of(&figures[0], 0.99));
    bench_aim_at_most("first grant after SIGSTOP, p50 s", 2.5,
                      range_of(&figures[1], 0.5));
}
