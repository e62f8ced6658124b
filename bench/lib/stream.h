/* stream.h - TCP connections over the loopback interface, for the floors. They
 * send without delay, and every failure ends the program. */
#ifndef BENCH_STREAM_H
#define BENCH_STREAM_H

#include <stddef.h>

/* Listen on a free port, which is returned in `*port`. */
int bench_stream_listen(int *port);

int bench_stream_accept(int listener);

/* Connect to `port`. The connection is closed with close(). */
int bench_stream_connect(int port);

/* Send and receive all bytes. */
void bench_stream_write(int fd, const void *data, size_t size);
void bench_stream_read(int fd, void *data, size_t size);

#endif
