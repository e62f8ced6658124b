#include "lib/proxy.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/loopback.h"

static void close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* Accept a client and connect to the server for it. Connections above the limit
 * are closed at once. */
static void accept_connection(struct hf_test_proxy *proxy)
{
    struct hf_test_proxy_pair *pair = &proxy->pairs[proxy->count];
    int client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);

    if (proxy->count == HF_TEST_PROXY_PAIRS) {
        close_fd(&client);
        return;
    }
    *pair = (struct hf_test_proxy_pair){
        .client = client,
        .server = hf_test_connect(proxy->server_port),
        .closes_early = proxy->close_early > 0,
    };
    proxy->close_early -= pair->closes_early;
    proxy->count++;
    if (pair->server < 0)
        close_fd(&pair->client);
}

static void send_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);

        if (sent <= 0)
            return; /* recv() reports the end of the connection */
        bytes += sent;
        size -= (size_t)sent;
    }
}

static void read_client(struct hf_test_proxy_pair *pair)
{
    char bytes[HF_TEST_PROXY_BYTES];
    size_t room =
        pair->holds_back ? sizeof(bytes) - pair->kept_size : sizeof(bytes);
    ssize_t size = recv(pair->client, bytes, room, 0);

    if (size <= 0) {
        close_fd(&pair->client);
        if (!pair->holds_back)
            close_fd(&pair->server);
    } else if (pair->holds_back) {
        memcpy(pair->kept + pair->kept_size, bytes, (size_t)size);
        pair->kept_size += (size_t)size;
    } else {
        send_all(pair->server, bytes, (size_t)size);
    }
}

/* The size of `bytes` up to the end of the first integer in an array, or 0 if
 * there is none. */
static size_t find_integer_end(const char *bytes, size_t size)
{
    const char *number = memmem(bytes, size, "\r\n:", 3);
    const char *line_end = NULL;

    if (number)
        line_end =
            memmem(number + 3, size - (size_t)(number + 3 - bytes), "\r\n", 2);
    return line_end ? (size_t)(line_end + 2 - bytes) : 0;
}

static void read_server(struct hf_test_proxy_pair *pair)
{
    char bytes[HF_TEST_PROXY_BYTES];
    ssize_t size = recv(pair->server, bytes, sizeof(bytes), 0);
    size_t reply_end = 0;

    if (size <= 0 || pair->drops_reply) {
        close_fd(&pair->client);
        close_fd(&pair->server);
        return;
    }
    pair->answered = true;
    if (pair->closes_early)
        reply_end = find_integer_end(bytes, (size_t)size);
    if (pair->client >= 0)
        send_all(pair->client, bytes, reply_end ? reply_end : (size_t)size);
    if (reply_end) {
        close_fd(&pair->client);
        close_fd(&pair->server);
    }
}

static void *proxy_main(void *arg)
{
    struct hf_test_proxy *proxy = arg;

    for (;;) {
        struct pollfd fds[1 + 2 * HF_TEST_PROXY_PAIRS];
        int count = proxy->count; /* only this thread changes `count` */
        nfds_t fd_count = 1 + 2 * (nfds_t)count;

        fds[0] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
        (void)pthread_mutex_lock(&proxy->mutex);
        for (int i = 0; i < count; i++) {
            fds[1 + 2 * i] =
                (struct pollfd){.fd = proxy->pairs[i].client, .events = POLLIN};
            fds[2 + 2 * i] =
                (struct pollfd){.fd = proxy->pairs[i].server, .events = POLLIN};
        }
        (void)pthread_mutex_unlock(&proxy->mutex);
        (void)poll(fds, fd_count, -1);
        (void)pthread_mutex_lock(&proxy->mutex);
        for (int i = 0; i < count; i++) {
            if (fds[1 + 2 * i].revents && proxy->pairs[i].client >= 0)
                read_client(&proxy->pairs[i]);
            if (fds[2 + 2 * i].revents && proxy->pairs[i].server >= 0)
                read_server(&proxy->pairs[i]);
        }
        if (fds[0].revents)
            accept_connection(proxy);
        (void)pthread_cond_broadcast(&proxy->changed);
        (void)pthread_mutex_unlock(&proxy->mutex);
    }
    return NULL;
}

bool hf_test_proxy_start(struct hf_test_proxy *proxy, int server_port)
{
    *proxy = (struct hf_test_proxy){
        .server_port = server_port,
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
    };
    proxy->listener = hf_test_listen(&proxy->port);
    return proxy->listener >= 0 &&
           !pthread_create(&proxy->thread, NULL, proxy_main, proxy);
}

void hf_test_proxy_hold_back(struct hf_test_proxy *proxy)
{
    (void)pthread_mutex_lock(&proxy->mutex);
    for (int i = 0; i < proxy->count; i++)
        proxy->pairs[i].holds_back = true;
    (void)pthread_mutex_unlock(&proxy->mutex);
}

void hf_test_proxy_drop_replies(struct hf_test_proxy *proxy)
{
    (void)pthread_mutex_lock(&proxy->mutex);
    for (int i = 0; i < proxy->count; i++)
        proxy->pairs[i].drops_reply = true;
    (void)pthread_mutex_unlock(&proxy->mutex);
}

static struct hf_test_proxy_pair *await_kept(struct hf_test_proxy *proxy)
{
    for (;;) {
        for (int i = 0; i < proxy->count; i++) {
            if (proxy->pairs[i].kept_size > 0)
                return &proxy->pairs[i];
        }
        (void)pthread_cond_wait(&proxy->changed, &proxy->mutex);
    }
}

void hf_test_proxy_drop_client(struct hf_test_proxy *proxy, int close_early)
{
    struct hf_test_proxy_pair *pair;

    (void)pthread_mutex_lock(&proxy->mutex);
    proxy->close_early = close_early;
    pair = await_kept(proxy);
    /* Do not close it here: proxy_main() then reads the end of the connection
     * and closes it. */
    (void)shutdown(pair->client, SHUT_RDWR);
    (void)pthread_mutex_unlock(&proxy->mutex);
}

bool hf_test_proxy_deliver(struct hf_test_proxy *proxy)
{
    struct hf_test_proxy_pair *pair;
    bool answered;

    (void)pthread_mutex_lock(&proxy->mutex);
    pair = await_kept(proxy);
    pair->answered = false;
    if (pair->server >= 0)
        send_all(pair->server, pair->kept, pair->kept_size);
    while (pair->server >= 0 && !pair->answered)
        (void)pthread_cond_wait(&proxy->changed, &proxy->mutex);
    answered = pair->answered;
    (void)pthread_mutex_unlock(&proxy->mutex);
    return answered;
}
