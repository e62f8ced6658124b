#include "fault/partition.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cluster_faults.h"
#include "lib/runner.h"

/* Sender and receiver are on one host, so the rules apply where a packet is
 * sent. */
#define TABLE                                                                  \
    "table ip faults {\n"                                                      \
    " chain rules { }\n"                                                       \
    " chain out { type filter hook output priority 0; jump rules; }\n"         \
    "}\n"

/* ---- The namespace ------------------------------------------------------*/

/* Feed `text` to nft. Returns false if nft fails or does not exist. */
static bool run_nft(const char *text)
{
    FILE *nft = popen("PATH=$PATH:/usr/sbin:/sbin LD_PRELOAD= "
                      "exec nft -f - 2>&1",
                      "we");

    if (!nft)
        return false;
    (void)fputs(text, nft);
    return pclose(nft) == 0;
}

void hf_partition_set_up(void)
{
    hf_test_network_enter();
    if (!hf_test_network_is_own())
        hf_test_skip("a network namespace needs root");
    if (!run_nft(TABLE))
        hf_test_skip("no nft, or a kernel without nftables");
}

/* ---- Cuts ---------------------------------------------------------------*/

static void add_rule(const char *match, enum hf_cut how)
{
    char text[256];

    (void)snprintf(text, sizeof(text), "add rule ip faults rules %s %s\n",
                   match,
                   how == HF_CUT_RESET ? "reject with tcp reset" : "drop");
    assert_true(run_nft(text));
}

/* A node sends on its own connections, to the peer's port; and it acknowledges
 * what arrives at its own port. */
void hf_partition_cut(const struct hf_test_cluster *cluster, unsigned from,
                      unsigned to, enum hf_cut how)
{
    char match[128];

    (void)snprintf(match, sizeof(match), "ip saddr 127.0.0.%u tcp dport %d",
                   HF_FAULTS_ADDRESS + from + 1, cluster->nodes[to].peer_port);
    add_rule(match, how);
    (void)snprintf(match, sizeof(match), "ip daddr 127.0.0.%u tcp sport %d",
                   HF_FAULTS_ADDRESS + to + 1, cluster->nodes[from].peer_port);
    add_rule(match, how);
}

void hf_partition_isolate(const struct hf_test_cluster *cluster, unsigned node,
                          enum hf_cut how)
{
    for (unsigned i = 0; i < cluster->count; i++) {
        if (i != node) {
            hf_partition_cut(cluster, node, i, how);
            hf_partition_cut(cluster, i, node, how);
        }
    }
}

void hf_partition_cut_clients(const struct hf_test_cluster *cluster,
                              unsigned node, enum hf_cut how)
{
    char match[128];

    (void)snprintf(match, sizeof(match), "tcp dport %d",
                   cluster->nodes[node].client_port);
    add_rule(match, how);
    (void)snprintf(match, sizeof(match), "tcp sport %d",
                   cluster->nodes[node].client_port);
    add_rule(match, how);
}

void hf_partition_heal(void)
{
    assert_true(run_nft("flush chain ip faults rules\n"));
}
