/* loopback.h - sockets on free ports of the loopback interface. */
#ifndef HF_TESTS_LIB_LOOPBACK_H
#define HF_TESTS_LIB_LOOPBACK_H

/* Listen on a free port, and return it in `*port`. Returns the socket, or
 * -1. */
int hf_test_listen(int *port);

/* Connect to `port`. Returns the socket, or -1. */
int hf_test_connect(int port);

/* A free port for a server that will be started, and perhaps stopped and
 * started again. No other test gets the same port while this process runs.
 * Returns 0 if no port is free. */
int hf_test_free_port(void);

#endif
