/* assert.h - abort the program on a programmer error, in release builds too.
 *
 * A wrong lock is worse than no lock, so a failed assertion ends the process.
 * Assert one condition per line, so that the line number identifies the
 * condition that failed. */
#ifndef HF_BASE_ASSERT_H
#define HF_BASE_ASSERT_H

#define HF_ASSERT(condition)                                                   \
    do {                                                                       \
        if (__builtin_expect(!(condition), 0))                                 \
            __builtin_trap();                                                  \
    } while (0)

#endif
