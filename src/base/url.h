/* url.h - which strategy, where, and with which options.
 *
 *     scheme:opaque?name=value&name=value
 *     scheme://user:password@hosts/path?name=value
 *
 * Parts are percent-decoded and NUL-terminated; a decoded NUL, a character
 * that a URL cannot have and a name without a value are refused. The parts
 * point into one copy, which is wiped when it is freed: it may hold a
 * password. */
#ifndef HF_BASE_URL_H
#define HF_BASE_URL_H

#include "base/error.h"
#include "base/limits.h"

struct hf_url_param {
    const char *name;
    const char *value;
    bool used; /* somebody has asked for it */
};

struct hf_url {
    const char *scheme;
    const char *user;     /* NULL: none */
    const char *password; /* NULL: none */
    const char *hosts;    /* "a:1,b:2"; NULL where there is no "//" */
    const char *path;     /* with its "/", or the opaque part */
    struct hf_url_param params[HF_URL_PARAMS_MAX];
    size_t param_count;
    char *storage;
    size_t storage_size;
};

/* HF_EINVAL with a text that names the part and never holds the password. */
enum hf_err hf_url_parse(struct hf_url *url, const char *text,
                         struct hf_error *error);
void hf_url_fini(struct hf_url *url);

/* The value of option `name`, or NULL. It counts as used from then on. */
const char *hf_url_param(struct hf_url *url, const char *name);

/* HF_EINVAL that names an option which nobody asked for. */
enum hf_err hf_url_check_used(const struct hf_url *url, struct hf_error *error);

#endif
