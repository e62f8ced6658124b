/* code.h - errors of the client protocol.
 *
 * An error is a code and a text. The code is the name of an hf_err without
 * "HF_E". Two codes have no hf_err of their own: GONE (the session of an ATTACH
 * does not exist) is read as HF_ESTATE, and NOSPACE (a disk is full) as
 * HF_ELIMIT. struct hf_mux_reply has a flag for each of them. */
#ifndef HF_WIRE_CODE_H
#define HF_WIRE_CODE_H

#include "wire/resp.h"

#define HF_CODE_GONE "GONE"
#define HF_CODE_NOSPACE "NOSPACE"

const char *hf_code_name(enum hf_err err);

/* The hf_err of a code; HF_EPROTO if the code is unknown. */
enum hf_err hf_code_find(struct hf_bytes code);

/* Returns true if `value` is an error with this code. */
bool hf_code_is(const struct hf_resp_value *value, const char *code);

/* Write the error reply "-CODE text". If `text` is NULL, it is
 * hf_err_text(err). */
void hf_code_write(struct hf_buf *buf, enum hf_err err, const char *text);

/* Read an error value: returns its code and sets `*text`, which points into the
 * value. Returns HF_EPROTO and no text if the value is not an error. */
enum hf_err hf_code_read(const struct hf_resp_value *value,
                         struct hf_bytes *text);

#endif
