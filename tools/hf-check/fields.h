/* fields.h - parse one line of a history file into fields.
 *
 * A line is a flat JSON object. An unknown field name is an error, unless it
 * begins with "x_": a misspelt "deadline" would otherwise silently disable a
 * check.
 *
 * Any input is safe: the parser never reads beyond the line, and every string
 * has a limit. */
#ifndef HF_CHECK_TOOL_FIELDS_H
#define HF_CHECK_TOOL_FIELDS_H

#include "decoder.h"

enum hf_field_name {
    HF_FIELD_TYPE,
    HF_FIELD_CLIENT,
    HF_FIELD_OP,
    HF_FIELD_KIND,
    HF_FIELD_KEY,
    HF_FIELD_NONCE,
    HF_FIELD_TOKEN,
    HF_FIELD_CELL,
    HF_FIELD_VALUE,
    HF_FIELD_FENCED,
    HF_FIELD_INVOKE,
    HF_FIELD_QUEUED,
    HF_FIELD_RETURN,
    HF_FIELD_RESULT,
    HF_FIELD_ERROR,
    HF_FIELD_DEADLINE,
    HF_FIELD_LEASE,
    HF_FIELD_TIME,
    HF_FIELD_TEXT,
    HF_FIELD_VERSION,
    HF_FIELD_FIFO,
    HF_FIELDS
};

enum hf_field_type {
    HF_FIELD_TYPE_NUMBER,
    HF_FIELD_TYPE_TEXT,
    HF_FIELD_TYPE_FLAG
};

struct hf_field {
    enum hf_field_type type;
    uint64_t number;  /* for a flag, 0 or 1 */
    const char *text; /* borrowed from the line, or from `unescaped` */
    size_t len;
};

#define HF_FIELD_BIT(name) (1u << (name))

struct hf_fields {
    struct hf_check_fault *fault; /* where to report an error */
    size_t line;                  /* number of the line */
    unsigned given; /* HF_FIELD_BIT() of the fields on this line */
    struct hf_field values[HF_FIELDS]; /* of the given fields */
    const char *at, *end;              /* what is left of the line */
    enum hf_field_name next; /* a guess: the field that usually follows */
    char unescaped[HF_FIELDS + 1][HF_OP_TEXT_MAX];
};

/* Parse the line from `at` to `end`, without its newline. Returns 0, or -1 and
 * the fault. The fields are valid until the next call, and as long as the line
 * is. */
int hf_fields_read(struct hf_fields *f, const char *at, const char *end);

/* Check that all `wanted` fields are given, and no others except `allowed`
 * ones. Both are sets of HF_FIELD_BIT(). Also check the ranges of client and
 * time. Returns 0, or -1 and the fault. */
int hf_fields_demand(struct hf_fields *f, unsigned wanted, unsigned allowed);

bool hf_fields_given(const struct hf_fields *f, enum hf_field_name name);

/* Return the number of a field, or `otherwise` if it is not given. */
uint64_t hf_fields_number(const struct hf_fields *f, enum hf_field_name name,
                          uint64_t otherwise);

/* Returns true if a field has this text. The field must be given. */
bool hf_fields_is(const struct hf_fields *f, enum hf_field_name name,
                  const char *text);

/* Return the value of a hexadecimal digit, or -1. */
int hf_fields_hex_digit(char c);

/* Report an error in this line. Returns -1. */
__attribute__((format(printf, 2, 3))) int hf_fields_fail(struct hf_fields *f,
                                                         const char *format,
                                                         ...);

#endif
