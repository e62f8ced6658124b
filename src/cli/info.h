/* info.h - print the state of a key, as text or as JSON. The nonce is never
 * printed. */
#ifndef CLI_INFO_H
#define CLI_INFO_H

#include "args.h"

/* Print one object with the members key, held, forced, token, owner, note,
 * held_ms, left_ms, waiters, value, index. */
void info_json(const struct hf_info *info);

/* Print one line for each property: "token    17". */
void info_text(const struct hf_info *info);

/* Format "nightly is held by report[12]@web for 2m 3s, token 7 (every night)",
 * or "nightly is free". The caller frees the text. */
char *info_holder(const struct hf_info *info);

/* Report that `key` stayed busy, and its holder if that can be read, unless
 * --quiet is given. Returns args->busy_status, which may be 0 (-E 0). */
int info_busy(const struct args *args, struct hf_client *client,
              struct hf_key key, enum hf_err err);

#endif
