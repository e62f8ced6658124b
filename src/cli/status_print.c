#include "status.h"

#include <inttypes.h>
#include <stdio.h>

#include "json.h"
#include "text.h"

/* ---- Lag ----------------------------------------------------------------*/

static bool knows_lag(const struct status_node *node)
{
    return node->has_lag || !node->why;
}

/* How many entries the node lacks, as the leader knows. Without a leader, how
 * many committed entries it has not applied: the nodes were asked one after
 * another, so that is exact only while nothing is committed. */
static uint64_t lag_of(const struct status_view *view,
                       const struct status_node *node)
{
    if (node->has_lag)
        return node->lag;
    return view->commit > node->applied ? view->commit - node->applied : 0;
}

/* ---- JSON ---------------------------------------------------------------*/

static void put_log(struct json *json, const struct status_node *node)
{
    json_number(json, "first", node->first);
    json_number(json, "last", node->last);
    json_bool(json, "uncommitted_earlier_term", node->uncommitted_earlier_term);
}

static void put_master(struct json *json, const struct status_node *node)
{
    json_number(json, "quiet_ms", node->quiet_ms);
    json_number(json, "held", node->held);
    json_number(json, "waiters", node->waiters);
    json_bool(json, "mark_failed", node->mark_failed);
}

static void put_node(struct json *json, const struct status_view *view,
                     const struct status_node *node)
{
    json_begin_element(json);
    json_number(json, "id", node->id);
    json_text(json, "address", node->address);
    json_text(json, "role", node->role);
    if (view->mode == CLUSTER_RAFT && knows_lag(node))
        json_number(json, "lag", lag_of(view, node));
    if (node->why)
        json_text(json, "reason", node->why);
    else if (view->mode == CLUSTER_QUORUM)
        put_master(json, node);
    else
        put_log(json, node);
    if (node->pid)
        json_number(json, "pid", (uint64_t)node->pid);
    json_end(json);
}

void status_print_json(const struct status_view *view)
{
    struct json json;

    json_open(&json, stdout);
    json_text(&json, "cluster", view->cluster);
    if (view->mode == CLUSTER_QUORUM) {
        json_number(&json, "set", view->set);
    } else {
        json_number(&json, "term", view->term);
        json_number(&json, "commit", view->commit);
    }
    json_begin_array(&json, "nodes");
    for (size_t i = 0; i < view->count; i++)
        put_node(&json, view, &view->nodes[i]);
    json_end_array(&json);
    json_text(&json, "mode", cluster_mode_name(view->mode));
    json_close(&json);
}

/* ---- Text ---------------------------------------------------------------*/

static void print_quiet(const struct status_node *node)
{
    char span[TEXT_SPAN_SIZE] = "-";

    if (!node->why && node->quiet_ms > 0)
        text_span(node->quiet_ms, span);
    (void)printf("%-8s ", span);
    if (node->why)
        (void)printf("-");
    else
        (void)printf("%" PRIu64, node->held);
    if (node->mark_failed)
        (void)printf("  its file cannot be written");
}

static void print_lag(const struct status_view *view,
                      const struct status_node *node)
{
    if (knows_lag(node))
        (void)printf("%" PRIu64, lag_of(view, node));
    else
        (void)printf("-");
}

static void print_node(const struct status_view *view,
                       const struct status_node *node)
{
    char id[24] = "-", pid[16] = "-";

    if (node->id)
        (void)snprintf(id, sizeof(id), "%" PRIu64, node->id);
    if (node->pid)
        (void)snprintf(pid, sizeof(pid), "%ld", (long)node->pid);
    (void)printf("%-4s %-22s %-12s %-8s ", id, node->address, node->role, pid);
    if (view->mode == CLUSTER_QUORUM)
        print_quiet(node);
    else
        print_lag(view, node);
    (void)printf("%s%s\n", node->why ? "  " : "", node->why ? node->why : "");
}

static void print_heading(const struct status_view *view)
{
    if (view->mode == CLUSTER_QUORUM)
        (void)printf("cluster %s  set %" PRIu64 "\n", view->cluster, view->set);
    else
        (void)printf("cluster %s  term %" PRIu64 "  commit %" PRIu64 "\n",
                     view->cluster, view->term, view->commit);
}

void status_print_text(const struct status_view *view)
{
    if (view->answered > 0)
        print_heading(view);
    (void)printf("%-4s %-22s %-12s %-8s %s\n", "ID", "ADDRESS", "ROLE", "PID",
                 view->mode == CLUSTER_QUORUM ? "QUIET    HELD" : "LAG");
    for (size_t i = 0; i < view->count; i++)
        print_node(view, &view->nodes[i]);
}
