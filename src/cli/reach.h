/* reach.h - open the store, and retry for as long as --wait allows.
 *
 * Only HF_EUNAVAIL is retried: a bad URL or a refused password is reported at
 * once. Without --wait, or if it is 0, there is one attempt. */
#ifndef CLI_REACH_H
#define CLI_REACH_H

#include "args.h"
#include "loop.h"

struct reach {
    const struct args *args;
    const char *owner; /* shown as the owner of locks; NULL: this process */
    struct loop *loop; /* if NULL, signals have their default action */
    bool inherit;      /* the option of that name in hf_client_opts */

    /* Results: */
    char *url; /* the URL of the store, to be freed with url_free() */
    struct hf_client *client;
    int signal; /* the signal that ended the attempt, or 0 */

    /* State of the last attempt: */
    struct hf_error error;
    enum hf_err err;
    bool answered;
};

/* Open the store that `args` names. Returns true if reach->client is open; with
 * a loop, the caller drives the client. Otherwise returns false:
 *   - if reach->signal is set, the caller should die of that signal;
 *   - if not, the error was printed, and `*status` is the exit status. */
bool reach_store(struct reach *reach, int *status);

#endif
