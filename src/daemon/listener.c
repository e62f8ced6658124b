#include "daemon/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/container.h"

#define BACKLOG 511
#define ACCEPTS_MAX 64 /* connections accepted before others are served */
#define RETRY_MS 100   /* pause if descriptors or memory are exhausted */

static void poll_listener(struct hf_listener *listener);

/* ---- Without descriptors ------------------------------------------------*/

static void open_spare(struct hf_listener *listener)
{
    if (listener->spare < 0)
        listener->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void close_spare(struct hf_listener *listener)
{
    if (listener->spare >= 0)
        (void)close(listener->spare);
    listener->spare = -1;
}

static void refuse_connection(struct hf_listener *listener, int fd)
{
    if (listener->refusal)
        (void)send(fd, listener->refusal, strlen(listener->refusal),
                   MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)close(fd);
    listener->on_refused(listener);
}

/* Accept a connection with the spare descriptor and refuse it, so that
 * its client tries another node at once. Returns false if that is
 * impossible. */
static bool refuse_one(struct hf_listener *listener)
{
    int fd;

    if (listener->spare < 0)
        return false;
    close_spare(listener);
    fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        refuse_connection(listener, fd);
    open_spare(listener);
    return fd >= 0;
}

static void on_retry(uv_timer_t *timer)
{
    struct hf_listener *listener =
        HF_CONTAINER(timer, struct hf_listener, retry);

    open_spare(listener);
    poll_listener(listener);
}

/* Leave connections in the kernel's queue for a while. Without a pause the loop
 * would call again at once, because the socket stays readable. */
static void pause_listener(struct hf_listener *listener)
{
    (void)uv_poll_stop(&listener->poll);
    (void)uv_timer_start(&listener->retry, on_retry, RETRY_MS, 0);
}

/* ---- Accepting ----------------------------------------------------------*/

static void add_connection(struct hf_listener *listener, int fd)
{
    struct hf_stream *stream = NULL;

    if (listener->count < listener->max)
        stream =
            hf_stream_new(listener->streams, listener->kind, listener->arg);
    if (!stream || uv_tcp_open(&stream->tcp, fd)) {
        refuse_connection(listener, fd);
    } else if (!hf_stream_begin(stream)) {
        listener->count++;
        listener->on_accept(listener, stream);
        return;
    } else {
        listener->on_refused(listener);
    }
    if (stream)
        hf_stream_close(stream);
}

/* Returns false if no other connection can be accepted now. */
static bool accept_one(struct hf_listener *listener)
{
    int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd >= 0) {
        add_connection(listener, fd);
        return true;
    }
    switch (errno) {
    case EAGAIN:
        return false;
    case EMFILE:
    case ENFILE:
        if (refuse_one(listener))
            return true;
        break;
    case ENOBUFS:
    case ENOMEM:
        break;
    default:
        return true; /* this connection failed; others may wait */
    }
    pause_listener(listener);
    return false;
}

/* `status` may be an error, which accept4() reports as well. */
static void on_connections(uv_poll_t *poll, int status, int events)
{
    struct hf_listener *listener = HF_CONTAINER(poll, struct hf_listener, poll);

    (void)status;
    (void)events;
    for (unsigned i = 0; i < ACCEPTS_MAX && listener->is_open; i++) {
        if (!accept_one(listener))
            return;
    }
}

static void poll_listener(struct hf_listener *listener)
{
    if (uv_poll_start(&listener->poll, UV_READABLE, on_connections))
        pause_listener(listener);
}

/* ---- Opening and closing ------------------------------------------------*/

/* Returns a socket that listens at `address`, or a negative errno value. */
static int listen_at(const struct hf_address *address)
{
    const struct sockaddr *to = &address->socket.any;
    socklen_t size = to->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                               : sizeof(struct sockaddr_in);
    int fd =
        socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int failure;

    if (fd < 0)
        return -errno;
    /* Connections of a former process may linger at this port. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (!bind(fd, to, size) && !listen(fd, BACKLOG))
        return fd;
    failure = errno;
    (void)close(fd);
    return -failure;
}

static int start_listening(struct hf_listener *listener,
                           const struct hf_address *address)
{
    uv_loop_t *loop = listener->streams->loop;
    int fd = listen_at(address);
    int rc;

    if (fd < 0)
        return fd;
    rc = uv_timer_init(loop, &listener->retry);
    if (!rc)
        rc = uv_poll_init_socket(loop, &listener->poll, fd);
    if (rc) {
        (void)close(fd);
        return rc;
    }
    listener->fd = fd;
    listener->spare = -1;
    listener->is_open = true;
    open_spare(listener);
    poll_listener(listener);
    return 0;
}

enum hf_err hf_listener_open(struct hf_listener *listener,
                             const struct hf_address *address,
                             struct hf_error *error)
{
    int rc = start_listening(listener, address);

    if (!rc)
        return HF_OK;
    if (rc == -EADDRINUSE)
        return hf_error_set(error, HF_EUNAVAIL,
                            "cannot listen on %s: another process uses this "
                            "port. Stop it, or change the port in the file "
                            "config of every member.",
                            address->text);
    return hf_error_set(error, HF_ESYSTEM, "cannot listen on %s: %s",
                        address->text, strerror(-rc));
}

void hf_listener_close(struct hf_listener *listener)
{
    if (!listener->is_open)
        return;
    listener->is_open = false;
    uv_close((uv_handle_t *)&listener->poll, NULL);
    uv_close((uv_handle_t *)&listener->retry, NULL);
    (void)close(listener->fd);
    close_spare(listener);
}

void hf_listener_forget(struct hf_listener *listener)
{
    listener->count--;
}
