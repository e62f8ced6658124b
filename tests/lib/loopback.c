#include "lib/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 64 /* connections waiting to be accepted */

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

int hf_test_free_port(void)
{
    int port = 0, fd = hf_test_listen(&port);

    if (fd >= 0)
        (void)close(fd);
    return port;
}
