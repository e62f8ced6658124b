/* mutant.h - planted bugs, which prove that the tests can fail.
 *
 * A line such as
 *
 *     if (lease->generation != generation && !HF_MUTANT(12))
 *         return HF_OK;
 *
 * is wrong on purpose when mutant 12 is switched on. scripts/mutants switches
 * on one at a time, by the environment variable HF_MUTANT, and expects the
 * tests that tests/mutants.txt names to fail.
 *
 * Compiled out of the product: only a build with -Dmutants=true knows of
 * them. Elsewhere HF_MUTANT() is the constant 0, and no code is made for it. */
#ifndef HF_BASE_MUTANT_H
#define HF_BASE_MUTANT_H

#ifdef HF_MUTANTS
extern int hf_mutant; /* the one that is switched on; 0 for none */
#define HF_MUTANT(n) (hf_mutant == (n))
#else
#define HF_MUTANT(n) 0
#endif

#endif
