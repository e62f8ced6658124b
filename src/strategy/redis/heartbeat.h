/* heartbeat.h - the heartbeat of a client with waiters.
 *
 * A client that has waiters sends heartbeats, so that the server can tell its
 * waiters from those of a dead client (liveness.lua). One heartbeat serves all
 * waiters of a client, at the interval that the shortest of their leases
 * needs. */
#ifndef HF_STRATEGY_REDIS_HEARTBEAT_H
#define HF_STRATEGY_REDIS_HEARTBEAT_H

#include "base/error.h"

struct hf_redis;

/* The interval that a waiter for a lease of `lease_ms` needs. */
uint32_t hf_redis_heartbeat_default_ms(uint32_t lease_ms);

/* The interval after a waiter for `lease_ms` has joined: the shorter of the
 * interval that this waiter needs and that of the running heartbeat. */
uint32_t hf_redis_heartbeat_interval(const struct hf_redis *redis,
                                     uint32_t lease_ms);

/* Called when the server has queued a waiter that asked for `lease_ms`, or
 * reports its place: start the heartbeat, or keep it running for some more
 * seconds. */
void hf_redis_heartbeat_extend(struct hf_redis *redis, uint32_t lease_ms);

enum hf_err hf_redis_heartbeat_open(struct hf_redis *redis);
void hf_redis_heartbeat_close(struct hf_redis *redis);

#endif
