#include "daemon/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Split "HOST:PORT" or "[HOST]:PORT". Returns false if `text` is neither. */
static bool split_address(const char *text, char host[HF_ADDRESS_TEXT],
                          unsigned long *port)
{
    const char *colon = strrchr(text, ':');
    size_t size = colon ? (size_t)(colon - text) : 0;
    char *end;

    if (!colon || strlen(text) >= HF_ADDRESS_TEXT || size == 0)
        return false;
    if (text[0] == '[' && text[size - 1] == ']') {
        text++;
        size -= 2;
    }
    (void)snprintf(host, HF_ADDRESS_TEXT, "%.*s", (int)size, text);
    if (colon[1] < '1' || colon[1] > '9')
        return false;
    *port = strtoul(colon + 1, &end, 10);
    return *end == '\0' && *port <= 65535;
}

static bool parse_host(const char *host, uint16_t port,
                       struct hf_address *address)
{
    if (!strcmp(host, "localhost"))
        host = "127.0.0.1";
    address->socket.v4 =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, host, &address->socket.v4.sin_addr) == 1)
        return true;
    address->socket.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6,
                                               .sin6_port = htons(port)};
    return inet_pton(AF_INET6, host, &address->socket.v6.sin6_addr) == 1;
}

static bool is_loopback(const struct hf_address *address)
{
    if (address->socket.any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&address->socket.v6.sin6_addr);
    return ntohl(address->socket.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

enum hf_err hf_address_parse(const char *text, struct hf_address *address,
                             struct hf_error *error)
{
    char host[HF_ADDRESS_TEXT];
    struct hf_address parsed;
    unsigned long port;

    memset(&parsed, 0, sizeof(parsed));
    if (!split_address(text, host, &port))
        return hf_error_set(error, HF_EINVAL,
                            "address '%.80s': expected HOST:PORT, such as "
                            "127.0.0.1:7001 or [::1]:7001",
                            text);
    if (!parse_host(host, (uint16_t)port, &parsed))
        return hf_error_set(error, HF_EINVAL,
                            "address '%s': expected an IP address; names "
                            "other than localhost are not resolved",
                            text);
    if (!is_loopback(&parsed))
        return hf_error_set(
            error, HF_EINVAL,
            "address '%s' is not a loopback address: nodes do not "
            "authenticate their clients and peers yet, so they must not be "
            "reachable from other machines. Use 127.0.0.1 or [::1].",
            text);
    (void)snprintf(parsed.text, sizeof(parsed.text), "%s", text);
    *address = parsed;
    return HF_OK;
}

bool hf_address_equal(const struct hf_address *a, const struct hf_address *b)
{
    if (a->socket.any.sa_family != b->socket.any.sa_family)
        return false;
    if (a->socket.any.sa_family == AF_INET6) /* only ::1 is accepted */
        return a->socket.v6.sin6_port == b->socket.v6.sin6_port;
    return a->socket.v4.sin_port == b->socket.v4.sin_port &&
           a->socket.v4.sin_addr.s_addr == b->socket.v4.sin_addr.s_addr;
}
