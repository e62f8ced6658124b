/* take.h - take a lock, telling a terminal who has it meanwhile. */
#ifndef CLI_TAKE_H
#define CLI_TAKE_H

#include "args.h"
#include "line.h"
#include "loop.h"

/* It must stay in place until the client is closed. */
struct take {
    const struct args *args;
    struct loop *loop;
    struct hf_client *client;
    struct hf_lock *lock; /* the caller's to free, whatever the status */
    struct line line;
    int64_t show_at;
    struct hf_info info; /* who has it, as last read */
    bool reading;
    uint32_t position; /* as last reported with -v */
    uint64_t holder;   /* its token, likewise */
    bool at_risk;      /* reported with -v, and not renewed since */
    bool answered;
    enum hf_err err;
    int signal; /* that ended the wait, or 0 */
};

/* Take the lock on the first word, as the options say, and fill `take`.
 *
 *   renew   keep it until it is given back
 *
 * True if it is held. Otherwise `*status` is what to end with, told, and may
 * be 0; or, where take->signal is set, that is what to die of once the client
 * is closed. */
bool take_lock(struct take *take, const struct args *args, struct loop *loop,
               struct hf_client *client, bool renew, int *status);

/* With -v: report that the lock is renewed again after it was at risk. */
void take_report_renewal(struct take *take);

/* Free what it holds, after the client is closed. */
void take_fini(struct take *take);

#endif
