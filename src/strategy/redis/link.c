#include "strategy/redis/link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#ifdef HF_REDIS_TLS
#include <signal.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "strategy/redis/socket.h"

#define REST_MIN_MS 10u   /* before the second attempt to connect */
#define REST_MAX_MS 1000  /* and before any later one */
#define HANDSHAKE_MS 5000 /* connecting: between two signs of life */
#define SILENCE_MS 15000  /* up, with replies awaited: the connection is lost */
#define READ_SIZE 16384   /* of hiredis */
#define READS_MAX 2       /* at a time */
#define KEEP_SIZE 65536   /* of what is to be written */

static void lose(struct hf_redis_link *link, enum hf_err err, const char *text);

/* Lost while reading or writing. */
static void lose_by_error(struct hf_redis_link *link)
{
    const char *why = link->address->tls ? hf_redis_tls_failure() : NULL;

    lose(link, HF_EUNAVAIL, why ? why : "the connection was lost");
}

/* ---- Writing ------------------------------------------------------------*/

/* All of it is gone. What a burst has made large is given back. */
static void forget_written(struct hf_buf *out)
{
    out->size = 0;
    if (out->capacity > KEEP_SIZE)
        hf_buf_fini(out);
}

#ifdef HF_REDIS_TLS
/* hiredis writes without MSG_NOSIGNAL. A SIGPIPE goes to the thread that
 * writes: it is held back, and taken out of what is pending if it is ours. */
static int write_quietly(redisContext *context, int *done)
{
    struct timespec now = {0};
    sigset_t pipe, before, pending;
    int status;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    status = redisBufferWrite(context, done);
    if (status != REDIS_OK && sigismember(&before, SIGPIPE) == 0 &&
        !sigpending(&pending) && sigismember(&pending, SIGPIPE) == 1)
        (void)sigtimedwait(&pipe, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

/* What is encrypted goes through hiredis. */
static bool write_encrypted(struct hf_redis_link *link)
{
    struct hf_buf *out = &link->out;
    int done = 0;

    if (out->size > 0 &&
        redisAppendFormattedCommand(link->context, (const char *)out->data,
                                    out->size) != REDIS_OK)
        return false;
    forget_written(out);
    if (write_quietly(link->context, &done) != REDIS_OK)
        return false;
    link->unwritten = !done;
    return true;
}
#endif

/* By our own hands, because hiredis writes without MSG_NOSIGNAL. */
static bool write_plain(struct hf_redis_link *link)
{
    struct hf_buf *out = &link->out;
    ssize_t written;

    if (out->size > link->written) {
        written = send(link->fd.fd, out->data + link->written,
                       out->size - link->written, MSG_NOSIGNAL);
        if (written < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        link->written += written > 0 ? (size_t)written : 0;
    }
    link->unwritten = link->written < out->size;
    if (!link->unwritten) {
        forget_written(out);
        link->written = 0;
    }
    return true;
}

static bool write_some(struct hf_redis_link *link)
{
#ifdef HF_REDIS_TLS
    if (link->address->tls)
        return write_encrypted(link);
#endif
    return write_plain(link);
}

static void watch_for(struct hf_redis_link *link, uint32_t events)
{
    if (link->fd.events == events)
        return;
    link->fd.events = events;
    if (link->host->ops->fd_change(link->host, &link->fd))
        lose(link, HF_ESYSTEM, "cannot watch the connection");
}

/* With TLS, what is to be written first may have to wait for what is read. */
static bool shakes_hands(const struct hf_redis_link *link)
{
    return link->address->tls && link->state == HF_REDIS_GREETING;
}

static void write_out(struct hf_redis_link *link)
{
    if (!write_some(link))
        lose_by_error(link);
    else
        watch_for(link, link->unwritten && !shakes_hands(link)
                            ? EPOLLIN | EPOLLOUT
                            : EPOLLIN);
}

static void flush(struct hf_post *post)
{
    struct hf_redis_link *link =
        HF_CONTAINER(post, struct hf_redis_link, flush);

    if (link->state == HF_REDIS_GREETING || link->state == HF_REDIS_UP)
        write_out(link);
}

static bool can_send(const struct hf_redis_link *link)
{
    return link->state == HF_REDIS_UP || link->state == HF_REDIS_GREETING;
}

/* When to give up on the server, if nothing comes until then. A server that
 * stalls for some seconds, in a fork, a long script or a paused machine, still
 * answers, and the answer counts: to connect again would only lose it. A peer
 * that is gone is for the kernel to find out (socket.h). */
static hf_time silent_until(const struct hf_redis_link *link)
{
    return hf_time_add(link->heard,
                       link->state == HF_REDIS_UP ? SILENCE_MS : HANDSHAKE_MS);
}

/* Something was appended: it is written, and its reply awaited. */
static void appended(struct hf_redis_link *link, struct hf_redis_call *call)
{
    struct hf_host *host = link->host;

    host->ops->defer(host, &link->flush);
    if (!call)
        return;
    if (hf_list_empty(&link->calls)) {
        link->heard = host->ops->now(host);
        hf_timer_set(host, &link->timer, silent_until(link));
    }
    hf_list_push_back(&link->calls, &call->link);
}

bool hf_redis_link_send(struct hf_redis_link *link, struct hf_redis_call *call,
                        const struct hf_redis_args *args)
{
    if (!can_send(link) || !hf_redis_args_encode(args, &link->out))
        return false;
    appended(link, call);
    return true;
}

bool hf_redis_link_send_bytes(struct hf_redis_link *link,
                              struct hf_redis_call *call, const void *bytes,
                              size_t size)
{
    bool failed;

    if (!can_send(link))
        return false;
    hf_buf_raw(&link->out, bytes, size);
    failed = link->out.failed;
    link->out.failed = false;
    if (!failed)
        appended(link, call);
    return !failed;
}

/* ---- Reading ------------------------------------------------------------*/

static void hear(struct hf_redis_link *link, const redisReply *reply)
{
    struct hf_list *first = NULL;

    /* Once it listens to channels, all that comes are messages. */
    if (link->state != HF_REDIS_UP || !link->channel)
        first = hf_list_take(&link->calls);
    if (first) {
        struct hf_redis_call *call =
            HF_CONTAINER(first, struct hf_redis_call, link);

        call->reply(call, reply);
    } else if (link->state == HF_REDIS_UP && link->channel) {
        link->ops->message(link, reply);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        lose(link, HF_EUNAVAIL, reply->str);
    } else {
        lose(link, HF_EPROTO, "it says what nobody has asked for");
    }
}

/* Who hears a reply may lose the connection. */
static void hear_all(struct hf_redis_link *link)
{
    redisContext *context = link->context;
    void *reply = NULL;

    while (link->context == context) {
        if (redisReaderGetReply(context->reader, &reply) != REDIS_OK) {
            lose(link, HF_EPROTO, "what it says is not understood");
            return;
        }
        if (!reply)
            return;
        hear(link, reply);
        freeReplyObject(reply);
    }
}

/* Go on in the next turn, after timers and other connections have had theirs. */
static void read_later(struct hf_redis_link *link)
{
    struct hf_waker *waker = link->host->ops->post(link->host, &link->more);

    if (waker)
        hf_waker_ring(waker);
}

/* hiredis reads so much at a time. Where that is filled there may be more, and
 * whoever drives by hand may not look again soon. A server that sends faster than
 * this client reads must not keep it from renewing. */
static void read_in(struct hf_redis_link *link)
{
    redisContext *context = link->context;

    for (int i = 0; i < READS_MAX; i++) {
        size_t before = context->reader->len, read;

        if (redisBufferRead(context) != REDIS_OK) {
            lose_by_error(link);
            return;
        }
        read = context->reader->len - before;
        link->heard = link->host->ops->now(link->host);
        hear_all(link);
        if (link->context != context || read < READ_SIZE)
            return;
    }
    read_later(link);
}

static void on_more(struct hf_post *post)
{
    struct hf_redis_link *link = HF_CONTAINER(post, struct hf_redis_link, more);

    if (link->context)
        read_in(link);
}

/* ---- Connecting ---------------------------------------------------------*/

static void move(struct hf_redis_link *link, enum hf_redis_state to)
{
    static const bool may[][4] = {
        [HF_REDIS_DOWN] = {[HF_REDIS_CONNECTING] = true},
        [HF_REDIS_CONNECTING] =
            {[HF_REDIS_DOWN] = true, [HF_REDIS_GREETING] = true},
        [HF_REDIS_GREETING] = {[HF_REDIS_DOWN] = true, [HF_REDIS_UP] = true},
        [HF_REDIS_UP] = {[HF_REDIS_DOWN] = true},
    };

    HF_ASSERT(may[link->state][to]);
    link->state = to;
}

static void connected(struct hf_redis_link *link)
{
    int failure = 0;
    socklen_t size = sizeof(failure);

    if (getsockopt(link->fd.fd, SOL_SOCKET, SO_ERROR, &failure, &size))
        failure = errno;
    if (failure) {
        lose(link, HF_EUNAVAIL, strerror(failure));
        return;
    }
    link->context->flags |= REDIS_CONNECTED;
    if (link->address->port > 0)
        hf_redis_socket_detect_loss(link->fd.fd);
    move(link, HF_REDIS_GREETING);
    if (link->address->tls &&
        !hf_redis_tls_begin(link->address->tls, link->context,
                            link->address->host))
        lose_by_error(link);
    else if (!hf_redis_greet(link))
        lose(link, HF_ENOMEM, hf_err_text(HF_ENOMEM));
    else
        write_out(link);
}

void hf_redis_link_ready(struct hf_redis_link *link, uint32_t events)
{
    redisContext *context = link->context;

    if (link->state == HF_REDIS_CONNECTING) {
        connected(link);
        return;
    }
    if (events & EPOLLOUT)
        write_out(link);
    if (link->context == context && (events & ~(uint32_t)EPOLLOUT))
        read_in(link);
    /* At once: hf_open() runs no loop that would flush. */
    if (link->context == context && link->state == HF_REDIS_GREETING &&
        (link->unwritten || link->out.size > link->written))
        write_out(link);
}

static void on_ready(struct hf_fd *fd, uint32_t events)
{
    hf_redis_link_ready(HF_CONTAINER(fd, struct hf_redis_link, fd), events);
}

void hf_redis_link_connect(struct hf_redis_link *link)
{
    struct hf_host *host = link->host;
    struct pollfd now = {.events = POLLOUT};

    move(link, HF_REDIS_CONNECTING);
    link->context = hf_redis_socket_open(link->address);
    if (!link->context) {
        lose(link, HF_ENOMEM, hf_err_text(HF_ENOMEM));
        return;
    }
    if (link->context->err) {
        lose(link, HF_EUNAVAIL, link->context->errstr);
        return;
    }
    /* A command that the program runs must not keep the connection. */
    (void)fcntl(link->context->fd, F_SETFD, FD_CLOEXEC);
    link->fd.fd = link->context->fd;
    now.fd = link->context->fd;
    link->fd.events = EPOLLOUT;
    if (host->ops->fd_add(host, &link->fd)) {
        link->fd.fd = -1;
        lose(link, HF_ESYSTEM, "cannot watch the connection");
        return;
    }
    link->heard = host->ops->now(host);
    hf_timer_set(host, &link->timer, silent_until(link));
    /* On the same machine it is connected already. */
    if (poll(&now, 1, 0) > 0)
        connected(link);
}

static void disconnect(struct hf_redis_link *link)
{
    if (link->fd.fd >= 0)
        link->host->ops->fd_remove(link->host, &link->fd);
    link->fd.fd = -1;
    if (link->context)
        redisFree(link->context);
    link->context = NULL;
    hf_buf_fini(&link->out);
    link->written = 0;
    link->host->ops->unpost(link->host, &link->flush);
    link->host->ops->unpost(link->host, &link->more);
}

/* Those that failed together do not come back together. */
static hf_time next_attempt(struct hf_redis_link *link)
{
    struct hf_host *host = link->host;
    unsigned shift = link->refusals < 7 ? link->refusals : 7;
    uint32_t span = REST_MIN_MS << shift;

    if (span > REST_MAX_MS)
        span = REST_MAX_MS;
    span = span / 2 + hf_random_below(host->ops->random(host), span / 2 + 1);
    return hf_time_add(host->ops->now(host), span);
}

/* Nothing can be sent while it is down, so their number only falls. */
static void tell_lost(struct hf_redis_link *link)
{
    struct hf_list *first;

    while ((first = hf_list_take(&link->calls))) {
        struct hf_redis_call *call =
            HF_CONTAINER(first, struct hf_redis_call, link);

        call->reply(call, NULL);
    }
}

/* The words may be hiredis' own, and go with the connection. */
static void lose(struct hf_redis_link *link, enum hf_err err, const char *text)
{
    (void)hf_error_set(&link->failure, err, "%s: %s", link->address->name,
                       text);
    disconnect(link);
    move(link, HF_REDIS_DOWN);
    hf_timer_set(link->host, &link->timer, next_attempt(link));
    link->refusals++;
    tell_lost(link);
    link->ops->down(link);
}

void hf_redis_link_drop(struct hf_redis_link *link, enum hf_err err,
                        const char *text)
{
    if (link->state != HF_REDIS_DOWN)
        lose(link, err, text);
}

static void on_timer(struct hf_timer *timer)
{
    struct hf_redis_link *link =
        HF_CONTAINER(timer, struct hf_redis_link, timer);
    hf_time until = silent_until(link);

    if (link->state == HF_REDIS_DOWN)
        hf_redis_link_connect(link);
    else if (link->state == HF_REDIS_UP && hf_list_empty(&link->calls))
        return;
    else if (link->host->ops->now(link->host) >= until)
        lose(link, HF_EUNAVAIL, "it does not answer");
    else
        hf_timer_set(link->host, &link->timer, until);
}

bool hf_redis_link_is_silent(const struct hf_redis_link *link, uint32_t ms)
{
    return link->state == HF_REDIS_UP && !hf_list_empty(&link->calls) &&
           link->host->ops->now(link->host) >= hf_time_add(link->heard, ms);
}

/* An owner that refuses the server drops the connection at once. */
void hf_redis_link_greeted(struct hf_redis_link *link)
{
    move(link, HF_REDIS_UP);
    link->ops->up(link);
    if (link->state == HF_REDIS_UP)
        link->refusals = 0;
}

/* ---- Opening and closing ------------------------------------------------*/

enum hf_err hf_redis_link_open(struct hf_redis_link *link, struct hf_host *host,
                               const struct hf_redis_address *address,
                               const struct hf_redis_link_ops *ops,
                               const char *channel)
{
    enum hf_err err;

    link->fd = (struct hf_fd){.fd = -1, .ready = on_ready};
    link->timer.fire = on_timer;
    link->flush.run = flush;
    link->more.run = on_more;
    hf_list_init(&link->calls);
    err = host->ops->timer_add(host, &link->timer);
    if (err)
        return err;
    link->host = host;
    link->address = address;
    link->ops = ops;
    link->channel = channel;
    hf_redis_link_connect(link);
    return HF_OK;
}

void hf_redis_link_close(struct hf_redis_link *link)
{
    if (!hf_redis_link_is_open(link))
        return;
    if (link->state == HF_REDIS_UP)
        (void)write_some(link);
    disconnect(link);
    link->state = HF_REDIS_DOWN;
    tell_lost(link);
    link->host->ops->timer_remove(link->host, &link->timer);
    link->host = NULL;
}
