/* resolver.h - resolve the names of hosts without blocking the client.
 *
 * getaddrinfo() may take many seconds, during which the thread that drives a
 * client could not renew a lock or report a loss. So each name is resolved in a
 * short-lived thread of its own. hf_net_resolver_take() returns the results.
 *
 * Closing does not wait for the threads: the last one frees the resolver. */
#ifndef HF_STRATEGY_NET_RESOLVER_H
#define HF_STRATEGY_NET_RESOLVER_H

#include "strategy/net/address.h"

struct hf_net_resolver;

/* If the host is a numeric address, set address->found and return true. */
bool hf_net_resolve_numeric(struct hf_net_address *address);

/* Returns NULL if memory or descriptors are exhausted. */
struct hf_net_resolver *hf_net_resolver_new(void);
void hf_net_resolver_close(struct hf_net_resolver *resolver);

/* Readable while there are results to take. */
int hf_net_resolver_fd(const struct hf_net_resolver *resolver);

/* Start to resolve the name of `address`, unless that is under way. `address`
 * must be valid until its result is taken, or the resolver is closed. Returns
 * HF_OK, HF_ENOMEM or HF_ESYSTEM. */
enum hf_err hf_net_resolver_start(struct hf_net_resolver *resolver,
                                  struct hf_net_address *address);

/* Take a result: returns the address whose name was resolved, or NULL if there
 * is no result. If `*failure` is NULL, `found` of that address was replaced;
 * otherwise it says why the name cannot be resolved, and `found` is as
 * before. */
struct hf_net_address *hf_net_resolver_take(struct hf_net_resolver *resolver,
                                            const char **failure);

#endif
