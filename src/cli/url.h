/* url.h - the URL of the store, from the command line or the environment.
 *
 * A URL may have a password in it: url_free() wipes a URL before it frees it, and
 * url_hide_password() makes one fit to be shown. */
#ifndef CLI_URL_H
#define CLI_URL_H

#include "args.h"

/* A copy of the URL in --url, else in HOLDFAST_URL, else "file:", to be freed
 * with url_free(). A password in argv is overwritten, because every user can
 * read that. NULL: the URL is refused; this was reported, and `*status` is the
 * exit status. */
char *url_take(const struct args *args, int *status);
void url_free(char *url);

/* The URL itself, borrowed: unchecked, and with its password. */
const char *url_find(const struct args *args);

/* Where url_take() finds it: "--url", "HOLDFAST_URL" or "the default". */
const char *url_source(const struct args *args);

/* Overwrite the password in `url`, if there is one, with asterisks. */
void url_hide_password(char *url);

/* Set HOLDFAST_URL to `url`, with an absolute path, so that it names the same
 * store after a change of directory. False: out of memory. */
bool url_export(const char *url);

#endif
