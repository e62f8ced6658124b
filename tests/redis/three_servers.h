/* three_servers.h - the fixture of redlock: cases: three Redis servers and two
 * clients. */
#ifndef HF_TESTS_REDIS_THREE_SERVERS_H
#define HF_TESTS_REDIS_THREE_SERVERS_H

#include <stdio.h>

#include "lib/redis_client.h"
#include "lib/runner.h"

static struct hf_test_redis servers[3];
static char url[HF_TEST_URL_SIZE];
static struct hf_client *client, *other;

static struct hf_client *open_client(void)
{
    struct hf_error error = {.text = ""};
    struct hf_client *opened = NULL;
    struct hf_client_opts opts;

    hf_client_opts_init(&opts);
    opts.error = &error;
    if (hf_open(url, &opts, &opened) != HF_OK)
        fail_msg("open: %s", error.text);
    return opened;
}

/* Start the servers with `options`, as for hf_test_redis_start(), and open both
 * clients. Returns 0, or -1 on failure. */
static int start_servers(const char *const *options)
{
    for (size_t i = 0; i < 3; i++) {
        if (!hf_test_redis_start(&servers[i], options))
            return -1;
    }
    (void)snprintf(url, sizeof(url),
                   "redlock://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d",
                   servers[0].port, servers[1].port, servers[2].port);
    client = open_client();
    other = open_client();
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    return start_servers(NULL);
}

static int tear_down(void **state)
{
    (void)state;
    (void)hf_close(client, 1000);
    (void)hf_close(other, 1000);
    for (size_t i = 0; i < 3; i++)
        hf_test_redis_stop(&servers[i]);
    return 0;
}

#endif
