/* error.h - error messages. The error codes are in holdfast.h. */
#ifndef HF_BASE_ERROR_H
#define HF_BASE_ERROR_H

#include "holdfast.h"

/* Set `*error` to `code` and a formatted text; `error` may be NULL. Returns
 * `code`, so that a caller can write: return hf_error_set(error, ...). */
enum hf_err hf_error_set(struct hf_error *error, enum hf_err code,
                         const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns true if `err` is HF_OK or a code of HF_ERRORS. */
bool hf_err_is_known(enum hf_err err);

/* Like hf_error_set(), with hf_err_text(code) as the text. Inline, so that
 * static analysis sees that the result is `code`. */
static inline enum hf_err hf_error_set_code(struct hf_error *error,
                                            enum hf_err code)
{
    (void)hf_error_set(error, code, "%s", hf_err_text(code));
    return code;
}

#endif
