/* mux.h - the messages of MUX mode, as structs and as bytes.
 *
 * `HELLO 1 MUX` switches a connection to this mode. Then each request begins
 * with an id of the client's choice, and replies, which begin with the same id,
 * come in any order. A message with the id 0 is a push, which answers no
 * request.
 *
 * Decoding accepts any message and returns HF_EPROTO if it is malformed.
 * Decoded pointers point into the message. */
#ifndef HF_WIRE_MUX_H
#define HF_WIRE_MUX_H

#include "wire/protocol.h"

#define HF_MUX_ID_MAX ((uint64_t)INT64_MAX)
#define HF_MUX_AGE_UNKNOWN (-1)
#define HF_MUX_CLAIM_SIZE 16

/* ---- The handshake ------------------------------------------------------*/

/* The reply to HELLO, which is the same in plain mode and in MUX mode. */
struct hf_mux_hello {
    uint64_t version;        /* HF_PROTOCOL_VERSION of the node */
    struct hf_bytes cluster; /* the id of the cluster, in hexadecimal digits */
    uint64_t node;           /* the node that replies */
    uint64_t leader;         /* 0: unknown */
    struct hf_bytes address; /* of the leader, for clients; empty: unknown */
    uint64_t table_version;  /* version of commands and snapshots */
    uint64_t requests_max;   /* limit on unanswered requests of a connection */
    uint64_t frame_max;      /* limit on the bytes of a request */
    struct hf_bytes mode;    /* "raft" or "quorum"; empty: raft, of a version
                                that does not say it */
    struct hf_bytes members; /* quorum: see hf_mux_members_next() */
    uint64_t highest;        /* quorum: the highest number that the master
                                knows, or HF_MUX_ID_MAX */
};

/* Write the request HELLO 1 MUX. */
void hf_mux_write_hello(struct hf_buf *buf);

void hf_mux_hello_encode(const struct hf_mux_hello *hello, struct hf_buf *buf);

/* Decode the reply to HELLO. If the reply is an error, returns its code and
 * sets `*text`. If it is malformed, returns HF_EPROTO, and `*text` is empty. */
enum hf_err hf_mux_hello_decode(struct hf_mux_hello *hello,
                                const struct hf_resp_message *message,
                                struct hf_bytes *text);

/* The members of a quorum as text: the number of the set of members, which
 * rises with each change, then each member as " ROLE ID ADDRESS", with the
 * address for clients:
 *
 *     1 master 1 127.0.0.1:7001 master 2 127.0.0.1:7002 replica 4 [::1]:7004 */
struct hf_mux_member {
    bool is_master; /* false: a replica */
    uint64_t id;
    struct hf_bytes address;
};

/* Read the number of the set. Returns false if it is malformed. `*rest` is what
 * hf_mux_members_next() reads. */
bool hf_mux_members_set(struct hf_bytes members, uint64_t *set,
                        struct hf_bytes *rest);

/* Read the next member, and advance `*rest`. Returns false at the end, and then
 * `rest->size` is 0 unless the text is malformed. */
bool hf_mux_members_next(struct hf_bytes *rest, struct hf_mux_member *member);

/* ---- Requests -----------------------------------------------------------*/

/* The comments of the members name the commands that use them. */
struct hf_mux_request {
    uint64_t id; /* 1 to HF_MUX_ID_MAX */
    enum hf_verb verb;
    bool linearizable;     /* LOOKUP, READ, LIST; false: may be stale */
    bool exact;            /* WATCH: `key` is a key; false: it is a prefix */
    uint32_t remaining_ms; /* DO: time until the client's deadline */
    uint64_t session;      /* ATTACH */
    uint64_t watch;        /* WATCH, UNWATCH: number of the watch */
    uint64_t from;         /* WATCH: index of the first event; 0: from now on */
    struct hf_nonce secret;  /* OPEN, ATTACH: the secret of the session. LOOKUP:
                                the nonce of the claim */
    struct hf_key key;       /* LOOKUP, READ: key. LIST: prefix, may be empty.
                                WATCH: see `exact` */
    struct hf_bytes label;   /* OPEN */
    struct hf_bytes command; /* DO: encoded by hf_command_encode(). QUORUM:
                                by hf_message_encode_request() */
};

void hf_mux_request_encode(const struct hf_mux_request *request,
                           struct hf_buf *buf);

/* Decode a request. On failure `*cause` says what is wrong, and request->id is
 * the id, or 0 if the request has no valid id and so cannot be answered. */
enum hf_err hf_mux_request_decode(struct hf_mux_request *request,
                                  const struct hf_resp_message *message,
                                  const char **cause);

/* ---- Replies ------------------------------------------------------------*/

struct hf_mux_reply {
    uint64_t id;
    enum hf_err err;        /* HF_OK, or the code of an error reply */
    struct hf_bytes text;   /* of an error reply */
    bool no_space;          /* HF_ELIMIT: a disk is full */
    bool session_gone;      /* HF_ESTATE: the session does not exist */
    uint64_t index;         /* DO: index in the log. READ, LIST, LOOKUP, WATCH:
                               index of the newest event */
    uint64_t session;       /* OPEN */
    int64_t age_ms;         /* DO: how long a LOCK had waited at its grant, 0 if
                               it was granted at once; or
                               HF_MUX_AGE_UNKNOWN */
    struct hf_bytes result; /* DO: the encoded result. STATUS: text. QUORUM:
                               encoded by hf_message_encode_reply() */
    enum hf_claim_state state; /* LOOKUP */
    uint64_t token;            /* LOOKUP: of a grant */
    uint32_t generation;       /* LOOKUP: of a grant */
    uint32_t position;         /* LOOKUP: of a waiter */
    bool more;                 /* LIST: another page follows */
    /* READ: one info. LIST: the infos of this page. Each is a bulk string for
     * hf_protocol_decode_info(). */
    const struct hf_resp_value *infos;
    size_t info_count;
};

/* Write a reply without infos: OPEN, ATTACH, DETACH, DO, LOOKUP, WATCH,
 * UNWATCH, PING, STATUS, QUORUM, and any reply with an error. */
void hf_mux_reply_encode(const struct hf_mux_reply *reply, enum hf_verb verb,
                         struct hf_buf *buf);

/* Write the start of a reply to READ or LIST. The caller then writes `count`
 * infos, each as a bulk string. READ has one info and does not use
 * reply->more. */
void hf_mux_reply_encode_infos(const struct hf_mux_reply *reply,
                               enum hf_verb verb, size_t count,
                               struct hf_buf *buf);

/* Read the id of a message from a node; 0 if it is a push. Returns HF_EPROTO if
 * the message is malformed. */
enum hf_err hf_mux_reply_id(const struct hf_resp_message *message,
                            uint64_t *id);

/* Decode the reply to a request with the command `verb`. An error reply decodes
 * to HF_OK, and reply->err is its code. */
enum hf_err hf_mux_reply_decode(struct hf_mux_reply *reply, enum hf_verb verb,
                                const struct hf_resp_message *message);

/* ---- Pushes -------------------------------------------------------------*/

/* The kinds of pushes, each with the members of hf_mux_push that it carries. */
#define HF_MUX_PUSHES(X)                                                       \
    X(GRANT)   /* nonce, token, generation, age_ms */                          \
    X(EVENT)   /* watch, event */                                              \
    X(LEADER)  /* leader, address: the leader has changed */                   \
    X(FULL)    /* none: the leader is full and closes this connection */       \
    X(RECHECK) /* token: an operator broke this lock, renew it to find out */  \
    X(VOTE)    /* claim, reply: what a master sends to a claim that waits */

enum hf_mux_push_kind {
#define HF_MUX_PUSH(name) HF_MUX_PUSH_##name,
    HF_MUX_PUSHES(HF_MUX_PUSH)
#undef HF_MUX_PUSH
    HF_MUX_PUSH_COUNT
};

struct hf_mux_push {
    enum hf_mux_push_kind kind;
    struct hf_nonce nonce;
    uint64_t token;
    uint32_t generation;
    int64_t age_ms; /* or HF_MUX_AGE_UNKNOWN */
    uint64_t watch;
    struct hf_bytes event; /* for hf_protocol_decode_event() */
    uint64_t leader;       /* 0: unknown */
    struct hf_bytes address;
    struct hf_bytes claim; /* the id of the claim: HF_MUX_CLAIM_SIZE bytes */
    struct hf_bytes reply; /* encoded by hf_message_encode_reply() */
};

void hf_mux_push_encode(const struct hf_mux_push *push, struct hf_buf *buf);

/* Returns HF_EPROTO for a malformed push, and HF_EUNSUPPORTED for one of an
 * unknown kind, which a client must ignore. */
enum hf_err hf_mux_push_decode(struct hf_mux_push *push,
                               const struct hf_resp_message *message);

#endif
