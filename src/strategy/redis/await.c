#include "strategy/redis/await.h"

#include <poll.h>
#include <sys/epoll.h>

#define CONNECTIONS_MAX 16
#define RETRY_MS 50     /* between attempts while a server loads its data */
#define STRAGGLE_MS 250 /* wait for slow servers, once enough are up */

static bool has_connection_failed(const struct hf_redis_connection *connection)
{
    enum hf_err code = connection->failure.code;

    if (connection->state != HF_REDIS_DOWN)
        return false;
    /* A server that has answered a step of the handshake and is unavailable may
     * still be loading its data, so the connection is retried. Any other
     * failure is final. */
    return (code != HF_EUNAVAIL && code != HF_OK) || !connection->steps_done;
}

/* Fill `fds`. A connection that is down or up gets a negative descriptor, which
 * poll() ignores. Returns true if a connection has to be retried. */
static bool fill_poll(struct hf_redis_connection *const *connections,
                      unsigned count, struct pollfd *fds)
{
    bool retries = false;

    for (unsigned i = 0; i < count; i++) {
        const struct hf_redis_connection *connection = connections[i];
        bool open = connection->state != HF_REDIS_DOWN &&
                    connection->state != HF_REDIS_UP;

        fds[i] = (struct pollfd){
            .fd = open ? connection->fd.fd : -1,
            .events = connection->fd.events & EPOLLOUT ? POLLOUT : POLLIN,
        };
        retries = retries || (connection->state == HF_REDIS_DOWN &&
                              !has_connection_failed(connection));
    }
    return retries;
}

static void poll_connections(struct hf_redis_connection *const *connections,
                             unsigned count, uint32_t ms)
{
    struct pollfd fds[CONNECTIONS_MAX];
    bool retries = fill_poll(connections, count, fds);
    int ready;

    if (retries && ms > RETRY_MS)
        ms = RETRY_MS;
    ready = poll(fds, count, (int)ms);
    for (unsigned i = 0; i < count; i++) {
        if (ready > 0 && fds[i].revents)
            hf_redis_connection_on_ready(
                connections[i], fds[i].revents & POLLOUT ? EPOLLOUT : EPOLLIN);
        else if (ready == 0 && connections[i]->state == HF_REDIS_DOWN &&
                 !has_connection_failed(connections[i]))
            hf_redis_connection_connect(connections[i]);
    }
}

static void set_missing_failures(struct hf_redis_connection *const *connections,
                                 unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct hf_redis_connection *connection = connections[i];

        if (connection->state != HF_REDIS_UP && !connection->failure.code)
            (void)hf_error_set(&connection->failure, HF_EUNAVAIL,
                               "%s: the server does not answer",
                               connection->address->name);
    }
}

void hf_redis_await_connections(struct hf_redis_connection *const *connections,
                                unsigned count, unsigned enough,
                                uint32_t timeout_ms)
{
    hf_time until = hf_time_add(hf_time_now(), timeout_ms);
    bool is_enough = false;
    unsigned up, failed;
    uint32_t left;

    for (;;) {
        up = failed = 0;
        for (unsigned i = 0; i < count; i++) {
            up += connections[i]->state == HF_REDIS_UP;
            failed += has_connection_failed(connections[i]);
        }
        if (up >= enough && !is_enough) {
            is_enough = true;
            if (hf_time_left(until, hf_time_now()) > STRAGGLE_MS)
                until = hf_time_add(hf_time_now(), STRAGGLE_MS);
        }
        left = hf_time_left(until, hf_time_now());
        if (up + failed == count || left == 0)
            break;
        poll_connections(connections, count, left);
    }
    set_missing_failures(connections, count);
}
