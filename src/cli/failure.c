#include "failure.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json.h"
#include "text.h"

int failure_status(enum hf_err err)
{
    switch (err) {
    case HF_OK:
        return STATUS_OK;
    case HF_EINVAL:
    case HF_EUNSUPPORTED:
        return STATUS_USAGE;
    case HF_EBUSY:
    case HF_ETIMEDOUT:
        return STATUS_BUSY;
    case HF_ENOTOWNER:
    case HF_ENOTHELD:
    case HF_EEXPIRED:
    case HF_EFORCED:
    case HF_EDENIED:
        return STATUS_NOT_HOLDER;
    case HF_EMISMATCH:
        return STATUS_MISMATCH;
    case HF_EINDOUBT:
        return STATUS_IN_DOUBT;
    case HF_ENOMEM:
        return STATUS_SYSTEM;
    case HF_ECANCELED:
    case HF_ECLOSED:
    case HF_ESTATE:
    case HF_EDEADLK:
    case HF_EFORK:
        return STATUS_SOFTWARE;
    case HF_EUNAVAIL:
    case HF_ELIMIT:
    case HF_EPROTO:
    case HF_ESYSTEM:
    case HF_EINTR:
        return STATUS_UNAVAILABLE;
    }
    return STATUS_UNAVAILABLE; /* an unknown error code, from a newer library */
}

static void write_json_message(FILE *out, const char *kind, enum hf_err err,
                               const char *message)
{
    struct json json;

    json_open(&json, out);
    json_begin(&json, kind);
    if (err) {
        json_signed(&json, "code", err);
        json_text(&json, "name", hf_err_name(err));
    }
    json_text(&json, "message", message);
    json_end(&json);
    json_close(&json);
}

static void write_message(const struct args *args, FILE *out, const char *kind,
                          enum hf_err err, const char *format, va_list list)
{
    char *message;

    if (vasprintf(&message, format, list) < 0)
        failure_no_memory();
    if (args->json)
        write_json_message(out, kind, err, message);
    else
        (void)fprintf(stderr, "holdfast: %s\n", message);
    (void)fflush(stderr);
    free(message);
}

/* With --json, errors go to stdout, except that `run` leaves stdout to its
 * command. */
static FILE *error_stream(const struct args *args)
{
    return args->verb && args->verb->command ? stderr : stdout;
}

int failure(const struct args *args, enum hf_err err, const char *format, ...)
{
    bool busy = err == HF_EBUSY || err == HF_ETIMEDOUT;
    va_list list;

    if (!busy || !args->quiet) {
        va_start(list, format);
        write_message(args, error_stream(args), "error", err, format, list);
        va_end(list);
    }
    return failure_status(err);
}

int failure_usage(const struct args *args, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    write_message(args, error_stream(args), "error", HF_EINVAL, format, list);
    va_end(list);
    if (!args->json)
        (void)fprintf(stderr, "Try 'holdfast help%s%s'.\n",
                      args->verb ? " " : "",
                      args->verb ? args->verb->name : "");
    return STATUS_USAGE;
}

int failure_on_key(const struct args *args, struct hf_key key, enum hf_err err,
                   const struct hf_error *error)
{
    bool has_text = error && error->code == err && error->text[0] != '\0';
    char *word = text_quote(key.data, key.size);
    int status = failure(args, err, "%s: %s", word,
                         has_text ? error->text : hf_err_text(err));

    free(word);
    return status;
}

int failure_on_lock(const struct args *args, const struct hf_lock *lock,
                    enum hf_err err)
{
    struct hf_error error;

    hf_lock_error(lock, &error);
    return failure_on_key(args, args_key(args), err, &error);
}

void failure_warn(const struct args *args, enum hf_err err, const char *format,
                  ...)
{
    va_list list;

    va_start(list, format);
    write_message(args, stderr, "warning", err, format, list);
    va_end(list);
}

void failure_trace(const struct args *args, const char *format, ...)
{
    va_list list;

    if (!args->verbose)
        return;
    va_start(list, format);
    write_message(args, stderr, "info", HF_OK, format, list);
    va_end(list);
}

int failure_flush(const struct args *args, int status)
{
    if (status == STATUS_OUTPUT || (!fflush(stdout) && !ferror(stdout)))
        return status;
    failure_warn(args, HF_ESYSTEM, "cannot write the output: %s",
                 strerror(errno));
    return STATUS_OUTPUT;
}

void failure_no_memory(void)
{
    static const char message[] = "holdfast: out of memory\n";

    (void)!write(STDERR_FILENO, message, sizeof(message) - 1);
    _exit(STATUS_SYSTEM);
}
