/* fields.h - one line of a written history, as fields.
 *
 * A line is a flat JSON object, so there is nothing to recurse into. All names
 * are known beforehand, and one that is not is a fault: a misspelt "deadline"
 * would otherwise turn a check off without a word.
 *
 * Survives any input: what is read is inside of the line, and every text has a
 * limit. */
#ifndef CHECKER_FIELDS_H
#define CHECKER_FIELDS_H

#include "history.h"

enum field_name {
    F_TYPE,
    F_CLIENT,
    F_OP,
    F_KIND,
    F_KEY,
    F_NONCE,
    F_TOKEN,
    F_CELL,
    F_VALUE,
    F_FENCED,
    F_INVOKE,
    F_QUEUED,
    F_RETURN,
    F_RESULT,
    F_ERROR,
    F_DEADLINE,
    F_LEASE,
    F_TIME,
    F_TEXT,
    F_VERSION,
    F_FIFO,
    FIELDS
};

enum field_type {
    FIELD_NUMBER,
    FIELD_TEXT,
    FIELD_FLAG
};

struct field {
    enum field_type type;
    uint64_t number;  /* of a flag 0 or 1 */
    const char *text; /* borrowed from the line, or from `unescaped` */
    size_t len;
};

#define FIELD_BIT(name) (1u << (name))

struct fields {
    struct history_fault *fault; /* where to tell what is wrong */
    size_t line;                 /* its number */
    unsigned given;              /* FIELD_BIT() of those on this line */
    struct field values[FIELDS]; /* of these */
    const char *at, *end;        /* what is left of the line */
    enum field_name next;        /* the one that writers put next, as a guess */
    char unescaped[FIELDS + 1][HISTORY_TEXT_MAX];
};

/* Read the line from `at` to `end`, without its newline. 0, or -1 and the
 * fault. The fields are good until the next call or the end of the line. */
int fields_read(struct fields *f, const char *at, const char *end);

/* Whether there are all the `wanted` and no others than the `allowed`: sets of
 * FIELD_BIT(). 0, or -1 and the fault. */
int fields_demand(struct fields *f, unsigned wanted, unsigned allowed);

bool fields_given(const struct fields *f, enum field_name name);

/* The number of a field, or `otherwise` if it is not given. */
uint64_t fields_number(const struct fields *f, enum field_name name,
                       uint64_t otherwise);

/* Whether a field that is given has this text. */
bool fields_is(const struct fields *f, enum field_name name, const char *text);

/* The value of a hexadecimal digit, or -1. */
int fields_hex_digit(char c);

/* Tell what is wrong with this line. Returns -1. */
__attribute__((format(printf, 2, 3))) int fields_fail(struct fields *f,
                                                      const char *format, ...);

#endif
