/* info.h - who holds a key, as text and as JSON. Nonces are not in it. */
#ifndef CLI_INFO_H
#define CLI_INFO_H

#include "args.h"

/* One object: key, held, forced, token, owner, note, held_ms, left_ms, waiters,
 * value, index. */
void info_json(const struct hf_info *info);

/* A word or two a line. */
void info_text(const struct hf_info *info);

/* "nightly is held by report[12]@web for 2m 3s, token 7 (every night)"; the
 * caller's to free. */
char *info_holder(const struct hf_info *info);

/* Tell that `key` stays busy, and who holds it, if that can be read. Returns
 * the status, which may be 0: -E says so. */
int info_busy(const struct args *args, struct hf_client *client,
              struct hf_key key, enum hf_err err);

#endif
