/* reach.h - open the store, for as long as --wait allows.
 *
 * A store that is not reached is tried again until the wait is over; without
 * --wait, and with --no-wait, it is tried once. Bad input and a refused password
 * end it at once. */
#ifndef CLI_REACH_H
#define CLI_REACH_H

#include "args.h"
#include "loop.h"

struct reach {
    const struct args *args;
    const char *owner; /* shown at its locks; NULL: this process */
    struct loop *loop; /* NULL: signals have their usual effect */
    bool inherit;      /* as in struct hf_client_opts */

    /* Filled: */
    char *url; /* to be freed with url_free(); NULL if none was chosen */
    struct hf_client *client;
    int signal; /* that ended the attempt, or 0 */

    struct hf_error error; /* of the last attempt */
    enum hf_err err;
    bool answered;
};

/* Open the store that the arguments name. True: reach->client is open, and with
 * a loop it is the caller's to drive. Otherwise `*status` is what to end with,
 * reported; or, where reach->signal is set, that is what to die of. */
bool reach_store(struct reach *reach, int *status);

#endif
