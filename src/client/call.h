/* call.h - one request with its retries, sequence number and deadline.
 *
 * This is the only module of the client that retries a request
 * (docs/decisions/0021). It submits one copy and waits for the answer until the
 * deadline. It submits another copy only after the strategy has answered the
 * previous one with HF_EUNAVAIL (not executed) or HF_EINDOUBT (sent, and the
 * answer was lost). The copies have the same sequence number, so the server
 * executes them once. A call that has no other answer at its deadline is
 * settled with HF_EINDOUBT if any attempt was in doubt, otherwise with
 * HF_EUNAVAIL.
 *
 * A command is not repeated as it is if the session in which it was sent is
 * gone (docs/decisions/0033): the next session would execute it again. RENEW
 * and CANCEL may be executed twice, so they are sent as new commands, with a
 * new sequence number. The other commands are settled with HF_EINDOUBT and
 * `session_gone`, and the owner of the call finds out what became of them.
 *
 *            start                    answered
 *     IDLE --------> SENT ---------------------------> IDLE, settled
 *      |             ^  |
 *      | window      |  | HF_EUNAVAIL, HF_EINDOUBT
 *      | full        |  v
 *      |             | BACKING_OFF
 *      v             |
 *    PARKED ---------+ when the window has room
 *
 * The call is open in every state but IDLE, and the deadline ends it in every
 * state. The struct is embedded in its owner, which must not be freed while the
 * call is open. All functions require the client's mutex. */
#ifndef HF_CLIENT_CALL_H
#define HF_CLIENT_CALL_H

#include "strategy/strategy.h"

struct hf_client;

enum hf_call_state {
    HF_CALL_IDLE,
    HF_CALL_PARKED,
    HF_CALL_SENT,
    HF_CALL_BACKING_OFF
};

struct hf_call {
    struct hf_request request; /* filled in before hf_call_start() */
    struct hf_client *client;
    struct hf_dlist link; /* in client->calls or client->parked */
    struct hf_timer timer;
    enum hf_call_state state;
    bool in_doubt; /* an attempt may have been executed */
    bool renumber; /* the next attempt is a new command */
    uint32_t attempts;
    uint32_t back_off_ms; /* delay after the first attempt; doubles each time */
    hf_time deadline;
    hf_time queue_until; /* latest instant to send the request; 0: not set */
    uint32_t timeout_ms; /* how long the answer may take after the request was
                            sent, if queue_until is set */
    bool expired_unsent; /* queue_until passed before the request was sent */
    hf_time first_sent;  /* when the command was first sent, with its present
                           sequence number */
    hf_time last_sent;
    char *cause; /* why an earlier attempt failed; may be NULL */
    void *owner; /* set by the owner, for `settled` and `failed` */

    /* Called when the call has completed; the answer is in `request`. */
    void (*settled)(struct hf_call *call);
    /* Called when an attempt has failed and will be retried. May be NULL. */
    void (*failed)(struct hf_call *call);
};

/* Initialize a zeroed call. Can fail with HF_ENOMEM or HF_ELIMIT. */
enum hf_err hf_call_init(struct hf_call *call, struct hf_client *client,
                         void (*settled)(struct hf_call *call));
void hf_call_fini(struct hf_call *call);

static inline bool hf_call_is_open(const struct hf_call *call)
{
    return call->state != HF_CALL_IDLE;
}

/* Send the request, and retry until `deadline`. `settled` runs exactly once,
 * unless the call is abandoned, and not inside this function. */
void hf_call_start(struct hf_call *call, hf_time deadline);

/* Like hf_call_start(), for a request that may wait inside a busy client or
 * strategy. If it is not sent by `queue_until`, the call is settled with
 * HF_EUNAVAIL, and expired_unsent is set. Once it is sent, the answer has
 * `timeout_ms` to arrive. */
void hf_call_start_queued(struct hf_call *call, uint32_t timeout_ms,
                          hf_time queue_until);

/* Move the deadline of an open call to `deadline`, if that is later. */
void hf_call_extend(struct hf_call *call, hf_time deadline);

/* Send parked calls while the window has room. Returns true if any call was
 * sent. Must not be called while another call is being settled or abandoned. */
bool hf_call_send_parked(struct hf_client *client);

/* Give the call up: `settled` does not run. The request may or may not be
 * executed. */
void hf_call_abandon(struct hf_call *call);

#endif
