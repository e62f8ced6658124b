/* expect.h - what is asked of a lock, and what comes of it. */
#ifndef HF_TESTS_LIB_EXPECT_H
#define HF_TESTS_LIB_EXPECT_H

#include <holdfast.h>

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
