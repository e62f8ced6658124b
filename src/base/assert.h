/* assert.h - programmer errors stop the program, in release builds too.
 *
 * A lock that is wrong is worse than a lock that is down. One condition each,
 * so that the line says which. */
#ifndef HF_BASE_ASSERT_H
#define HF_BASE_ASSERT_H

#define HF_ASSERT(condition)                                                   \
    do {                                                                       \
        if (__builtin_expect(!(condition), 0))                                 \
            __builtin_trap();                                                  \
    } while (0)

#endif
