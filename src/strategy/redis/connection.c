#include "strategy/redis/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "strategy/keepalive.h"
#include "strategy/redis/socket.h"

#define BACK_OFF_MIN_MS 10u  /* back-off starts with at most this pause */
#define BACK_OFF_MAX_MS 1000 /* longest pause between attempts to connect */
#define HANDSHAKE_MS 5000    /* longest silence before the connection is up */
#define SILENCE_MS 15000     /* longest silence while replies are awaited */
#define READ_SIZE 16384      /* the most bytes that redisBufferRead() reads */
#define READS_MAX 2          /* reads in one turn */

static void lose_connection(struct hf_redis_connection *connection,
                            enum hf_err err, const char *text);

static void lose_by_io_error(struct hf_redis_connection *connection)
{
    const char *why =
        connection->address->tls ? hf_redis_tls_error_text() : NULL;

    lose_connection(connection, HF_EUNAVAIL,
                    why ? why : "the connection was lost");
}

/* ---- Writing ------------------------------------------------------------*/

static void set_socket_events(struct hf_redis_connection *connection,
                              uint32_t events)
{
    if (connection->fd.events == events)
        return;
    connection->fd.events = events;
    if (connection->host->ops->fd_change(connection->host, &connection->fd))
        lose_connection(connection, HF_ESYSTEM,
                        "cannot register the socket with epoll");
}

/* Returns true if a TLS handshake may be in progress. Then a write may be
 * blocked until something is read, and the socket is polled for input only,
 * because it stays writable and would wake the loop again and again. */
static bool is_tls_handshake(const struct hf_redis_connection *connection)
{
    return connection->address->tls && connection->state == HF_REDIS_HANDSHAKE;
}

static void flush_output(struct hf_redis_connection *connection)
{
    bool tls = connection->address->tls != NULL;

    if (!hf_redis_output_write(&connection->output, connection->context, tls))
        lose_by_io_error(connection);
    else
        set_socket_events(connection, connection->output.blocked &&
                                              !is_tls_handshake(connection)
                                          ? EPOLLIN | EPOLLOUT
                                          : EPOLLIN);
}

static void on_flush(struct hf_post *post)
{
    struct hf_redis_connection *connection =
        HF_CONTAINER(post, struct hf_redis_connection, flush);

    if (connection->state == HF_REDIS_HANDSHAKE ||
        connection->state == HF_REDIS_UP)
        flush_output(connection);
}

static bool can_send(const struct hf_redis_connection *connection)
{
    return connection->state == HF_REDIS_UP ||
           connection->state == HF_REDIS_HANDSHAKE;
}

/* The instant at which this client gives up a silent server. The limit is
 * generous: a server that stalls for some seconds, in a fork, a long script or
 * a paused machine, still replies, and reconnecting would only lose that reply.
 * The kernel detects a dead server sooner (socket.h). */
static hf_time silence_deadline(const struct hf_redis_connection *connection)
{
    return hf_time_add(connection->last_read_at,
                       connection->state == HF_REDIS_UP ? SILENCE_MS
                                                        : HANDSHAKE_MS);
}

/* Schedule the write of a command that was appended to the output, and expect
 * its reply, unless `call` is NULL. */
static void queue_call(struct hf_redis_connection *connection,
                       struct hf_redis_call *call)
{
    struct hf_host *host = connection->host;

    host->ops->defer(host, &connection->flush);
    if (!call)
        return;
    if (hf_dlist_is_empty(&connection->calls)) {
        connection->last_read_at = host->ops->now(host);
        hf_timer_set(host, &connection->timer, silence_deadline(connection));
    }
    hf_dlist_push_back(&connection->calls, &call->link);
}

bool hf_redis_connection_send(struct hf_redis_connection *connection,
                              struct hf_redis_call *call,
                              const struct hf_redis_resp_args *args)
{
    if (!can_send(connection) ||
        !hf_redis_resp_encode(args, &connection->output.bytes))
        return false;
    queue_call(connection, call);
    return true;
}

bool hf_redis_connection_send_bytes(struct hf_redis_connection *connection,
                                    struct hf_redis_call *call,
                                    const void *bytes, size_t size)
{
    struct hf_buf *out = &connection->output.bytes;
    bool failed;

    if (!can_send(connection))
        return false;
    hf_buf_raw(out, bytes, size);
    failed = out->failed;
    out->failed = false;
    if (!failed)
        queue_call(connection, call);
    return !failed;
}

/* ---- Reading ------------------------------------------------------------*/

static void dispatch_reply(struct hf_redis_connection *connection,
                           const redisReply *reply)
{
    struct hf_dlist *first = NULL;

    /* On a pub/sub connection that is up, every reply is a message, so no call
     * is taken from the queue. */
    if (connection->state != HF_REDIS_UP || !connection->channel)
        first = hf_dlist_take(&connection->calls);
    if (first) {
        struct hf_redis_call *call =
            HF_CONTAINER(first, struct hf_redis_call, link);

        call->reply(call, reply);
    } else if (connection->state == HF_REDIS_UP && connection->channel) {
        connection->ops->message(connection, reply);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        lose_connection(connection, HF_EUNAVAIL, reply->str);
    } else {
        lose_connection(connection, HF_EPROTO,
                        "unexpected reply from the server: no command awaits "
                        "one");
    }
}

/* A callback may lose the connection, which frees the context. So stop when the
 * context has changed. */
static void dispatch_replies(struct hf_redis_connection *connection)
{
    redisContext *context = connection->context;
    void *reply = NULL;

    while (connection->context == context) {
        if (hf_redis_reader_next(&connection->reader, &reply) != REDIS_OK) {
            lose_connection(connection, HF_EPROTO,
                            hf_redis_reader_error(&connection->reader));
            return;
        }
        if (!reply)
            return;
        dispatch_reply(connection, reply);
        freeReplyObject(reply);
    }
}

/* Continue in the next turn, after timers and other connections had a chance
 * to run. */
static void read_later(struct hf_redis_connection *connection)
{
    struct hf_waker *waker =
        connection->host->ops->post(connection->host, &connection->more);

    if (waker)
        hf_waker_wake(waker);
}

/* If hiredis fills its buffer, there may be more in the socket. Read on at
 * once, because a program that drives the client by hand may not come back
 * soon; but not without limit, because a server that sends faster than this
 * client reads must not keep it from renewing its leases. */
static void read_replies(struct hf_redis_connection *connection)
{
    redisContext *context = connection->context;

    for (int i = 0; i < READS_MAX; i++) {
        size_t before = context->reader->len, read;

        if (redisBufferRead(context) != REDIS_OK) {
            lose_by_io_error(connection);
            return;
        }
        read = context->reader->len - before;
        connection->last_read_at = connection->host->ops->now(connection->host);
        if (!hf_redis_reader_count(&connection->reader, read)) {
            lose_connection(connection, HF_EPROTO,
                            "a reply of the server is too long");
            return;
        }
        dispatch_replies(connection);
        if (connection->context != context || read < READ_SIZE)
            return;
    }
    read_later(connection);
}

static void on_more(struct hf_post *post)
{
    struct hf_redis_connection *connection =
        HF_CONTAINER(post, struct hf_redis_connection, more);

    if (connection->context)
        read_replies(connection);
}

/* ---- Connecting ---------------------------------------------------------*/

static void set_connection_state(struct hf_redis_connection *connection,
                                 enum hf_redis_state to)
{
    static const bool allowed[][4] = {
        [HF_REDIS_DOWN] = {[HF_REDIS_CONNECTING] = true},
        [HF_REDIS_CONNECTING] =
            {[HF_REDIS_DOWN] = true, [HF_REDIS_HANDSHAKE] = true},
        [HF_REDIS_HANDSHAKE] = {[HF_REDIS_DOWN] = true, [HF_REDIS_UP] = true},
        [HF_REDIS_UP] = {[HF_REDIS_DOWN] = true},
    };

    HF_ASSERT(allowed[connection->state][to]);
    connection->state = to;
}

static void on_connected(struct hf_redis_connection *connection)
{
    int failure = 0;
    socklen_t size = sizeof(failure);

    if (getsockopt(connection->fd.fd, SOL_SOCKET, SO_ERROR, &failure, &size))
        failure = errno;
    if (failure) {
        lose_connection(connection, HF_EUNAVAIL, strerror(failure));
        return;
    }
    connection->context->flags |= REDIS_CONNECTED;
    if (connection->address->port > 0)
        hf_keepalive_set(connection->fd.fd);
    set_connection_state(connection, HF_REDIS_HANDSHAKE);
    if (connection->address->tls &&
        !hf_redis_tls_begin(connection->address->tls, connection->context,
                            connection->address->host))
        lose_by_io_error(connection);
    else if (!hf_redis_handshake_start(connection))
        lose_connection(connection, HF_ENOMEM, hf_err_text(HF_ENOMEM));
    else
        flush_output(connection);
}

void hf_redis_connection_on_ready(struct hf_redis_connection *connection,
                                  uint32_t events)
{
    redisContext *context = connection->context;

    if (connection->state == HF_REDIS_CONNECTING) {
        on_connected(connection);
        return;
    }
    if (events & EPOLLOUT)
        flush_output(connection);
    if (connection->context == context && (events & ~(uint32_t)EPOLLOUT))
        read_replies(connection);
    /* Write now, because inside hf_open() no event loop runs that would write
     * later. */
    if (connection->context == context &&
        connection->state == HF_REDIS_HANDSHAKE &&
        hf_redis_output_is_pending(&connection->output))
        flush_output(connection);
}

static void on_socket_ready(struct hf_fd *fd, uint32_t events)
{
    hf_redis_connection_on_ready(
        HF_CONTAINER(fd, struct hf_redis_connection, fd), events);
}

void hf_redis_connection_connect(struct hf_redis_connection *connection)
{
    struct hf_host *host = connection->host;
    struct pollfd now = {.events = POLLOUT};

    set_connection_state(connection, HF_REDIS_CONNECTING);
    connection->context = hf_redis_socket_open(connection->address);
    if (!connection->context) {
        lose_connection(connection, HF_ENOMEM, hf_err_text(HF_ENOMEM));
        return;
    }
    if (connection->context->err) {
        lose_connection(connection, HF_EUNAVAIL, connection->context->errstr);
        return;
    }
    hf_redis_reader_init(&connection->reader, connection->context->reader);
    /* Child processes must not keep the connection open. */
    (void)fcntl(connection->context->fd, F_SETFD, FD_CLOEXEC);
    connection->fd.fd = connection->context->fd;
    now.fd = connection->context->fd;
    connection->fd.events = EPOLLOUT;
    if (host->ops->fd_add(host, &connection->fd)) {
        connection->fd.fd = -1;
        lose_connection(connection, HF_ESYSTEM,
                        "cannot register the socket with epoll");
        return;
    }
    connection->last_read_at = host->ops->now(host);
    hf_timer_set(host, &connection->timer, silence_deadline(connection));
    /* A connection to the same machine is often established at once, so check
     * that now and save a turn. */
    if (poll(&now, 1, 0) > 0)
        on_connected(connection);
}

static void close_socket(struct hf_redis_connection *connection)
{
    if (connection->fd.fd >= 0)
        connection->host->ops->fd_remove(connection->host, &connection->fd);
    connection->fd.fd = -1;
    if (connection->context)
        redisFree(connection->context);
    connection->context = NULL;
    hf_redis_output_fini(&connection->output);
    connection->host->ops->unpost(connection->host, &connection->flush);
    connection->host->ops->unpost(connection->host, &connection->more);
}

/* Add jitter, so that clients that lost their server together do not reconnect
 * together. */
static hf_time next_connect_time(struct hf_redis_connection *connection)
{
    struct hf_host *host = connection->host;
    unsigned shift = connection->failures < 7 ? connection->failures : 7;
    uint32_t span = BACK_OFF_MIN_MS << shift;

    if (span > BACK_OFF_MAX_MS)
        span = BACK_OFF_MAX_MS;
    span = span / 2 + hf_random_below(host->ops->random(host), span / 2 + 1);
    return hf_time_add(host->ops->now(host), span);
}

/* The loop terminates because the callbacks cannot send new calls while the
 * connection is down. */
static void fail_pending_calls(struct hf_redis_connection *connection)
{
    struct hf_dlist *first;

    while ((first = hf_dlist_take(&connection->calls))) {
        struct hf_redis_call *call =
            HF_CONTAINER(first, struct hf_redis_call, link);

        call->reply(call, NULL);
    }
}

/* `text` may point into the hiredis context, so copy it before close_socket()
 * frees the context. */
static void lose_connection(struct hf_redis_connection *connection,
                            enum hf_err err, const char *text)
{
    (void)hf_error_set(&connection->failure, err, "%s: %s",
                       connection->address->name, text);
    close_socket(connection);
    set_connection_state(connection, HF_REDIS_DOWN);
    hf_timer_set(connection->host, &connection->timer,
                 next_connect_time(connection));
    connection->failures++;
    fail_pending_calls(connection);
    connection->ops->down(connection);
}

void hf_redis_connection_drop(struct hf_redis_connection *connection,
                              enum hf_err err, const char *text)
{
    if (connection->state != HF_REDIS_DOWN)
        lose_connection(connection, err, text);
}

static void on_connection_timer(struct hf_timer *timer)
{
    struct hf_redis_connection *connection =
        HF_CONTAINER(timer, struct hf_redis_connection, timer);
    hf_time until = silence_deadline(connection);

    if (connection->state == HF_REDIS_DOWN)
        hf_redis_connection_connect(connection);
    else if (connection->state == HF_REDIS_UP &&
             hf_dlist_is_empty(&connection->calls))
        return;
    else if (connection->host->ops->now(connection->host) >= until)
        lose_connection(connection, HF_EUNAVAIL, "the server does not answer");
    else
        hf_timer_set(connection->host, &connection->timer, until);
}

bool hf_redis_connection_is_silent(const struct hf_redis_connection *connection,
                                   uint32_t ms)
{
    return connection->state == HF_REDIS_UP &&
           !hf_dlist_is_empty(&connection->calls) &&
           connection->host->ops->now(connection->host) >=
               hf_time_add(connection->last_read_at, ms);
}

/* The owner may refuse the server in `up` by dropping the connection. So the
 * failures are reset only if the connection is still up afterwards. */
void hf_redis_connection_on_handshake_done(
    struct hf_redis_connection *connection)
{
    set_connection_state(connection, HF_REDIS_UP);
    connection->ops->up(connection);
    if (connection->state == HF_REDIS_UP)
        connection->failures = 0;
}

/* ---- Opening and closing ------------------------------------------------*/

enum hf_err hf_redis_connection_open(struct hf_redis_connection *connection,
                                     struct hf_host *host,
                                     const struct hf_redis_address *address,
                                     const struct hf_redis_connection_ops *ops,
                                     const char *channel)
{
    enum hf_err err;

    connection->fd = (struct hf_fd){.fd = -1, .ready = on_socket_ready};
    connection->timer.fire = on_connection_timer;
    connection->flush.run = on_flush;
    connection->more.run = on_more;
    hf_dlist_init(&connection->calls);
    err = host->ops->timer_add(host, &connection->timer);
    if (err)
        return err;
    connection->host = host;
    connection->address = address;
    connection->ops = ops;
    connection->channel = channel;
    hf_redis_connection_connect(connection);
    return HF_OK;
}

void hf_redis_connection_close(struct hf_redis_connection *connection)
{
    if (!hf_redis_connection_is_open(connection))
        return;
    if (connection->state == HF_REDIS_UP)
        (void)hf_redis_output_write(&connection->output, connection->context,
                                    connection->address->tls != NULL);
    close_socket(connection);
    connection->state = HF_REDIS_DOWN;
    fail_pending_calls(connection);
    connection->host->ops->timer_remove(connection->host, &connection->timer);
    connection->host = NULL;
}
