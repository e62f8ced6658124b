#include "strategy/mongo/address.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hex.h"

#define DATABASE "holdfast"
#define COLLECTION "locks"
#define NAME_MAX_SIZE 120 /* MongoDB's own limit is 255 for both and a dot */
#define KEEP_MIN_S 1
#define KEEP_MAX_S 31622400 /* a leap year */

/* Times that end what hangs, unless the URL has others: the client's deadlines
 * do not wait for these, but a worker does. */
static const struct {
    const char *option;
    int32_t ms;
} times[] = {
    {MONGOC_URI_CONNECTTIMEOUTMS, 2000},
    {MONGOC_URI_SOCKETTIMEOUTMS, 8000},
    {MONGOC_URI_SERVERSELECTIONTIMEOUTMS, 2000},
    {MONGOC_URI_HEARTBEATFREQUENCYMS, 2000},
};

/* ---- The URL as libmongoc would have it ----------------------------------*/

/* `also` are the characters that stand for themselves here, besides letters
 * and digits. */
static void append_encoded(struct hf_buf *buf, const char *text,
                           const char *also)
{
    for (; *text; text++) {
        uint8_t c = (uint8_t)*text;
        char escaped[4] = "%";

        hf_hex_encode(escaped + 1, &c, 1);
        if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
            strchr(also, c))
            hf_buf_u8(buf, c);
        else
            hf_buf_raw(buf, escaped, strlen(escaped));
    }
}

static void append_raw(struct hf_buf *buf, const char *text)
{
    hf_buf_raw(buf, text, strlen(text));
}

static void append_user(struct hf_buf *buf, const struct hf_url *url)
{
    if (!url->user)
        return;
    append_encoded(buf, url->user, "");
    if (url->password) {
        append_raw(buf, ":");
        append_encoded(buf, url->password, "");
    }
    append_raw(buf, "@");
}

static bool is_for_libmongoc(const char *name)
{
    /* Those that its own functions do not count among them. */
    static const char *const others[] = {
        MONGOC_URI_AUTHMECHANISM,      MONGOC_URI_AUTHMECHANISMPROPERTIES,
        MONGOC_URI_AUTHSOURCE,         MONGOC_URI_COMPRESSORS,
        MONGOC_URI_READCONCERNLEVEL,   MONGOC_URI_READPREFERENCE,
        MONGOC_URI_READPREFERENCETAGS, MONGOC_URI_W,
    };

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (!strcasecmp(name, others[i]))
            return true;
    return mongoc_uri_option_is_int32(name) ||
           mongoc_uri_option_is_int64(name) ||
           mongoc_uri_option_is_bool(name) || mongoc_uri_option_is_utf8(name);
}

static void append_options(struct hf_buf *buf, struct hf_url *url)
{
    const char *between = "?";

    for (size_t i = 0; i < url->param_count; i++) {
        struct hf_url_param *param = &url->params[i];

        if (!is_for_libmongoc(param->name))
            continue;
        param->used = true;
        append_raw(buf, between);
        append_encoded(buf, param->name, "");
        append_raw(buf, "=");
        append_encoded(buf, param->value, "-._~:,");
        between = "&";
    }
}

static enum hf_err make_uri(struct hf_mongo_address *address,
                            struct hf_url *url, struct hf_error *error)
{
    struct hf_buf text = {0};
    bson_error_t why;

    append_raw(&text, url->scheme);
    append_raw(&text, "://");
    append_user(&text, url);
    append_encoded(&text, url->hosts, "-._~:,[]");
    append_raw(&text, "/");
    append_encoded(&text, *url->path == '/' ? url->path + 1 : "", "-_");
    append_options(&text, url);
    hf_buf_u8(&text, '\0');
    if (text.failed) {
        hf_buf_fini(&text);
        return hf_error_set_code(error, HF_ENOMEM);
    }
    address->uri = mongoc_uri_new_with_error((char *)text.data, &why);
    explicit_bzero(text.data, text.size); /* it may hold a password */
    hf_buf_fini(&text);
    if (!address->uri)
        return hf_error_set(error, HF_EINVAL, "url: %s", why.message);
    return HF_OK;
}

/* libmongoc would only say, and late, that no server can be spoken to. */
static enum hf_err check_tls_files(const struct hf_url *url,
                                   struct hf_error *error)
{
    for (size_t i = 0; i < url->param_count; i++) {
        const struct hf_url_param *param = &url->params[i];

        if (strcasecmp(param->name, MONGOC_URI_TLSCAFILE) != 0 &&
            strcasecmp(param->name, MONGOC_URI_TLSCERTIFICATEKEYFILE) != 0)
            continue;
        if (access(param->value, R_OK) != 0)
            return hf_error_set(error, HF_EINVAL, "url: %s: %s: %s",
                                param->name, param->value, strerror(errno));
    }
    return HF_OK;
}

/* ---- What is the same whatever the URL says ------------------------------*/

/* Clocks are told apart by the names of servers, so these have to be the names
 * that the set itself has for them. Else libmongoc would take a URL with one
 * host for one server, also where it leads to one today and to another
 * tomorrow. */
static enum hf_err classify_hosts(struct hf_mongo_address *address,
                                  struct hf_error *error)
{
    mongoc_uri_t *uri = address->uri;

    if (mongoc_uri_get_option_as_bool(uri, MONGOC_URI_LOADBALANCED, false))
        return hf_error_set(error, HF_EUNSUPPORTED,
                            "url: loadBalanced: whose clock counts is not "
                            "known; name the members of the set");
    address->direct =
        mongoc_uri_get_option_as_bool(uri, MONGOC_URI_DIRECTCONNECTION, false);
    if (address->direct && !address->unsafe)
        return hf_error_set(error, HF_EINVAL,
                            "url: directConnection: a failover would not be "
                            "noticed; leave it out, or say ?unsafe=1");
    if (!address->direct)
        mongoc_uri_set_option_as_bool(uri, MONGOC_URI_DIRECTCONNECTION, false);
    return HF_OK;
}

/* A retry of libmongoc's could reach another server than the one whose clock
 * is named in the command. The change stream is of the primary, too: who waits
 * hears of its turn by it, be there a secondary or not. */
static void set_concerns(mongoc_uri_t *uri)
{
    mongoc_write_concern_t *writes = mongoc_write_concern_new();
    mongoc_read_concern_t *reads = mongoc_read_concern_new();
    mongoc_read_prefs_t *primary = mongoc_read_prefs_new(MONGOC_READ_PRIMARY);

    mongoc_write_concern_set_w(writes, MONGOC_WRITE_CONCERN_W_MAJORITY);
    mongoc_write_concern_set_journal(writes, true);
    mongoc_uri_set_write_concern(uri, writes);
    mongoc_read_concern_set_level(reads, MONGOC_READ_CONCERN_LEVEL_MAJORITY);
    mongoc_uri_set_read_concern(uri, reads);
    mongoc_uri_set_read_prefs_t(uri, primary);
    mongoc_uri_set_option_as_bool(uri, MONGOC_URI_RETRYWRITES, false);
    mongoc_uri_set_option_as_bool(uri, MONGOC_URI_RETRYREADS, false);
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
        if (!mongoc_uri_has_option(uri, times[i].option))
            mongoc_uri_set_option_as_int32(uri, times[i].option, times[i].ms);
    mongoc_write_concern_destroy(writes);
    mongoc_read_concern_destroy(reads);
    mongoc_read_prefs_destroy(primary);
}

/* ---- Our own options ----------------------------------------------------*/

static enum hf_err read_name_option(struct hf_url *url, const char *option,
                                    const char *otherwise,
                                    const char *forbidden, char **name,
                                    struct hf_error *error)
{
    const char *given = hf_url_param(url, option);

    if (!given)
        given = otherwise;
    if (*given == '\0' || strlen(given) > NAME_MAX_SIZE ||
        strpbrk(given, forbidden) || !strncmp(given, "system.", 7))
        return hf_error_set(error, HF_EINVAL,
                            "url: %s: MongoDB allows no such name", option);
    *name = strdup(given);
    return *name ? HF_OK : hf_error_set_code(error, HF_ENOMEM);
}

static enum hf_err read_keep_option(struct hf_mongo_address *address,
                                    struct hf_url *url, struct hf_error *error)
{
    const char *given = hf_url_param(url, "keep");
    char *end = NULL;
    long seconds;

    address->keep_ms = HF_MONGO_KEEP_MS;
    if (!given)
        return HF_OK;
    errno = 0;
    seconds = strtol(given, &end, 10);
    if (errno || *given < '0' || *given > '9' || *end != '\0' ||
        seconds < KEEP_MIN_S || seconds > KEEP_MAX_S)
        return hf_error_set(error, HF_EINVAL,
                            "url: keep: seconds, from %d to %d", KEEP_MIN_S,
                            KEEP_MAX_S);
    address->keep_ms = seconds * 1000;
    return HF_OK;
}

static enum hf_err read_unsafe_option(struct hf_mongo_address *address,
                                      struct hf_url *url,
                                      struct hf_error *error)
{
    const char *given = hf_url_param(url, "unsafe");

    if (given && strcmp(given, "0") != 0 && strcmp(given, "1") != 0)
        return hf_error_set(error, HF_EINVAL, "url: unsafe: 0 or 1");
    address->unsafe = given && *given == '1';
    return HF_OK;
}

static enum hf_err read_own_options(struct hf_mongo_address *address,
                                    struct hf_url *url, struct hf_error *error)
{
    const char *path = *url->path == '/' ? url->path + 1 : "";
    enum hf_err err = read_name_option(url, "database", *path ? path : DATABASE,
                                       "/\\. \"$", &address->database, error);

    if (!err)
        err = read_name_option(url, "collection", COLLECTION, "$",
                               &address->collection, error);
    if (!err)
        err = read_keep_option(address, url, error);
    if (!err)
        err = read_unsafe_option(address, url, error);
    return err;
}

/* ---- Beginning and end --------------------------------------------------*/

enum hf_err hf_mongo_address_init(struct hf_mongo_address *address,
                                  struct hf_url *url, struct hf_error *error)
{
    enum hf_err err;

    if (!url->hosts || *url->hosts == '\0')
        return hf_error_set(error, HF_EINVAL,
                            "url: %s: wants a server, as in %s://host",
                            url->scheme, url->scheme);
    err = check_tls_files(url, error);
    if (!err)
        err = read_own_options(address, url, error);
    if (!err)
        err = make_uri(address, url, error);
    if (!err)
        err = classify_hosts(address, error);
    if (err)
        hf_mongo_address_fini(address);
    else
        set_concerns(address->uri);
    return err;
}

void hf_mongo_address_fini(struct hf_mongo_address *address)
{
    if (address->uri)
        mongoc_uri_destroy(address->uri);
    free(address->database);
    free(address->collection);
    *address = (struct hf_mongo_address){0};
}
