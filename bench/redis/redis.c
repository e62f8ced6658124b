/* redis - what does a lock in Redis cost, next to a bare hiredis loop against
 * the same server and next to Redisson, how long does a hand-over take, next to
 * one message, and when does the lock of a killed holder come back?
 *
 * A server is started for the purpose; a URL is not looked at. Redisson takes
 * part where BENCH_REDISSON is the command that starts its program in
 * bench/peers: scripts/bench sees to that. */
#include "redis/redis.h"

#include <stdlib.h>

struct bench_redis bench_redis;

struct hf_client *bench_redis_open(void)
{
    struct hf_client *client;

    bench_check("hf_open", hf_open(bench_redis.url, NULL, &client));
    return client;
}

redisContext *bench_redis_connect(void)
{
    redisContext *context = redisConnect("127.0.0.1", bench_redis.server.port);

    if (!context || context->err)
        bench_fail("cannot connect");
    return context;
}

redisReply *bench_redis_say(redisContext *context, int argc, const char **argv)
{
    redisReply *reply = redisCommandArgv(context, argc, argv, NULL);

    if (!reply || reply->type == REDIS_REPLY_ERROR)
        bench_fail("the server refuses");
    return reply;
}

void bench_redisson_start(struct bench_peer *peer, const char *word)
{
    char command[2048];

    (void)snprintf(command, sizeof(command), "%s %d %d %s",
                   getenv("BENCH_REDISSON"), bench_redis.server.port, LEASE_MS,
                   word);
    bench_peer_start(peer, command);
}

/* Until its code is compiled, and not only read, it is slow. */
static void warm_up(struct bench_peer *redisson)
{
    static const char *const orders[] = {
        "pairs lock 16 2000", "pairs fair 16 2000",    "pairs lock 1 1000",
        "pairs fair 1 1000",  "handover lock 10 1000", "handover fair 10 1000",
    };
    double numbers[2];

    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        bench_peer_order(redisson, "%s", orders[i]);
        bench_peer_numbers(redisson, numbers, 2);
    }
}

int main(int argc, char **argv)
{
    struct bench bench = {.name = "redis", .url = "redis:", .rounds = 5};

    bench_init(&bench, argc, argv);
    if (!hf_test_redis_start(&bench_redis.server, NULL))
        bench_fail("redis-server cannot be started");
    (void)snprintf(bench_redis.url, sizeof(bench_redis.url),
                   "redis://127.0.0.1:%d", bench_redis.server.port);
    if (getenv("BENCH_REDISSON")) {
        bench_progress(&bench, 0, "Redisson warms up");
        bench_redisson_start(&bench_redis.redisson, "");
        warm_up(&bench_redis.redisson);
    }
    for (unsigned round = 0; round < bench.rounds; round++) {
        bench_pairs_run(&bench, round);
        bench_handovers_run(&bench, round);
        bench_killed_run(&bench, round);
    }
    bench_pairs_tell(&bench);
    bench_handovers_tell(&bench);
    bench_killed_tell(&bench);
    if (bench_redis.redisson.pid > 0)
        bench_peer_stop(&bench_redis.redisson);
    hf_test_redis_stop(&bench_redis.server);
    return 0;
}
