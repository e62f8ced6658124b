/* call.h - one request, carried to a definite answer.
 *
 * Here, and only here, is a request repeated (docs/decisions/0021): the client
 * submits one copy and waits for its answer, however late that comes. It
 * submits a second copy, with the same sequence number and so with the same
 * effect, only after the strategy has answered the first one with HF_EUNAVAIL
 * (surely not done) or HF_EINDOUBT (sent, and lost). A call that ends in one of
 * them ends in doubt if any of its attempts did.
 *
 *            start                    answered
 *     IDLE --------> SENT ---------------------------> IDLE, settled
 *                    ^  |
 *      backed off    |  | lost, unavailable
 *                    |  v
 *                 BACKING_OFF
 *
 * The deadline ends it in any state. The struct is embedded, and its owner must
 * not vanish while it is open. */
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
    struct hf_request request; /* filled in before the start */
    struct hf_client *client;
    struct hf_dlist link; /* among the numbered or the parked */
    struct hf_timer timer;
    enum hf_call_state state;
    bool in_doubt; /* an attempt may have been done */
    uint32_t attempts;
    uint32_t back_off_ms; /* after the first attempt; it doubles */
    hf_time deadline;
    hf_time queue_until; /* while nothing is sent; 0: the deadline is final */
    uint32_t timeout_ms; /* with queue_until: for the answer, once sent */
    bool expired_unsent; /* queue_until passed first */
    hf_time first_sent;
    hf_time last_sent;
    char *cause;                           /* why the last attempt failed */
    void *owner;                           /* the owner's, for `settled` */
    void (*settled)(struct hf_call *call); /* the answer is in the request */
    void (*failed)(struct hf_call *call);  /* an attempt: it is retried; may be
                                              NULL */
};

/* Get ready what is zeroed; HF_ENOMEM, HF_ELIMIT. */
enum hf_err hf_call_init(struct hf_call *call, struct hf_client *client,
                         void (*settled)(struct hf_call *call));
void hf_call_fini(struct hf_call *call);

static inline bool hf_call_is_open(const struct hf_call *call)
{
    return call->state != HF_CALL_IDLE;
}

/* Send it, and again if it is lost, until `deadline`. Settled once, never
 * inside this call. */
void hf_call_start(struct hf_call *call, hf_time deadline);

/* The same, for a request that may wait inside a busy client: the answer has
 * `timeout_ms` from the instant at which the request is sent, and it is sent by
 * `queue_until` or not at all (then it is settled with HF_EUNAVAIL). */
void hf_call_start_queued(struct hf_call *call, uint32_t timeout_ms,
                          hf_time queue_until);

/* Give one that is open until `deadline`, if that is later. */
void hf_call_extend(struct hf_call *call, hf_time deadline);

/* Send the parked calls for which the window has room; false: none. Not inside
 * the end of another call. */
bool hf_call_send_parked(struct hf_client *client);

/* Stop caring: it will not be settled. Whether it was done is not known. */
void hf_call_abandon(struct hf_call *call);

#endif
