/* mongo_client.h - opens clients of the test's servers. */
#ifndef HF_TESTS_LIB_MONGO_CLIENT_H
#define HF_TESTS_LIB_MONGO_CLIENT_H

#include "lib/expect.h"
#include "lib/mongo.h"

/* Start a replica set of `count` members (hf_test_mongo_start()), or skip the
 * case if mongod is not installed. */
void hf_test_mongo_require(struct hf_test_mongo *mongo, unsigned count);

/* hf_test_mongo_open_url() opens a client of `url`; hf_test_mongo_open() opens
 * one of `mongo`, with `options` added to its URL. Both retry a few times on
 * HF_EUNAVAIL. The case fails if that does not help, and on any other error. */
struct hf_client *hf_test_mongo_open_url(const char *url);
struct hf_client *hf_test_mongo_open(const struct hf_test_mongo *mongo,
                                     const char *options);

#endif
