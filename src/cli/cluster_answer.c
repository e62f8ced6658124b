/* cluster_answer.c - find out whether a cluster and its nodes answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "cluster.h"
#include "loop.h"
#include "text.h"

#define ANSWER_MS 60000 /* how long to wait until the cluster answers */
#define ATTEMPT_MS 2000
#define PAUSE_US 50000

static bool has_prefix(const char *text, const char *prefix)
{
    return !strncmp(text, prefix, strlen(prefix));
}

/* Copy the first line of an error reply, "-CODE text". */
static void copy_error(char *reply, char text[CLUSTER_TEXT])
{
    char *label;

    reply[strcspn(reply, "\r\n")] = '\0';
    label = text_label(reply + (reply[0] == '-'));
    (void)snprintf(text, CLUSTER_TEXT, "%s", label);
    free(label);
}

static enum cluster_answer classify_reply(char *reply, char text[CLUSTER_TEXT])
{
    if (reply[0] == '*')
        return CLUSTER_GRANTS;
    copy_error(reply, text);
    return has_prefix(reply, "-NOSPACE ") || has_prefix(reply, "-LIMIT ")
               ? CLUSTER_REFUSES
               : CLUSTER_SILENT;
}

/* Take and release a lock at one node. */
static enum cluster_answer try_node(const char *address,
                                    char text[CLUSTER_TEXT])
{
    int64_t deadline = loop_now() + ATTEMPT_MS;
    enum cluster_answer answer = CLUSTER_SILENT;
    unsigned char bytes[16];
    char nonce[2 * sizeof(bytes) + 1], key[64];
    const char *lock[] = {"LOCK", key, "5000", "NONCE", nonce};
    const char *cancel[] = {"CANCEL", key, nonce};
    const char *why = "the kernel has no random numbers";
    char *reply = NULL;

    if (getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes)) {
        text_hex(bytes, sizeof(bytes), nonce);
        (void)snprintf(key, sizeof(key), "holdfast cluster up %.8s", nonce);
        reply = cluster_request(address, lock, 5, deadline, &why);
    }
    if (reply)
        answer = classify_reply(reply, text);
    else
        (void)snprintf(text, CLUSTER_TEXT, "%s", why);
    if (answer == CLUSTER_GRANTS)
        free(cluster_request(address, cancel, 3, deadline, &why));
    free(reply);
    return answer;
}

enum cluster_answer cluster_try_lock(const struct cluster *cluster,
                                     char text[CLUSTER_TEXT])
{
    enum cluster_answer answer = CLUSTER_SILENT;
    int64_t until = loop_now() + ANSWER_MS;

    (void)snprintf(text, CLUSTER_TEXT, "no answer");
    for (size_t i = 0; loop_now() < until; i++) {
        const struct cluster_node *node = &cluster->nodes[i % cluster->count];

        /* Another process may use the address of a node that does not run. */
        if (node->down[0] == '\0')
            answer = try_node(node->client, text);
        if (answer != CLUSTER_SILENT)
            break;
        (void)usleep(PAUSE_US);
    }
    return answer;
}

/* A node that finds no leader may be about to stop: the others may have refused
 * it. */
static bool ping_node(const struct cluster *cluster, struct cluster_node *node)
{
    const char *status[] = {"STATUS"};
    int64_t deadline = loop_now() + ATTEMPT_MS;

    for (;;) {
        const char *why = "it has found no leader";
        char *reply = cluster_request(node->client, status, 1,
                                      loop_now() + ATTEMPT_MS, &why);
        bool has_leader = reply && !strstr(reply, "\"leader\":0,");
        bool is_over = !reply || loop_now() >= deadline;

        free(reply);
        if (has_leader)
            return true;
        if (is_over) {
            cluster_explain(cluster, node, why);
            return false;
        }
        (void)usleep(PAUSE_US);
    }
}

static bool ping_master(const struct cluster *cluster,
                        struct cluster_node *node)
{
    const char *why = "no answer";

    if (cluster_ask_master(node, &why))
        return true;
    cluster_explain(cluster, node, why);
    return false;
}

bool cluster_ping(struct cluster *cluster)
{
    bool all = true;

    for (size_t i = 0; i < cluster->count; i++) {
        struct cluster_node *node = &cluster->nodes[i];

        if (node->down[0] != '\0')
            all = false;
        else if (cluster->mode == CLUSTER_QUORUM)
            all &= ping_master(cluster, node);
        else
            all &= ping_node(cluster, node);
    }
    return all;
}
