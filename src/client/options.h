/* options.h - checks arguments and options, and fills in defaults. */
#ifndef HF_CLIENT_OPTIONS_H
#define HF_CLIENT_OPTIONS_H

#include "base/error.h"

/* Copy `opts` to `to`, fill in the defaults and check the result. If `opts` is
 * NULL, `to` is set to the defaults; those of a lock can be changed with
 * hf_lock_opts_set_default().
 *
 * HF_EINVAL        the text names the option
 * HF_EUNSUPPORTED  an option is set that this version does not know */
enum hf_err hf_options_lock(struct hf_lock_opts *to,
                            const struct hf_lock_opts *opts,
                            struct hf_error *error);
enum hf_err hf_options_client(struct hf_client_opts *to,
                              const struct hf_client_opts *opts,
                              struct hf_error *error);
enum hf_err hf_options_watch(struct hf_watch_opts *to,
                             const struct hf_watch_opts *opts,
                             struct hf_error *error);

/* opts->error, or `otherwise` if it is NULL or if `opts` has no such member. */
struct hf_error *hf_options_lock_error(const struct hf_lock_opts *opts,
                                       struct hf_error *otherwise);
struct hf_error *hf_options_client_error(const struct hf_client_opts *opts,
                                         struct hf_error *otherwise);

/* Check one argument. A key has 1 to HF_KEY_MAX bytes, a prefix may be empty; a
 * ttl is between HF_TTL_MIN_MS and HF_TTL_MAX_MS; `bytes` are a value of at
 * most HF_VALUE_MAX bytes. `name` is for the error text. Can fail with
 * HF_EINVAL. */
enum hf_err hf_options_key(struct hf_key key, struct hf_error *error);
enum hf_err hf_options_prefix(struct hf_key prefix, struct hf_error *error);
enum hf_err hf_options_ttl(uint32_t ttl_ms, struct hf_error *error);
enum hf_err hf_options_bytes(const char *name, struct hf_bytes bytes,
                             struct hf_error *error);

#endif
