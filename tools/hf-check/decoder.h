/* decoder.h - read a history from a file (format.md). */
#ifndef HF_CHECK_TOOL_DECODER_H
#define HF_CHECK_TOOL_DECODER_H

#include "history.h"

#include <stdio.h>

/* The first error in a file. */
struct hf_check_fault {
    size_t line; /* from 1; 0 if the fault is not in one line */
    char text[160];
};

/* Append the operations and events in `in` to `h`, which must be initialized.
 * Returns 0, or -1 and `*fault`; then `h` has what precedes the fault. Any
 * input is safe to read. */
int hf_decoder_read(struct hf_check_history *h, FILE *in,
                    struct hf_check_fault *fault);

#endif
