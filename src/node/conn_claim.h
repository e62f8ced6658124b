/* conn_claim.h - a command of a plain client on a lock, for conn_claim.c and
 * conn_wait.c. */
#ifndef HF_NODE_CONN_CLAIM_H
#define HF_NODE_CONN_CLAIM_H

#include "node/clients_state.h"

enum claim_state {
    CLAIM_IDLE,
    CLAIM_RUNNING,
    CLAIM_WAITING,
    CLAIM_CANCELING,
    CLAIM_RENEWING,
};

struct hf_conn_claim {
    struct hf_conn *conn;
    enum claim_state state;
    bool is_due;     /* the command of `state` is not submitted yet */
    bool is_opening; /* an OPEN is unanswered */
    struct hf_heap_link timer;
    struct hf_nonce secret;    /* of the session */
    struct hf_command command; /* pointers point to `bytes` */
    uint8_t *bytes;
    size_t size; /* of `bytes`, counted in clients->unanswered */
    uint32_t wait_ms;
    uint64_t index;     /* of the log entry that put the claim into the queue */
    hf_time queued;     /* when the node learned that the claim waits, or that
                           it was granted after a wait, or before this LOCK */
    hf_time wait_until; /* when the claim is withdrawn */
    hf_time renewed;    /* when the RENEW was submitted */
    uint64_t token;     /* of the grant to renew */
    bool is_older;      /* the lease may have started before the LOCK was sent:
                           the grant must be renewed */
};

/* Submit the command of `state` in this turn or the next. */
void hf_conn_claim_set_due(struct hf_conn_claim *claim, enum claim_state state);

/* End the command with an error reply. If `text` is NULL, it is
 * hf_err_text(err). */
void hf_conn_claim_fail(struct hf_conn_claim *claim, enum hf_err err,
                        const char *text);

/* The claim holds the key: reply, or first renew the lock if its age is
 * unknown. */
void hf_conn_claim_take_grant(struct hf_conn_claim *claim, uint64_t token,
                              int64_t age_ms);

/* The session of the connection is closed: the next command opens another
 * one. */
void hf_conn_claim_forget_session(struct hf_conn *conn);

/* ---- conn_wait.c --------------------------------------------------------*/

/* The log entry `index` has put the claim into a queue. */
void hf_conn_wait_start(struct hf_conn_claim *claim, uint64_t index);

#endif
