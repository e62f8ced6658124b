/* failure.h - what is told, and what status is returned, when things go wrong.
 *
 * Every failure is told once: as a line on stderr, or with --json as one object
 *
 *     {"error":{"code":-3,"name":"HF_EBUSY","message":"..."}}
 *
 * on stdout; on stderr where stdout is the command's, as under `run`. */
#ifndef CLI_FAILURE_H
#define CLI_FAILURE_H

#include <holdfast.h>

#include "args.h"

/* Numbers of sysexits.h, and two past its end. What is not in the list is the
 * command's own, or 128 + the signal that ended it. */
enum status {
    STATUS_OK = 0,
    STATUS_USAGE = 64,
    STATUS_MISMATCH = 65,    /* the value is not the expected one */
    STATUS_UNAVAILABLE = 69, /* nothing was reached that could decide */
    STATUS_SOFTWARE = 70,
    STATUS_SYSTEM = 71,
    STATUS_OUTPUT = 74,
    STATUS_BUSY = 75,
    STATUS_NOT_HOLDER = 77,
    STATUS_LOST = 79,
    STATUS_IN_DOUBT = 80, /* never told as 69: it may have been done */
    STATUS_NOT_EXECUTABLE = 126,
    STATUS_NOT_FOUND = 127,
    STATUS_SIGNAL = 128, /* plus its number */
};

/* Tell a failure of `err`; returns its status. */
int failure(const struct args *args, enum hf_err err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a bad command line: status 64. */
int failure_usage(const struct args *args, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same about `key`, in the words of `error` where there are any. */
int failure_about(const struct args *args, struct hf_key key, enum hf_err err,
                  const struct hf_error *error);

/* The same of a call on `lock`, which has the words. */
int failure_of(const struct args *args, const struct hf_lock *lock,
               enum hf_err err);

/* Tell, on stderr, what does not change the status. */
void failure_warn(const struct args *args, enum hf_err err, const char *format,
                  ...) __attribute__((format(printf, 3, 4)));

/* With -v: tell on stderr what is going on. Nonces are never told. */
void failure_trace(const struct args *args, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The status of `err`, untold. It is never 0 for a failure: what -E says is for
 * those to return that wait for a key, and for nobody to go on by. */
int failure_status(enum hf_err err);

/* Write out what stdout still holds. Status 74, told once, if that fails, for
 * a full disk is no success; else `status`. */
int failure_flush(const struct args *args, int status);

__attribute__((noreturn)) void failure_no_memory(void);

#endif
