/* op.h - one operation of a client on a lock service, and its outcome.
 *
 * All instants are nanoseconds of one clock. HF_OP_NEVER stands for an instant
 * that is not given: no return, no deadline, never queued. It is the largest
 * number, so "later than any other" needs no special case.
 *
 * Keys, nonces, cells and error names are numbers of interned strings
 * (intern.h); 0 means "not given". */
#ifndef HF_CHECK_TOOL_OP_H
#define HF_CHECK_TOOL_OP_H

#include "intern.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HF_OP_NEVER UINT64_MAX
#define HF_OP_TIME_MAX ((uint64_t)INT64_MAX)
#define HF_OP_TEXT_MAX 1024 /* bytes of a key, a cell, a note, ... */
#define HF_OP_NONCE_MAX 64  /* hexadecimal digits */

enum hf_op_kind {
    HF_OP_LOCK,
    HF_OP_UNLOCK,
    HF_OP_RENEW,
    HF_OP_UPDATE,
    HF_OP_READ,
    HF_OP_WRITE,
    HF_OP_FORCE,
    HF_OP_KINDS
};

/* Unknown is 0, so an operation without a recorded end is unknown. */
enum hf_op_result {
    HF_OP_UNKNOWN,
    HF_OP_OK,
    HF_OP_FAIL,
    HF_OP_RESULTS
};

/* What a failure implies about the key. */
enum hf_op_error {
    HF_OP_ERROR_NONE,
    HF_OP_ERROR_BUSY,  /* HF_EBUSY: another client holds the key */
    HF_OP_ERROR_ENDED, /* HF_EEXPIRED, HF_ENOTOWNER, HF_ENOTHELD */
    HF_OP_ERROR_OTHER  /* nothing: the operation had no effect */
};

struct hf_op {
    uint64_t id; /* unique among the operations of its client */
    uint64_t invoke;
    uint64_t answer;   /* "return" in a file */
    uint64_t token;    /* 0 if not given */
    uint64_t deadline; /* end of the validity that the operation confirmed */
    uint64_t queued;   /* when the caller learned that it waits */
    uint64_t lease;    /* minimum time that the server keeps the grant; or 0 */
    uint64_t value;    /* of a write */
    uint32_t client;
    uint32_t key, nonce, cell, error_name; /* interned strings */
    uint8_t kind, result, error;           /* enums above */
    bool answered;                         /* a result was recorded */
    bool fenced; /* for a write: the cell compares tokens */
};

/* Return an operation with these fields; all others are "not given". */
struct hf_op hf_op_make(enum hf_op_kind kind, uint32_t client, uint64_t invoke);

/* Set error and error_name from a name such as "HF_EBUSY". */
void hf_op_set_error(struct hf_op *op, struct hf_intern *strings,
                     const char *name, size_t len);

/* Return why no history can contain `op`, or NULL if one can. */
const char *hf_op_fault(const struct hf_op *op);

const char *hf_op_kind_name(enum hf_op_kind kind);
const char *hf_op_result_name(enum hf_op_result result);

#endif
