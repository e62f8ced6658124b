/* death.h - programmer errors that must stop the program. */
#ifndef HF_TESTS_LIB_DEATH_H
#define HF_TESTS_LIB_DEATH_H

#include <stdbool.h>

/* Run `act` in a child process. Returns true if it fails an HF_ASSERT. */
bool hf_test_dies(void (*act)(void *arg), void *arg);

#endif
