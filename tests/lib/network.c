#include "lib/network.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/loopback.h"

#define CONNECTIONS_MAX 500
#define POLL_MS 5      /* poll() timeout, so that `requests` is read */
#define CLIENT (-1)    /* a sender that is no server */
#define NO_SERVER (-1) /* no server is cut off */

struct hf_test_network_map {
    atomic_int ports[HF_TEST_NETWORK_MAX];
    atomic_int pids[HF_TEST_NETWORK_MAX];
    atomic_int cut_server;
    atomic_bool cut_clients;
    atomic_uint requests; /* changes of a cut so far */
    atomic_uint done;     /* how many of them have taken effect */
};

/* A forwarded connection, with its two sockets. `from` is the server that made
 * it, or CLIENT; `to` is the server behind the front. */
struct connection {
    int from, to;
    int ends[2];
};

/* The state of the forwarding process. */
struct exchange {
    struct hf_test_network_map *map;
    unsigned count;
    int listeners[HF_TEST_NETWORK_MAX];
    int fronts[HF_TEST_NETWORK_MAX];
    struct connection connections[CONNECTIONS_MAX];
    unsigned used;
};

/* ---- Identifying the sender ---------------------------------------------*/

/* The inode of the socket that has the local port `port` and is connected to
 * `front`, or 0 if there is none. */
static unsigned long find_socket(int port, int front)
{
    FILE *table = fopen("/proc/net/tcp", "re");
    unsigned long found = 0;
    char text[512];

    while (table && !found && fgets(text, sizeof(text), table)) {
        unsigned own = 0, other = 0;
        unsigned long number = 0;

        /* NOLINTNEXTLINE(cert-err34-c): the kernel writes numbers. */
        if (sscanf(text, "%*d: %*x:%x %*x:%x %*s %*s %*s %*s %*s %*s %lu", &own,
                   &other, &number) == 3 &&
            (int)own == port && (int)other == front)
            found = number;
    }
    if (table)
        (void)fclose(table);
    return found;
}

static bool has_socket(pid_t pid, unsigned long number)
{
    char path[300], wanted[64], target[64];
    bool found = false;
    struct dirent *entry;
    DIR *fds;

    (void)snprintf(wanted, sizeof(wanted), "socket:[%lu]", number);
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    fds = opendir(path);
    while (fds && !found && (entry = readdir(fds))) {
        ssize_t size;

        (void)snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pid,
                       entry->d_name);
        size = readlink(path, target, sizeof(target) - 1);
        target[size > 0 ? size : 0] = '\0';
        found = !strcmp(target, wanted);
    }
    if (fds)
        (void)closedir(fds);
    return found;
}

static int find_sender(const struct exchange *x, int fd, int front)
{
    struct sockaddr_in from = {0};
    socklen_t size = sizeof(from);
    unsigned long number;

    if (getpeername(fd, (struct sockaddr *)&from, &size))
        return CLIENT;
    number = find_socket(ntohs(from.sin_port), front);
    for (unsigned i = 0; number && i < x->count; i++)
        if (has_socket(atomic_load(&x->map->pids[i]), number))
            return (int)i;
    return CLIENT;
}

/* ---- Forwarding ---------------------------------------------------------*/

static bool is_cut(const struct exchange *x,
                   const struct connection *connection)
{
    int cut = atomic_load(&x->map->cut_server);

    if (connection->from == CLIENT)
        return atomic_load(&x->map->cut_clients);
    return connection->from != connection->to &&
           (connection->from == cut || connection->to == cut);
}

static void drop_connection(struct exchange *x, unsigned number)
{
    (void)close(x->connections[number].ends[0]);
    (void)close(x->connections[number].ends[1]);
    x->connections[number] = x->connections[--x->used];
}

static void accept_connection(struct exchange *x, unsigned server)
{
    struct connection connection = {.to = (int)server};
    int fd = accept(x->listeners[server], NULL, NULL);

    if (fd < 0)
        return;
    connection.from = find_sender(x, fd, x->fronts[server]);
    connection.ends[0] = fd;
    connection.ends[1] =
        x->used < CONNECTIONS_MAX && !is_cut(x, &connection)
            ? hf_test_connect(atomic_load(&x->map->ports[server]))
            : -1;
    if (connection.ends[1] < 0)
        (void)close(fd);
    else
        x->connections[x->used++] = connection;
}

/* Forward the bytes that have arrived. Returns false if the connection is
 * closed. */
static bool forward_bytes(int from, int to)
{
    char bytes[65536];
    ssize_t size = recv(from, bytes, sizeof(bytes), 0);

    for (ssize_t sent = 0; sent < size;) {
        ssize_t n = send(to, bytes + sent, (size_t)(size - sent), MSG_NOSIGNAL);

        if (n <= 0)
            return false;
        sent += n;
    }
    return size > 0;
}

/* Go from the last to the first, because a dropped connection is replaced by
 * the last one, which has then been served already. */
static void forward_all(struct exchange *x, const struct pollfd *fds)
{
    for (unsigned i = x->used; i-- > 0;) {
        const struct pollfd *pair = &fds[x->count + (size_t)2 * i];
        const int *ends = x->connections[i].ends;

        if (is_cut(x, &x->connections[i]) ||
            (pair[0].revents && !forward_bytes(ends[0], ends[1])) ||
            (pair[1].revents && !forward_bytes(ends[1], ends[0])))
            drop_connection(x, i);
    }
}

static _Noreturn void network_main(struct exchange *x)
{
    static struct pollfd fds[HF_TEST_NETWORK_MAX + 2 * CONNECTIONS_MAX];

    for (;;) {
        unsigned requests = atomic_load(&x->map->requests);
        unsigned used = 0;

        for (unsigned i = 0; i < x->count; i++)
            fds[used++] = (struct pollfd){x->listeners[i], POLLIN, 0};
        for (unsigned i = 0; i < 2 * x->used; i++)
            fds[used++] =
                (struct pollfd){x->connections[i / 2].ends[i % 2], POLLIN, 0};
        (void)poll(fds, used, POLL_MS);
        forward_all(x, fds);
        atomic_store(&x->map->done, requests);
        for (unsigned i = 0; i < x->count; i++)
            if (fds[i].revents)
                accept_connection(x, i);
    }
}

/* ---- Control ------------------------------------------------------------*/

bool hf_test_network_start(struct hf_test_network *network, unsigned count)
{
    static struct exchange x;

    x.count = network->count = count;
    x.map = network->map = mmap(NULL, sizeof(*x.map), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (x.map == MAP_FAILED)
        return false;
    atomic_store(&x.map->cut_server, NO_SERVER);
    for (unsigned i = 0; i < count; i++) {
        x.listeners[i] = hf_test_listen(&network->fronts[i]);
        x.fronts[i] = network->fronts[i];
        if (x.listeners[i] < 0)
            return false;
    }
    network->pid = fork();
    if (network->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        network_main(&x);
    }
    for (unsigned i = 0; i < count; i++)
        (void)close(x.listeners[i]);
    return network->pid > 0;
}

void hf_test_network_stop(struct hf_test_network *network)
{
    if (network->pid <= 0)
        return;
    (void)kill(network->pid, SIGKILL);
    (void)waitpid(network->pid, NULL, 0);
    network->pid = 0;
    (void)munmap(network->map, sizeof(*network->map));
}

void hf_test_network_set(struct hf_test_network *network, unsigned server,
                         int port, pid_t pid)
{
    atomic_store(&network->map->ports[server], port);
    atomic_store(&network->map->pids[server], pid);
}

static void await_done(struct hf_test_network *network)
{
    unsigned request = atomic_fetch_add(&network->map->requests, 1) + 1;

    while (atomic_load(&network->map->done) < request)
        (void)poll(NULL, 0, 1);
}

void hf_test_network_cut_server(struct hf_test_network *network, int server)
{
    atomic_store(&network->map->cut_server, server);
    await_done(network);
}

void hf_test_network_cut_clients(struct hf_test_network *network, bool cut)
{
    atomic_store(&network->map->cut_clients, cut);
    await_done(network);
}
