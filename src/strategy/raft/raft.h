/* raft.h - raft://: locks in a cluster of holdfastd nodes.
 *
 * The client has one connection, to any node, which forwards to the leader. It
 * opens a session, whose commands the cluster applies exactly once. If the
 * connection is lost, the client connects to another node, attaches the session
 * there, and sends again what was not answered, with the old session and
 * sequence numbers and in the old order. Only if the cluster has closed the
 * session meanwhile, commands are in doubt (hf_answer.session_gone).
 *
 *   connection.c  one connection: handshake, silence, messages
 *   route.c       which node to connect to: back-off, moves to the leader
 *   session.c     OPEN, ATTACH, and what happens when the session is gone
 *   request.c     requests, from submit to answer; reply.c decodes replies
 *   claims.c      claims that wait, and when their LOCK was first sent
 *   watch.c       watches, resumed on the next connection
 *   raft_open.c   open, close, describe */
#ifndef HF_STRATEGY_RAFT_RAFT_H
#define HF_STRATEGY_RAFT_RAFT_H

#include "base/map.h"
#include "strategy/raft/connection.h"
#include "strategy/watches.h"

extern const struct hf_strategy hf_strategy_raft;

#define HF_RAFT_CLUSTER_SIZE 65 /* hexadecimal digits and NUL */

/* A request that waits for a connection, or for its reply. */
struct hf_raft_request {
    struct hf_map_link by_id;
    struct hf_dlist link; /* in `requests` */
    struct hf_request *request;
    uint64_t id;
    hf_time first_sent; /* HF_NEVER: not sent yet */
    unsigned copies;    /* how often it was sent */
    size_t capacity;    /* LIST: of request->answer.infos */
};

struct hf_raft {
    struct hf_host *host;
    struct hf_raft_transport *transport;
    struct hf_raft_sockets sockets; /* the default transport */
    struct hf_raft_addresses addresses;
    struct hf_raft_connection connections[2];
    struct hf_raft_connection *current;   /* carries the requests */
    struct hf_raft_connection *candidate; /* replaces `current` once attached */
    struct hf_timer timer;
    hf_time timer_at; /* when the timer fires */
    bool opening;     /* inside `open`, where no event loop runs */

    /* route.c */
    struct {
        unsigned next;      /* index of the node to connect to next */
        unsigned failures;  /* failed attempts since the connection was up */
        hf_time connect_at; /* when `current` connects again */
        hf_time move_at;    /* when `candidate` connects; HF_NEVER */
        bool to_leader;     /* `candidate` is for the leader only */
        struct hf_raft_address leader;      /* port 0: unknown */
        char cluster[HF_RAFT_CLUSTER_SIZE]; /* "": no node has answered yet */
        struct hf_error failure; /* why there is no connection, to report */
        struct hf_error round;   /* the failures of this round so far */
    } route;

    /* session.c */
    struct {
        uint64_t id; /* 0: none */
        struct hf_nonce secret;
        bool has_secret;
    } session;

    /* request.c */
    uint64_t next_id;
    struct hf_map requests_by_id;
    struct hf_dlist requests; /* in the order of submission */
    struct hf_buf scratch;

    struct hf_map claims; /* claims.c */
    struct hf_watches watches;
};

/* raft_open.c: `open` with a transport other than sockets, for simulations. The
 * other members of hf_strategy_raft need no change. `transport` must outlive
 * the client. */
enum hf_err hf_raft_open_with(struct hf_raft *raft, struct hf_url *url,
                              struct hf_host *host,
                              struct hf_raft_transport *transport,
                              struct hf_error *error);

/* The anchor of a claim whose LOCK was first sent at `sent`, and that the
 * leader had known for `age_ms` at the grant. */
static inline struct hf_anchor hf_raft_anchor(hf_time sent, int64_t age_ms)
{
    struct hf_anchor anchor = {.known = age_ms >= 0, .sent = sent};

    if (anchor.known)
        anchor.age_ms = age_ms < UINT32_MAX ? (uint32_t)age_ms : UINT32_MAX;
    return anchor;
}

/* The time of this turn. */
hf_time hf_raft_now(const struct hf_raft *raft);

/* Make the timer fire at `at`, or earlier if that was asked for before. */
void hf_raft_wake_at(struct hf_raft *raft, hf_time at);

/* Do everything that is due, and set the timer. */
void hf_raft_tick(struct hf_raft *raft);

/* ---- route.c ------------------------------------------------------------*/

/* Connect to a random node. */
void hf_raft_route_start(struct hf_raft *raft);

/* The node has answered the handshake: attach the session here, unless the
 * connection is a candidate that is no better than the current one. */
void hf_raft_route_on_hello(struct hf_raft_connection *connection,
                            const struct hf_mux_hello *hello);

/* The connection was lost, or could not be made. It is down. */
void hf_raft_route_on_lost(struct hf_raft_connection *connection, bool was_up,
                           const struct hf_error *failure);

/* The session is attached to the connection, which carries the requests from
 * now on. */
void hf_raft_route_on_attached(struct hf_raft_connection *connection);

/* A node reports who leads; `leader` is 0 if that is unknown. */
void hf_raft_route_on_leader(struct hf_raft_connection *connection,
                             uint64_t leader, struct hf_bytes address);

/* A node reports that the leader accepts no more connections. */
void hf_raft_route_on_full(struct hf_raft_connection *connection);

/* Connect if that is due. */
void hf_raft_route_tick(struct hf_raft *raft);
hf_time hf_raft_route_deadline(const struct hf_raft *raft);

/* Whether every node has failed since the connection was up. */
bool hf_raft_route_has_failed(const struct hf_raft *raft);

/* ---- session.c ----------------------------------------------------------*/

/* Open the session on this connection, or attach it. */
void hf_raft_session_attach(struct hf_raft_connection *connection);

/* The reply to OPEN or ATTACH. */
void hf_raft_session_on_reply(struct hf_raft_connection *connection,
                              const struct hf_resp_message *message);

/* The cluster has closed the session, so no copy of its commands can have an
 * effect any more. Commands that were sent are in doubt, and the next
 * connection opens a new session. */
void hf_raft_session_on_gone(struct hf_raft *raft);

/* ---- request.c ----------------------------------------------------------*/

void hf_raft_submit(void *self, struct hf_request *request);
void hf_raft_cancel(void *self, struct hf_request *request);
hf_time hf_raft_sent_at(void *self, const struct hf_request *request);

/* Send everything that is not answered, on a new connection. */
void hf_raft_requests_send_all(struct hf_raft *raft);

void hf_raft_requests_on_reply(struct hf_raft_connection *connection,
                               uint64_t id,
                               const struct hf_resp_message *message);

/* No node answers: report all requests as lost or not sent, so that the client
 * decides about repeats. */
void hf_raft_requests_fail(struct hf_raft *raft, const struct hf_error *why);

/* Answer the commands that were sent: their session is gone. */
void hf_raft_requests_on_gone(struct hf_raft *raft);

/* When the unanswered LOCK with `nonce` was first sent; HF_NEVER: there is
 * none. */
hf_time hf_raft_requests_find_lock(const struct hf_raft *raft,
                                   const struct hf_nonce *nonce);

/* ---- reply.c ------------------------------------------------------------*/

/* The command of the protocol that carries a request. */
enum hf_verb hf_raft_reply_verb(const struct hf_request *request);

enum hf_raft_reply_status {
    HF_RAFT_REPLY_DONE,
    HF_RAFT_REPLY_MORE, /* another page of a LIST follows */
    HF_RAFT_REPLY_GONE, /* the session of the command is gone */
    HF_RAFT_REPLY_MALFORMED,
};

/* Turn a reply into the answer of its request. */
enum hf_raft_reply_status hf_raft_reply_decode(
    struct hf_raft *raft, struct hf_raft_request *pending,
    const struct hf_mux_reply *reply);

/* ---- claims.c -----------------------------------------------------------*/

/* The LOCK of a claim was queued; it was first sent at `first_sent`. */
void hf_raft_claims_add(struct hf_raft *raft, const struct hf_nonce *nonce,
                        hf_time first_sent);

/* When the first LOCK of a waiting claim was sent; HF_NEVER: unknown. */
hf_time hf_raft_claims_find(const struct hf_raft *raft,
                            const struct hf_nonce *nonce);
void hf_raft_claims_remove(struct hf_raft *raft, const struct hf_nonce *nonce);
void hf_raft_claims_on_grant(struct hf_raft *raft,
                             const struct hf_mux_push *push);

/* Pushes may have been lost: make the client check all waiting claims. */
void hf_raft_claims_nudge(struct hf_raft *raft);
void hf_raft_claims_fini(struct hf_raft *raft);

/* ---- watch.c ------------------------------------------------------------*/

/* A WATCH was answered: pushes begin at the index that the request names, or
 * else after `index`. Returns HF_ENOMEM. */
enum hf_err hf_raft_watch_add(struct hf_raft *raft,
                              const struct hf_request *request, uint64_t index);
void hf_raft_watch_stop(struct hf_raft *raft, uint64_t number);

/* Ask for the events after the last ones received, on a new connection. */
void hf_raft_watches_resume(struct hf_raft *raft);

/* A reply to a resumed watch, or to something that nobody awaits. */
void hf_raft_watches_on_reply(struct hf_raft_connection *connection,
                              uint64_t id,
                              const struct hf_resp_message *message);
void hf_raft_watches_on_event(struct hf_raft_connection *connection,
                              const struct hf_mux_push *push);

#endif
