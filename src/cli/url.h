/* url.h - the URL of the store, from the command line or the environment.
 *
 * A URL may contain a password: url_free() wipes a URL before it frees it, and
 * url_hide_password() masks the password for output. */
#ifndef CLI_URL_H
#define CLI_URL_H

#include "args.h"

/* A copy of the URL in --url, else in HOLDFAST_URL, else "file:"; the caller
 * frees it with url_free(). The password in argv is overwritten, because every
 * user can read argv. Returns NULL if the URL is refused; the error is
 * reported, and `*status` is the exit status. */
char *url_take(const struct args *args, int *status);
void url_free(char *url);

/* The URL that url_take() copies, borrowed. It is not checked, and may contain
 * a password. */
const char *url_find(const struct args *args);

/* Where url_take() finds the URL: "--url", "HOLDFAST_URL" or "the default". */
const char *url_source(const struct args *args);

/* Overwrite passwords in `url` with asterisks. */
void url_hide_password(char *url);

/* Set HOLDFAST_URL to `url`. A relative path in a file: URL is made absolute,
 * so that the URL names the same store after the command has changed its
 * directory. Returns false if memory is exhausted. */
bool url_export(const char *url);

#endif
