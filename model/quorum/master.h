/* master.h - what a master does: with a request, when time passes, and when it
 * restarts.
 *
 * Always true:
 *   1. the promised number never falls, not even over a restart;
 *   2. a vote or a lease is written only under a number that was above the
 *      promise, or promised to the same client;
 *   3. a vote never changes the lease layer below it. */
#ifndef HF_MODEL_QUORUM_MASTER_H
#define HF_MODEL_QUORUM_MASTER_H

#include "state.h"

void hf_master_init(struct hf_master *master);

/* Execute a request; the master is not quiet. Returns true if the answer is
 * positive: VOTE, PROMISE, OK or ENDED, not LOW, BUSY or MISSING. A request
 * that is repeated gets the same answer and changes nothing. */
bool hf_master_receive(struct hf_master *master,
                       const struct hf_message *message);

struct hf_report hf_master_report(const struct hf_master *master);

void hf_master_expire_lease(struct hf_master *master);
void hf_master_expire_vote(struct hf_master *master);

/* Forget a record that has neither a vote nor a held lease, to save memory. The
 * promise stays, closed: the master keeps the highest of all records that it
 * has dropped. */
void hf_master_drop_record(struct hf_master *master);

/* Lose everything except the mark, and be quiet. */
void hf_master_restart(struct hf_master *master);

/* End the quiet period. */
void hf_master_wake(struct hf_master *master);

#endif
