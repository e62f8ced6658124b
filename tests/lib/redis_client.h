/* redis_client.h - opens clients of the test's server. */
#ifndef HF_TESTS_LIB_REDIS_CLIENT_H
#define HF_TESTS_LIB_REDIS_CLIENT_H

#include "lib/expect.h"
#include "lib/redis.h"

#define HF_TEST_URL_SIZE 200

/* The URL "redis://127.0.0.1:PORT/0" followed by `rest`, such as
 * "?wait_replicas=1". `login` is put before the host, as "user:password@". It
 * may be NULL. */
const char *hf_test_redis_url(const struct hf_test_redis *redis,
                              const char *login, const char *rest);

/* Open a client. The case fails if that fails. */
struct hf_client *hf_test_redis_open(const struct hf_test_redis *redis,
                                     const char *rest);

/* Check that the text of the client's last error contains `word`. */
void expect_error_text(struct hf_client *client, const char *word);

#endif
