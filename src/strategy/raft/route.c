/* route.c - which node the client is connected to.
 *
 * A node forwards commands to the leader, so a client may use any node. It
 * starts with a random one. With ?route=leader it then moves to the leader,
 * which saves a round trip inside the cluster: it attaches its session over a
 * second connection, the candidate, before it closes the first. After a
 * failover the clients move at random times, so that they do not all arrive at
 * once.
 *
 * The client also tries another node as candidate if its node has known no
 * leader for a while, because the node may be cut off from the others. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "strategy/raft/raft.h"

#define BACK_OFF_MIN_MS 20   /* shortest pause, after every node has failed */
#define BACK_OFF_MAX_MS 1000 /* longest pause between attempts */
#define LASTING_MS 1000      /* a connection this old resets the pause */
#define MOVE_MS 2000         /* moves to the leader are spread over this time */
#define LEADERLESS_MS 1000 /* wait for a leader before another node is tried */
#define RETRY_MOVE_MS 5000 /* minimum pause after a failed move to the leader */
#define RETRY_MOVE_MAX_MS 60000 /* failures double that pause up to this */

static uint32_t jitter(const struct hf_raft *raft, uint32_t span_ms)
{
    return hf_random_below(raft->net.host->ops->random(raft->net.host),
                           span_ms + 1);
}

/* ---- The nodes ----------------------------------------------------------*/

static struct hf_net_address *find_listed(struct hf_raft *raft,
                                          const char *name)
{
    for (unsigned i = 0; i < raft->addresses.count; i++) {
        if (!strcmp(raft->addresses.list[i].name, name))
            return &raft->addresses.list[i];
    }
    return NULL;
}

static struct hf_net_address *next_listed(struct hf_raft *raft)
{
    unsigned i = raft->route.next++ % raft->addresses.count;

    return &raft->addresses.list[i];
}

/* A leader that the URL does not list is used only if its address is numeric:
 * only the names of the URL are resolved. */
static bool is_numeric(const struct hf_net_address *address)
{
    struct in6_addr bytes;

    return inet_pton(AF_INET, address->host, &bytes) == 1 ||
           inet_pton(AF_INET6, address->host, &bytes) == 1;
}

static bool is_leader_known(const struct hf_raft *raft)
{
    return raft->route.leader.port > 0;
}

/* The address of the leader, which must be known. It is stored in `connection`
 * if the URL does not list it. */
static struct hf_net_address *leader_address(
    struct hf_raft_connection *connection)
{
    struct hf_raft *raft = connection->raft;
    struct hf_net_address *listed = find_listed(raft, raft->route.leader.name);

    if (listed)
        return listed;
    connection->learned = raft->route.leader;
    return &connection->learned;
}

static struct hf_raft_connection *other_connection(
    const struct hf_raft_connection *connection)
{
    struct hf_raft *raft = connection->raft;

    return &raft->connections[connection == &raft->connections[0]];
}

bool hf_raft_route_has_failed(const struct hf_raft *raft)
{
    return raft->route.failures >= raft->addresses.count;
}

/* ---- Moving -------------------------------------------------------------*/

static void move_after(struct hf_raft *raft, uint32_t ms, bool to_leader)
{
    raft->route.to_leader = to_leader;
    raft->route.move_at = hf_time_add(hf_net_now(&raft->net), ms);
    hf_net_wake_at(&raft->net, raft->route.move_at);
}

static void plan_move(struct hf_raft *raft)
{
    const struct hf_raft_connection *current = raft->current;

    raft->route.move_at = HF_NEVER;
    raft->route.retry_ms = RETRY_MOVE_MS;
    if (!hf_raft_connection_is_up(current) || current->leader == current->node)
        return;
    if (current->leader == 0 && raft->addresses.count > 1)
        move_after(raft, LEADERLESS_MS + jitter(raft, LEADERLESS_MS / 2),
                   false);
    else if (is_leader_known(raft) && !raft->route_any)
        move_after(raft, jitter(raft, MOVE_MS), true);
}

static void start_move(struct hf_raft *raft)
{
    struct hf_raft_connection *candidate = other_connection(raft->current);
    struct hf_net_address *address;

    raft->route.move_at = HF_NEVER;
    if (!hf_raft_connection_is_up(raft->current) || raft->candidate)
        return;
    if (raft->route.to_leader)
        address = leader_address(candidate);
    else
        address = next_listed(raft);
    if (address == raft->current->link.address && !raft->route.to_leader)
        address = next_listed(raft);
    raft->candidate = candidate;
    hf_raft_connection_open(candidate, address);
}

/* Returns true if the client should move to the candidate: a candidate for the
 * leader has to be the leader, and any other has to know the leader. */
static bool is_better(const struct hf_raft_connection *candidate)
{
    if (candidate->raft->route.to_leader)
        return candidate->leader == candidate->node;
    return candidate->leader > 0;
}

/* Try a candidate again later. The current connection is still in use, so there
 * is no hurry, and thousands of clients may be trying to move to the same
 * leader. */
static void retry_move(struct hf_raft *raft)
{
    const struct hf_raft_connection *current = raft->current;
    uint32_t span = LEADERLESS_MS;

    if (!hf_raft_connection_is_up(current) || current->leader == current->node)
        return;
    if (raft->route.to_leader) {
        span = raft->route.retry_ms;
        raft->route.retry_ms =
            span < RETRY_MOVE_MAX_MS / 2 ? 2 * span : RETRY_MOVE_MAX_MS;
    }
    move_after(raft, span + jitter(raft, span), raft->route.to_leader);
}

static void drop_candidate(struct hf_raft *raft)
{
    if (raft->candidate)
        hf_raft_connection_close(raft->candidate);
    raft->candidate = NULL;
}

/* ---- Events -------------------------------------------------------------*/

static void set_leader(struct hf_raft_connection *connection, uint64_t leader,
                       struct hf_bytes address)
{
    struct hf_raft *raft = connection->raft;
    struct hf_net_address parsed;

    connection->leader = leader;
    if (connection == raft->current)
        raft->route.leader.port = 0;
    if (leader > 0 && address.size > 0 &&
        hf_net_address_parse(&parsed, address.data, address.size) &&
        (find_listed(raft, parsed.name) || is_numeric(&parsed)))
        raft->route.leader = parsed;
}

void hf_raft_route_on_leader(struct hf_raft_connection *connection,
                             uint64_t leader, struct hf_bytes address)
{
    set_leader(connection, leader, address);
    if (connection == connection->raft->current)
        plan_move(connection->raft);
}

void hf_raft_route_on_full(struct hf_raft_connection *connection)
{
    struct hf_raft *raft = connection->raft;

    if (!hf_raft_connection_is_up(raft->current)) {
        hf_raft_connection_lose(connection, HF_EUNAVAIL,
                                "the node has too many connections");
    } else if (raft->route.to_leader) {
        drop_candidate(raft);
        raft->route.retry_ms = RETRY_MOVE_MAX_MS;
        retry_move(raft);
    }
}

/* The nodes of a URL have to belong to one cluster: another cluster would grant
 * the same keys to other clients. Returns false, and loses the connection, if
 * the node belongs to another cluster. */
static bool check_same_cluster(struct hf_raft_connection *connection,
                               const struct hf_mux_hello *hello)
{
    char *cluster = connection->raft->route.cluster;
    char found[HF_RAFT_CLUSTER_SIZE];
    struct hf_error error;

    (void)snprintf(found, sizeof(found), "%.*s", (int)hello->cluster.size,
                   (const char *)hello->cluster.data);
    if (*cluster == '\0')
        memcpy(cluster, found, sizeof(found));
    if (!strcmp(cluster, found))
        return true;
    (void)hf_error_set(&error, HF_EPROTO,
                       "the node belongs to the cluster %s, but another node "
                       "of this URL to %s",
                       found, cluster);
    hf_raft_connection_lose(connection, error.code, error.text);
    return false;
}

void hf_raft_route_on_hello(struct hf_raft_connection *connection,
                            const struct hf_mux_hello *hello)
{
    struct hf_raft *raft = connection->raft;

    if (!check_same_cluster(connection, hello))
        return;
    set_leader(connection, hello->leader, hello->address);
    if (connection == raft->candidate && !is_better(connection)) {
        drop_candidate(raft);
        retry_move(raft);
        return;
    }
    hf_raft_session_attach(connection);
}

void hf_raft_route_take_over(struct hf_raft_connection *connection)
{
    struct hf_raft *raft = connection->raft;

    if (connection != raft->candidate)
        return;
    hf_raft_connection_close(raft->current);
    raft->current = connection;
    raft->candidate = NULL;
}

void hf_raft_route_on_attached(struct hf_raft_connection *connection)
{
    struct hf_raft *raft = connection->raft;

    hf_net_link_set_up(&connection->link);
    hf_raft_route_take_over(connection);
    raft->route.failures = 0;
    raft->route.failure = (struct hf_error){0};
    raft->route.up_at = hf_net_now(&raft->net);
    hf_raft_requests_send_all(raft);
    hf_raft_watches_resume(raft);
    hf_raft_claims_nudge(raft);
    plan_move(raft);
    hf_net_wake_at(&raft->net, hf_raft_connection_deadline(connection));
}

/* Collect the failures of one round over all nodes in route.round, because each
 * node may fail for a different reason. While a later round is incomplete,
 * route.failure keeps the failures of the round before. */
static void note_failure(struct hf_raft *raft, const struct hf_error *failure)
{
    unsigned count = raft->addresses.count;
    unsigned failures = raft->route.failures;
    struct hf_error before = raft->route.round;

    if (failures % count == 0)
        raft->route.round = *failure;
    else
        (void)hf_error_set(&raft->route.round, failure->code, "%s; %s",
                           before.text, failure->text);
    if (failures < count || (failures + 1) % count == 0)
        raft->route.failure = raft->route.round;
}

/* A connection that was up is lost: count it if it was up only briefly. */
static void note_brief(struct hf_raft *raft, const struct hf_error *failure)
{
    raft->route.failure = *failure;
    if (hf_net_now(&raft->net) - raft->route.up_at < LASTING_MS)
        raft->route.brief++;
    else
        raft->route.brief = 0;
}

/* Try every node once without a pause, then back off. A connection that was up
 * only briefly counts as a failure, too: all nodes may refuse something that
 * the client does each time, such as resuming its watches. */
static hf_time next_round_time(const struct hf_raft *raft)
{
    unsigned failures = raft->route.failures + raft->route.brief;
    unsigned rounds, span = BACK_OFF_MIN_MS;

    if (failures < raft->addresses.count)
        return hf_net_now(&raft->net);
    rounds = failures / raft->addresses.count;
    span <<= rounds < 7 ? rounds : 7;
    if (span > BACK_OFF_MAX_MS)
        span = BACK_OFF_MAX_MS;
    return hf_time_add(hf_net_now(&raft->net),
                       span / 2 + jitter(raft, span / 2));
}

void hf_raft_route_on_lost(struct hf_raft_connection *connection, bool was_up,
                           const struct hf_error *failure)
{
    struct hf_raft *raft = connection->raft;

    if (connection == raft->candidate) {
        raft->candidate = NULL;
        retry_move(raft);
        return;
    }
    if (was_up)
        note_brief(raft, failure);
    else
        note_failure(raft, failure);
    raft->route.failures += !was_up;
    raft->route.move_at = HF_NEVER;
    if (is_leader_known(raft) &&
        !strcmp(raft->route.leader.name, connection->link.address->name))
        raft->route.leader.port = 0;
    if (raft->candidate) { /* it is connecting or attaching already */
        raft->current = raft->candidate;
        raft->candidate = NULL;
        return;
    }
    raft->route.connect_at = next_round_time(raft);
    hf_net_wake_at(&raft->net, raft->route.connect_at);
    if (hf_raft_route_has_failed(raft))
        hf_raft_requests_fail(raft, &raft->route.failure);
}

/* ---- Connecting ---------------------------------------------------------*/

/* Connect to the leader if it is known, ?route=any was not given, and no
 * attempt has failed since the connection was up. Otherwise connect to the next
 * node of the URL, but not at once to the node that was lost, unless the URL
 * lists no other. */
static void connect_current(struct hf_raft *raft)
{
    struct hf_raft_connection *current = raft->current;
    const struct hf_net_address *lost = current->link.address;
    struct hf_net_address *address;

    raft->route.connect_at = HF_NEVER;
    if (is_leader_known(raft) && raft->route.failures == 0 &&
        !raft->route_any) {
        address = leader_address(current);
        raft->route.leader.port = 0; /* if this fails, try the others */
    } else {
        address = next_listed(raft);
        if (address == lost && raft->route.failures == 0)
            address = next_listed(raft);
    }
    hf_raft_connection_open(current, address);
}

void hf_raft_route_start(struct hf_raft *raft)
{
    raft->current = &raft->connections[0];
    raft->route.move_at = HF_NEVER;
    raft->route.next = jitter(raft, raft->addresses.count - 1);
    connect_current(raft);
}

void hf_raft_route_tick(struct hf_raft *raft)
{
    hf_time now = hf_net_now(&raft->net);

    if (hf_raft_connection_is_down(raft->current) &&
        now >= raft->route.connect_at)
        connect_current(raft);
    if (now >= raft->route.move_at)
        start_move(raft);
}

hf_time hf_raft_route_deadline(const struct hf_raft *raft)
{
    hf_time at = raft->route.move_at;

    if (hf_raft_connection_is_down(raft->current) &&
        raft->route.connect_at < at)
        at = raft->route.connect_at;
    return at;
}
