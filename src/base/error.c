#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    enum hf_err code;
    const char *name;
    const char *text;
} errors[] = {{HF_OK, "HF_OK", "done"},
#define ROW(name, value, text) {HF_##name, "HF_" #name, text},
              HF_ERRORS(ROW)
#undef ROW
};
#define ERROR_COUNT (sizeof(errors) / sizeof(errors[0]))

static size_t find_error(enum hf_err err)
{
    size_t i = 0;

    while (i < ERROR_COUNT && errors[i].code != err)
        i++;
    return i;
}

bool hf_err_is_known(enum hf_err err)
{
    return find_error(err) < ERROR_COUNT;
}

const char *hf_err_name(enum hf_err err)
{
    size_t i = find_error(err);

    return i < ERROR_COUNT ? errors[i].name : "HF_E?";
}

const char *hf_err_text(enum hf_err err)
{
    size_t i = find_error(err);

    return i < ERROR_COUNT ? errors[i].text : "no such error";
}

enum hf_err hf_error_set(struct hf_error *error, enum hf_err code,
                         const char *format, ...)
{
    va_list args;

    if (!error)
        return code;
    error->code = code;
    va_start(args, format);
    (void)vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    memset(error->reserved, 0, sizeof(error->reserved));
    return code;
}
