/* raft.h - raft://: locks in a cluster of holdfastd nodes.
 *
 * The client is connected to one node, which forwards commands to the leader.
 * The client opens a session, whose commands the cluster applies exactly once.
 * If the connection is lost, the client connects to another node, attaches the
 * session there, and sends the unanswered requests again, with the old session
 * and sequence numbers and in the old order.
 *
 * A command that was sent is in doubt if it ends without a reply, for example
 * because no node can be reached, or if the cluster has closed the session
 * meanwhile (hf_answer.session_gone).
 *
 *   connection.c  one connection: its messages, and when it is given up
 *   route.c       which node to connect to: back-off, moves to the leader
 *   session.c     OPEN, ATTACH, and what happens when the session is gone
 *   request.c     requests, from submit to answer; reply.c decodes replies
 *   claims.c      claims that wait, and when their LOCK was first sent
 *   watch.c       watches, resumed on the next connection
 *   raft.c        open, close, describe
 *
 * strategy/net has the sockets and the handshake. */
#ifndef HF_STRATEGY_RAFT_RAFT_H
#define HF_STRATEGY_RAFT_RAFT_H

#include "base/map.h"
#include "strategy/raft/connection.h"
#include "strategy/watches.h"

extern const struct hf_strategy hf_strategy_raft;

#define HF_RAFT_CLUSTER_SIZE 65 /* room for a cluster id in hex, with its NUL */

/* A request that waits for a connection, or for its reply. */
struct hf_raft_request {
    struct hf_map_link by_id;
    struct hf_dlist link; /* in hf_raft.requests */
    struct hf_request *request;
    uint64_t id;
    hf_time first_sent; /* in this attempt; HF_NEVER: not sent yet */
    unsigned copies;    /* how many times it was sent */
    size_t capacity;    /* READ, LIST: room in request->answer.infos */
};

struct hf_raft {
    struct hf_net net;
    struct hf_net_sockets sockets; /* the default transport */
    struct hf_net_addresses addresses;
    bool route_any; /* ?route=any: stay with any node that knows the leader */
    struct hf_raft_connection connections[2];
    struct hf_raft_connection *current;   /* carries the requests */
    struct hf_raft_connection *candidate; /* replaces `current` once attached */

    /* route.c */
    struct {
        unsigned next;      /* next node to try, modulo the number of nodes */
        unsigned failures;  /* failed attempts since the connection was up */
        unsigned brief;     /* connections in a row that were up briefly */
        hf_time up_at;      /* when a connection last came up */
        hf_time connect_at; /* when `current` connects again */
        hf_time move_at;    /* when `candidate` connects; HF_NEVER: no move */
        uint32_t retry_ms;  /* pause after the next failed move to the leader */
        bool to_leader;     /* the candidate must be the leader */
        struct hf_net_address leader;       /* port 0: unknown */
        char cluster[HF_RAFT_CLUSTER_SIZE]; /* "": no node has answered yet */
        struct hf_error failure;            /* reported if no node answers */
        struct hf_error round; /* the failures of this round so far */
    } route;

    /* session.c */
    struct {
        uint64_t id; /* 0: none */
        struct hf_nonce secret;
        bool has_secret;
    } session;

    /* request.c */
    struct hf_map requests_by_id;
    struct hf_dlist requests; /* in the order of submission */
    struct hf_buf scratch;

    struct hf_map claims; /* claims.c */
    struct hf_watches watches;
};

/* Set `addresses` and `route_any`, or return HF_EINVAL and set `error`. */
enum hf_err hf_raft_read_url(struct hf_raft *raft, struct hf_url *url,
                             struct hf_error *error);

/* hf_strategy.open with any transport: raft: passes its sockets, and a
 * simulation its own transport. The other members of hf_strategy_raft work with
 * any transport. `transport` must outlive the client. */
enum hf_err hf_raft_open_with(struct hf_raft *raft, struct hf_url *url,
                              struct hf_host *host,
                              struct hf_net_transport *transport,
                              struct hf_error *error);

/* The anchor of a claim whose LOCK was first sent at `sent`. `age_ms` is the
 * time from when the leader applied the LOCK to the grant; negative:
 * unknown. */
static inline struct hf_anchor hf_raft_anchor(hf_time sent, int64_t age_ms)
{
    struct hf_anchor anchor = {.known = age_ms >= 0, .sent = sent};

    if (anchor.known)
        anchor.age_ms = age_ms < UINT32_MAX ? (uint32_t)age_ms : UINT32_MAX;
    return anchor;
}

/* ---- route.c ------------------------------------------------------------*/

/* Connect to a random node. */
void hf_raft_route_start(struct hf_raft *raft);

/* The node has replied to HELLO: attach the session to this connection, unless
 * the connection is a candidate that is no better than the current one. If the
 * node belongs to another cluster, the connection is lost. */
void hf_raft_route_on_hello(struct hf_raft_connection *connection,
                            const struct hf_mux_hello *hello);

/* The connection is down: it was lost (`was_up`: after the session had been
 * attached), or could not be made. */
void hf_raft_route_on_lost(struct hf_raft_connection *connection, bool was_up,
                           const struct hf_error *failure);

/* The session is attached to the connection, which carries the requests from
 * now on. */
void hf_raft_route_on_attached(struct hf_raft_connection *connection);

/* If the connection is the candidate, make it the current one, and close the
 * other. */
void hf_raft_route_take_over(struct hf_raft_connection *connection);

/* The node reports the leader and the leader's address for clients. `leader` is
 * 0 if the node knows no leader. */
void hf_raft_route_on_leader(struct hf_raft_connection *connection,
                             uint64_t leader, struct hf_bytes address);

/* The node is the leader and has too many connections: stay at the current
 * node, and try again much later. If the current connection is not up,
 * `connection` is lost, and another node is tried. */
void hf_raft_route_on_full(struct hf_raft_connection *connection);

/* Connect, or start to move to another node, if that is due.
 * hf_raft_route_deadline() returns when that will be. */
void hf_raft_route_tick(struct hf_raft *raft);
hf_time hf_raft_route_deadline(const struct hf_raft *raft);

/* Returns true if, since the connection was last up, as many attempts have
 * failed as the URL lists nodes. */
bool hf_raft_route_has_failed(const struct hf_raft *raft);

/* ---- session.c ----------------------------------------------------------*/

/* Attach the session to this connection, or open one if there is none. */
void hf_raft_session_attach(struct hf_raft_connection *connection);

/* Handle the reply to OPEN or ATTACH. */
void hf_raft_session_on_reply(struct hf_raft_connection *connection,
                              const struct hf_resp_message *message);

/* The cluster has closed the session, so no copy of its commands can have an
 * effect any more. Commands that were sent are in doubt, and the next
 * hf_raft_session_attach() opens a new session. The caller closes the current
 * connection if it is UP: without a session, no connection is. */
void hf_raft_session_on_gone(struct hf_raft *raft);

/* ---- request.c ----------------------------------------------------------*/

void hf_raft_request_submit(void *self, struct hf_request *request);
void hf_raft_request_cancel(void *self, struct hf_request *request);
hf_time hf_raft_request_sent_at(void *self, const struct hf_request *request);

/* Send all unanswered requests over the new current connection. */
void hf_raft_requests_send_all(struct hf_raft *raft);

void hf_raft_requests_on_reply(struct hf_raft_connection *connection,
                               uint64_t id,
                               const struct hf_resp_message *message);

/* No node can be reached: answer the commands that were sent with HF_EINDOUBT,
 * and all other requests with HF_EUNAVAIL. The client decides whether to repeat
 * them. `why` has the text of the error. */
void hf_raft_requests_fail(struct hf_raft *raft, const struct hf_error *why);

/* The session is gone: answer the commands that were sent in it with
 * HF_EINDOUBT and hf_answer.session_gone. */
void hf_raft_requests_on_gone(struct hf_raft *raft);

/* When the unanswered LOCK with `nonce` was first sent; HF_NEVER if there is no
 * such LOCK or it was not sent. */
hf_time hf_raft_requests_find_lock(const struct hf_raft *raft,
                                   const struct hf_nonce *nonce);

/* ---- reply.c ------------------------------------------------------------*/

/* The protocol command that carries the request. */
enum hf_verb hf_raft_reply_verb(const struct hf_request *request);

enum hf_raft_reply_status {
    HF_RAFT_REPLY_DONE,
    HF_RAFT_REPLY_MORE, /* another page of a LIST follows */
    HF_RAFT_REPLY_GONE, /* the session of the command is gone */
    HF_RAFT_REPLY_MALFORMED,
};

/* Store the reply in the answer of the request `pending`. */
enum hf_raft_reply_status hf_raft_reply_decode(
    struct hf_raft *raft, struct hf_raft_request *pending,
    const struct hf_mux_reply *reply);

/* ---- claims.c -----------------------------------------------------------*/

/* A claim was queued; its LOCK was first sent at `first_sent`. */
void hf_raft_claims_add(struct hf_raft *raft, const struct hf_nonce *nonce,
                        hf_time first_sent);

/* When the LOCK of a queued claim was first sent; HF_NEVER if no queued claim
 * with this nonce is known. */
hf_time hf_raft_claims_find(const struct hf_raft *raft,
                            const struct hf_nonce *nonce);
void hf_raft_claims_remove(struct hf_raft *raft, const struct hf_nonce *nonce);
void hf_raft_claims_on_grant(struct hf_raft *raft,
                             const struct hf_mux_push *push);

/* Pushes may have been lost: make the client check all waiting claims. */
void hf_raft_claims_nudge(struct hf_raft *raft);
void hf_raft_claims_fini(struct hf_raft *raft);

/* ---- watch.c ------------------------------------------------------------*/

/* Add the watch of a WATCH that was answered. Its pushes begin at the index
 * request->from, or, if that is 0, after `index`. Returns HF_OK or
 * HF_ENOMEM. */
enum hf_err hf_raft_watch_add(struct hf_raft *raft,
                              const struct hf_request *request, uint64_t index);
void hf_raft_watch_stop(struct hf_raft *raft, uint64_t number);

/* Resume all watches over the new current connection, each after the last event
 * that it received. */
void hf_raft_watches_resume(struct hf_raft *raft);

/* Handle the reply with `id`, which is not for a request in hf_raft.requests.
 * Does nothing if it is not the reply to a resumed watch. */
void hf_raft_watches_on_reply(struct hf_raft_connection *connection,
                              uint64_t id,
                              const struct hf_resp_message *message);
void hf_raft_watches_on_event(struct hf_raft_connection *connection,
                              const struct hf_mux_push *push);

#endif
