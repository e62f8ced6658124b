#include "strategy/redis/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

#define DB_MAX 16383

static bool read_url_number(const char *text, unsigned max, unsigned *number)
{
    unsigned value = 0;

    if (*text == '\0')
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (unsigned)(*text - '0');
        if (value > max)
            return false;
    }
    *number = value;
    return true;
}

enum hf_err hf_redis_address_number(struct hf_url *url, const char *name,
                                    unsigned max, unsigned *number,
                                    struct hf_error *error)
{
    const char *text = hf_url_param(url, name);

    *number = 0;
    if (text && !read_url_number(text, max, number))
        return hf_error_set(error, HF_EINVAL,
                            "url: %s: '%s' is not a number from 0 to %u", name,
                            text, max);
    return HF_OK;
}

/* Parse "host", "host:port" or "[address]:port". `text` ends at a comma or
 * NUL. */
static enum hf_err read_host(struct hf_redis_address *address, const char *text,
                             struct hf_error *error)
{
    size_t size = strcspn(text, ",");
    char *host = strndup(text, size);
    char *colon, *end;
    unsigned port = HF_REDIS_PORT;

    if (!host)
        return hf_error_set_code(error, HF_ENOMEM);
    address->host = host;
    end = *host == '[' ? strchr(host, ']') : NULL;
    colon = strrchr(end ? end : host, ':');
    if ((colon && !read_url_number(colon + 1, 65535, &port)) || port == 0 ||
        *host == '\0' || colon == host || (*host == '[' && !end))
        return hf_error_set(error, HF_EINVAL, "url: '%s' is not a host:port",
                            host);
    if (colon)
        *colon = '\0';
    if (end) {
        *end = '\0';
        memmove(host, host + 1, strlen(host));
    }
    address->port = (int)port;
    return HF_OK;
}

static enum hf_err read_db(struct hf_redis_address *address, struct hf_url *url,
                           struct hf_error *error)
{
    if (*url->path == '\0' || !strcmp(url->path, "/"))
        return HF_OK;
    if (!read_url_number(url->path + 1, DB_MAX, &address->db))
        return hf_error_set(error, HF_EINVAL,
                            "url: '%s' is not a database number", url->path);
    return HF_OK;
}

static enum hf_err read_path(struct hf_redis_address *address,
                             struct hf_url *url, struct hf_error *error)
{
    if (!url->hosts || *url->hosts != '\0' || strlen(url->path) < 2)
        return hf_error_set(error, HF_EINVAL,
                            "url: redis+unix: needs the path of a socket, as "
                            "in redis+unix:///run/redis.sock");
    address->host = strdup(url->path);
    if (!address->host)
        return hf_error_set_code(error, HF_ENOMEM);
    return hf_redis_address_number(url, "db", DB_MAX, &address->db, error);
}

static enum hf_err copy_credential(char **to, const char *text,
                                   struct hf_error *error)
{
    if (!text || *text == '\0')
        return HF_OK;
    *to = strdup(text);
    return *to ? HF_OK : hf_error_set_code(error, HF_ENOMEM);
}

static void set_address_name(struct hf_redis_address *address,
                             const char *scheme)
{
    if (address->port == 0)
        (void)snprintf(address->name, sizeof(address->name), "%s://%s?db=%u",
                       scheme, address->host, address->db);
    else
        (void)snprintf(address->name, sizeof(address->name), "%s://%s:%d/%u",
                       scheme, address->host, address->port, address->db);
}

/* Parse a duration such as 500ms, 30s or 2m. */
static bool read_url_duration(const char *text, uint32_t *ms)
{
    static const struct {
        const char *name;
        unsigned ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}};
    size_t size = strspn(text, "0123456789");
    char digits[12];
    unsigned number;

    if (size >= sizeof(digits))
        return false;
    memcpy(digits, text, size);
    digits[size] = '\0';
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(text + size, units[i].name) != 0)
            continue;
        if (!read_url_number(digits, HF_LEASE_MAX_MS / units[i].ms, &number))
            return false;
        *ms = number * units[i].ms;
        return true;
    }
    return false;
}

static bool list_has_word(const char *list, const char *word)
{
    size_t size = strlen(word);

    while (list && *list) {
        size_t next = strcspn(list, ",");

        if (next == size && !strncmp(list, word, size))
            return true;
        list += next + (list[next] == ',');
    }
    return false;
}

/* Read the options that set requirements for the server: grace, unsafe and
 * require. */
static enum hf_err read_requirements(struct hf_redis_address *address,
                                     struct hf_url *url, struct hf_error *error)
{
    const char *grace = hf_url_param(url, "grace");
    const char *unsafe = hf_url_param(url, "unsafe");

    if (grace && !read_url_duration(grace, &address->grace_ms))
        return hf_error_set(error, HF_EINVAL,
                            "url: grace: '%s' is not a duration of at most a "
                            "week, such as 500ms, 30s or 2m",
                            grace);
    if (unsafe && strcmp(unsafe, "0") != 0 && strcmp(unsafe, "1") != 0)
        return hf_error_set(error, HF_EINVAL, "url: unsafe: '%s' is not 0 or 1",
                            unsafe);
    address->unsafe = unsafe && *unsafe == '1';
    address->requires_durable =
        list_has_word(hf_url_param(url, "require"), "durable");
    return HF_OK;
}

static enum hf_err read_address(struct hf_redis_address *address,
                                struct hf_url *url, const char *host,
                                struct hf_error *error)
{
    enum hf_err err;

    if (!strcmp(url->scheme, "redis+unix")) {
        err = read_path(address, url, error);
    } else if (!host) {
        err = hf_error_set(error, HF_EINVAL,
                           "url: %s: needs a host, as in %s://localhost:6379",
                           url->scheme, url->scheme);
    } else if (strcmp(url->scheme, "redlock") != 0 && strchr(host, ',')) {
        err = hf_error_set(error, HF_EINVAL,
                           "url: %s: takes only one server. For a lock on a "
                           "majority of several, use redlock://a,b,c",
                           url->scheme);
    } else {
        err = read_host(address, host, error);
        if (!err)
            err = read_db(address, url, error);
    }
    if (!err)
        err = read_requirements(address, url, error);
    if (!err)
        err = copy_credential(&address->user, url->user, error);
    if (!err)
        err = copy_credential(&address->password, url->password, error);
    if (!err && address->user && !address->password)
        err = hf_error_set(error, HF_EINVAL,
                           "url: a user without a password. Write "
                           "user:password@, or :password@ for the default "
                           "user");
    return err;
}

enum hf_err hf_redis_address_init(struct hf_redis_address *address,
                                  struct hf_url *url, const char *host,
                                  struct hf_error *error)
{
    enum hf_err err;

    *address = (struct hf_redis_address){0};
    err = hf_redis_keyspace_init(&address->space, url, error);
    if (!err)
        err = hf_redis_tls_new(url, &address->tls, error);
    if (err)
        return err;
    err = read_address(address, url, host, error);
    if (err)
        hf_redis_address_fini(address);
    else
        set_address_name(address, url->scheme);
    return err;
}

void hf_redis_address_fini(struct hf_redis_address *address)
{
    if (address->password)
        explicit_bzero(address->password, strlen(address->password));
    free(address->password);
    free(address->user);
    free(address->host);
    hf_redis_tls_free(address->tls);
    *address = (struct hf_redis_address){0};
}
