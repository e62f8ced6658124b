/* expect.h - lock options and error assertions for tests. */
#ifndef HF_TESTS_LIB_EXPECT_H
#define HF_TESTS_LIB_EXPECT_H

#include <holdfast.h>

/* How long a case waits for something that must happen: far more than it ever
 * takes. No case asserts an upper bound on elapsed time, because a busy machine
 * may stop a process for seconds at any point. */
#define HF_TEST_TIMEOUT_MS 60000

/* A ttl so long that its lease does not expire while a case runs. */
#define HF_TEST_LONG_MS 600000

/* Set the defaults of this process: a ttl of HF_TEST_LONG_MS, and a wait and a
 * timeout of HF_TEST_TIMEOUT_MS. */
void hf_test_set_defaults(void);

/* The default options with these three times. */
struct hf_lock_opts hf_test_opts(uint32_t ttl_ms, uint32_t wait_ms,
                                 uint32_t timeout_ms);

/* Fail the case unless `call` returns `wanted`. The message has the names of
 * both error codes. */
#define expect_err(call, wanted)                                               \
    hf_test_expect((call), (wanted), #call, __FILE__, __LINE__)
#define expect_ok(call) expect_err(call, HF_OK)
void hf_test_expect(enum hf_err got, enum hf_err wanted, const char *call,
                    const char *file, int line);

#endif
