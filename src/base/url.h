/* url.h - parse the URL of a client: strategy, address and options.
 *
 *     scheme:opaque?name=value&name=value
 *     scheme://user:password@hosts/path?name=value
 *
 * Parts are percent-decoded and NUL-terminated. The parser rejects an encoded
 * NUL, options without a '=', and bytes that must be percent-encoded: spaces,
 * control characters, non-ASCII bytes and '#'. The parts point into one copy of
 * the URL, which is wiped before it is freed, because it may contain a
 * password. */
#ifndef HF_BASE_URL_H
#define HF_BASE_URL_H

#include "base/error.h"
#include "base/limits.h"

struct hf_url_param {
    const char *name;
    const char *value;
    bool used; /* hf_url_param() has read this option */
};

struct hf_url {
    const char *scheme;
    const char *user;     /* NULL: none */
    const char *password; /* NULL: none */
    const char *hosts;    /* "a:1,b:2"; NULL if there is no "//" */
    /* The path with its leading "/", or the opaque part; "" if there is
     * neither. */
    const char *path;
    struct hf_url_param params[HF_URL_PARAMS_MAX];
    size_t param_count;
    char *storage;
    size_t storage_size;
};

/* Parse `text`. HF_EINVAL: `error` names the invalid part, and never contains
 * the password. Can also fail with HF_ENOMEM. */
enum hf_err hf_url_parse(struct hf_url *url, const char *text,
                         struct hf_error *error);
void hf_url_fini(struct hf_url *url);

/* The value of option `name`, or NULL. Marks the option as used. */
const char *hf_url_param(struct hf_url *url, const char *name);

/* Returns HF_EINVAL if an option was not used, which means that the strategy
 * does not know it; `error` names the option. */
enum hf_err hf_url_check_used(const struct hf_url *url, struct hf_error *error);

#endif
