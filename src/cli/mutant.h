/* mutant.h - planted bugs in the command: what base/mutant.h is to the library.
 *
 * A build for tests has them, and the environment variable HF_MUTANT switches
 * one on. Elsewhere HF_MUTANT() is the constant 0. */
#ifndef CLI_MUTANT_H
#define CLI_MUTANT_H

#ifdef HF_MUTANTS
#include <stdlib.h>

static inline int mutant_is_on(long number)
{
    const char *chosen = getenv("HF_MUTANT");

    return chosen && strtol(chosen, NULL, 10) == number;
}

#define HF_MUTANT(n) mutant_is_on(n)
#else
#define HF_MUTANT(n) 0
#endif

#endif
