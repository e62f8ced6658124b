/* encoder.h - write a history to a file (format.md). */
#ifndef HF_CHECK_TOOL_ENCODER_H
#define HF_CHECK_TOOL_ENCODER_H

#include "history.h"

#include <stdio.h>

#define HF_ENCODER_LINE_MAX 24576 /* bytes of a line */

/* Encode one line, with its newline and a terminating zero. `text` has room for
 * HF_ENCODER_LINE_MAX bytes. Returns the length. */
size_t hf_encoder_put_header(const struct hf_check_history *h, char *text);
size_t hf_encoder_put_op(const struct hf_check_history *h,
                         const struct hf_op *op, char *text);
size_t hf_encoder_put_death(const struct hf_op_death *death, char *text);
size_t hf_encoder_put_lost(const struct hf_check_history *h,
                           const struct hf_op_lost *lost, char *text);
size_t hf_encoder_put_note(const struct hf_check_history *h,
                           const struct hf_op_note *note, char *text);

/* Write all of `h`. Returns 0, or -1 with errno. */
int hf_encoder_write(const struct hf_check_history *h, FILE *out);

/* Write `string` as a quoted JSON string to `text`, which has room for
 * 6 * HF_OP_TEXT_MAX + 3 bytes. Every byte outside of printable ASCII becomes
 * \u00XX, so different strings never look alike. Returns the length. */
size_t hf_encoder_quote(const struct hf_check_history *h, uint32_t string,
                        char *text);

#endif
