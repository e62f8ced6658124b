/* failure.h - error messages and exit statuses.
 *
 * Each failure is reported once: as a line on stderr, or with --json as
 *
 *     {"error":{"code":-3,"name":"HF_EBUSY","message":"..."}}
 *
 * on stdout. `run` leaves stdout to its command and reports on stderr. */
#ifndef CLI_FAILURE_H
#define CLI_FAILURE_H

#include <holdfast.h>

#include "args.h"

/* Exit statuses: 64 to 78 have the meanings of sysexits.h, 1, 79 and 80 are our
 * own, and 126 to 128 are used as by a shell. Any other status is that of the
 * command of `run`, or the one that -E sets. */
enum status {
    STATUS_OK = 0,
    STATUS_VIOLATION = 1, /* `torture`: the store broke a promise */
    STATUS_USAGE = 64,
    STATUS_MISMATCH = 65,    /* the stored value is not that of --expect */
    STATUS_UNAVAILABLE = 69, /* the store cannot be reached or used */
    STATUS_SOFTWARE = 70,
    STATUS_SYSTEM = 71,
    STATUS_OUTPUT = 74,
    STATUS_BUSY = 75,
    STATUS_NOT_HOLDER = 77,
    STATUS_LOST = 79,
    STATUS_IN_DOUBT = 80, /* answer lost; the operation may have been done */
    STATUS_NOT_EXECUTABLE = 126,
    STATUS_NOT_FOUND = 127,
    STATUS_SIGNAL = 128, /* 128 + n: the command was ended by signal n */
};

/* Report `err` with a message; with --quiet, HF_EBUSY and HF_ETIMEDOUT are not
 * reported. Returns the exit status for `err`. */
int failure(const struct args *args, enum hf_err err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Report a wrong command line. Returns 64. */
int failure_usage(const struct args *args, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Report that an operation on `key` failed with `err`. The message is
 * error->text if `error` belongs to `err`. Returns the exit status. */
int failure_on_key(const struct args *args, struct hf_key key, enum hf_err err,
                   const struct hf_error *error);

/* Report that a call on `lock` failed with `err`, with the message of
 * hf_lock_error(). Returns the exit status. */
int failure_on_lock(const struct args *args, const struct hf_lock *lock,
                    enum hf_err err);

/* Report on stderr a problem that does not change the exit status. */
void failure_warn(const struct args *args, enum hf_err err, const char *format,
                  ...) __attribute__((format(printf, 3, 4)));

/* With -v, report progress on stderr. Never pass a nonce, which is a secret. */
void failure_trace(const struct args *args, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The exit status of `err`, without a report. It is never 0 for a failure: only
 * verbs that wait for a key return the status of -E, which may be 0. */
int failure_status(enum hf_err err);

/* Flush stdout. If that fails, for example because the disk is full, report it
 * once and return 74; else return `status`. */
int failure_flush(const struct args *args, int status);

/* Report that memory is exhausted, and exit with 71. */
__attribute__((noreturn)) void failure_no_memory(void);

#endif
