/* keepalive.h - TCP options of a connection to a server. */
#ifndef HF_STRATEGY_KEEPALIVE_H
#define HF_STRATEGY_KEEPALIVE_H

/* Make the kernel detect a dead peer of the TCP socket `fd`: by data that stays
 * unacknowledged for 5 seconds, and by keep-alive probes while the connection
 * is idle. */
void hf_keepalive_set(int fd);

#endif
