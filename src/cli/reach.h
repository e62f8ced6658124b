/* reach.h - open the store, and retry for as long as --wait allows.
 *
 * Only HF_EUNAVAIL is retried: a bad URL or a refused password is reported at
 * once. Without --wait, and with --no-wait, there is one attempt. */
#ifndef CLI_REACH_H
#define CLI_REACH_H

#include "args.h"
#include "loop.h"

struct reach {
    const struct args *args;
    const char *owner; /* that others see for its locks; NULL: this process */
    struct loop *loop; /* NULL: signals have their default action */
    bool inherit;      /* as in struct hf_client_opts */

    /* Results: */
    char *url; /* to be freed with url_free() */
    struct hf_client *client;
    int signal; /* that ended the attempt, or 0 */

    /* State of the last attempt: */
    struct hf_error error;
    enum hf_err err;
    bool answered;
};

/* Open the store that `args` names. True: reach->client is open; with a loop,
 * the caller drives it. False: either reach->signal is set, and the caller
 * should die of it, or the failure was reported and `*status` is the exit
 * status. */
bool reach_store(struct reach *reach, int *status);

#endif
