#include "strategy/raft/connection.h"

#include "strategy/raft/raft.h"

#define ATTACH_MS 3000 /* how long a node may take to attach the session */

static struct hf_raft_connection *connection_of(struct hf_net_link *link)
{
    return HF_CONTAINER(link, struct hf_raft_connection, link);
}

/* ---- Messages -----------------------------------------------------------*/

static void on_push(struct hf_raft_connection *connection,
                    const struct hf_resp_message *message)
{
    struct hf_raft *raft = connection->raft;
    struct hf_host *host = raft->net.host;
    struct hf_mux_push push;
    enum hf_err err = hf_mux_push_decode(&push, message);

    if (err == HF_EUNSUPPORTED)
        return; /* of a later version */
    if (err) {
        hf_raft_connection_lose(connection, HF_EPROTO,
                                "the node sent a malformed message");
        return;
    }
    switch (push.kind) {
    case HF_MUX_PUSH_GRANT:
        hf_raft_claims_on_grant(raft, &push);
        break;
    case HF_MUX_PUSH_EVENT:
        hf_raft_watches_on_event(connection, &push);
        break;
    case HF_MUX_PUSH_LEADER:
        hf_raft_route_on_leader(connection, push.leader, push.address);
        break;
    case HF_MUX_PUSH_RECHECK:
        host->ops->recheck(host, push.token);
        break;
    case HF_MUX_PUSH_FULL:
        hf_raft_route_on_full(connection);
        break;
    case HF_MUX_PUSH_VOTE: /* a raft node sends none */
    case HF_MUX_PUSH_COUNT:
        break;
    }
}

static void on_link_message(struct hf_net_link *link, uint64_t id,
                            const struct hf_resp_message *message)
{
    struct hf_raft_connection *connection = connection_of(link);

    if (id == 0)
        on_push(connection, message);
    else if (id == connection->handshake)
        hf_raft_session_on_reply(connection, message);
    else
        hf_raft_requests_on_reply(connection, id, message);
}

/* The newest version of the command format that both sides know. A cluster also
 * accepts commands of a version older than that of its table. */
static uint8_t command_version(const struct hf_mux_hello *hello)
{
    if (hello->table_version >= HF_VERSION_NEWEST)
        return HF_VERSION_NEWEST;
    return hello->table_version > 0 ? (uint8_t)hello->table_version
                                    : HF_VERSION_FIRST;
}

static void on_link_ready(struct hf_net_link *link,
                          const struct hf_mux_hello *hello)
{
    struct hf_raft_connection *connection = connection_of(link);

    if (hello->mode.size > 0 &&
        !hf_bytes_equal(hello->mode, hf_bytes_of("raft"))) {
        hf_raft_connection_lose(connection, HF_EUNSUPPORTED,
                                "the node does not serve raft: use the URL "
                                "that its cluster was started with");
        return;
    }
    connection->node = hello->node;
    connection->leader = hello->leader;
    connection->version = command_version(hello);
    hf_raft_route_on_hello(connection, hello);
}

/* ---- Opening and closing ------------------------------------------------*/

static void forget_node(struct hf_raft_connection *connection)
{
    connection->node = 0;
    connection->leader = 0;
    connection->handshake = 0;
}

static void on_link_lost(struct hf_net_link *link, bool was_up,
                         const struct hf_error *failure)
{
    forget_node(connection_of(link));
    hf_raft_route_on_lost(connection_of(link), was_up, failure);
}

/* The node owes a reply, or the grant of a waiting claim. */
static bool is_awaiting(const struct hf_net_link *link)
{
    const struct hf_raft_connection *connection =
        HF_CONTAINER(link, const struct hf_raft_connection, link);
    const struct hf_raft *raft = connection->raft;

    return connection == raft->current &&
           (!hf_dlist_is_empty(&raft->requests) || raft->claims.count > 0);
}

static const struct hf_net_link_ops link_ops = {
    .ready = on_link_ready,
    .message = on_link_message,
    .lost = on_link_lost,
    .is_awaiting = is_awaiting,
};

void hf_raft_connection_init(struct hf_raft_connection *connection,
                             struct hf_raft *raft)
{
    connection->raft = raft;
    hf_net_link_init(&connection->link, &raft->net, &link_ops);
}

void hf_raft_connection_open(struct hf_raft_connection *connection,
                             struct hf_net_address *address)
{
    hf_net_link_open(&connection->link, address);
}

void hf_raft_connection_close(struct hf_raft_connection *connection)
{
    hf_net_link_close(&connection->link);
    forget_node(connection);
}

/* ---- Time ---------------------------------------------------------------*/

static hf_time attach_deadline(const struct hf_raft_connection *connection)
{
    if (connection->link.state != HF_NET_LINK_READY)
        return HF_NEVER;
    return hf_time_add(connection->link.since, ATTACH_MS);
}

hf_time hf_raft_connection_deadline(const struct hf_raft_connection *connection)
{
    return hf_time_min(hf_net_link_deadline(&connection->link),
                       attach_deadline(connection));
}

void hf_raft_connection_tick(struct hf_raft_connection *connection)
{
    if (hf_net_now(connection->link.net) >= attach_deadline(connection))
        hf_raft_connection_lose(
            connection, HF_EUNAVAIL,
            "the node cannot attach the session, because it knows no leader: "
            "fewer than a majority of the nodes are up or connected");
    else
        hf_net_link_tick(&connection->link);
}
