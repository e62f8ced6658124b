#include "quorum/floor.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/bench.h"
#include "lib/process.h"
#include "lib/stream.h"

#define EVENTS_MAX 64
#define BATCH 64 /* messages received at a time */

struct message {
    uint32_t op, member;
    uint64_t number;
};

/* ---- A server -----------------------------------------------------------*/

struct server {
    int listener, epoll;
    int members[FLOOR_MEMBERS_MAX]; /* connections, or -1 */
};

static void watch_fd(const struct server *server, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event))
        bench_fail("the floor: epoll_ctl");
}

static void close_connection(struct server *server, int fd)
{
    for (unsigned i = 0; i < FLOOR_MEMBERS_MAX; i++)
        if (server->members[i] == fd)
            server->members[i] = -1;
    (void)close(fd);
}

/* A client may have closed its connection: recv() will return that. */
static void send_messages(int fd, const struct message *messages, size_t size)
{
    (void)send(fd, messages, size, MSG_NOSIGNAL);
}

static void push_turn(const struct server *server, uint32_t member)
{
    const struct message push = {.op = FLOOR_PUSH, .member = member};

    send_messages(server->members[member % FLOOR_MEMBERS_MAX], &push,
                  sizeof(push));
}

/* The answers are the requests. */
static void answer_requests(struct server *server, int fd)
{
    struct message requests[BATCH];
    ssize_t size = recv(fd, requests, sizeof(requests), 0);

    if (size <= 0) {
        close_connection(server, fd);
        return;
    }
    for (size_t i = 0; i < (size_t)size / sizeof(requests[0]); i++) {
        if (requests[i].op == FLOOR_PASS)
            push_turn(server, requests[i].member);
        else if (requests[i].op == FLOOR_JOIN)
            server->members[requests[i].member % FLOOR_MEMBERS_MAX] = fd;
    }
    send_messages(fd, requests, (size_t)size);
}

static void server_main(void *arg)
{
    struct server server = {.listener = *(int *)arg,
                            .epoll = epoll_create1(EPOLL_CLOEXEC)};
    struct epoll_event events[EVENTS_MAX];

    for (unsigned i = 0; i < FLOOR_MEMBERS_MAX; i++)
        server.members[i] = -1;
    watch_fd(&server, server.listener);
    for (;;) {
        int count = epoll_wait(server.epoll, events, EVENTS_MAX, -1);

        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == server.listener)
                watch_fd(&server, bench_stream_accept(server.listener));
            else
                answer_requests(&server, events[i].data.fd);
        }
    }
}

void floor_start(struct floor *floor)
{
    for (unsigned i = 0; i < FLOOR_SERVERS; i++) {
        int listener = bench_stream_listen(&floor->ports[i]);

        (void)bench_start(server_main, &listener);
        (void)close(listener);
    }
}

/* ---- A client -----------------------------------------------------------*/

void floor_open(struct floor_client *client, const struct floor *floor,
                unsigned servers)
{
    *client = (struct floor_client){.servers = servers};
    for (unsigned i = 0; i < servers; i++)
        client->fds[i] = bench_stream_connect(floor->ports[i]);
}

static void receive_messages(struct floor_client *client, unsigned server)
{
    struct message messages[BATCH];
    ssize_t size = recv(client->fds[server], messages, sizeof(messages), 0);

    if (size <= 0 || size % (ssize_t)sizeof(messages[0]))
        bench_fail("the floor: cannot receive");
    for (size_t i = 0; i < (size_t)size / sizeof(messages[0]); i++) {
        if (messages[i].op == FLOOR_PUSH)
            client->pushes[server]++;
        else
            client->answers[server]++;
    }
}

/* Wait until the counters of `needed` servers have reached `wanted`. A client
 * cannot know which server answers first, so it waits for all of them. */
static void await_messages(struct floor_client *client,
                           const uint64_t counters[FLOOR_SERVERS],
                           uint64_t wanted, unsigned needed)
{
    struct pollfd fds[FLOOR_SERVERS];

    for (;;) {
        unsigned reached = 0;

        for (unsigned i = 0; i < client->servers; i++) {
            fds[i] = (struct pollfd){.fd = client->fds[i], .events = POLLIN};
            reached += counters[i] >= wanted;
        }
        if (reached >= needed)
            return;
        (void)poll(fds, client->servers, -1);
        for (unsigned i = 0; i < client->servers; i++)
            if (fds[i].revents)
                receive_messages(client, i);
    }
}

void floor_call(struct floor_client *client, enum floor_op op, uint32_t member,
                unsigned needed)
{
    const struct message request = {op, member, ++client->calls};

    for (unsigned i = 0; i < client->servers; i++)
        bench_stream_write(client->fds[i], &request, sizeof(request));
    await_messages(client, client->answers, client->calls, needed);
}

void floor_await_push(struct floor_client *client)
{
    await_messages(client, client->pushes, ++client->turns, client->servers);
}

void floor_close(struct floor_client *client)
{
    await_messages(client, client->answers, client->calls, client->servers);
    for (unsigned i = 0; i < client->servers; i++)
        (void)close(client->fds[i]);
}
