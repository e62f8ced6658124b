/* redis - what does a lock in Redis cost, compared with a bare hiredis loop and
 * with Redisson? How long does a hand-over take, compared with one message? How
 * long after the death of its holder is a lock granted again?
 *
 * The benchmark starts its own server and ignores a URL on the command line.
 * Redisson is included if BENCH_REDISSON is the command that starts its program
 * in bench/peers; scripts/bench sets it. */
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

redisReply *bench_redis_command(redisContext *context, int argc,
                                const char **argv)
{
    redisReply *reply = redisCommandArgv(context, argc, argv, NULL);

    if (!reply || reply->type == REDIS_REPLY_ERROR)
        bench_fail("the server returned an error");
    return reply;
}

void bench_redisson_start(struct bench_peer *peer, const char *mode)
{
    char command[2048];

    (void)snprintf(command, sizeof(command), "%s %d %d %s",
                   getenv("BENCH_REDISSON"), bench_redis.server.port, LEASE_MS,
                   mode);
    bench_peer_start(peer, command);
}

/* Redisson is slow until the JVM has compiled its code. */
static void warm_up(struct bench_peer *redisson)
{
    static const char *const commands[] = {
        "pairs lock 16 2000", "pairs fair 16 2000",    "pairs lock 1 1000",
        "pairs fair 1 1000",  "handover lock 10 1000", "handover fair 10 1000",
    };
    double numbers[2];

    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        bench_peer_order(redisson, "%s", commands[i]);
        bench_peer_numbers(redisson, numbers, 2);
    }
}

int main(int argc, char **argv)
{
    struct bench bench = {.name = "redis", .url = "redis:", .rounds = 5};

    bench_init(&bench, argc, argv);
    if (!hf_test_redis_start(&bench_redis.server, NULL))
        bench_fail("cannot start redis-server");
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
    bench_pairs_print(&bench);
    bench_handovers_print(&bench);
    bench_killed_print(&bench);
    if (bench_redis.redisson.pid > 0)
        bench_peer_stop(&bench_redis.redisson);
    hf_test_redis_stop(&bench_redis.server);
    return 0;
}
