/* options.h - options, checked and completed. */
#ifndef HF_CLIENT_OPTIONS_H
#define HF_CLIENT_OPTIONS_H

#include "base/error.h"

/* Copy `opts` (NULL: the defaults of this process), fill in what is left to
 * the default, and check it. HF_EINVAL with a text that names the option. */
enum hf_err hf_options_lock(struct hf_lock_opts *to,
                            const struct hf_lock_opts *opts,
                            struct hf_error *error);
enum hf_err hf_options_client(struct hf_client_opts *to,
                              const struct hf_client_opts *opts,
                              struct hf_error *error);
enum hf_err hf_options_watch(struct hf_watch_opts *to,
                             const struct hf_watch_opts *opts,
                             struct hf_error *error);

/* Where failures are to be told: in the options, if they say so. */
struct hf_error *hf_options_lock_error(const struct hf_lock_opts *opts,
                                       struct hf_error *otherwise);
struct hf_error *hf_options_client_error(const struct hf_client_opts *opts,
                                         struct hf_error *otherwise);

/* 1 to HF_KEY_MAX bytes; a prefix may have none. */
enum hf_err hf_options_key(struct hf_key key, struct hf_error *error);
enum hf_err hf_options_prefix(struct hf_key prefix, struct hf_error *error);
enum hf_err hf_options_ttl(uint32_t ttl_ms, struct hf_error *error);
enum hf_err hf_options_bytes(const char *name, struct hf_bytes bytes,
                             struct hf_error *error);

#endif
