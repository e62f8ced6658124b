#include "base/url.h"

#include <stdlib.h>
#include <string.h>

#include "base/hex.h"

/* Decode %XX escapes in `text` in place. Returns false if an escape is invalid
 * or encodes a NUL. */
static bool decode_percent(char *text)
{
    char *to = text;

    for (const char *from = text; *from; from++) {
        char byte;

        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        if (!hf_hex_decode(&byte, 1, from + 1) || byte == '\0')
            return false;
        *to++ = byte;
        from += 2;
    }
    *to = '\0';
    return true;
}

/* Terminate `text` at the first `separator`. Returns the text after it, or NULL
 * if there is no separator. */
static char *split_at(char *text, char separator)
{
    char *at = strchr(text, separator);

    if (!at)
        return NULL;
    *at = '\0';
    return at + 1;
}

static bool is_scheme(const char *scheme)
{
    for (const char *c = scheme; *c; c++) {
        bool letter = *c >= 'a' && *c <= 'z';
        bool other = (*c >= '0' && *c <= '9') || *c == '+' || *c == '-';

        if (!letter && !(other && c > scheme))
            return false;
    }
    return *scheme != '\0';
}

static enum hf_err check_characters(const char *text, struct hf_error *error)
{
    size_t size = strnlen(text, HF_URL_MAX + 1);

    if (size > HF_URL_MAX)
        return hf_error_set(error, HF_EINVAL, "url: longer than %d bytes",
                            HF_URL_MAX);
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)text[i] <= ' ' || (unsigned char)text[i] >= 0x7f)
            return hf_error_set(error, HF_EINVAL,
                                "url: byte %zu must be percent-encoded", i + 1);
    }
    return HF_OK;
}

static enum hf_err parse_params(struct hf_url *url, char *query,
                                struct hf_error *error)
{
    while (query) {
        char *rest = split_at(query, '&');
        char *value = split_at(query, '=');

        if (!value || !decode_percent(query) || !decode_percent(value) ||
            *query == '\0')
            return hf_error_set(error, HF_EINVAL,
                                "url: option '%s' is not name=value", query);
        for (size_t i = 0; i < url->param_count; i++) {
            if (!strcmp(url->params[i].name, query))
                return hf_error_set(error, HF_EINVAL,
                                    "url: option '%s' is given twice", query);
        }
        if (url->param_count == HF_URL_PARAMS_MAX)
            return hf_error_set(error, HF_EINVAL, "url: more than %d options",
                                HF_URL_PARAMS_MAX);
        url->params[url->param_count++] =
            (struct hf_url_param){.name = query, .value = value};
        query = rest;
    }
    return HF_OK;
}

/* Parse user:password@hosts/path; all parts except the hosts are optional. */
static enum hf_err parse_authority(struct hf_url *url, char *text,
                                   struct hf_error *error)
{
    char *path = strchr(text, '/');
    char *at, *password;

    url->path = "";
    /* The '/' may belong to a password. The path may appear in messages, so do
     * not take the rest of a password for a path. */
    if (path && strchr(path, '@') && memchr(text, ':', (size_t)(path - text)))
        return hf_error_set(error, HF_EINVAL,
                            "url: a '/' before an '@', or an '@' in a path "
                            "after host:port, must be percent-encoded");
    if (path) {
        /* The path keeps its '/', so there is no room for a NUL after the
         * hosts. Move the hosts one byte to the left, over the "//", which has
         * been parsed. */
        size_t size = (size_t)(path - text);

        text--;
        memmove(text, text + 1, size);
        text[size] = '\0';
        if (!decode_percent(path))
            return hf_error_set(error, HF_EINVAL,
                                "url: invalid %%XX escape in the path");
        url->path = path;
    }
    at = strrchr(text, '@');
    if (at) {
        *at = '\0';
        password = split_at(text, ':');
        if (!decode_percent(text) || (password && !decode_percent(password)))
            return hf_error_set(error, HF_EINVAL,
                                "url: invalid %%XX escape in the user or "
                                "password");
        url->user = text;
        url->password = password;
        text = at + 1;
    }
    if (!decode_percent(text))
        return hf_error_set(error, HF_EINVAL,
                            "url: invalid %%XX escape in the host");
    url->hosts = text;
    return HF_OK;
}

static enum hf_err parse_url(struct hf_url *url, char *text,
                             struct hf_error *error)
{
    char *rest = split_at(text, ':');
    char *query;
    enum hf_err err;

    if (!rest || !is_scheme(text))
        return hf_error_set(error, HF_EINVAL,
                            "url: must begin with a scheme, as in memory:name");
    url->scheme = text;
    if (strchr(rest, '#'))
        return hf_error_set(error, HF_EINVAL,
                            "url: a '#' must be percent-encoded");
    query = split_at(rest, '?');
    /* The '?' may belong to a password. Option names appear in messages, so do
     * not take the rest of a password for options. */
    if (query && strchr(query, '@'))
        return hf_error_set(error, HF_EINVAL,
                            "url: a '?' before an '@', or an '@' in an option, "
                            "must be percent-encoded");
    err = parse_params(url, query, error);
    if (err)
        return err;
    if (!strncmp(rest, "//", 2))
        return parse_authority(url, rest + 2, error);
    if (!decode_percent(rest))
        return hf_error_set(error, HF_EINVAL,
                            "url: invalid %%XX escape after '%s:'",
                            url->scheme);
    url->path = rest;
    return HF_OK;
}

enum hf_err hf_url_parse(struct hf_url *url, const char *text,
                         struct hf_error *error)
{
    enum hf_err err;

    *url = (struct hf_url){0};
    if (!text)
        return hf_error_set(error, HF_EINVAL, "url: missing");
    err = check_characters(text, error);
    if (err)
        return err;
    url->storage_size = strlen(text) + 1;
    url->storage = malloc(url->storage_size);
    if (!url->storage)
        return hf_error_set_code(error, HF_ENOMEM);
    memcpy(url->storage, text, url->storage_size);
    err = parse_url(url, url->storage, error);
    if (err)
        hf_url_fini(url);
    return err;
}

void hf_url_fini(struct hf_url *url)
{
    if (url->storage)
        explicit_bzero(url->storage, url->storage_size);
    free(url->storage);
    *url = (struct hf_url){0};
}

const char *hf_url_param(struct hf_url *url, const char *name)
{
    for (size_t i = 0; i < url->param_count; i++) {
        if (!strcmp(url->params[i].name, name)) {
            url->params[i].used = true;
            return url->params[i].value;
        }
    }
    return NULL;
}

enum hf_err hf_url_check_used(const struct hf_url *url, struct hf_error *error)
{
    for (size_t i = 0; i < url->param_count; i++) {
        if (!url->params[i].used)
            return hf_error_set(error, HF_EINVAL,
                                "url: unknown option '%s' for %s:",
                                url->params[i].name, url->scheme);
    }
    return HF_OK;
}
