/* clients_report.c - the state of a node: HELLO, INFO and STATUS. */
#include "node/clients_state.h"

/* ---- HELLO and the leader -----------------------------------------------*/

static struct hf_bytes find_address(const struct hf_node_status *status,
                                    uint64_t id)
{
    for (size_t i = 0; i < status->member_count; i++)
        if (status->members[i].id == id)
            return hf_bytes_of(status->members[i].client_address);
    return (struct hf_bytes){0};
}

void hf_report_hello(struct hf_clients *clients, struct hf_buf *buf)
{
    struct hf_node_status status;
    struct hf_mux_hello hello = {
        .version = HF_PROTOCOL_VERSION,
        .cluster = hf_bytes_of(clients->cluster),
        .node = clients->opts.id,
        .requests_max = HF_CLIENT_REQUESTS_MAX,
        .frame_max = HF_RESP_FRAME_MAX,
        .mode = hf_bytes_of("raft"),
    };

    hf_node_status(clients->opts.node, &status);
    hello.leader = status.leader;
    hello.address = find_address(&status, status.leader);
    hello.table_version = status.version;
    hf_mux_hello_encode(&hello, buf);
}

void hf_report_leader(struct hf_clients *clients, uint64_t leader,
                      struct hf_buf *buf)
{
    struct hf_node_status status;
    struct hf_mux_push push = {
        .kind = HF_MUX_PUSH_LEADER,
        .leader = leader,
    };

    hf_node_status(clients->opts.node, &status);
    push.address = find_address(&status, leader);
    hf_mux_push_encode(&push, buf);
}

/* ---- Text ---------------------------------------------------------------*/

static void add_text(struct hf_buf *text, const char *string)
{
    hf_buf_raw(text, string, strlen(string));
}

static void add_number(struct hf_buf *text, uint64_t number)
{
    char digits[20];

    hf_buf_raw(text, digits, hf_resp_digits(digits, number));
}

static const char *status_role_name(enum hf_node_role role)
{
    switch (role) {
    case HF_NODE_LEADER:
        return "leader";
    case HF_NODE_CANDIDATE:
        return "candidate";
    default:
        return "follower";
    }
}

/* The role of a member, as far as this node knows. */
static const char *member_role(const struct hf_node_status *status,
                               const struct hf_node_status_member *member)
{
    if (member->id == status->id)
        return status_role_name(status->role);
    if (member->id == status->leader)
        return "leader";
    return member->connected ? "follower" : "unreachable";
}

/* ---- INFO ---------------------------------------------------------------*/

static void add_section(struct hf_buf *text, const char *name)
{
    if (text->size > 0)
        add_text(text, "\r\n");
    add_text(text, "# ");
    add_text(text, name);
    add_text(text, "\r\n");
}

static void add_info_line(struct hf_buf *text, const char *name,
                          const char *value)
{
    add_text(text, name);
    add_text(text, ":");
    add_text(text, value);
    add_text(text, "\r\n");
}

static void add_count(struct hf_buf *text, const char *name, uint64_t count)
{
    add_text(text, name);
    add_text(text, ":");
    add_number(text, count);
    add_text(text, "\r\n");
}

static void add_clients(struct hf_buf *text, const struct hf_clients *clients)
{
    const struct hf_clients_counters *counters = &clients->counters;

    add_section(text, "Clients");
    add_count(text, "connected_clients", clients->count);
    add_count(text, "mux_clients", clients->mux_count);
    add_count(text, "maxclients", HF_CLIENTS_MAX);
    add_count(text, "unanswered_bytes", clients->unanswered);
    add_count(text, "unanswered_bytes_max", HF_UNANSWERED_MAX);
    add_count(text, "input_bytes", clients->input);
    add_count(text, "input_bytes_max", HF_INPUT_MAX);
    add_count(text, "unsent_bytes", clients->unsent);
    add_count(text, "unsent_bytes_max", HF_UNSENT_MAX);
#define ROW(name) add_count(text, #name, counters->name);
    HF_CLIENTS_COUNTERS(ROW)
#undef ROW
}

static void add_status_node(struct hf_buf *text,
                            const struct hf_clients *clients,
                            const struct hf_node_status *status)
{
    add_section(text, "Server");
    add_info_line(text, "holdfast_version", HF_VERSION);
    add_count(text, "protocol_version", HF_PROTOCOL_VERSION);
    add_info_line(text, "cluster", clients->cluster);
    add_count(text, "node", status->id);
    add_section(text, "Raft");
    add_info_line(text, "role", status_role_name(status->role));
    add_count(text, "leader", status->leader);
    add_count(text, "term", status->term);
    add_count(text, "commit", status->commit);
    add_count(text, "applied", status->applied);
    add_count(text, "last", status->last);
    add_count(text, "snapshot", status->snapshot);
    add_count(text, "members", status->member_count);
    add_count(text, "low_space", status->low_space);
    add_count(text, "elections", status->elections);
    add_count(text, "flushes", status->flushes);
    add_count(text, "snapshots", status->snapshots);
    add_section(text, "Table");
    add_count(text, "table_version", status->version);
    add_count(text, "holds", status->holds);
    add_count(text, "sessions", status->sessions);
    add_count(text, "applied_commands", status->applied_commands);
    add_count(text, "forwarded_commands", status->forwarded);
    add_count(text, "requests_in_flight", status->requests);
}

void hf_report_info(struct hf_clients *clients, struct hf_buf *text)
{
    struct hf_node_status status;

    hf_node_status(clients->opts.node, &status);
    add_status_node(text, clients, &status);
    add_clients(text, clients);
}

/* ---- STATUS -------------------------------------------------------------
 *
 * The reply is JSON. Its addresses come from the configuration, as host:port,
 * and need no escapes. */

static void add_member(struct hf_buf *text, const char *name, uint64_t number)
{
    add_text(text, "\"");
    add_text(text, name);
    add_text(text, "\":");
    add_number(text, number);
    add_text(text, ",");
}

static void add_string(struct hf_buf *text, const char *name,
                       const char *string)
{
    add_text(text, "\"");
    add_text(text, name);
    add_text(text, "\":\"");
    add_text(text, string);
    add_text(text, "\"");
}

static void add_nodes(struct hf_buf *text, const struct hf_node_status *status)
{
    add_text(text, "\"nodes\":[");
    for (size_t i = 0; i < status->member_count; i++) {
        const struct hf_node_status_member *member = &status->members[i];

        add_text(text, i > 0 ? ",{" : "{");
        add_member(text, "id", member->id);
        add_string(text, "address", member->client_address);
        add_text(text, ",");
        add_string(text, "peer_address", member->peer_address);
        add_text(text, ",");
        /* Only the leader knows which entries the other nodes have. */
        if (status->role == HF_NODE_LEADER)
            add_member(text, "lag", member->lag);
        add_string(text, "role", member_role(status, member));
        add_text(text, "}");
    }
    add_text(text, "]");
}

void hf_report_status(struct hf_clients *clients, struct hf_buf *text)
{
    struct hf_node_status status;

    hf_node_status(clients->opts.node, &status);
    add_text(text, "{");
    add_string(text, "cluster", clients->cluster);
    add_text(text, ",");
    add_member(text, "id", status.id);
    add_string(text, "role", status_role_name(status.role));
    add_text(text, ",");
    add_member(text, "leader", status.leader);
    add_member(text, "term", status.term);
    add_member(text, "commit", status.commit);
    add_member(text, "applied", status.applied);
    add_member(text, "held", status.holds);
    add_member(text, "sessions", status.sessions);
    add_member(text, "clients", clients->count);
    add_nodes(text, &status);
    add_text(text, "}");
}
