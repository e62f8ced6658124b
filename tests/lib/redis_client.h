/* redis_client.h - a client over a server of the test's own. */
#ifndef HF_TESTS_LIB_REDIS_CLIENT_H
#define HF_TESTS_LIB_REDIS_CLIENT_H

#include "lib/expect.h"
#include "lib/redis.h"

#define HF_TEST_URL_SIZE 200

/* "redis://127.0.0.1:PORT/0" and what follows it, such as "?wait_replicas=1";
 * with `login`, "user:password@" before the host. */
const char *hf_test_redis_url(const struct hf_test_redis *redis,
                              const char *login, const char *rest);

/* Open a client; the case fails where that fails. */
struct hf_client *hf_test_redis_open(const struct hf_test_redis *redis,
                                     const char *rest);

/* The text of the client's last error has `word`. */
void expect_word(struct hf_client *of, const char *word);

#endif
