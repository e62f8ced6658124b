/* loopback.h - sockets of this machine alone, on ports that nobody has. */
#ifndef HF_TESTS_LIB_LOOPBACK_H
#define HF_TESTS_LIB_LOOPBACK_H

/* Listen, and say where; -1: it cannot be had. */
int hf_test_listen(int *port);

/* Connect to `port`; -1: nobody is there. */
int hf_test_connect(int port);

/* A port for a server that does not listen yet. Somebody may take it before the
 * server does: then it is tried again. 0: none is to be had. */
int hf_test_free_port(void);

#endif
