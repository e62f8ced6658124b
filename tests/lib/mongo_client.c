#include "lib/mongo_client.h"

#include "lib/runner.h"

/* On a busy machine, servers that were just started or elected need several
 * attempts. */
#define OPEN_TRIES 10

void hf_test_mongo_require(struct hf_test_mongo *mongo, unsigned count)
{
    if (!hf_test_mongo_is_installed())
        hf_test_skip(HF_TEST_MONGO_NONE);
    assert_true(hf_test_mongo_start(mongo, count));
}

struct hf_client *hf_test_mongo_open_url(const char *url)
{
    struct hf_error error = {.code = HF_OK};
    struct hf_client *client = NULL;
    struct hf_client_opts opts;
    enum hf_err err = HF_EUNAVAIL;

    hf_test_set_defaults();
    hf_client_opts_init(&opts);
    opts.error = &error;
    for (unsigned i = 0; i < OPEN_TRIES && err == HF_EUNAVAIL; i++)
        err = hf_open(url, &opts, &client);
    if (err)
        fail_msg("%s: %s", url, error.text);
    return client;
}

struct hf_client *hf_test_mongo_open(const struct hf_test_mongo *mongo,
                                     const char *options)
{
    char url[HF_TEST_MONGO_URL_SIZE];

    hf_test_mongo_url(mongo, url, options);
    return hf_test_mongo_open_url(url);
}
