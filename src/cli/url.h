/* url.h - which store the command line and the environment name.
 *
 * A URL may have a password: what is returned here is wiped when it is freed,
 * and what is shown has stars in its place. */
#ifndef CLI_URL_H
#define CLI_URL_H

#include "args.h"

/* A copy of the URL in --url, else in HOLDFAST_URL, else "file:", to be freed
 * with url_free(). The password in the command line is overwritten, because
 * everyone can read that. NULL if it is refused: `*status` is what to end with,
 * reported. */
char *url_take(const struct args *args, int *status);
void url_free(char *url);

/* The URL itself, which nobody has checked and which may have a password. */
const char *url_find(const struct args *args);

/* Where url_take() finds it: "--url", "HOLDFAST_URL" or "the default". */
const char *url_source(const struct args *args);

/* Overwrite the password in `url`, if there is one. */
void url_hide_password(char *url);

/* Set HOLDFAST_URL to `url`, so that a command in any directory means the same
 * store. False: out of memory. */
bool url_export(const char *url);

#endif
