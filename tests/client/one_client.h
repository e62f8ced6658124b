/* one_client.h - a fixture with one client of a memory: store, in real time.
 * The client is driven by its callers (open_client), or by background threads
 * (open_background). */
#ifndef HF_TESTS_CLIENT_ONE_CLIENT_H
#define HF_TESTS_CLIENT_ONE_CLIENT_H

#include <unistd.h>

#include "holdfast.h"
#include "lib/expect.h"
#include "lib/runner.h"

#define STORE_URL "memory:one"

static struct hf_client *client;

static inline int open_client(void **state)
{
    (void)state;
    return hf_open(STORE_URL, NULL, &client);
}

static inline int open_background(void **state)
{
    struct hf_client_opts opts;

    (void)state;
    hf_client_opts_init(&opts);
    opts.background = true;
    return hf_open(STORE_URL, &opts, &client);
}

static inline int close_client(void **state)
{
    (void)state;
    return hf_close(client, HF_TEST_TIMEOUT_MS) == HF_OK ? 0 : -1;
}

static inline void sleep_ms(unsigned ms)
{
    (void)usleep(ms * 1000);
}

#endif
