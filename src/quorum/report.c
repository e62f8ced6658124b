/* report.c - the state of a node: INFO, STATUS and DEBUG. */
#include "base/hex.h"
#include "quorum/state.h"
#include "serve/text.h"

#define DEBUG_BIDS 100 /* bids of the queue that are shown */

static const struct hf_quorum_node *node_of(struct hf_server *server)
{
    return HF_CONTAINER(server, struct hf_quorum_node, server);
}

/* ---- INFO ---------------------------------------------------------------*/

static void add_master_lines(struct hf_buf *text,
                             const struct hf_quorum_node *node)
{
    const struct hf_master *master = &node->master;
    struct hf_master_summary summary;
    struct hf_quorum_node_status status;

    hf_master_summarize(master, &summary);
    hf_quorum_node_status(node, &status);
    hf_text_section(text, "Quorum");
    hf_text_line(text, "role", "master");
    hf_text_count(text, "set", node->members.set);
    hf_text_count(text, "masters", node->members.count);
    hf_text_count(text, "lease_max_ms", node->members.lease_max_ms);
    hf_text_count(text, "quiet_ms", status.quiet_ms);
    hf_text_count(text, "mark", status.mark);
    hf_text_count(text, "mark_writes", status.mark_writes);
    hf_text_count(text, "mark_failed", status.mark_failed);
    hf_text_count(text, "highest", master->highest);
    hf_text_count(text, "held", summary.held);
    hf_text_count(text, "votes", summary.votes);
    hf_text_count(text, "waiters", summary.waiters);
    hf_text_count(text, "records", summary.records);
    hf_text_count(text, "table_bytes", master->bytes + master->bids.bytes);
    hf_text_count(text, "table_bytes_max", master->opts.bytes_max);
    hf_text_count(text, "messages", node->messages);
    hf_text_count(text, "pushes", node->pushes);
    hf_text_count(text, "index", node->index);
}

void hf_quorum_report_info(struct hf_server *server, struct hf_buf *text)
{
    const struct hf_quorum_node *node = node_of(server);

    hf_text_section(text, "Server");
    hf_text_line(text, "holdfast_version", HF_VERSION);
    hf_text_count(text, "protocol_version", HF_PROTOCOL_VERSION);
    hf_text_line(text, "cluster", node->cluster);
    hf_text_count(text, "node", node->id);
    add_master_lines(text, node);
    hf_server_add_connections(server, text);
    hf_server_add_bytes(server, text);
    hf_server_add_counters(server, text);
}

/* ---- STATUS -------------------------------------------------------------
 *
 * The addresses come from the configuration, and need no escapes. */

static void add_masters(struct hf_buf *text, const struct hf_quorum_node *node)
{
    const struct hf_members *members = &node->members;

    hf_text_json_name(text, "nodes");
    for (size_t i = 0; i < members->count; i++) {
        hf_text_add(text, i > 0 ? ",{" : "[{");
        hf_text_json_number(text, "id", members->masters[i].id);
        hf_text_json_string(text, "address", members->masters[i].address);
        hf_text_json_string(text, "role", "master");
        hf_text_add(text, "}");
    }
    hf_text_add(text, "]");
}

void hf_quorum_report_status(struct hf_server *server, struct hf_buf *text)
{
    const struct hf_quorum_node *node = node_of(server);
    struct hf_master_summary summary;
    struct hf_quorum_node_status status;

    hf_master_summarize(&node->master, &summary);
    hf_quorum_node_status(node, &status);
    hf_text_add(text, "{");
    hf_text_json_string(text, "cluster", node->cluster);
    hf_text_json_string(text, "mode", "quorum");
    hf_text_json_number(text, "id", node->id);
    hf_text_json_string(text, "role", "master");
    hf_text_json_number(text, "set", node->members.set);
    hf_text_json_number(text, "lease_max_ms", node->members.lease_max_ms);
    hf_text_json_number(text, "quiet_ms", status.quiet_ms);
    hf_text_json_number(text, "mark", status.mark);
    hf_text_json_bool(text, "mark_failed", status.mark_failed);
    hf_text_json_number(text, "highest", node->master.highest);
    hf_text_json_number(text, "held", summary.held);
    hf_text_json_number(text, "votes", summary.votes);
    hf_text_json_number(text, "waiters", summary.waiters);
    hf_text_json_number(text, "records", summary.records);
    hf_text_json_number(text, "index", node->index);
    hf_text_json_number(text, "clients", server->count);
    add_masters(text, node);
    hf_text_add(text, "}");
}

/* ---- DEBUG --------------------------------------------------------------
 *
 * Claims are shown by their ids, which do not reveal the nonces. */

static const char *state_name(enum hf_report_state state)
{
    switch (state) {
    case HF_REPORT_EXPIRED:
        return "expired";
    case HF_REPORT_HELD:
        return "held";
    case HF_REPORT_RELEASED:
        return "released";
    default:
        return "none";
    }
}

static void add_id(struct hf_buf *text, const char *name,
                   const struct hf_claim_id *id)
{
    char digits[2 * sizeof(id->bytes) + 1];

    hf_hex_encode(digits, id->bytes, sizeof(id->bytes));
    hf_text_json_string(text, name, digits);
}

static void add_lease(struct hf_buf *text, const struct hf_report *report)
{
    hf_text_json_name(text, "lease");
    hf_text_add(text, "{");
    hf_text_json_string(text, "state", state_name(report->state));
    hf_text_json_number(text, "ballot", report->ballot);
    hf_text_json_number(text, "token", report->token);
    add_id(text, "claim", &report->holder);
    hf_text_json_number(text, "held_ms", report->held_ms);
    hf_text_json_number(text, "left_ms", report->left_ms);
    hf_text_json_number(text, "value_bytes", report->data.value.size);
    hf_text_add(text, "}");
}

static void add_vote(struct hf_buf *text, const struct hf_report *report)
{
    hf_text_json_name(text, "vote");
    hf_text_add(text, "{");
    hf_text_json_number(text, "number", report->vote_number);
    add_id(text, "claim", &report->voter);
    hf_text_json_bool(text, "fast", report->vote_is_fast);
    hf_text_json_number(text, "age_ms", report->vote_age_ms);
    hf_text_json_number(text, "left_ms", report->vote_left_ms);
    hf_text_add(text, "}");
}

static void add_queue(struct hf_buf *text, const struct hf_record *record)
{
    const struct hf_dlist *link = record->queue.next;

    hf_text_json_name(text, "queue");
    hf_text_add(text, "[");
    for (int i = 0; i < DEBUG_BIDS && link != &record->queue; i++) {
        const struct hf_bid *bid = HF_CONTAINER(link, struct hf_bid, in_queue);

        hf_text_add(text, i > 0 ? ",{" : "{");
        add_id(text, "claim", &bid->id);
        hf_text_json_number(text, "ticket", bid->ticket);
        hf_text_json_number(text, "number", bid->number);
        hf_text_json_bool(text, "connected", !bid->is_gone);
        hf_text_json_bool(text, "low", bid->is_low);
        hf_text_add(text, "}");
        link = link->next;
    }
    hf_text_add(text, "]");
}

static void add_ended(struct hf_buf *text, const struct hf_report *report)
{
    hf_text_json_name(text, "ended");
    hf_text_add(text, "[");
    for (int i = 0; i < report->ended_count; i++) {
        hf_text_add(text, i > 0 ? ",{" : "{");
        add_id(text, "claim", &report->ended[i]);
        hf_text_add(text, "}");
    }
    hf_text_add(text, "]");
}

void hf_quorum_report_debug(struct hf_quorum_node *node, struct hf_key key,
                            struct hf_buf *text)
{
    const struct hf_record *record = hf_master_find(&node->master, key);
    struct hf_report report;

    hf_master_report(&node->master, key, true, &report);
    hf_text_add(text, "{");
    hf_text_json_bool(text, "record", record != NULL);
    hf_text_json_number(text, "promised", report.promised);
    hf_text_json_bool(text, "closed", !record || record->is_closed);
    hf_text_json_bool(text, "forced", report.forced);
    hf_text_json_number(text, "waiters", report.waiters);
    hf_text_json_number(text, "floor", node->master.floor);
    hf_text_json_number(text, "highest", node->master.highest);
    hf_text_json_number(text, "mark", node->master.mark);
    if (report.state != HF_REPORT_NONE)
        add_lease(text, &report);
    if (report.has_vote)
        add_vote(text, &report);
    if (record)
        add_queue(text, record);
    add_ended(text, &report);
    hf_text_add(text, "}");
}
