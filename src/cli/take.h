/* take.h - acquire a lock, and show its holder on the terminal during the
 * wait. */
#ifndef CLI_TAKE_H
#define CLI_TAKE_H

#include "args.h"
#include "loop.h"
#include "progress.h"

/* The state of the renewals of a lock, as reported with -v. */
enum take_danger {
    TAKE_SAFE,
    TAKE_FAILING, /* a renewal has failed or is overdue, and is retried */
    TAKE_AT_RISK, /* at most half the ttl is left, or the lock is broken */
};

/* Callbacks keep the address of this struct, so it must not move until the
 * client is closed. */
struct take {
    const struct args *args;
    struct loop *loop;
    struct hf_client *client;
    struct hf_lock *lock; /* the handle, freed by take_fini(); may be NULL */
    struct progress progress;
    int64_t show_at;         /* when to read and show the holder */
    struct hf_info info;     /* the holder, as last read */
    bool reading;            /* a read of the holder is pending */
    uint32_t position;       /* position in the queue that was last reported */
    uint64_t holder;         /* token of the holder that was last reported */
    enum take_danger danger; /* state of the renewals at the last check */
    bool answered;           /* the claim is granted or refused; `err` is set */
    enum hf_err err;
    int signal; /* the signal that ended the wait, or 0 */
};

/* Take the lock on the key in `args`, and fill `take`.
 *
 *   renew   renew the lock until it is released
 *
 * Returns true if the lock is held. Returns false if take->signal is set, and
 * the caller should die of that signal once the client is closed, or if the
 * failure was reported, and `*status` is the exit status, which -E may have set
 * to 0. */
bool take_lock(struct take *take, const struct args *args, struct loop *loop,
               struct hf_client *client, bool renew, int *status);

/* With -v, report a change in the state of the renewals: renewals fail, the
 * lock is at risk, or the lock was renewed again. Call it after each
 * loop_sleep(). */
void take_report_renewal(struct take *take);

/* When to call take_report_renewal() at the latest; or LOOP_NEVER. */
int64_t take_report_at(const struct take *take);

/* Free the members. Call it after the client is closed. */
void take_fini(struct take *take);

#endif
