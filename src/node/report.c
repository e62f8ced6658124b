/* report.c - the state of a node: HELLO, INFO and STATUS. */
#include "node/clients_state.h"
#include "serve/text.h"

/* ---- HELLO and the leader -----------------------------------------------*/

static struct hf_bytes find_address(const struct hf_node_status *status,
                                    uint64_t id)
{
    for (size_t i = 0; i < status->member_count; i++)
        if (status->members[i].id == id)
            return hf_bytes_of(status->members[i].client_address);
    return (struct hf_bytes){0};
}

void hf_report_hello(struct hf_server *server, struct hf_mux_hello *hello)
{
    const struct hf_clients *clients = hf_clients_of(server);
    struct hf_node_status status;

    hf_node_status(clients->opts.node, &status);
    hello->cluster = hf_bytes_of(clients->cluster);
    hello->node = clients->opts.id;
    hello->leader = status.leader;
    hello->address = find_address(&status, status.leader);
    hello->table_version = status.version;
    hello->mode = hf_bytes_of("raft");
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

/* ---- Roles --------------------------------------------------------------*/

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

static void add_clients(struct hf_buf *text, const struct hf_clients *clients)
{
    hf_server_add_connections(&clients->server, text);
    hf_text_count(text, "unanswered_bytes", clients->unanswered);
    hf_text_count(text, "unanswered_bytes_max", HF_UNANSWERED_MAX);
    hf_server_add_bytes(&clients->server, text);
    hf_server_add_counters(&clients->server, text);
}

static void add_status_node(struct hf_buf *text,
                            const struct hf_clients *clients,
                            const struct hf_node_status *status)
{
    hf_text_section(text, "Server");
    hf_text_line(text, "holdfast_version", HF_VERSION);
    hf_text_count(text, "protocol_version", HF_PROTOCOL_VERSION);
    hf_text_line(text, "cluster", clients->cluster);
    hf_text_count(text, "node", status->id);
    hf_text_section(text, "Raft");
    hf_text_line(text, "role", status_role_name(status->role));
    hf_text_count(text, "leader", status->leader);
    hf_text_count(text, "term", status->term);
    hf_text_count(text, "commit", status->commit);
    hf_text_count(text, "applied", status->applied);
    hf_text_count(text, "first", status->first);
    hf_text_count(text, "last", status->last);
    hf_text_count(text, "uncommitted_earlier_term",
                  status->uncommitted_earlier_term);
    hf_text_count(text, "snapshot", status->snapshot);
    hf_text_count(text, "members", status->member_count);
    hf_text_count(text, "low_space", status->low_space);
    hf_text_count(text, "elections", status->elections);
    hf_text_count(text, "flushes", status->flushes);
    hf_text_count(text, "snapshots", status->snapshots);
    hf_text_count(text, "links_refused", status->links_refused);
    hf_text_section(text, "Table");
    hf_text_count(text, "table_version", status->version);
    hf_text_count(text, "holds", status->holds);
    hf_text_count(text, "sessions", status->sessions);
    hf_text_count(text, "table_bytes", status->table_bytes);
    hf_text_count(text, "table_bytes_max", status->table_bytes_max);
    hf_text_count(text, "applied_commands", status->applied_commands);
    hf_text_count(text, "forwarded_commands", status->forwarded);
    hf_text_count(text, "requests_in_flight", status->requests);
}

void hf_report_info(struct hf_server *server, struct hf_buf *text)
{
    const struct hf_clients *clients = hf_clients_of(server);
    struct hf_node_status status;

    hf_node_status(clients->opts.node, &status);
    add_status_node(text, clients, &status);
    add_clients(text, clients);
}

/* ---- STATUS -------------------------------------------------------------*/

static void add_nodes(struct hf_buf *text, const struct hf_node_status *status)
{
    hf_text_json_name(text, "nodes");
    hf_text_add(text, "[");
    for (size_t i = 0; i < status->member_count; i++) {
        const struct hf_node_status_member *member = &status->members[i];

        hf_text_add(text, i > 0 ? ",{" : "{");
        hf_text_json_number(text, "id", member->id);
        hf_text_json_string(text, "address", member->client_address);
        hf_text_json_string(text, "peer_address", member->peer_address);
        /* Only the leader knows which entries the other nodes have. */
        if (status->role == HF_NODE_LEADER)
            hf_text_json_number(text, "lag", member->lag);
        hf_text_json_string(text, "role", member_role(status, member));
        hf_text_add(text, "}");
    }
    hf_text_add(text, "]");
}

void hf_report_status(struct hf_server *server, struct hf_buf *text)
{
    const struct hf_clients *clients = hf_clients_of(server);
    struct hf_node_status status;

    hf_node_status(clients->opts.node, &status);
    hf_text_add(text, "{");
    hf_text_json_string(text, "cluster", clients->cluster);
    hf_text_json_number(text, "id", status.id);
    hf_text_json_string(text, "role", status_role_name(status.role));
    hf_text_json_number(text, "leader", status.leader);
    hf_text_json_number(text, "term", status.term);
    hf_text_json_number(text, "commit", status.commit);
    hf_text_json_number(text, "applied", status.applied);
    hf_text_json_number(text, "first", status.first);
    hf_text_json_number(text, "last", status.last);
    hf_text_json_bool(text, "uncommitted_earlier_term",
                      status.uncommitted_earlier_term);
    hf_text_json_number(text, "held", status.holds);
    hf_text_json_number(text, "sessions", status.sessions);
    hf_text_json_number(text, "clients", server->count);
    add_nodes(text, &status);
    hf_text_add(text, "}");
}
