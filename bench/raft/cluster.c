/* cluster.c - clients of the nodes. */
#include "raft/raft.h"

void bench_cluster_url(enum bench_system system, char url[BENCH_URL_SIZE])
{
    unsigned leader = bench_leader_find(&bench_raft.cluster);

    if (system == BENCH_FOLLOWER)
        bench_leader_url(&bench_raft.cluster, (leader + 1) % BENCH_NODES,
                         "?route=any", url);
    else
        bench_leader_url(&bench_raft.cluster, leader, "", url);
}

struct hf_client *bench_cluster_open(const char *url)
{
    struct bench bench = {.name = "raft", .url = url};

    return bench_open(&bench);
}

struct hf_client *bench_cluster_open_all(void)
{
    char url[BENCH_URL_SIZE];
    struct bench bench = {.name = "raft", .url = url};

    hf_test_cluster_url(&bench_raft.cluster, url, sizeof(url), "");
    return bench_open_background(&bench);
}
