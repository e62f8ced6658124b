/* redial.h - when to connect to a peer again.
 *
 * The first attempt is made at once, the next after pauses that double up to
 * half a second. Only a connection that has lasted for a second resets the
 * pause, so that a peer that refuses this node is not flooded.
 *
 * The kernel accepts connections for a process that is stopped. Each of them
 * would be filled with messages until it overflows, so the pause after an
 * overflow is longer: half a second, then twice as long each time, up to four
 * seconds. */
#ifndef HF_NODE_REDIAL_H
#define HF_NODE_REDIAL_H

#include <stdbool.h>

#include "base/random.h"
#include "base/time.h"

/* Starts zeroed. */
struct hf_redial {
    unsigned attempts; /* since the last connection that lasted */
    unsigned unread;   /* connections in a row that the peer did not read */
};

/* An attempt has failed. */
void hf_redial_on_failure(struct hf_redial *redial);

/* A connection has ended after `lasted_ms`. `has_overflowed`: too much output
 * was unsent, because the peer did not read. */
void hf_redial_on_end(struct hf_redial *redial, hf_time lasted_ms,
                      bool has_overflowed);

/* Returns the pause in ms before the next attempt, and counts the attempt. Half
 * of the pause is random, so that nodes that were started together do not stay
 * in step. */
uint32_t hf_redial_pause(struct hf_redial *redial, struct hf_random *random);

#endif
