/* switch.h - which planted bug is switched on. See README.md.
 *
 * scripts/mutants includes this in each C file of its copy that has a bug.
 * Every such file reads the number for itself, so the library, its modules and
 * the command need not share a symbol. */
#ifndef HF_TESTS_MUTANTS_SWITCH_H
#define HF_TESTS_MUTANTS_SWITCH_H

#include <stdlib.h>

static int planted_bug; /* 0: none */

__attribute__((constructor)) static void choose_planted_bug(void)
{
    const char *chosen = getenv("HF_MUTANT");
    char *end = NULL;
    long number = chosen ? strtol(chosen, &end, 10) : 0;

    /* A number that cannot be read would look like a bug that no test finds. */
    if (chosen && (end == chosen || *end || number < 0 || number > 1000000))
        abort();
    planted_bug = (int)number;
}

#endif
