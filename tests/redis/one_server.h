/* one_server.h - the fixture of cases with one Redis server and one client. */
#ifndef HF_TESTS_REDIS_ONE_SERVER_H
#define HF_TESTS_REDIS_ONE_SERVER_H

#include "lib/redis_client.h"
#include "lib/runner.h"

static struct hf_test_redis redis;
static struct hf_client *client;

static int set_up(void **state)
{
    (void)state;
    if (!hf_test_redis_start(&redis, NULL))
        return -1;
    client = hf_test_redis_open(&redis, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)hf_close(client, 1000);
    hf_test_redis_stop(&redis);
    return 0;
}

#endif
