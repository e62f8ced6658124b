#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster.h"
#include "failure.h"
#include "loop.h"

#define REQUEST_MAX 4096
#define REPLY_MAX (1 << 20)

/* ---- Addresses ----------------------------------------------------------*/

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Parse "HOST:PORT", where HOST is an IP address or localhost. */
static bool parse_address(const char *text, union address *address)
{
    char host[CLUSTER_ADDRESS];
    const char *colon = strrchr(text, ':');
    size_t size = colon ? (size_t)(colon - text) : 0;
    unsigned long port = colon ? strtoul(colon + 1, NULL, 10) : 0;

    if (size == 0 || size >= sizeof(host) || port == 0 || port > 65535)
        return false;
    if (text[0] == '[' && text[size - 1] == ']') {
        text++;
        size -= 2;
    }
    memcpy(host, text, size);
    host[size] = '\0';
    memset(address, 0, sizeof(*address));
    address->v4.sin_family = AF_INET;
    address->v4.sin_port = htons((uint16_t)port);
    if (inet_pton(AF_INET, strcmp(host, "localhost") ? host : "127.0.0.1",
                  &address->v4.sin_addr) == 1)
        return true;
    memset(address, 0, sizeof(*address));
    address->v6.sin6_family = AF_INET6;
    address->v6.sin6_port = htons((uint16_t)port);
    return inet_pton(AF_INET6, host, &address->v6.sin6_addr) == 1;
}

/* ---- Waiting ------------------------------------------------------------*/

static bool wait_for(int fd, short events, int64_t deadline)
{
    struct pollfd ready = {.fd = fd, .events = events};
    int64_t left = deadline - loop_now();

    while (left > 0) {
        int rc = poll(&ready, 1, left < 60000 ? (int)left : 60000);

        if (rc > 0)
            return true;
        if (rc < 0 && errno != EINTR)
            return false;
        left = deadline - loop_now();
    }
    return false;
}

static int connect_node(const char *text, int64_t deadline, const char **why)
{
    union address address;
    socklen_t size = sizeof(int);
    int fd, error = 0;

    *why = "not an address";
    if (!parse_address(text, &address))
        return -1;
    fd = socket(address.any.sa_family,
                SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    *why = "no connection";
    if (fd < 0)
        return -1;
    if (connect(fd, &address.any,
                address.any.sa_family == AF_INET ? sizeof(address.v4)
                                                 : sizeof(address.v6)))
        error = errno;
    if (error == EINPROGRESS && wait_for(fd, POLLOUT, deadline) &&
        !getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) && !error)
        return fd;
    if (!error)
        return fd;
    *why = error == ECONNREFUSED ? "nothing listens there" : "no connection";
    (void)close(fd);
    return -1;
}

/* ---- Sending and receiving ----------------------------------------------*/

static bool send_node_command(int fd, const char *const *words, size_t count,
                              int64_t deadline)
{
    char text[REQUEST_MAX];
    int size = snprintf(text, sizeof(text), "*%zu\r\n", count);
    size_t sent = 0;

    for (size_t i = 0; i < count; i++) {
        size += snprintf(text + size, sizeof(text) - (size_t)size,
                         "$%zu\r\n%s\r\n", strlen(words[i]), words[i]);
        if ((size_t)size >= sizeof(text))
            return false;
    }
    while (sent < (size_t)size) {
        ssize_t rc = send(fd, text + sent, (size_t)size - sent, MSG_NOSIGNAL);

        if (rc < 0 && errno == EAGAIN && wait_for(fd, POLLOUT, deadline))
            continue;
        if (rc < 0)
            return false;
        sent += (size_t)rc;
    }
    return true;
}

/* Returns true if `text` contains a whole reply. `values` counts the values
 * that are still to come; an array adds its elements. */
static bool is_reply_complete(const char *text, size_t size)
{
    size_t at = 0;
    long values = 1;

    while (values > 0) {
        const char *end = at < size ? memchr(text + at, '\n', size - at) : NULL;
        long number;

        if (!end)
            return false;
        number = strtol(text + at + 1, NULL, 10);
        if (text[at] == '*' && number > 0 && number < REPLY_MAX)
            values += number;
        else if (text[at] == '$' && number >= 0 && number < REPLY_MAX)
            end += number + 2;
        values--;
        at = (size_t)(end - text) + 1;
    }
    return at <= size;
}

static char *receive_reply(int fd, int64_t deadline, const char **why)
{
    size_t size = 0, capacity = 4096;
    char *text = malloc(capacity + 1);

    *why = "no answer";
    while (text && wait_for(fd, POLLIN, deadline)) {
        ssize_t rc = recv(fd, text + size, capacity - size, 0);

        if (rc <= 0)
            break;
        size += (size_t)rc;
        text[size] = '\0';
        if (is_reply_complete(text, size))
            return text;
        if (size == capacity) {
            char *larger =
                capacity < REPLY_MAX ? realloc(text, 2 * capacity + 1) : NULL;

            if (!larger)
                break;
            text = larger;
            capacity *= 2;
        }
    }
    free(text);
    return NULL;
}

char *cluster_request(const char *address, const char *const *words,
                      size_t count, int64_t deadline, const char **why)
{
    int fd = connect_node(address, deadline, why);
    char *reply = NULL;

    if (fd < 0)
        return NULL;
    *why = "no answer";
    if (send_node_command(fd, words, count, deadline))
        reply = receive_reply(fd, deadline, why);
    (void)close(fd);
    return reply;
}
