/* cluster_masters.c - find out whether the masters of a quorum answer and
 * decide. A master that has restarted has forgotten its leases: it is quiet,
 * and decides nothing, until all of them must have ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster.h"
#include "failure.h"
#include "loop.h"
#include "progress.h"
#include "text.h"

#define ANSWER_MS 60000 /* how long to wait until a majority answers */
#define ATTEMPT_MS 2000
#define PAUSE_US 50000
#define SOON_MS 1000   /* wait for all masters that are quiet for less */
#define UPDATE_MS 1000 /* how often the progress line is updated */

bool cluster_ask_master(struct cluster_node *node, const char **why)
{
    const char *words[] = {"STATUS"};
    char *reply =
        cluster_request(node->client, words, 1, loop_now() + ATTEMPT_MS, why);
    bool is_master = reply && cluster_reply_find(reply, "quiet_ms");

    if (is_master)
        node->quiet_ms = cluster_reply_number(reply, "quiet_ms");
    else if (reply)
        *why = "unexpected reply; not a master of a quorum?";
    free(reply);
    return is_master;
}

enum cluster_answer cluster_try_masters(struct cluster *cluster,
                                        char text[CLUSTER_TEXT])
{
    int64_t until = loop_now() + ANSWER_MS;
    const char *why = "no answer";

    do {
        size_t answered = 0;

        for (size_t i = 0; i < cluster->count; i++) {
            struct cluster_node *node = &cluster->nodes[i];

            answered += node->down[0] == '\0' && cluster_ask_master(node, &why);
        }
        if (answered > cluster->count / 2)
            return CLUSTER_GRANTS;
        (void)usleep(PAUSE_US);
    } while (loop_now() < until);
    (void)snprintf(text, CLUSTER_TEXT, "%s", why);
    return CLUSTER_SILENT;
}

/* ---- Quiet masters ------------------------------------------------------*/

static int compare_times(const void *a, const void *b)
{
    uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;

    return (first > second) - (first < second);
}

/* How long to wait until a majority of the masters decides, and every other one
 * that is about to; 0: they do. A master that is down may be asked again. */
static uint64_t remaining_quiet(const struct cluster *cluster)
{
    uint64_t times[CLUSTER_NODES_MAX];
    uint64_t wait_ms;

    for (size_t i = 0; i < cluster->count; i++)
        times[i] = cluster->nodes[i].down[0] == '\0'
                       ? cluster->nodes[i].quiet_ms
                       : UINT64_MAX;
    qsort(times, cluster->count, sizeof(times[0]), compare_times);
    wait_ms = times[cluster->count / 2];
    for (size_t i = 0; i < cluster->count; i++) {
        if (times[i] > wait_ms && times[i] <= SOON_MS)
            wait_ms = times[i];
    }
    return wait_ms == UINT64_MAX ? SOON_MS : wait_ms;
}

/* Ask all masters that run. Returns false if a majority does not run. */
static bool ask_running_masters(struct cluster *cluster)
{
    const char *why = "no answer";
    size_t running = 0;

    for (size_t i = 0; i < cluster->count; i++) {
        struct cluster_node *node = &cluster->nodes[i];
        bool runs = cluster_pid(cluster, node->id) != 0;

        running += runs;
        if (runs && cluster_ask_master(node, &why))
            node->down[0] = '\0';
        else if (runs || node->down[0] == '\0')
            cluster_explain(cluster, node, why);
    }
    return running > cluster->count / 2;
}

static void describe_quiet(uint64_t quiet_ms, char text[CLUSTER_TEXT])
{
    char span[TEXT_SPAN_SIZE];

    text_span(quiet_ms, span);
    (void)snprintf(text, CLUSTER_TEXT,
                   "the masters have restarted, and are quiet for %s, until "
                   "all earlier leases have ended",
                   span);
}

static void show_quiet(struct progress *progress, uint64_t quiet_ms)
{
    char text[CLUSTER_TEXT], line[CLUSTER_TEXT + 16];

    describe_quiet(quiet_ms, text);
    (void)snprintf(line, sizeof(line), "holdfast: %s", text);
    progress_show_text(progress, line);
}

bool cluster_await_masters(struct cluster *cluster, const struct args *args)
{
    uint64_t quiet_ms = remaining_quiet(cluster);
    int64_t deadline = loop_now() + (int64_t)quiet_ms + ANSWER_MS;
    struct progress progress;
    char text[CLUSTER_TEXT];

    progress_init(&progress, !args->json);
    describe_quiet(quiet_ms, text);
    if (quiet_ms > SOON_MS && !progress.wanted)
        failure_warn(args, HF_EUNAVAIL, "%s. Waiting.", text);
    while (quiet_ms > 0 && loop_now() < deadline) {
        uint64_t pause_ms = quiet_ms < UPDATE_MS ? quiet_ms : UPDATE_MS;

        if (quiet_ms > SOON_MS)
            show_quiet(&progress, quiet_ms);
        (void)usleep((useconds_t)pause_ms * 1000);
        if (!ask_running_masters(cluster))
            break;
        quiet_ms = remaining_quiet(cluster);
    }
    progress_clear(&progress);
    return quiet_ms == 0;
}

void cluster_warn_of_quiet(const struct cluster *cluster,
                           const struct args *args)
{
    char span[TEXT_SPAN_SIZE];

    for (size_t i = 0; i < cluster->count; i++) {
        const struct cluster_node *node = &cluster->nodes[i];

        text_span(node->quiet_ms, span);
        if (node->down[0] == '\0' && node->quiet_ms > 0)
            failure_warn(args, HF_EUNAVAIL,
                         "node %u has restarted, and is quiet for %s, until "
                         "all earlier leases have ended. The others serve.",
                         node->id, span);
    }
}
