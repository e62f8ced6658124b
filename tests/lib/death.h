/* death.h - programmer errors that must stop the program. */
#ifndef HF_TESTS_LIB_DEATH_H
#define HF_TESTS_LIB_DEATH_H

#include <stdbool.h>

/* Whether `act` ends at an HF_ASSERT. It runs in a process of its own. */
bool hf_test_dies(void (*act)(void *arg), void *arg);

#endif
