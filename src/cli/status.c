#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "loop.h"
#include "status.h"
#include "url.h"

#define ANSWER_MS 1000

/* ---- The addresses ------------------------------------------------------*/

static struct status_node *add_node(struct status_view *view,
                                    const char *address, size_t size)
{
    struct status_node *node = &view->nodes[view->count];

    for (size_t i = 0; i < view->count; i++) {
        if (strlen(view->nodes[i].address) == size &&
            !strncmp(view->nodes[i].address, address, size))
            return &view->nodes[i];
    }
    if (size == 0 || size >= sizeof(node->address) ||
        view->count == STATUS_NODES_MAX)
        return NULL;
    memcpy(node->address, address, size);
    view->count++;
    return node;
}

/* The mode of the cluster that has this URL, or 0. */
static enum cluster_mode mode_of_url(const char *url)
{
    if (!strncmp(url, "raft:", strlen("raft:")))
        return CLUSTER_RAFT;
    return strncmp(url, "quorum:", strlen("quorum:")) ? 0 : CLUSTER_QUORUM;
}

/* Add the addresses of "raft://HOST:PORT,HOST:PORT". */
static int read_url(struct status_view *view, const struct args *args,
                    const char *url)
{
    const char *at = url + strcspn(url, ":");

    view->mode = mode_of_url(url);
    if (!view->mode || strncmp(at, "://", strlen("://")) != 0)
        return failure_usage(args,
                             "status is for clusters: expected a URL such as "
                             "raft://127.0.0.1:7101,127.0.0.1:7102 or "
                             "quorum://127.0.0.1:7101,127.0.0.1:7102");
    at += strlen("://");
    for (;;) {
        size_t size = strcspn(at, ",/?");

        if (!add_node(view, at, size))
            return failure_usage(args, "an address in the URL is empty, too "
                                       "long, or one too many");
        if (at[size] != ',')
            return 0;
        at += size + 1;
    }
}

static int read_cluster(struct status_view *view, const struct args *args)
{
    struct cluster cluster;
    int rc = cluster_find(&cluster, args);

    if (!rc)
        rc = cluster_read(&cluster, args);
    if (rc < 0)
        return failure(args, HF_EUNAVAIL,
                       "%s: there is no cluster here. Give the URL of one, or "
                       "create one with 'holdfast cluster up'.",
                       cluster.directory);
    view->mode = cluster.mode;
    for (size_t i = 0; !rc && i < cluster.count; i++) {
        struct status_node *node = add_node(view, cluster.nodes[i].client,
                                            strlen(cluster.nodes[i].client));

        if (node)
            node->id = cluster.nodes[i].id;
    }
    return rc;
}

/* Find the nodes: those of the URL on the command line, else of --dir, else of
 * HOLDFAST_URL if that is the URL of a cluster, else of the default
 * directory. */
static int find_nodes(struct status_view *view, struct args *args)
{
    if (args->word_count > 0 && args->url)
        return failure_usage(args, "give the URL as an argument or with --url, "
                                   "not both");
    if (args->word_count > 0)
        args->url = args->words[0];
    if (args->url && args->dir)
        return failure_usage(args, "give a URL or --dir, not both");
    if (!args->dir && (args->url || mode_of_url(url_find(args))))
        return read_url(view, args, url_find(args));
    return read_cluster(view, args);
}

/* ---- The replies, which are JSON ----------------------------------------*/

/* The reply of a node names all members: add those that are not in the URL, and
 * the ids of nodes that do not answer. The reply of a leader also has the lag
 * of each member, all of one moment. */
static void read_members(struct status_view *view, const char *reply,
                         bool has_lags)
{
    const char *at = cluster_reply_find(reply, "nodes");

    while (at && (at = strchr(at, '{'))) {
        char address[CLUSTER_ADDRESS];
        size_t count = view->count;
        struct status_node *node;

        cluster_reply_text(at, "address", address, sizeof(address));
        node = add_node(view, address, strlen(address));
        if (view->count > count)
            node->is_reported = true;
        if (node && node->id == 0)
            node->id = cluster_reply_number(at, "id");
        if (node && has_lags) {
            node->lag = cluster_reply_number(at, "lag");
            node->has_lag = true;
        }
        at++;
    }
}

/* Read what a node of a raft cluster reports. Returns true if it leads. */
static bool parse_raft_reply(struct status_view *view, struct status_node *node,
                             const char *reply)
{
    uint64_t term = cluster_reply_number(reply, "term");
    uint64_t commit = cluster_reply_number(reply, "commit");
    bool leads;

    node->applied = cluster_reply_number(reply, "applied");
    node->first = cluster_reply_number(reply, "first");
    node->last = cluster_reply_number(reply, "last");
    node->uncommitted_earlier_term =
        cluster_reply_bool(reply, "uncommitted_earlier_term");
    if (term > view->term)
        view->term = term;
    if (commit > view->commit)
        view->commit = commit;
    /* A leader that has not noticed its successor yet has a lower term. */
    leads = !strcmp(node->role, "leader") && term > view->leader_term;
    if (leads)
        view->leader_term = term;
    return leads;
}

static void parse_master_reply(struct status_view *view,
                               struct status_node *node, const char *reply)
{
    uint64_t set = cluster_reply_number(reply, "set");

    node->quiet_ms = cluster_reply_number(reply, "quiet_ms");
    node->held = cluster_reply_number(reply, "held");
    node->waiters = cluster_reply_number(reply, "waiters");
    node->mark_failed = cluster_reply_bool(reply, "mark_failed");
    if (set > view->set)
        view->set = set;
}

static void parse_status_reply(struct status_view *view,
                               struct status_node *node, const char *reply)
{
    bool is_master = cluster_reply_find(reply, "quiet_ms") != NULL;
    bool leads = false;

    node->id = cluster_reply_number(reply, "id");
    cluster_reply_text(reply, "role", node->role, sizeof(node->role));
    if (is_master != (view->mode == CLUSTER_QUORUM)) {
        node->why = is_master ? "a node of a quorum cluster; use quorum://"
                              : "a node of a raft cluster; use raft://";
        return;
    }
    view->answered++;
    cluster_reply_text(reply, "cluster", view->cluster, sizeof(view->cluster));
    if (is_master)
        parse_master_reply(view, node, reply);
    else
        leads = parse_raft_reply(view, node, reply);
    read_members(view, reply, leads);
}

static void ask_node(struct status_view *view, struct status_node *node)
{
    const char *words[] = {"STATUS"};
    char *reply = cluster_request(node->address, words, 1,
                                  loop_now() + ANSWER_MS, &node->why);

    node->pid = cluster_listener_pid(node->address);
    if (reply && reply[0] == '$') {
        node->why = NULL;
        parse_status_reply(view, node, reply);
    } else {
        (void)snprintf(node->role, sizeof(node->role), "unreachable");
        if (reply)
            node->why = "unexpected reply; not a node of holdfast?";
    }
    free(reply);
}

/* Remove node `j`, which is node `i` at another address. */
static void merge_nodes(struct status_view *view, size_t i, size_t j)
{
    struct status_node *kept = &view->nodes[i];
    struct status_node *other = &view->nodes[j];
    const struct status_node copy = *other;

    memmove(other, other + 1, (view->count - j - 1) * sizeof(*other));
    view->count--;
    if (kept->why && !copy.why)
        *kept = copy;
    else if (!kept->has_lag) {
        kept->has_lag = copy.has_lag;
        kept->lag = copy.lag;
    }
    if (!kept->pid)
        kept->pid = copy.pid;
}

/* A node may be in the URL by its name, and in the replies by its address. */
static void merge_duplicates(struct status_view *view)
{
    for (size_t i = 0; i < view->count; i++) {
        for (size_t j = view->count - 1; j > i; j--) {
            const struct status_node *node = &view->nodes[j];

            if (node->is_reported && node->id != 0 &&
                node->id == view->nodes[i].id)
                merge_nodes(view, i, j);
        }
    }
}

static int compare_nodes(const void *a, const void *b)
{
    const struct status_node *first = a, *second = b;

    return (first->id > second->id) - (first->id < second->id);
}

/* ---- The verb -----------------------------------------------------------*/

static int status_main(struct args *args)
{
    struct status_view view = {.count = 0};
    int rc = find_nodes(&view, args);

    if (rc)
        return rc;
    for (size_t i = 0; i < view.count; i++)
        ask_node(&view, &view.nodes[i]);
    merge_duplicates(&view);
    qsort(view.nodes, view.count, sizeof(view.nodes[0]), compare_nodes);
    if (args->json)
        status_print_json(&view);
    else
        status_print_text(&view);
    return view.answered > 0 ? STATUS_OK : STATUS_UNAVAILABLE;
}

const struct verb verb_status = {
    .name = "status",
    .words = "[URL]",
    .summary = "show the nodes of a cluster",
    .text =
        "Asks each node of the cluster at URL for its state, and prints the\n"
        "term, the commit index, and for each node: the id, the address, the\n"
        "role (leader, follower, candidate or unreachable), the process if it\n"
        "runs on this machine, and the lag, the number of log entries that\n"
        "the leader has and the node has not confirmed; without a leader, the\n"
        "number of committed entries that it has not applied. It needs no\n"
        "majority. Without URL, it shows the cluster of HOLDFAST_URL, or the\n"
        "one that 'cluster up' has started in DIR. The status is 0 if a node\n"
        "answered, else 69.\n"
        "\n"
        "Of a quorum cluster, it prints the number of the set of masters, and\n"
        "for each master: the id, the address, the role (master, replica or\n"
        "unreachable), the process, for how long it is still quiet after a\n"
        "restart, and the number of keys that are held there.\n",
    .examples =
        "  holdfast status\n"
        "  holdfast status raft://127.0.0.1:7101\n"
        "  holdfast status quorum://127.0.0.1:7201,127.0.0.1:7202\n"
        "  holdfast status --json |\n"
        "      jq -r '.nodes[] | select(.role == \"leader\").address'\n",
    .options = OPTION(DIR),
    .words_min = 0,
    .words_max = 1,
    .main = status_main,
};
