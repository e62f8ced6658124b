/* loopback.h - sockets on free ports of the loopback interface. */
#ifndef HF_TESTS_LIB_LOOPBACK_H
#define HF_TESTS_LIB_LOOPBACK_H

/* Listen on a free port, and return it in `*port`. Returns the socket, or
 * -1. */
int hf_test_listen(int *port);

/* Connect to `port`. Returns the socket, or -1. */
int hf_test_connect(int port);

/* A free port for a server that will be started. Another process may take it
 * first, so the caller has to be ready to retry. Returns 0 if no port is
 * free. */
int hf_test_free_port(void);

#endif
