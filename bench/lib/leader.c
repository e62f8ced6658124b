#include "lib/leader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "lib/bench.h"
#include "lib/loopback.h"

#define SETTLE_MS 30000 /* a cluster that is not up by then has failed */

/* Read the answer to STATUS, a JSON object. Returns false if the node does not
 * answer. */
static bool read_status(const struct hf_test_cluster *cluster, unsigned node,
                        char *text, size_t size)
{
    static const char command[] = "*1\r\n$6\r\nSTATUS\r\n";
    const struct timeval limit = {.tv_sec = 1};
    int fd = hf_test_connect(cluster->nodes[node].client_port);
    size_t used = 0;
    ssize_t got = 1;

    text[0] = '\0';
    if (fd < 0)
        return false;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    (void)send(fd, command, sizeof(command) - 1, MSG_NOSIGNAL);
    while (got > 0 && used + 1 < size && !strstr(text, "]}\r\n")) {
        got = recv(fd, text + used, size - used - 1, 0);
        used += got > 0 ? (size_t)got : 0;
        text[used] = '\0';
    }
    (void)close(fd);
    return strstr(text, "]}\r\n") != NULL;
}

static unsigned long find_number(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at ? strtoul(at + strlen(name), NULL, 10) : 0;
}

unsigned bench_leader_clients(const struct hf_test_cluster *cluster,
                              unsigned node)
{
    char text[4096];

    if (!read_status(cluster, node, text, sizeof(text)))
        return 0;
    return (unsigned)find_number(text, "\"clients\":") - 1;
}

/* Returns true if all nodes follow the same leader and have applied nearly all
 * of its entries. */
static bool find_leader(const struct hf_test_cluster *cluster, unsigned *leader)
{
    unsigned long applied[HF_TEST_CLUSTER_MAX], number = 0;
    char text[4096];

    for (unsigned i = 0; i < cluster->count; i++) {
        if (cluster->nodes[i].pid == 0)
            continue;
        if (!read_status(cluster, i, text, sizeof(text)))
            return false;
        if (number == 0)
            number = find_number(text, "\"leader\":");
        applied[i] = find_number(text, "\"applied\":");
        if (number == 0 || number != find_number(text, "\"leader\":"))
            return false;
    }
    *leader = (unsigned)number - 1;
    for (unsigned i = 0; i < cluster->count; i++)
        if (cluster->nodes[i].pid != 0 && applied[i] + 10 <= applied[*leader])
            return false;
    return true;
}

unsigned bench_leader_find(const struct hf_test_cluster *cluster)
{
    unsigned leader = 0;

    for (unsigned i = 0; !find_leader(cluster, &leader); i++) {
        if (i == SETTLE_MS / 10)
            bench_fail("the cluster has no leader");
        bench_sleep_ms(10);
    }
    return leader;
}

void bench_leader_url(const struct hf_test_cluster *cluster, unsigned node,
                      const char *options, char url[BENCH_URL_SIZE])
{
    (void)snprintf(url, BENCH_URL_SIZE, "raft://127.0.0.1:%d%s",
                   cluster->nodes[node].client_port, options);
}
