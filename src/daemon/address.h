/* address.h - the addresses of a node: HOST:PORT on the loopback interface. */
#ifndef HF_DAEMON_ADDRESS_H
#define HF_DAEMON_ADDRESS_H

#include <netinet/in.h>

#include "base/error.h"

#define HF_ADDRESS_TEXT 64 /* bytes of an address as text, with its NUL */

struct hf_address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } socket;
    char text[HF_ADDRESS_TEXT]; /* as it was written */
};

/* Parse "127.0.0.1:7001", "[::1]:7001" or "localhost:7001". Other names are not
 * resolved. An address that is not a loopback address is refused, because nodes
 * have no authentication yet and must not accept connections of other machines.
 *
 * HF_EINVAL  malformed, or not a loopback address */
enum hf_err hf_address_parse(const char *text, struct hf_address *address,
                             struct hf_error *error);

/* Returns true if both are the same address, however they are written. */
bool hf_address_equal(const struct hf_address *a, const struct hf_address *b);

#endif
