#include "strategy/mongo/address.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hex.h"

#define DATABASE "holdfast"
#define COLLECTION "locks"
#define NAME_MAX_SIZE 120 /* MongoDB allows 255 for both names and a dot */
#define KEEP_MIN_S 1
#define KEEP_MAX_S 31622400 /* a leap year */

/* Default timeouts, which the URL may replace. They do not affect the deadlines
 * of requests: they only bound how long a worker thread may hang, and
 * heartbeatFrequencyMS is how often libmongoc checks a server. */
static const struct {
    const char *option;
    int32_t ms;
} default_times[] = {
    {MONGOC_URI_CONNECTTIMEOUTMS, 2000},
    {MONGOC_URI_SOCKETTIMEOUTMS, 8000},
    {MONGOC_URI_SERVERSELECTIONTIMEOUTMS, 2000},
    {MONGOC_URI_HEARTBEATFREQUENCYMS, 2000},
};

/* ---- The URL for libmongoc ----------------------------------------------*/

/* Append `text`, and percent-encode everything except letters, digits and the
 * characters in `also`. */
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
    /* libmongoc has no function that recognizes these options, so list them
     * here. */
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
    const char *separator = "?";

    for (size_t i = 0; i < url->param_count; i++) {
        struct hf_url_param *param = &url->params[i];

        if (!is_for_libmongoc(param->name))
            continue;
        param->used = true;
        append_raw(buf, separator);
        append_encoded(buf, param->name, "");
        append_raw(buf, "=");
        append_encoded(buf, param->value, "-._~:,");
        separator = "&";
    }
}

static enum hf_err parse_uri(struct hf_mongo_address *address,
                             struct hf_url *url, struct hf_error *error)
{
    struct hf_buf text = {0};
    bson_error_t fault;

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
    address->uri = mongoc_uri_new_with_error((char *)text.data, &fault);
    explicit_bzero(text.data, text.size); /* the text may contain a password */
    hf_buf_fini(&text);
    if (!address->uri)
        return hf_error_set(error, HF_EINVAL, "url: %s", fault.message);
    return HF_OK;
}

/* Check that the files of TLS can be read, because libmongoc would report a
 * missing file late, and only as "no suitable servers". */
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

/* ---- Settings that no URL can change ------------------------------------*/

/* Refuse load balancers, and without ?unsafe=1 also direct connections. A
 * deadline belongs to the clock of one server process, so each command has to
 * know which server executes it, and a load balancer hides that. If the URL
 * demands no direct connection, set directConnection=false: otherwise libmongoc
 * would treat a URL with one host as one server, and miss failovers. */
static enum hf_err check_topology(struct hf_mongo_address *address,
                                  struct hf_error *error)
{
    mongoc_uri_t *uri = address->uri;

    if (mongoc_uri_get_option_as_bool(uri, MONGOC_URI_LOADBALANCED, false))
        return hf_error_set(error, HF_EUNSUPPORTED,
                            "url: loadBalanced is not supported: the server "
                            "behind a load balancer is unknown; list the "
                            "members of the replica set");
    address->direct =
        mongoc_uri_get_option_as_bool(uri, MONGOC_URI_DIRECTCONNECTION, false);
    if (address->direct && !address->unsafe)
        return hf_error_set(error, HF_EINVAL,
                            "url: directConnection: the client would miss a "
                            "failover; remove it, or add ?unsafe=1");
    if (!address->direct)
        mongoc_uri_set_option_as_bool(uri, MONGOC_URI_DIRECTCONNECTION, false);
    return HF_OK;
}

/* Set the options that no URL can change, and the timeouts that the URL does
 * not set. Turn off retries, because a retry by libmongoc could reach another
 * server than the one whose clock the command names. Read from the primary,
 * even the change stream: waiters depend on the stream, and there may be no
 * secondary. */
static void set_fixed_options(mongoc_uri_t *uri)
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
    for (size_t i = 0; i < sizeof(default_times) / sizeof(default_times[0]);
         i++)
        if (!mongoc_uri_has_option(uri, default_times[i].option))
            mongoc_uri_set_option_as_int32(uri, default_times[i].option,
                                           default_times[i].ms);
    mongoc_write_concern_destroy(writes);
    mongoc_read_concern_destroy(reads);
    mongoc_read_prefs_destroy(primary);
}

/* ---- Options of holdfast ------------------------------------------------*/

static enum hf_err read_name_option(struct hf_url *url, const char *option,
                                    const char *fallback, const char *forbidden,
                                    char **name, struct hf_error *error)
{
    const char *value = hf_url_param(url, option);

    if (!value)
        value = fallback;
    if (*value == '\0' || strlen(value) > NAME_MAX_SIZE ||
        strpbrk(value, forbidden) || !strncmp(value, "system.", 7))
        return hf_error_set(error, HF_EINVAL,
                            "url: %s: not a valid name in MongoDB", option);
    *name = strdup(value);
    return *name ? HF_OK : hf_error_set_code(error, HF_ENOMEM);
}

static enum hf_err read_keep_option(struct hf_mongo_address *address,
                                    struct hf_url *url, struct hf_error *error)
{
    const char *value = hf_url_param(url, "keep");
    char *end = NULL;
    long seconds;

    address->keep_ms = HF_MONGO_KEEP_MS;
    if (!value)
        return HF_OK;
    errno = 0;
    seconds = strtol(value, &end, 10);
    if (errno || *value < '0' || *value > '9' || *end != '\0' ||
        seconds < KEEP_MIN_S || seconds > KEEP_MAX_S)
        return hf_error_set(error, HF_EINVAL,
                            "url: keep: expected %d to %d seconds", KEEP_MIN_S,
                            KEEP_MAX_S);
    address->keep_ms = seconds * 1000;
    return HF_OK;
}

static enum hf_err read_unsafe_option(struct hf_mongo_address *address,
                                      struct hf_url *url,
                                      struct hf_error *error)
{
    const char *value = hf_url_param(url, "unsafe");

    if (value && strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
        return hf_error_set(error, HF_EINVAL, "url: unsafe: expected 0 or 1");
    address->unsafe = value && *value == '1';
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

/* ---- Public functions ---------------------------------------------------*/

enum hf_err hf_mongo_address_init(struct hf_mongo_address *address,
                                  struct hf_url *url, struct hf_error *error)
{
    enum hf_err err;

    if (!url->hosts || *url->hosts == '\0')
        return hf_error_set(error, HF_EINVAL,
                            "url: %s: no server; expected %s://host",
                            url->scheme, url->scheme);
    err = check_tls_files(url, error);
    if (!err)
        err = read_own_options(address, url, error);
    if (!err)
        err = parse_uri(address, url, error);
    if (!err)
        err = check_topology(address, error);
    if (err)
        hf_mongo_address_fini(address);
    else
        set_fixed_options(address->uri);
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
