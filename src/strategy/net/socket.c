/* socket.c - the transport over TCP, in the client's event loop. */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "strategy/keepalive.h"
#include "strategy/net/resolver.h"
#include "strategy/net/transport.h"

#define READ_SIZE 16384 /* bytes read at once */
#define KEEP_SIZE 65536 /* a larger buffer is freed once it is written */

struct hf_net_socket {
    struct hf_net_sockets *sockets;
    struct hf_net_stream *stream;
    struct hf_net_address *address;
    struct hf_dlist link; /* in sockets->open */
    struct hf_fd fd;
    unsigned tried; /* how many of address->found were tried */
    bool is_open;   /* connected; `opened` was called */
    struct hf_buf unsent;
    size_t sent; /* bytes of `unsent` that were sent */
};

static struct hf_net_sockets *sockets_of(struct hf_net_transport *transport)
{
    return HF_CONTAINER(transport, struct hf_net_sockets, transport);
}

/* ---- Closing ------------------------------------------------------------*/

static void close_fd(struct hf_net_socket *socket)
{
    struct hf_host *host = socket->sockets->host;

    if (socket->fd.fd < 0)
        return;
    host->ops->fd_remove(host, &socket->fd);
    (void)close(socket->fd.fd);
    socket->fd.fd = -1;
}

static void free_socket(struct hf_net_socket *socket)
{
    close_fd(socket);
    hf_dlist_remove(&socket->link);
    hf_buf_fini(&socket->unsent);
    socket->stream->handle = NULL;
    free(socket);
}

static void lose_socket(struct hf_net_socket *socket, const char *text)
{
    struct hf_net_stream *stream = socket->stream;

    free_socket(socket);
    stream->ops->lost(stream, HF_EUNAVAIL, text);
}

static void socket_close(struct hf_net_transport *transport,
                         struct hf_net_stream *stream)
{
    (void)transport;
    free_socket(stream->handle);
}

/* ---- Connecting ---------------------------------------------------------*/

static void on_names_ready(struct hf_fd *fd, uint32_t events);

/* Make the resolver when the first name has to be resolved. */
static enum hf_err open_resolver(struct hf_net_sockets *sockets)
{
    struct hf_host *host = sockets->host;
    struct hf_net_resolver *resolver;

    if (sockets->resolver)
        return HF_OK;
    resolver = hf_net_resolver_new();
    if (!resolver)
        return HF_ENOMEM;
    sockets->names = (struct hf_fd){.fd = hf_net_resolver_fd(resolver),
                                    .events = EPOLLIN,
                                    .ready = on_names_ready};
    if (host->ops->fd_add(host, &sockets->names)) {
        hf_net_resolver_close(resolver);
        return HF_ENOMEM;
    }
    sockets->resolver = resolver;
    return HF_OK;
}

static enum hf_err resolve_name(struct hf_net_sockets *sockets,
                                struct hf_net_address *address)
{
    enum hf_err err = open_resolver(sockets);

    return err ? err : hf_net_resolver_start(sockets->resolver, address);
}

/* Send small messages at once, and detect a dead machine. */
static void set_socket_options(int fd)
{
    static const int on = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    hf_keepalive_set(fd);
}

/* Start to connect. Returns false and sets errno if that fails at once. */
static bool connect_to(struct hf_net_socket *socket_,
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

/* Start to connect to the next address of the host. If none is left, returns
 * false, and errno is that of the last attempt; the name is resolved again in
 * the background, because its addresses may have changed. */
static bool try_next_address(struct hf_net_socket *socket)
{
    struct hf_net_address *address = socket->address;
    int failure;

    while (socket->tried < address->found_count) {
        if (connect_to(socket, &address->found[socket->tried++]))
            return true;
    }
    failure = errno;
    if (!hf_net_resolve_numeric(address))
        (void)resolve_name(socket->sockets, address);
    errno = failure;
    return false;
}

static void on_connect_ready(struct hf_net_socket *socket)
{
    struct hf_host *host = socket->sockets->host;
    struct hf_net_stream *stream = socket->stream;
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

/* ---- Names --------------------------------------------------------------*/

/* A socket that waits for the addresses of `address`, or NULL. */
static struct hf_net_socket *find_waiting(struct hf_net_sockets *sockets,
                                          const struct hf_net_address *address)
{
    for (struct hf_dlist *link = sockets->open.next; link != &sockets->open;
         link = link->next) {
        struct hf_net_socket *socket =
            HF_CONTAINER(link, struct hf_net_socket, link);

        /* A socket that was freed is not in the list any more.
         * NOLINTNEXTLINE(clang-analyzer-unix.Malloc). */
        if (socket->address == address && socket->fd.fd < 0)
            return socket;
    }
    return NULL;
}

static void lose_unresolved(struct hf_net_socket *socket, const char *failure)
{
    struct hf_error error;

    (void)hf_error_set(&error, HF_EUNAVAIL, "cannot resolve: %s", failure);
    lose_socket(socket, error.text);
}

/* Losing a socket may close others, so search again after each. */
static void on_names_ready(struct hf_fd *fd, uint32_t events)
{
    struct hf_net_sockets *sockets =
        HF_CONTAINER(fd, struct hf_net_sockets, names);
    const struct hf_net_address *address;
    struct hf_net_socket *socket;
    const char *failure;

    (void)events;
    while ((address = hf_net_resolver_take(sockets->resolver, &failure))) {
        while ((socket = find_waiting(sockets, address))) {
            if (address->found_count == 0)
                lose_unresolved(socket, failure);
            else if (!try_next_address(socket))
                lose_socket(socket, strerror(errno));
        }
    }
}

/* ---- Writing ------------------------------------------------------------*/

static void poll_socket(struct hf_net_socket *socket, uint32_t events)
{
    struct hf_host *host = socket->sockets->host;

    if (socket->fd.events == events)
        return;
    socket->fd.events = events;
    (void)host->ops->fd_change(host, &socket->fd);
}

/* Returns how many bytes were sent. If the socket is broken, all bytes count as
 * sent: the next read reports the loss. */
static size_t send_now(const struct hf_net_socket *socket, const void *data,
                       size_t size)
{
    ssize_t sent = send(socket->fd.fd, data, size, MSG_NOSIGNAL);

    if (sent < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : size;
    return (size_t)sent;
}

static void send_unsent(struct hf_net_socket *socket)
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

static bool write_stream(struct hf_net_transport *transport,
                         struct hf_net_stream *stream, const void *data,
                         size_t size)
{
    struct hf_net_socket *socket = stream->handle;
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
static void read_socket(struct hf_net_socket *socket)
{
    struct hf_net_stream *stream = socket->stream;
    uint8_t input[READ_SIZE];
    ssize_t size = recv(socket->fd.fd, input, sizeof(input), 0);

    if (size > 0)
        stream->ops->data(stream, input, (size_t)size);
    else if (size == 0)
        lose_socket(socket, "the node closed the connection");
    else if (errno != EAGAIN && errno != EINTR)
        lose_socket(socket, strerror(errno));
}

static void on_socket_ready(struct hf_fd *fd, uint32_t events)
{
    struct hf_net_socket *socket = HF_CONTAINER(fd, struct hf_net_socket, fd);

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

/* Begin to connect, or wait for the addresses of the name. */
static enum hf_err start_connecting(struct hf_net_socket *socket,
                                    struct hf_error *error)
{
    struct hf_net_address *address = socket->address;
    enum hf_err err;

    if (address->found_count == 0 && !hf_net_resolve_numeric(address)) {
        err = resolve_name(socket->sockets, address);
        return err ? hf_error_set(error, err,
                                  "%s: cannot start to resolve the name: %s",
                                  address->name, hf_err_text(err))
                   : HF_OK;
    }
    if (try_next_address(socket))
        return HF_OK;
    return hf_error_set(error, HF_EUNAVAIL, "%s: %s", address->name,
                        strerror(errno));
}

static enum hf_err connect_stream(struct hf_net_transport *transport,
                                  struct hf_net_stream *stream,
                                  struct hf_net_address *address,
                                  struct hf_error *error)
{
    struct hf_net_sockets *sockets = sockets_of(transport);
    struct hf_net_socket *socket = calloc(1, sizeof(*socket));
    enum hf_err err;

    if (!socket)
        return hf_error_set_code(error, HF_ENOMEM);
    socket->sockets = sockets;
    socket->stream = stream;
    socket->address = address;
    socket->fd = (struct hf_fd){.fd = -1, .ready = on_socket_ready};
    hf_dlist_push_back(&sockets->open, &socket->link);
    stream->handle = socket;
    err = start_connecting(socket, error);
    if (err)
        free_socket(socket);
    return err;
}

#define WAIT_MAX (HF_QUORUM_MASTERS_MAX + 1) /* all streams, the resolver */

static void wait_for_streams(struct hf_net_transport *transport, hf_time until)
{
    struct hf_net_sockets *sockets = sockets_of(transport);
    struct hf_fd *owners[WAIT_MAX];
    struct pollfd fds[WAIT_MAX];
    unsigned count = 0;
    int ready;

    if (sockets->resolver) {
        owners[count] = &sockets->names;
        fds[count++] =
            (struct pollfd){.fd = sockets->names.fd, .events = POLLIN};
    }
    for (struct hf_dlist *link = sockets->open.next;
         link != &sockets->open && count < WAIT_MAX; link = link->next) {
        struct hf_net_socket *socket =
            HF_CONTAINER(link, struct hf_net_socket, link);
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
        owners[i]->ready(owners[i],
                         (fds[i].revents & POLLOUT ? EPOLLOUT : 0u) |
                             (fds[i].revents & ~POLLOUT ? EPOLLIN : 0u));
        return;
    }
}

/* Resolve all names now, so that a client that has lost its node does not have
 * to wait for that. */
static void resolve_all(struct hf_net_transport *transport,
                        struct hf_net_addresses *addresses)
{
    struct hf_net_sockets *sockets = sockets_of(transport);

    for (unsigned i = 0; i < addresses->count; i++) {
        if (!hf_net_resolve_numeric(&addresses->list[i]))
            (void)resolve_name(sockets, &addresses->list[i]);
    }
}

static const struct hf_net_transport_ops socket_ops = {
    .resolve = resolve_all,
    .connect = connect_stream,
    .write = write_stream,
    .close = socket_close,
    .wait = wait_for_streams,
};

void hf_net_sockets_init(struct hf_net_sockets *sockets, struct hf_host *host)
{
    sockets->transport.ops = &socket_ops;
    sockets->host = host;
    hf_dlist_init(&sockets->open);
}

void hf_net_sockets_fini(struct hf_net_sockets *sockets)
{
    struct hf_host *host = sockets->host;

    if (!sockets->resolver)
        return;
    host->ops->fd_remove(host, &sockets->names);
    hf_net_resolver_close(sockets->resolver);
    sockets->resolver = NULL;
}
