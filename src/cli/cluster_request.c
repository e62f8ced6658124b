#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster.h"
#include "failure.h"
#include "loop.h"
#include "resolve.h"

#define REQUEST_MAX 4096
#define REPLY_MAX (1 << 20)
#define RESOLVE_MS 5000 /* how long to wait for the address of a name */

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

/* Returns a connected socket, or -1 and the reason in `*why`. */
static int connect_address(const union resolve_address *address,
                           int64_t deadline, const char **why)
{
    socklen_t size = sizeof(int);
    int fd, error = 0;

    fd = socket(address->any.sa_family,
                SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    *why = "no connection";
    if (fd < 0)
        return -1;
    if (connect(fd, &address->any,
                address->any.sa_family == AF_INET ? sizeof(address->v4)
                                                  : sizeof(address->v6)))
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

/* Try one address after the other, each for its share of the time. */
static int connect_node(const union resolve_address *addresses, size_t count,
                        int64_t deadline, const char **why)
{
    int fd = -1;

    for (size_t i = 0; i < count && fd < 0; i++) {
        int64_t left = deadline - loop_now();

        fd = connect_address(
            &addresses[i], deadline - left + left / (int64_t)(count - i), why);
    }
    return fd;
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
    union resolve_address addresses[RESOLVE_MAX];
    int64_t started = loop_now();
    size_t found = resolve_host(address, started + RESOLVE_MS, addresses, why);
    char *reply = NULL;
    int fd;

    if (found == 0)
        return NULL;
    deadline += loop_now() - started; /* resolving has a limit of its own */
    fd = connect_node(addresses, found, deadline, why);
    if (fd < 0)
        return NULL;
    *why = "no answer";
    if (send_node_command(fd, words, count, deadline))
        reply = receive_reply(fd, deadline, why);
    (void)close(fd);
    return reply;
}
