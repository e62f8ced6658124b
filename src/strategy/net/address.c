#include "strategy/net/address.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

static bool read_port(const char *text, size_t size, uint16_t *port)
{
    unsigned value = 0;

    if (size == 0 || size > 5)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (unsigned)(text[i] - '0');
    }
    *port = (uint16_t)value;
    return value > 0 && value <= UINT16_MAX;
}

/* The host in "host:port" or "[host]:port", without brackets; an empty key if
 * it is missing or malformed. `colon` is the colon before the port. A host that
 * contains a colon needs brackets. */
static struct hf_key find_host(const char *text, const char *colon)
{
    struct hf_key host = {text, (size_t)(colon - text)};

    if (host.size > 2 && text[0] == '[' && colon[-1] == ']')
        host = (struct hf_key){text + 1, host.size - 2};
    else if (memchr(text, ':', host.size) || memchr(text, '[', host.size))
        host.size = 0;
    return host;
}

bool hf_net_address_parse(struct hf_net_address *address, const char *text,
                          size_t size)
{
    const char *colon = memrchr(text, ':', size);
    struct hf_key host = {NULL, 0};
    uint16_t port;

    if (colon)
        host = find_host(text, colon);
    if (host.size == 0 || host.size > HF_NET_HOST_MAX ||
        memchr(host.data, '\0', host.size) ||
        !read_port(colon + 1, size - (size_t)(colon + 1 - text), &port))
        return false;
    *address = (struct hf_net_address){.port = port};
    hf_copy(address->host, host.data, host.size);
    (void)snprintf(address->name, sizeof(address->name),
                   strchr(address->host, ':') ? "[%s]:%u" : "%s:%u",
                   address->host, port);
    return true;
}

static enum hf_err add_address(struct hf_net_addresses *addresses, unsigned max,
                               const struct hf_url *url, const char *text,
                               size_t size, struct hf_error *error)
{
    if (addresses->count == max)
        return hf_error_set(error, HF_EINVAL,
                            "url: %s: takes at most %u nodes, and more are "
                            "listed",
                            url->scheme, max);
    if (!hf_net_address_parse(&addresses->list[addresses->count], text, size))
        return hf_error_set(error, HF_EINVAL,
                            "url: '%.*s' is not a host:port, as in "
                            "%s://127.0.0.1:7001,127.0.0.1:7002",
                            (int)size, text, url->scheme);
    addresses->count++;
    return HF_OK;
}

static enum hf_err check_parts(const struct hf_url *url, struct hf_error *error)
{
    if (!url->hosts || *url->hosts == '\0')
        return hf_error_set(error, HF_EINVAL,
                            "url: %s: needs the addresses of nodes, as in "
                            "%s://127.0.0.1:7001,127.0.0.1:7002",
                            url->scheme, url->scheme);
    if (*url->path != '\0' && strcmp(url->path, "/") != 0)
        return hf_error_set(error, HF_EINVAL,
                            "url: %s: has no path: remove '%s'", url->scheme,
                            url->path);
    if (url->user || url->password)
        return hf_error_set(error, HF_EINVAL,
                            "url: %s: takes no user or password", url->scheme);
    return HF_OK;
}

enum hf_err hf_net_addresses_parse(struct hf_net_addresses *addresses,
                                   const struct hf_url *url, unsigned max,
                                   struct hf_error *error)
{
    const char *text = url->hosts;
    enum hf_err err = check_parts(url, error);

    *addresses = (struct hf_net_addresses){0};
    while (!err) {
        size_t size = strcspn(text, ",");

        err = add_address(addresses, max, url, text, size, error);
        text += size;
        if (*text == '\0')
            break;
        text++;
    }
    return err;
}
