/* invariants.h - what must be true in every state.
 *
 *   ONE_HOLDER         At most one claim is valid.
 *   TOKENS_RISE        Each grant has a higher token than all before it.
 *   HOLDER_IS_KNOWN    Every majority of masters that answer names the valid
 *                      holder, or is undecided. This is the reason why there is
 *                      only one: no claim commits against the verdict of a
 *                      majority.
 *   ENDED_STAYS_ENDED  No majority names a claim whose end was confirmed.
 *   NOTHING_REVIVES    A master on which a claim has ended has no vote and no
 *                      lease of this claim, whatever arrives late.
 *   NEWCOMER_WINS      A client that is alone with the masters that answer gets
 *                      the key by PREPARE and COMMIT whenever no claim may hold
 *                      it, and in any case when all leases have expired.
 *
 * What a linearizable read must not answer:
 *
 *   READ_FREE_IS_FREE  "Free" while a claim was valid during the whole read, or
 *                      while a claim that a grant or a read has made known
 *                      before has neither begun to end nor lapsed.
 *   READ_HELD_IS_HELD  A token of a claim whose end was confirmed before the
 *                      read; a token below one that was granted before the
 *                      read; a token other than that of the claim that was
 *                      valid during the whole read.
 *   FREE_STAYS_FREE    A claim that was known and had begun to end when an
 *                      earlier read answered "free".
 *
 * What the clients observe of the value, by updates and reads (see value.h):
 *
 *   VALUES_IN_ORDER    Of two values, one was made from the other. A later
 *                      operation does not observe an older value.
 *   UPDATED_ONCE       No update is applied twice. */
#ifndef HF_MODEL_QUORUM_INVARIANTS_H
#define HF_MODEL_QUORUM_INVARIANTS_H

#include "state.h"

enum hf_invariant {
    INVARIANT_NONE,
    ONE_HOLDER,
    TOKENS_RISE,
    HOLDER_IS_KNOWN,
    ENDED_STAYS_ENDED,
    NOTHING_REVIVES,
    NEWCOMER_WINS,
    READ_FREE_IS_FREE,
    READ_HELD_IS_HELD,
    FREE_STAYS_FREE,
    VALUES_IN_ORDER,
    UPDATED_ONCE,
};

/* The invariant that `state` violates, or INVARIANT_NONE. */
enum hf_invariant hf_invariants_check(const struct hf_state *state);

/* Check a step, and record a violation in the state to which it leads. */

/* Client `c` was granted the key. */
void hf_invariants_on_grant(struct hf_state *state, uint8_t c);

/* A client has observed `value`, in an operation that began when `before` was
 * the newest value that was observed. */
void hf_invariants_on_value(struct hf_state *state, uint8_t value,
                            uint8_t before);

/* A read begins; after every step it goes on; it ends with `held`, whose claim
 * is NOBODY if it answers "free", or without an answer: NULL. */
void hf_invariants_on_read_begin(struct hf_state *state);
void hf_invariants_on_read_step(struct hf_state *state);
void hf_invariants_on_read_end(struct hf_state *state,
                               const struct hf_lease *held);

/* A violation in words: "two claims are valid". */
const char *hf_invariants_text(enum hf_invariant invariant);

#endif
