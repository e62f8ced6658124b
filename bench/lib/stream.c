#include "lib/stream.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "lib/bench.h"

#define BACKLOG 256

static struct sockaddr_in loopback_address(int port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
}

int bench_stream_listen(int *port)
{
    struct sockaddr_in address = loopback_address(0);
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) ||
        listen(fd, BACKLOG) ||
        getsockname(fd, (struct sockaddr *)&address, &size))
        bench_fail("the floor: cannot listen");
    *port = ntohs(address.sin_port);
    return fd;
}

static bool send_at_once(int fd)
{
    int on = 1;

    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0;
}

int bench_stream_accept(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0 || !send_at_once(fd))
        bench_fail("the floor: cannot accept a connection");
    return fd;
}

int bench_stream_connect(int port)
{
    struct sockaddr_in address = loopback_address(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) ||
        !send_at_once(fd))
        bench_fail("cannot connect to the floor");
    return fd;
}

void bench_stream_write(int fd, const void *data, size_t size)
{
    const char *at = data;

    while (size > 0) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);

        if (sent <= 0)
            bench_fail("the floor: cannot send");
        at += sent;
        size -= (size_t)sent;
    }
}

void bench_stream_read(int fd, void *data, size_t size)
{
    char *at = data;

    while (size > 0) {
        ssize_t received = recv(fd, at, size, 0);

        if (received <= 0)
            bench_fail("the floor: cannot receive");
        at += received;
        size -= (size_t)received;
    }
}
