/* call.h - one request, carried to a definite answer.
 *
 * Here, and only here, is what is lost asked again: a call repeats its request,
 * with the same number and so with the same effect, until it is answered or
 * its deadline passes. Strategies say HF_EUNAVAIL (surely not done) and
 * HF_EINDOUBT; a call that ends in one of them ends in doubt if any of its
 * attempts did.
 *
 *            start                 answered
 *     IDLE --------> SENT ------------------------> IDLE, settled
 *                    ^  | in doubt, unavailable,
 *               time |  v no answer in time
 *                   RESTING
 *
 * The struct is embedded, and its owner must not vanish while it is open. */
#ifndef HF_CLIENT_CALL_H
#define HF_CLIENT_CALL_H

#include "strategy/strategy.h"

struct hf_client;

enum hf_call_state {
    HF_CALL_IDLE,
    HF_CALL_PARKED,
    HF_CALL_SENT,
    HF_CALL_RESTING
};

struct hf_call {
    struct hf_request request; /* filled in before the start */
    struct hf_client *client;
    struct hf_list link; /* among the numbered or the parked */
    struct hf_timer timer;
    enum hf_call_state state;
    bool in_doubt; /* an attempt may have been done */
    uint32_t attempts;
    uint32_t patience_ms; /* with the first attempt; it doubles */
    hf_time deadline;
    hf_time first_sent;
    void *owner;                           /* the owner's, for `settled` */
    void (*settled)(struct hf_call *call); /* the answer is in the request */
};

/* Get ready what is zeroed; HF_ENOMEM, HF_ELIMIT. */
enum hf_err hf_call_init(struct hf_call *call, struct hf_client *client,
                         void (*settled)(struct hf_call *call));
void hf_call_fini(struct hf_call *call);

static inline bool hf_call_open(const struct hf_call *call)
{
    return call->state != HF_CALL_IDLE;
}

/* Send it, and again as need be, until `deadline`. Settled once, never inside
 * this call. */
void hf_call_start(struct hf_call *call, hf_time deadline);

/* Give one that is open until `deadline`, if that is later. */
void hf_call_extend(struct hf_call *call, hf_time deadline);

/* Stop caring: it will not be settled. Whether it was done is not known. */
void hf_call_abandon(struct hf_call *call);

#endif
