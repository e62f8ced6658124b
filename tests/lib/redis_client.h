/* redis_client.h - a client over a server of the test's own. */
#ifndef HF_TESTS_LIB_REDIS_CLIENT_H
#define HF_TESTS_LIB_REDIS_CLIENT_H

#include <holdfast.h>

#include "lib/redis.h"

#define HF_TEST_URL_SIZE 200

/* "redis://127.0.0.1:PORT/0" and what follows it, such as "?wait_replicas=1";
 * with `login`, "user:password@" before the host. */
const char *hf_test_redis_url(const struct hf_test_redis *redis,
                              const char *login, const char *rest);

/* Open a client; the case fails where that fails. */
struct hf_client *hf_test_redis_open(const struct hf_test_redis *redis,
                                     const char *rest);

/* Options that differ from the defaults by these times alone. */
struct hf_lock_opts hf_test_opts(uint32_t ttl_ms, uint32_t wait_ms,
                                 uint32_t timeout_ms);

/* Compare codes, and tell them by name. */
#define expect_err(call, wanted)                                               \
    hf_test_expect((call), (wanted), #call, __FILE__, __LINE__)
#define expect_ok(call) expect_err(call, HF_OK)
void hf_test_expect(enum hf_err got, enum hf_err wanted, const char *call,
                    const char *file, int line);

#endif
