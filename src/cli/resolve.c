#include "resolve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "loop.h"

#define HOST_SIZE 256

/* A name that a thread resolves. getaddrinfo() has no time limit: if it takes
 * too long, the caller leaves the thread behind, and the last of the two frees
 * this. */
struct lookup {
    atomic_int users;
    int done; /* an eventfd, readable when the thread has ended */
    char host[HOST_SIZE];
    char port[8];
    struct addrinfo *list;
    bool has_failed;
};

/* ---- The text -----------------------------------------------------------*/

/* Split "HOST:PORT" or "[HOST]:PORT". */
static bool split_node_address(const char *text, char host[HOST_SIZE],
                               uint16_t *port)
{
    const char *colon = strrchr(text, ':');
    size_t size = colon ? (size_t)(colon - text) : 0;
    unsigned long number = colon ? strtoul(colon + 1, NULL, 10) : 0;

    if (size > 2 && text[0] == '[' && text[size - 1] == ']') {
        text++;
        size -= 2;
    }
    if (size == 0 || size >= HOST_SIZE || number == 0 || number > 65535)
        return false;
    memcpy(host, text, size);
    host[size] = '\0';
    *port = (uint16_t)number;
    return true;
}

/* Returns false if `host` is a name. Nodes on this machine listen at 127.0.0.1,
 * so localhost is not resolved. */
static bool parse_numeric(const char *host, uint16_t port,
                          union resolve_address *address)
{
    memset(address, 0, sizeof(*address));
    address->v4.sin_family = AF_INET;
    address->v4.sin_port = htons(port);
    if (inet_pton(AF_INET, strcmp(host, "localhost") ? host : "127.0.0.1",
                  &address->v4.sin_addr) == 1)
        return true;
    memset(address, 0, sizeof(*address));
    address->v6.sin6_family = AF_INET6;
    address->v6.sin6_port = htons(port);
    return inet_pton(AF_INET6, host, &address->v6.sin6_addr) == 1;
}

/* ---- Names --------------------------------------------------------------*/

static void drop_lookup(struct lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->users, 1) > 1)
        return;
    if (lookup->list)
        freeaddrinfo(lookup->list);
    if (lookup->done >= 0)
        (void)close(lookup->done);
    free(lookup);
}

static void *name_resolver_main(void *arg)
{
    struct lookup *lookup = arg;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};

    lookup->has_failed =
        getaddrinfo(lookup->host, lookup->port, &hints, &lookup->list) != 0;
    (void)eventfd_write(lookup->done, 1);
    drop_lookup(lookup);
    return NULL;
}

/* Signals are for the other threads of the process. */
static bool start_resolver(struct lookup *lookup)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, old;
    int rc = pthread_attr_init(&attr);

    if (rc)
        return false;
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    atomic_store(&lookup->users, 2);
    rc = pthread_create(&thread, &attr, name_resolver_main, lookup);
    if (rc)
        atomic_store(&lookup->users, 1);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    (void)pthread_attr_destroy(&attr);
    return rc == 0;
}

static bool await_lookup(const struct lookup *lookup, int64_t deadline)
{
    struct pollfd done = {.fd = lookup->done, .events = POLLIN};
    int64_t left;
    int rc = 0;

    while (rc == 0 && (left = deadline - loop_now()) > 0) {
        rc = poll(&done, 1, left < 60000 ? (int)left : 60000);
        if (rc < 0 && errno == EINTR)
            rc = 0;
    }
    return rc > 0;
}

static size_t copy_found(const struct addrinfo *list,
                         union resolve_address found[RESOLVE_MAX])
{
    size_t count = 0;

    for (; list && count < RESOLVE_MAX; list = list->ai_next) {
        if (list->ai_addrlen <= sizeof(found[0]))
            memcpy(&found[count++], list->ai_addr, list->ai_addrlen);
    }
    return count;
}

static size_t resolve_node_name(struct lookup *lookup, int64_t deadline,
                                union resolve_address found[RESOLVE_MAX],
                                const char **why)
{
    *why = "the name cannot be resolved";
    lookup->done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lookup->done < 0 || !start_resolver(lookup))
        return 0;
    if (!await_lookup(lookup, deadline)) {
        *why = "the name was not resolved in time";
        return 0;
    }
    return lookup->has_failed ? 0 : copy_found(lookup->list, found);
}

size_t resolve_host(const char *text, int64_t deadline,
                    union resolve_address found[RESOLVE_MAX], const char **why)
{
    struct lookup *lookup;
    char host[HOST_SIZE];
    uint16_t port;
    size_t count;

    *why = "not an address";
    if (!split_node_address(text, host, &port))
        return 0;
    if (parse_numeric(host, port, &found[0]))
        return 1;
    lookup = calloc(1, sizeof(*lookup));
    *why = "out of memory";
    if (!lookup)
        return 0;
    atomic_init(&lookup->users, 1);
    memcpy(lookup->host, host, sizeof(host));
    (void)snprintf(lookup->port, sizeof(lookup->port), "%u", (unsigned)port);
    count = resolve_node_name(lookup, deadline, found, why);
    drop_lookup(lookup);
    return count;
}
