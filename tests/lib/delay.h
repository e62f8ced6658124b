/* delay.h - a proxy that delivers each byte late, like a network with a long
 * round trip. It runs in its own process, which dies with this process. */
#ifndef HF_TESTS_LIB_DELAY_H
#define HF_TESTS_LIB_DELAY_H

#include <stdint.h>
#include <sys/types.h>

/* Start a proxy on a free port, which is returned in `*port`. The proxy
 * forwards connections to `server_port` on loopback, and delays each direction
 * by half of `round_trip_ms`. Returns the pid of the proxy, or -1. */
pid_t hf_test_delay_start(int server_port, uint32_t round_trip_ms, int *port);

#endif
