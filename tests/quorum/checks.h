/* checks.h - what must be true in a simulation of a quorum:
 *
 *   - at no instant do two claims of one key count as valid by the clocks of
 *     their clients (LK-25, LK-26);
 *   - the token of each valid grant is larger than those before it;
 *   - every majority of masters that are awake names the valid holder, or is
 *     undecided, which only five masters can be;
 *   - no majority names a claim whose END a majority has confirmed, while no
 *     master restarts (LK-24);
 *   - a read returns the claim that is valid all the time, with a value that is
 *     not older than the last update that succeeded before; it returns no claim
 *     that has ended before (LK-18);
 *   - an update that succeeded has replaced the expected value (LK-04);
 *   - without faults, a claim that is queued is granted before a claim that
 *     comes later;
 *   - when no faults happen any more, every key can be acquired, and no vote
 *     and no waiter is left behind (LK-08). */
#ifndef HF_TESTS_QUORUM_CHECKS_H
#define HF_TESTS_QUORUM_CHECKS_H

#include "core/quorum/verdict.h"
#include "quorum/apps.h"

/* The application was granted its key, or has renewed it. */
void sim_check_granted(struct sim_apps *apps, const struct sim_app *app);
void sim_check_renewed(struct sim_apps *apps, const struct sim_app *app);

/* A majority has confirmed the END of its claim. */
void sim_check_ended(struct sim_apps *apps, const struct sim_app *app);

/* The application that holds `key` by the clock of its client, or NULL. */
const struct sim_app *sim_valid_holder(const struct sim_apps *apps,
                                       unsigned key);

/* A read has this result. */
void sim_check_read(const struct sim_reader *reader,
                    const struct hf_verdict *verdict);

/* Let the masters of the quorum be checked after each request. */
void sim_check_masters(struct sim_apps *apps);

/* No lease, vote or waiter is left. */
void sim_check_nothing_is_left(const struct sim_quorum *quorum);

#endif
