#include "strategy/raft/address.h"

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

bool hf_raft_address_parse(struct hf_raft_address *address, const char *text,
                           size_t size)
{
    const char *colon = memrchr(text, ':', size);
    struct hf_key host = {NULL, 0};
    uint16_t port;

    if (colon)
        host = find_host(text, colon);
    if (host.size == 0 || host.size > HF_RAFT_HOST_MAX ||
        memchr(host.data, '\0', host.size) ||
        !read_port(colon + 1, size - (size_t)(colon + 1 - text), &port))
        return false;
    *address = (struct hf_raft_address){.port = port};
    hf_copy(address->host, host.data, host.size);
    (void)snprintf(address->name, sizeof(address->name),
                   strchr(address->host, ':') ? "[%s]:%u" : "%s:%u",
                   address->host, port);
    return true;
}

static enum hf_err add_address(struct hf_raft_addresses *addresses,
                               const char *text, size_t size,
                               struct hf_error *error)
{
    if (addresses->count == HF_RAFT_ADDRESSES_MAX)
        return hf_error_set(error, HF_EINVAL,
                            "url: more than %d nodes are listed; name some of "
                            "them, clients find the leader themselves",
                            HF_RAFT_ADDRESSES_MAX);
    if (!hf_raft_address_parse(&addresses->list[addresses->count], text, size))
        return hf_error_set(error, HF_EINVAL,
                            "url: '%.*s' is not a host:port, as in "
                            "raft://127.0.0.1:7001,127.0.0.1:7002",
                            (int)size, text);
    addresses->count++;
    return HF_OK;
}

static enum hf_err read_route(struct hf_raft_addresses *addresses,
                              struct hf_url *url, struct hf_error *error)
{
    const char *route = hf_url_param(url, "route");

    if (route && strcmp(route, "leader") != 0 && strcmp(route, "any") != 0)
        return hf_error_set(error, HF_EINVAL,
                            "url: route: '%s' is not 'leader' or 'any'", route);
    addresses->route_any = route && !strcmp(route, "any");
    return HF_OK;
}

static enum hf_err check_parts(const struct hf_url *url, struct hf_error *error)
{
    if (!url->hosts || *url->hosts == '\0')
        return hf_error_set(error, HF_EINVAL,
                            "url: raft: needs the addresses of nodes, as in "
                            "raft://127.0.0.1:7001,127.0.0.1:7002");
    if (*url->path != '\0' && strcmp(url->path, "/") != 0)
        return hf_error_set(error, HF_EINVAL,
                            "url: raft: has no path: remove '%s'", url->path);
    if (url->user || url->password)
        return hf_error_set(error, HF_EINVAL,
                            "url: raft: takes no user or password");
    return HF_OK;
}

enum hf_err hf_raft_addresses_parse(struct hf_raft_addresses *addresses,
                                    struct hf_url *url, struct hf_error *error)
{
    const char *text = url->hosts;
    enum hf_err err = check_parts(url, error);

    *addresses = (struct hf_raft_addresses){0};
    while (!err) {
        size_t size = strcspn(text, ",");

        err = add_address(addresses, text, size, error);
        text += size;
        if (*text == '\0')
            break;
        text++;
    }
    return err ? err : read_route(addresses, url, error);
}
