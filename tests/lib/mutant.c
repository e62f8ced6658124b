/* mutant.c - which planted bug is switched on, read before main().
 *
 * Part of the library in a build with -Dmutants=true, and of nothing else. */
#include "base/mutant.h"

#ifdef HF_MUTANTS

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

int hf_mutant;

/* A number that cannot be read must not pass for "no mutant": the tests would
 * pass, and the mutant would seem to survive. */
__attribute__((constructor)) static void choose(void)
{
    const char *text = getenv("HF_MUTANT");
    char *end = NULL;
    long number = 0;

    if (!text)
        return;
    errno = 0;
    number = strtol(text, &end, 10);
    if (errno || end == text || *end || number < 0 || number > INT_MAX) {
        (void)fprintf(stderr, "HF_MUTANT=%s: not the number of a mutant\n",
                      text);
        abort();
    }
    hf_mutant = (int)number;
}

#else

/* ISO C wants something in every translation unit. */
typedef int hf_no_mutants;

#endif
