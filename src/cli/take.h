/* take.h - take a lock, and show on a terminal what it waits for. */
#ifndef CLI_TAKE_H
#define CLI_TAKE_H

#include "args.h"
#include "loop.h"
#include "progress.h"

/* What is known of the renewals of a lock, as reported with -v. */
enum take_danger {
    TAKE_SAFE,
    TAKE_FAILING, /* the last renewal has failed, and is retried */
    TAKE_AT_RISK, /* half of the ttl has passed, or the lock was broken */
};

/* Callbacks have its address: it must not move until the client is closed. */
struct take {
    const struct args *args;
    struct loop *loop;
    struct hf_client *client;
    struct hf_lock *lock; /* the caller's to free, whatever the status */
    struct progress progress;
    int64_t show_at;
    struct hf_info info; /* the holder, as last read */
    bool reading;
    uint32_t position; /* in the queue, as last reported with -v */
    uint64_t holder;   /* token of the holder that was last reported with -v */
    enum take_danger danger; /* as last reported with -v */
    bool answered;
    enum hf_err err;
    int signal; /* that ended the wait, or 0 */
};

/* Take the lock on the key in `args`, and fill `take`.
 *
 *   renew   renew it until it is given back
 *
 * True if it is held. False: either take->signal is set, and the caller should
 * die of it once the client is closed, or the failure was reported and `*status`
 * is the exit status, which -E may have set to 0. */
bool take_lock(struct take *take, const struct args *args, struct loop *loop,
               struct hf_client *client, bool renew, int *status);

/* With -v: report that renewals fail, that the lock is at risk, or that it is
 * renewed again, if that has changed. Call it after each loop_sleep(). */
void take_report_renewal(struct take *take);

/* When to call it at the latest, even if nothing happens; or LOOP_NEVER. */
int64_t take_report_at(const struct take *take);

/* Free its members. Call it after the client is closed. */
void take_fini(struct take *take);

#endif
