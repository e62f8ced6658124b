#include "lib/redis_client.h"

#include <stdio.h>
#include <string.h>

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

    hf_test_set_defaults();
    hf_client_opts_init(&opts);
    opts.error = &error;
    if (hf_open(hf_test_redis_url(redis, NULL, rest), &opts, &client) != HF_OK)
        fail_msg("open: %s", error.text);
    return client;
}

void expect_error_text(struct hf_client *client, const char *word)
{
    struct hf_error error;

    hf_client_error(client, &error);
    if (!strstr(error.text, word))
        fail_msg("'%s' does not contain '%s'", error.text, word);
}
