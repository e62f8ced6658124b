#include "lib/redis_client.h"

#include <stdio.h>

#include "lib/runner.h"

const char *hf_test_redis_url(const struct hf_test_redis *redis,
                              const char *login, const char *rest)
{
    static char url[HF_TEST_URL_SIZE];

    (void)snprintf(url, sizeof(url), "redis://%s127.0.0.1:%d/0%s",
                   login ? login : "", redis->port, rest ? rest : "");
    return url;
}

struct hf_client *hf_test_redis_open(const struct hf_test_redis *redis,
                                     const char *rest)
{
    struct hf_error error = {.text = ""};
    struct hf_client *client = NULL;
    struct hf_client_opts opts;

    hf_client_opts_init(&opts);
    opts.error = &error;
    if (hf_open(hf_test_redis_url(redis, NULL, rest), &opts, &client) != HF_OK)
        fail_msg("open: %s", error.text);
    return client;
}

struct hf_lock_opts hf_test_opts(uint32_t ttl_ms, uint32_t wait_ms,
                                 uint32_t timeout_ms)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = ttl_ms;
    opts.wait_ms = wait_ms;
    opts.timeout_ms = timeout_ms;
    return opts;
}

void hf_test_expect(enum hf_err got, enum hf_err wanted, const char *call,
                    const char *file, int line)
{
    if (got == wanted)
        return;
    print_error("%s\nis %s (%s), should be %s\n", call, hf_err_name(got),
                hf_err_text(got), hf_err_name(wanted));
    _fail(file, line);
}
