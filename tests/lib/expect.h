/* expect.h - what is asked of a lock, and what comes of it. */
#ifndef HF_TESTS_LIB_EXPECT_H
#define HF_TESTS_LIB_EXPECT_H

#include <holdfast.h>

/* How long a case waits for what must come: far more than it ever takes. No
 * case asserts that anything takes less: a busy machine may stop it for seconds
 * at any point. */
#define HF_TEST_PATIENCE_MS 60000

/* A lease that does not end while a case runs. */
#define HF_TEST_LONG_MS 600000

/* Make a ttl of HF_TEST_LONG_MS, and a wait and a timeout of
 * HF_TEST_PATIENCE_MS, the defaults of this process. */
void hf_test_be_patient(void);

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
