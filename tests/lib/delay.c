#include "lib/delay.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/time.h"
#include "lib/loopback.h"

#define PAIRS_MAX 32
#define CHUNK_SIZE 65536

/* Bytes in transit. */
struct chunk {
    struct chunk *next;
    hf_time due;
    size_t size, sent;
    char bytes[];
};

/* One direction of a connection. */
struct flow {
    int from, to;
    bool ended;
    struct chunk *first, **last;
};

static struct flow flows[2 * PAIRS_MAX];
static unsigned flow_count;
static uint32_t delay_ms;

static void add_flow(int from, int to)
{
    struct flow *flow = &flows[flow_count++];
    int on = 1;

    /* Nagle's algorithm would add a delay of its own. */
    (void)setsockopt(to, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    *flow = (struct flow){.from = from, .to = to};
    flow->last = &flow->first;
}

static void accept_connection(int listener, int server_port)
{
    int client = accept(listener, NULL, NULL), server;

    if (client < 0)
        return;
    server =
        flow_count + 2 <= 2 * PAIRS_MAX ? hf_test_connect(server_port) : -1;
    if (server < 0) {
        (void)close(client);
        return;
    }
    add_flow(client, server);
    add_flow(server, client);
}

static void receive_chunk(struct flow *flow)
{
    struct chunk *chunk = malloc(sizeof(*chunk) + CHUNK_SIZE);
    ssize_t size;

    if (!chunk)
        abort();
    size = recv(flow->from, chunk->bytes, CHUNK_SIZE, MSG_DONTWAIT);
    if (size <= 0) {
        free(chunk);
        if (size == 0 || (errno != EAGAIN && errno != EINTR))
            flow->ended = true;
        return;
    }
    chunk = realloc(chunk, sizeof(*chunk) + (size_t)size);
    if (!chunk)
        abort();
    chunk->next = NULL;
    chunk->due = hf_time_add(hf_time_now(), delay_ms);
    chunk->size = (size_t)size;
    chunk->sent = 0;
    *flow->last = chunk;
    flow->last = &chunk->next;
}

static void deliver_chunks(struct flow *flow)
{
    while (flow->first && flow->first->due <= hf_time_now()) {
        struct chunk *chunk = flow->first;
        ssize_t sent = send(flow->to, chunk->bytes + chunk->sent,
                            chunk->size - chunk->sent, MSG_NOSIGNAL);

        chunk->sent += sent > 0 ? (size_t)sent : chunk->size;
        if (chunk->sent < chunk->size)
            continue;
        flow->first = chunk->next;
        if (!flow->first)
            flow->last = &flow->first;
        free(chunk);
    }
    if (flow->ended && !flow->first && flow->to >= 0) {
        (void)shutdown(flow->to, SHUT_WR);
        flow->to = -1;
    }
}

static int next_due_ms(void)
{
    hf_time now = hf_time_now(), next = hf_time_add(now, 1000);

    for (unsigned i = 0; i < flow_count; i++) {
        if (flows[i].first && flows[i].first->due < next)
            next = flows[i].first->due;
    }
    return (int)hf_time_left(next, now);
}

static _Noreturn void delay_main(int listener, int server_port)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        struct pollfd fds[2 * PAIRS_MAX + 1];
        unsigned count = flow_count;

        for (unsigned i = 0; i < count; i++)
            fds[i] = (struct pollfd){.fd = flows[i].ended ? -1 : flows[i].from,
                                     .events = POLLIN};
        fds[count] = (struct pollfd){.fd = listener, .events = POLLIN};
        (void)poll(fds, count + 1, next_due_ms());
        for (unsigned i = 0; i < count; i++) {
            if (fds[i].fd >= 0 && fds[i].revents)
                receive_chunk(&flows[i]);
            deliver_chunks(&flows[i]);
        }
        if (fds[count].revents)
            accept_connection(listener, server_port);
    }
}

pid_t hf_test_delay_start(int server_port, uint32_t round_trip_ms, int *port)
{
    int listener = hf_test_listen(port);
    pid_t pid;

    if (listener < 0)
        return -1;
    delay_ms = round_trip_ms / 2;
    pid = fork();
    if (pid == 0)
        delay_main(listener, server_port);
    (void)close(listener);
    return pid;
}
