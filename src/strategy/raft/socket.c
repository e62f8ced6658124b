/* socket.c - the transport over TCP, in the client's event loop. */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "strategy/raft/transport.h"

#define READ_SIZE 16384 /* bytes read at once */
#define KEEP_SIZE 65536 /* a larger buffer is freed once it is written */
#define UNACKED_MS 5000 /* how long data may stay unacknowledged by the node */

struct hf_raft_socket {
    struct hf_raft_sockets *sockets;
    struct hf_raft_stream *stream;
    struct hf_raft_address *address;
    struct hf_dlist link; /* in sockets->open */
    struct hf_fd fd;
    unsigned tried; /* how many of address->found were tried */
    bool is_open;   /* connected; `opened` was called */
    struct hf_buf unsent;
    size_t sent; /* bytes of `unsent` that were sent */
};

static struct hf_raft_sockets *sockets_of(struct hf_raft_transport *transport)
{
    return HF_CONTAINER(transport, struct hf_raft_sockets, transport);
}

/* ---- Closing ------------------------------------------------------------*/

static void close_fd(struct hf_raft_socket *socket)
{
    struct hf_host *host = socket->sockets->host;

    if (socket->fd.fd < 0)
        return;
    host->ops->fd_remove(host, &socket->fd);
    (void)close(socket->fd.fd);
    socket->fd.fd = -1;
}

static void free_socket(struct hf_raft_socket *socket)
{
    close_fd(socket);
    hf_dlist_remove(&socket->link);
    hf_buf_fini(&socket->unsent);
    socket->stream->handle = NULL;
    free(socket);
}

static void lose_socket(struct hf_raft_socket *socket, const char *text)
{
    struct hf_raft_stream *stream = socket->stream;

    free_socket(socket);
    stream->ops->lost(stream, HF_EUNAVAIL, text);
}

static void socket_close(struct hf_raft_transport *transport,
                         struct hf_raft_stream *stream)
{
    (void)transport;
    free_socket(stream->handle);
}

/* ---- Connecting ---------------------------------------------------------*/

/* Set address->found. Blocks if the host is a name. A name is resolved at the
 * first attempt to connect to its node, and again after all of its addresses
 * have failed. */
static enum hf_err resolve_host(struct hf_raft_address *address,
                                struct hf_error *error)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found;
    char port[8];
    int failed;

    (void)snprintf(port, sizeof(port), "%u", address->port);
    failed = getaddrinfo(address->host, port, &hints, &found);
    if (failed)
        return hf_error_set(error, HF_EUNAVAIL, "%s: cannot resolve: %s",
                            address->name, gai_strerror(failed));
    for (const struct addrinfo *next = found;
         next && address->found_count < HF_RAFT_FOUND_MAX;
         next = next->ai_next) {
        if (next->ai_addrlen <= sizeof(address->found[0]))
            memcpy(&address->found[address->found_count++], next->ai_addr,
                   next->ai_addrlen);
    }
    freeaddrinfo(found);
    return HF_OK;
}

/* Send small messages at once, and detect a dead machine. */
static void set_socket_options(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 5},
        {IPPROTO_TCP, TCP_KEEPINTVL, 2},
        {IPPROTO_TCP, TCP_KEEPCNT, 3},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, UNACKED_MS},
    };

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        (void)setsockopt(fd, options[i].level, options[i].name,
                         &options[i].value, sizeof(options[i].value));
}

/* Start to connect. Returns false and sets errno if that fails at once. */
static bool connect_to(struct hf_raft_socket *socket_,
                       const struct sockaddr_storage *to)
{
    struct hf_host *host = socket_->sockets->host;
    socklen_t size = to->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                               : sizeof(struct sockaddr_in);
    int fd =
        socket(to->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int failure;

    if (fd < 0)
        return false;
    set_socket_options(fd);
    if (connect(fd, (const struct sockaddr *)to, size) == 0 ||
        errno == EINPROGRESS) {
        socket_->fd.fd = fd;
        socket_->fd.events = EPOLLOUT;
        if (!host->ops->fd_add(host, &socket_->fd))
            return true;
        socket_->fd.fd = -1;
    }
    failure = errno;
    (void)close(fd);
    errno = failure;
    return false;
}

/* Start to connect to an address of the host that was not tried yet. Returns
 * false if none is left; errno is that of the last attempt. */
static bool try_next_address(struct hf_raft_socket *socket)
{
    struct hf_raft_address *address = socket->address;

    while (socket->tried < address->found_count) {
        if (connect_to(socket, &address->found[socket->tried++]))
            return true;
    }
    address->found_count = 0; /* resolve the name again next time */
    return false;
}

static void on_connect_ready(struct hf_raft_socket *socket)
{
    struct hf_host *host = socket->sockets->host;
    struct hf_raft_stream *stream = socket->stream;
    int failure = 0;
    socklen_t size = sizeof(failure);

    if (getsockopt(socket->fd.fd, SOL_SOCKET, SO_ERROR, &failure, &size))
        failure = errno;
    if (failure) {
        close_fd(socket);
        errno = failure;
        if (!try_next_address(socket))
            lose_socket(socket, strerror(errno));
        return;
    }
    socket->is_open = true;
    socket->fd.events = EPOLLIN;
    if (host->ops->fd_change(host, &socket->fd))
        lose_socket(socket, "cannot register the socket with epoll");
    else
        stream->ops->opened(stream);
}

/* ---- Writing ------------------------------------------------------------*/

static void poll_socket(struct hf_raft_socket *socket, uint32_t events)
{
    struct hf_host *host = socket->sockets->host;

    if (socket->fd.events == events)
        return;
    socket->fd.events = events;
    (void)host->ops->fd_change(host, &socket->fd);
}

/* Returns how many bytes were sent. If the socket is broken, all bytes count as
 * sent: the next read reports the loss. */
static size_t send_now(const struct hf_raft_socket *socket, const void *data,
                       size_t size)
{
    ssize_t sent = send(socket->fd.fd, data, size, MSG_NOSIGNAL);

    if (sent < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : size;
    return (size_t)sent;
}

static void send_unsent(struct hf_raft_socket *socket)
{
    struct hf_buf *unsent = &socket->unsent;

    socket->sent += send_now(socket, unsent->data + socket->sent,
                             unsent->size - socket->sent);
    if (socket->sent < unsent->size)
        return;
    unsent->size = 0;
    socket->sent = 0;
    if (unsent->capacity > KEEP_SIZE)
        hf_buf_fini(unsent);
    poll_socket(socket, EPOLLIN);
}

static bool write_stream(struct hf_raft_transport *transport,
                         struct hf_raft_stream *stream, const void *data,
                         size_t size)
{
    struct hf_raft_socket *socket = stream->handle;
    size_t sent = 0;

    (void)transport;
    if (socket->unsent.size == 0)
        sent = send_now(socket, data, size);
    if (sent == size)
        return true;
    hf_buf_raw(&socket->unsent, (const uint8_t *)data + sent, size - sent);
    if (socket->unsent.failed)
        return false;
    poll_socket(socket, EPOLLIN | EPOLLOUT);
    return true;
}

/* ---- Reading ------------------------------------------------------------*/

/* Read only once: the owner may close the stream, and if there is more to read,
 * the event loop calls again. */
static void read_socket(struct hf_raft_socket *socket)
{
    struct hf_raft_stream *stream = socket->stream;
    uint8_t input[READ_SIZE];
    ssize_t size = recv(socket->fd.fd, input, sizeof(input), 0);

    if (size > 0)
        stream->ops->data(stream, input, (size_t)size);
    else if (size == 0)
        lose_socket(socket, "the node closed the connection");
    else if (errno != EAGAIN && errno != EINTR)
        lose_socket(socket, strerror(errno));
}

static void on_raft_socket_ready(struct hf_fd *fd, uint32_t events)
{
    struct hf_raft_socket *socket = HF_CONTAINER(fd, struct hf_raft_socket, fd);

    if (!socket->is_open) {
        on_connect_ready(socket);
        return;
    }
    if (events & EPOLLOUT && socket->unsent.size > 0)
        send_unsent(socket);
    if (events & ~(uint32_t)EPOLLOUT)
        read_socket(socket);
}

/* ---- The transport ------------------------------------------------------*/

static enum hf_err connect_stream(struct hf_raft_transport *transport,
                                  struct hf_raft_stream *stream,
                                  struct hf_raft_address *address,
                                  struct hf_error *error)
{
    struct hf_raft_sockets *sockets = sockets_of(transport);
    struct hf_raft_socket *socket;
    enum hf_err err = HF_OK;

    if (address->found_count == 0)
        err = resolve_host(address, error);
    if (err)
        return err;
    socket = calloc(1, sizeof(*socket));
    if (!socket)
        return hf_error_set_code(error, HF_ENOMEM);
    socket->sockets = sockets;
    socket->stream = stream;
    socket->address = address;
    socket->fd = (struct hf_fd){.fd = -1, .ready = on_raft_socket_ready};
    hf_dlist_push_back(&sockets->open, &socket->link);
    stream->handle = socket;
    if (try_next_address(socket))
        return HF_OK;
    err = hf_error_set(error, HF_EUNAVAIL, "%s: %s", address->name,
                       strerror(errno));
    free_socket(socket);
    return err;
}

#define WAIT_MAX 4 /* more than the two streams of a client */

static void wait_for_streams(struct hf_raft_transport *transport, hf_time until)
{
    struct hf_raft_sockets *sockets = sockets_of(transport);
    struct hf_fd *owners[WAIT_MAX];
    struct pollfd fds[WAIT_MAX];
    unsigned count = 0;
    int ready;

    for (struct hf_dlist *link = sockets->open.next;
         link != &sockets->open && count < WAIT_MAX; link = link->next) {
        struct hf_raft_socket *socket =
            HF_CONTAINER(link, struct hf_raft_socket, link);
        bool writes = socket->fd.events & EPOLLOUT;

        owners[count] = &socket->fd;
        fds[count++] = (struct pollfd){
            .fd = socket->fd.fd,
            .events = (short)(writes ? POLLIN | POLLOUT : POLLIN)};
    }
    ready = poll(fds, count, (int)hf_time_left(until, hf_time_now()));
    /* A callback may close other streams, so handle one event at a time. */
    for (unsigned i = 0; ready > 0 && i < count; i++) {
        if (!fds[i].revents)
            continue;
        on_raft_socket_ready(owners[i],
                             (fds[i].revents & POLLOUT ? EPOLLOUT : 0u) |
                                 (fds[i].revents & ~POLLOUT ? EPOLLIN : 0u));
        return;
    }
}

static const struct hf_raft_transport_ops socket_ops = {
    .connect = connect_stream,
    .write = write_stream,
    .close = socket_close,
    .wait = wait_for_streams,
};

void hf_raft_sockets_init(struct hf_raft_sockets *sockets, struct hf_host *host)
{
    sockets->transport.ops = &socket_ops;
    sockets->host = host;
    hf_dlist_init(&sockets->open);
}
