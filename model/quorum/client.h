/* client.h - what a client does for its claim: lock, renew, repair, unlock.
 *
 * The client coordinates: it has a connection to every master, sends each
 * request to all of them, and acts on the answers.
 *
 *   lock     ASK; a fast quorum of fast votes: held. One round trip.
 *            ASK; a majority of votes; COMMIT; a majority of OKs: held.
 *            PREPARE; a majority of promises whose verdict is that nobody
 *            holds the key; COMMIT; a majority of OKs: held.
 *   renew    RENEW; a majority of OKs, of leases under the same ballot.
 *   repair   PREPARE; the verdict is this claim with its token; COMMIT under
 *            the new ballot with the old token; a majority of OKs. This writes
 *            the lease to masters that have missed it.
 *   unlock   END, after validity has ended; a majority has ended it: done.
 *   update   as repair, with a new value; by another process: updater.c.
 *
 * client.c has requests and answers, lock.c the lock, keep.c the rest. */
#ifndef HF_MODEL_QUORUM_CLIENT_H
#define HF_MODEL_QUORUM_CLIENT_H

#include "steps.h"
#include "verdict.h"

/* Take every step that client `c` can take by itself. */
void hf_client_steps(struct hf_steps *steps, uint8_t c);

/* Receive the answer of `master`, which is number `i`, to `message`. */
void hf_client_receive(struct hf_client *client, uint8_t i,
                       const struct hf_message *message, bool positive,
                       const struct hf_master *master);

/* Send a request to all masters, and forget the answers to the last one. */
void hf_client_send(struct hf_state *state, uint8_t c,
                    enum hf_message_type type);

unsigned hf_client_count_positive(const struct hf_client *client);

/* The number of the next ballot: above all that the client has used or seen.
 * It may exceed NUMBER_MAX: then there is none. */
uint8_t hf_client_next_number(const struct hf_client *client);

/* The next majority of masters that have promised the current ballot, after
 * `set`, and its verdict. Begins with 0 and returns 0 after the last one. */
hf_set hf_client_next_majority(const struct hf_client *client, hf_set set,
                               uint8_t self, struct hf_verdict *verdict);

/* The parts of hf_client_steps(). */
void hf_lock_steps(struct hf_steps *steps, uint8_t c);
void hf_keep_steps(struct hf_steps *steps, uint8_t c);
void hf_updater_steps(struct hf_steps *steps, uint8_t c);

/* End validity, if there is any, and send END. */
void hf_keep_end(struct hf_steps *steps, uint8_t c, enum hf_step_kind kind);

#endif
