/* redis.h - what the parts of bench_redis share: a server of its own, the bare
 * client that ours is compared with, and Redisson, where it can be had. */
#ifndef BENCH_REDIS_REDIS_H
#define BENCH_REDIS_REDIS_H

#include <hiredis/hiredis.h>

#include "../../tests/lib/redis.h"
#include "lib/bench.h"
#include "lib/peer.h"

#define LEASE_MS 3000 /* of a holder that is killed */

struct bench_redis {
    struct hf_test_redis server;
    char url[64];
    struct bench_peer redisson; /* no process: it is left out */
};

extern struct bench_redis bench_redis;

/* One number a round, in each. */
struct bench_figures {
    struct bench_samples rate, p50, p99;
};

/* redis.c */
struct hf_client *bench_redis_open(void);
redisContext *bench_redis_connect(void);
redisReply *bench_redis_say(redisContext *context, int argc, const char **argv);
void bench_redisson_start(struct bench_peer *peer, const char *word);

/* pairs.c, handover.c, killed.c: one round of all cases, and the table. */
void bench_pairs_run(struct bench *bench, unsigned round);
void bench_pairs_tell(struct bench *bench);
void bench_handovers_run(struct bench *bench, unsigned round);
void bench_handovers_tell(struct bench *bench);
void bench_killed_run(struct bench *bench, unsigned round);
void bench_killed_tell(struct bench *bench);

#endif
