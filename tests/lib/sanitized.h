/* sanitized.h - whether this program is built with a sanitizer. */
#ifndef HF_TESTS_LIB_SANITIZED_H
#define HF_TESTS_LIB_SANITIZED_H

#include "lib/runner.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HF_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HF_TEST_SANITIZED 1
#endif
#endif
#ifndef HF_TEST_SANITIZED
#define HF_TEST_SANITIZED 0
#endif

/* Skip a case that forks while other threads allocate, because the child may
 * find the mutexes of the sanitizer's allocator locked. */
static inline void hf_test_needs_forks_beside_threads(void)
{
    if (HF_TEST_SANITIZED)
        hf_test_skip("the sanitizer's allocator does not survive such a fork");
}

#endif
