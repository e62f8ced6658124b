#include "lib/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 64 /* connections waiting to be accepted */

/* Ports that the kernel does not give to outgoing connections. Redis in cluster
 * mode also uses the port that is 10000 higher. */
#define PORT_FIRST 15000
#define PORTS 5000

static struct sockaddr_in loopback(int port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
}

static int new_socket(void)
{
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

int hf_test_listen(int *port)
{
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    int fd = new_socket();

    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&address, size) ||
        getsockname(fd, (struct sockaddr *)&address, &size) ||
        listen(fd, BACKLOG)) {
        (void)close(fd);
        return -1;
    }
    *port = ntohs(address.sin_port);
    return fd;
}

int hf_test_connect(int port)
{
    struct sockaddr_in address = loopback(port);
    int fd = new_socket();

    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address))) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* Bind a Unix socket with the number in its name, and keep it open: the kernel
 * allows one such socket in a network namespace, and removes it with the last
 * process that has it. tests/cli/cases.py uses the same name. */
static int reserve_port(int port)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int size = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                        "holdfast-test-port-%d", port);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && !bind(fd, (struct sockaddr *)&address,
                         (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
                                     1 + (size_t)size)))
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

static bool is_port_free(int port)
{
    struct sockaddr_in address = loopback(port);
    int fd = new_socket();
    bool is_free =
        fd >= 0 && !bind(fd, (struct sockaddr *)&address, sizeof(address));

    if (fd >= 0)
        (void)close(fd);
    return is_free;
}

int hf_test_free_port(void)
{
    static unsigned tried;

    if (tried == 0)
        tried = (unsigned)getpid() * 10;
    for (int i = 0; i < PORTS; i++) {
        int port = PORT_FIRST + (int)(tried++ % PORTS);
        int reservation = reserve_port(port);

        if (reservation >= 0 && is_port_free(port))
            return port;
        if (reservation >= 0)
            (void)close(reservation);
    }
    return 0;
}
