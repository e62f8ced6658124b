/* value.h - the value of the key, as the list of updates that made it.
 *
 * Two updaters change the value by compare-and-set:
 *
 *   P  0 -> 1       the first updater
 *   Q  0 -> 2       the second updater, or
 *   R  1 -> 0       the second updater
 *
 * A value in the model is the list of the updates that were applied, so that
 * the invariants can see what an update has replaced. Updaters compare numbers,
 * as clients do: after "P R" the number is 0 again.
 *
 *   ""  ->  P  ->  P R  ->  P R P      the last applies P twice: a violation
 *   ""  ->  Q                          P and Q from the same value, too */
#ifndef HF_MODEL_QUORUM_VALUE_H
#define HF_MODEL_QUORUM_VALUE_H

#include <stdbool.h>
#include <stdint.h>

enum hf_value {
    VALUE_FIRST,
    VALUE_P,
    VALUE_Q,
    VALUE_P_R,
    VALUE_P_R_P,
};

enum hf_update {
    UPDATE_NONE,
    UPDATE_P,
    UPDATE_Q,
    UPDATE_R,
};

/* Returns true if the update expects the number that `value` stands for. */
bool hf_value_matches(enum hf_value value, enum hf_update update);

/* The value after the update; it matches. */
enum hf_value hf_value_apply(enum hf_value value, enum hf_update update);

/* Returns true if `newer` is `older`, or was made from it. */
bool hf_value_follows(enum hf_value newer, enum hf_value older);

#endif
