/* address.h - the addresses of the nodes of a cluster, and the options of a
 * raft: URL.
 *
 *     raft://host:port,host:port,[::1]:port?route=leader
 *
 * With ?route=leader (the default) the client moves to the leader; with
 * ?route=any it stays with any node that knows the leader. */
#ifndef HF_STRATEGY_RAFT_ADDRESS_H
#define HF_STRATEGY_RAFT_ADDRESS_H

#include <netinet/in.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/url.h"

#define HF_RAFT_HOST_MAX 255
#define HF_RAFT_NAME_SIZE (HF_RAFT_HOST_MAX + 10) /* "[host]:65535" and NUL */
#define HF_RAFT_FOUND_MAX 4 /* addresses that are tried for one host name */

/* The address of one node. */
struct hf_raft_address {
    char name[HF_RAFT_NAME_SIZE]; /* "host:port" or "[host]:port" */
    char host[HF_RAFT_HOST_MAX + 1];
    uint16_t port;

    /* Set by socket.c: the addresses of the name `host`. */
    struct sockaddr_storage found[HF_RAFT_FOUND_MAX];
    unsigned found_count;
};

struct hf_raft_addresses {
    struct hf_raft_address list[HF_RAFT_ADDRESSES_MAX];
    unsigned count;
    bool route_any; /* ?route=any */
};

/* Parse the hosts and options of `url`. Returns HF_EINVAL and sets `error` if
 * they are malformed or too many, or if `url` has a path, a user or a
 * password. */
enum hf_err hf_raft_addresses_parse(struct hf_raft_addresses *addresses,
                                    struct hf_url *url, struct hf_error *error);

/* Parse `size` bytes of `text`: "host:port" or "[host]:port". Returns false if
 * they are neither. `address` is written only on success. */
bool hf_raft_address_parse(struct hf_raft_address *address, const char *text,
                           size_t size);

#endif
