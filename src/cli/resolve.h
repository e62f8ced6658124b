/* resolve.h - find the addresses of a host, with a time limit. */
#ifndef CLI_RESOLVE_H
#define CLI_RESOLVE_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>

#define RESOLVE_MAX 8 /* addresses of one host that are tried */

union resolve_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Find the addresses of "HOST:PORT" until `deadline`, by loop_now(). HOST is a
 * name, an IPv4 address, or an IPv6 address in brackets. Returns their number;
 * or 0, in which case `*why` is the reason in a few words. */
size_t resolve_host(const char *text, int64_t deadline,
                    union resolve_address found[RESOLVE_MAX], const char **why);

#endif
