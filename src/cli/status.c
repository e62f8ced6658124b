#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"
#include "failure.h"
#include "json.h"
#include "loop.h"
#include "text.h"
#include "url.h"

#define NODES_MAX 32 /* addresses in the URL, and members that nodes name */
#define ANSWER_MS 1000

struct node {
    char address[CLUSTER_ADDRESS];
    char role[16];
    const char *why; /* why it did not answer; NULL: it did */
    uint64_t id;     /* 0: unknown */
    uint64_t term, commit, applied;
    pid_t pid; /* 0: unknown, or on another machine */
};

struct view {
    struct node nodes[NODES_MAX];
    size_t count, answered;
    char cluster[CLUSTER_ID];
    uint64_t term, commit; /* the highest of all nodes */
};

/* ---- The addresses ------------------------------------------------------*/

static struct node *add_node(struct view *view, const char *address,
                             size_t size)
{
    struct node *node = &view->nodes[view->count];

    for (size_t i = 0; i < view->count; i++) {
        if (strlen(view->nodes[i].address) == size &&
            !strncmp(view->nodes[i].address, address, size))
            return &view->nodes[i];
    }
    if (size == 0 || size >= sizeof(node->address) || view->count == NODES_MAX)
        return NULL;
    memcpy(node->address, address, size);
    view->count++;
    return node;
}

/* Add the addresses of "raft://HOST:PORT,HOST:PORT". */
static int read_url(struct view *view, const struct args *args, const char *url)
{
    const char *at = url + strlen("raft://");

    if (strncmp(url, "raft://", strlen("raft://")) != 0)
        return failure_usage(args,
                             "status is for clusters: expected a URL such as "
                             "raft://127.0.0.1:7101,127.0.0.1:7102");
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

static int read_cluster(struct view *view, const struct args *args)
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
    for (size_t i = 0; !rc && i < cluster.count; i++) {
        struct node *node = add_node(view, cluster.nodes[i].client,
                                     strlen(cluster.nodes[i].client));

        if (node)
            node->id = cluster.nodes[i].id;
    }
    return rc;
}

/* Find the nodes: those of the URL on the command line, else of --dir, else of
 * HOLDFAST_URL if that is a raft: URL, else of the default directory. */
static int find_nodes(struct view *view, struct args *args)
{
    if (args->word_count > 0 && args->url)
        return failure_usage(args, "give the URL as an argument or with --url, "
                                   "not both");
    if (args->word_count > 0)
        args->url = args->words[0];
    if (args->url && args->dir)
        return failure_usage(args, "give a URL or --dir, not both");
    if (!args->dir &&
        (args->url || !strncmp(url_find(args), "raft:", strlen("raft:"))))
        return read_url(view, args, url_find(args));
    return read_cluster(view, args);
}

/* ---- The replies, which are JSON ----------------------------------------*/

/* The text after the first "name": in the JSON `text`, or NULL. */
static const char *find_member(const char *text, const char *name)
{
    char quoted[40];

    (void)snprintf(quoted, sizeof(quoted), "\"%s\":", name);
    text = strstr(text, quoted);
    return text ? text + strlen(quoted) : NULL;
}

static uint64_t read_json_number(const char *text, const char *name)
{
    const char *value = find_member(text, name);

    return value ? strtoull(value, NULL, 10) : 0;
}

static void read_text(const char *text, const char *name, char *to, size_t size)
{
    const char *value = find_member(text, name);
    size_t length = value && *value == '"' ? strcspn(value + 1, "\"") : 0;

    (void)snprintf(to, size, "%.*s", (int)length, length ? value + 1 : "");
}

/* The reply of a node names all members: add those that are not in the URL, and
 * the ids of nodes that do not answer. */
static void read_members(struct view *view, const char *reply)
{
    const char *at = find_member(reply, "nodes");

    while (at && (at = strchr(at, '{'))) {
        char address[CLUSTER_ADDRESS];
        struct node *node;

        read_text(at, "address", address, sizeof(address));
        node = add_node(view, address, strlen(address));
        if (node && node->id == 0)
            node->id = read_json_number(at, "id");
        at++;
    }
}

static void parse_status_reply(struct view *view, struct node *node,
                               const char *reply)
{
    node->id = read_json_number(reply, "id");
    node->term = read_json_number(reply, "term");
    node->commit = read_json_number(reply, "commit");
    node->applied = read_json_number(reply, "applied");
    read_text(reply, "role", node->role, sizeof(node->role));
    read_text(reply, "cluster", view->cluster, sizeof(view->cluster));
    if (node->term > view->term)
        view->term = node->term;
    if (node->commit > view->commit)
        view->commit = node->commit;
    view->answered++;
    read_members(view, reply);
}

static void ask_node(struct view *view, struct node *node)
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

static int compare_nodes(const void *a, const void *b)
{
    const struct node *first = a, *second = b;

    return (first->id > second->id) - (first->id < second->id);
}

/* ---- Output -------------------------------------------------------------*/

/* How many committed entries the node has not applied. */
static uint64_t lag_of(const struct view *view, const struct node *node)
{
    return view->commit > node->applied ? view->commit - node->applied : 0;
}

static void print_json(const struct view *view)
{
    struct json json;

    json_open(&json, stdout);
    json_text(&json, "cluster", view->cluster);
    json_number(&json, "term", view->term);
    json_number(&json, "commit", view->commit);
    json_begin_array(&json, "nodes");
    for (size_t i = 0; i < view->count; i++) {
        const struct node *node = &view->nodes[i];

        json_begin_element(&json);
        json_number(&json, "id", node->id);
        json_text(&json, "address", node->address);
        json_text(&json, "role", node->role);
        if (!node->why)
            json_number(&json, "lag", lag_of(view, node));
        else
            json_text(&json, "reason", node->why);
        if (node->pid)
            json_number(&json, "pid", (uint64_t)node->pid);
        json_end(&json);
    }
    json_end_array(&json);
    json_close(&json);
}

static void print_node(const struct view *view, const struct node *node)
{
    char pid[16] = "-";

    if (node->pid)
        (void)snprintf(pid, sizeof(pid), "%ld", (long)node->pid);
    (void)printf("%-4" PRIu64 " %-22s %-12s %-8s ", node->id, node->address,
                 node->role, pid);
    if (node->why)
        (void)printf("-  %s\n", node->why);
    else
        (void)printf("%" PRIu64 "\n", lag_of(view, node));
}

static void print_status_text(const struct view *view)
{
    if (view->answered > 0)
        (void)printf("cluster %s  term %" PRIu64 "  commit %" PRIu64 "\n",
                     view->cluster, view->term, view->commit);
    (void)printf("%-4s %-22s %-12s %-8s %s\n", "ID", "ADDRESS", "ROLE", "PID",
                 "LAG");
    for (size_t i = 0; i < view->count; i++)
        print_node(view, &view->nodes[i]);
}

static int status_main(struct args *args)
{
    struct view view = {.count = 0};
    int rc = find_nodes(&view, args);

    if (rc)
        return rc;
    for (size_t i = 0; i < view.count; i++)
        ask_node(&view, &view.nodes[i]);
    qsort(view.nodes, view.count, sizeof(view.nodes[0]), compare_nodes);
    if (args->json)
        print_json(&view);
    else
        print_status_text(&view);
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
        "runs on this machine, and the lag, the number of committed entries\n"
        "that it has not applied. It needs no majority. Without URL, it shows\n"
        "the cluster of HOLDFAST_URL, or the one that 'cluster up' has\n"
        "started in DIR. The status is 0 if a node answered, else 69.\n",
    .examples =
        "  holdfast status\n"
        "  holdfast status raft://127.0.0.1:7101\n"
        "  holdfast status --json |\n"
        "      jq -r '.nodes[] | select(.role == \"leader\").address'\n",
    .options = OPTION(DIR),
    .words_min = 0,
    .words_max = 1,
    .main = status_main,
};
