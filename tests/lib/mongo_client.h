/* mongo_client.h - clients over servers of the test's own. */
#ifndef HF_TESTS_LIB_MONGO_CLIENT_H
#define HF_TESTS_LIB_MONGO_CLIENT_H

#include <holdfast.h>

#include "lib/mongo.h"

/* Start a set, or skip the case where there is no mongod. */
void hf_test_mongo_need(struct hf_test_mongo *mongo, unsigned count);

/* Open a client, tried again while no server can decide; the case fails where
 * that fails. */
struct hf_client *hf_test_mongo_open_url(const char *url);
struct hf_client *hf_test_mongo_open(const struct hf_test_mongo *mongo,
                                     const char *options);

/* Options that differ from the defaults by these times alone. */
struct hf_lock_opts hf_test_mongo_opts(uint32_t ttl_ms, uint32_t wait_ms,
                                       uint32_t timeout_ms);

/* Compare codes, and tell them by name. */
#define expect_err(call, wanted)                                               \
    hf_test_mongo_expect((call), (wanted), #call, __FILE__, __LINE__)
#define expect_ok(call) expect_err(call, HF_OK)
void hf_test_mongo_expect(enum hf_err got, enum hf_err wanted, const char *call,
                          const char *file, int line);

#endif
