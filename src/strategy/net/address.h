/* address.h - the addresses of the nodes that a URL lists.
 *
 *     raft://host:port,host:port,[::1]:port */
#ifndef HF_STRATEGY_NET_ADDRESS_H
#define HF_STRATEGY_NET_ADDRESS_H

#include <netinet/in.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/url.h"

#define HF_NET_HOST_MAX 255
#define HF_NET_NAME_SIZE (HF_NET_HOST_MAX + 10) /* "[host]:65535" and NUL */
#define HF_NET_FOUND_MAX 4 /* addresses that are tried for one host name */

/* The address of one node. */
struct hf_net_address {
    char name[HF_NET_NAME_SIZE]; /* "host:port" or "[host]:port" */
    char host[HF_NET_HOST_MAX + 1];
    uint16_t port;

    /* Set by resolver.c: the addresses of the name `host`. */
    struct sockaddr_storage found[HF_NET_FOUND_MAX];
    unsigned found_count;
    bool is_resolving; /* a thread resolves the name */
};

struct hf_net_addresses {
    struct hf_net_address list[HF_NET_ADDRESSES_MAX];
    unsigned count;
};

/* Parse the hosts of `url`, at most `max` (HF_NET_ADDRESSES_MAX or less).
 * Returns HF_EINVAL and sets `error` if they are malformed or too many, or if
 * `url` has a path, a user or a password. */
enum hf_err hf_net_addresses_parse(struct hf_net_addresses *addresses,
                                   const struct hf_url *url, unsigned max,
                                   struct hf_error *error);

/* Parse `size` bytes of `text`: "host:port" or "[host]:port". Returns false if
 * they are neither. `address` is written only on success. */
bool hf_net_address_parse(struct hf_net_address *address, const char *text,
                          size_t size);

#endif
