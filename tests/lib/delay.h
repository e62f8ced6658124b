/* delay.h - a proxy that delivers each byte late: a network with a long round
 * trip. It runs in a process of its own, which ends with this one. */
#ifndef HF_TESTS_LIB_DELAY_H
#define HF_TESTS_LIB_DELAY_H

#include <stdint.h>
#include <sys/types.h>

/* Forward what connects to `*port`, which is chosen here, to `server_port` on
 * loopback, and delay either direction by half of `round_trip_ms`. Returns the
 * process, or -1. */
pid_t hf_test_delay_start(int server_port, uint32_t round_trip_ms, int *port);

#endif
