/* steps.h - all steps that can be taken from a state.
 *
 * A step is one event: a client acts, a request reaches a master, time passes,
 * or a master fails. The functions that describe the events build each step in
 * the same way:
 *
 *     struct hf_state *next = hf_steps_begin(steps);
 *
 *     ... change *next ...
 *     hf_steps_take(steps, (struct hf_step){.kind = STEP_..., ...});
 *
 * A step that changes nothing is left out. */
#ifndef HF_MODEL_QUORUM_STEPS_H
#define HF_MODEL_QUORUM_STEPS_H

#include "state.h"

#include <stdio.h>

enum hf_step_kind {
    STEP_ASK,
    STEP_PREPARE,
    STEP_COMMIT,
    STEP_HOLD_BY_VOTES,
    STEP_HOLD,
    STEP_RENEW,
    STEP_RENEWED,
    STEP_REPAIR_PREPARE,
    STEP_REPAIR_COMMIT,
    STEP_REPAIRED,
    STEP_GIVE_UP,
    STEP_UNLOCK,
    STEP_ENDED,
    STEP_UPDATE_PREPARE,
    STEP_UPDATE_COMMIT,
    STEP_UPDATED,
    STEP_UPDATE_IN_DOUBT,
    STEP_READ,
    STEP_REPORT,
    STEP_READ_FREE,
    STEP_READ_HELD,
    STEP_READ_UNDECIDED,
    STEP_LAPSE,
    STEP_DELIVER,
    STEP_DELIVER_ANSWER_LOST,
    STEP_EXPIRE_LEASE,
    STEP_EXPIRE_VOTE,
    STEP_EXPIRE_PROMISE,
    STEP_IDLE,
    STEP_DROP,
    STEP_RESTART,
    STEP_WAKE,
};

/* What happened; only the members that the kind needs are set. */
struct hf_step {
    uint8_t kind;
    uint8_t client; /* or its claim */
    uint8_t master;
    uint8_t number; /* of a ballot, a token or a send */
    uint8_t value;
    bool slow;
    struct hf_message message;
};

struct hf_steps {
    const struct hf_state *from;
    struct hf_state next;
    void (*take)(void *context, const struct hf_state *next,
                 const struct hf_step *step);
    void *context;
};

/* Call `steps->take` for each step from `steps->from`. */
void hf_steps_generate(struct hf_steps *steps);

/* The state that the next step leads to; a copy of `from`. */
struct hf_state *hf_steps_begin(struct hf_steps *steps);
void hf_steps_take(struct hf_steps *steps, struct hf_step step);

/* Print a step as a sentence. */
void hf_step_print(const struct hf_step *step, FILE *out);

#endif
