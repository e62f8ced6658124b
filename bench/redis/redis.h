/* redis.h - what the files of bench_redis share: the server, the bare hiredis
 * client, and Redisson if it is available. */
#ifndef BENCH_REDIS_REDIS_H
#define BENCH_REDIS_REDIS_H

#include <hiredis/hiredis.h>

#include "../../tests/lib/redis.h"
#include "lib/bench.h"
#include "lib/peer.h"

#define LEASE_MS 3000 /* ttl or lease time of the killed holder */

struct bench_redis {
    struct hf_test_redis server;
    char url[64];
    struct bench_peer redisson; /* pid 0: not available */
};

extern struct bench_redis bench_redis;

/* The figures of a scene, with one sample per round. */
struct bench_figures {
    struct bench_samples rate, p50, p99;
};

/* redis.c */
struct hf_client *bench_redis_open(void);
redisContext *bench_redis_connect(void);
redisReply *bench_redis_command(redisContext *context, int argc,
                                const char **argv);
void bench_redisson_start(struct bench_peer *peer, const char *mode);

/* pairs.c, handover.c, killed.c: run one round of all scenes; print the
 * table. */
void bench_pairs_run(struct bench *bench, unsigned round);
void bench_pairs_print(struct bench *bench);
void bench_handovers_run(struct bench *bench, unsigned round);
void bench_handovers_print(struct bench *bench);
void bench_killed_run(struct bench *bench, unsigned round);
void bench_killed_print(struct bench *bench);

#endif
