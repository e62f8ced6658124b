/* step.h - numbered points at which a test can stop a process for good.
 *
 * Code that must survive a kill at any instruction says where the interesting
 * instructions are:
 *
 *     half->size = bytes.size;
 *     HF_STEP(9);
 *     hf_copy(half->bytes, bytes.data, bytes.size);
 *
 * and tests/file/test_steps.c, which is built with a library of its own, kills
 * a process at each of them. Elsewhere HF_STEP() is nothing. */
#ifndef HF_BASE_STEP_H
#define HF_BASE_STEP_H

#ifdef HF_STEPS
void hf_step(int number); /* the test's */
#define HF_STEP(n) hf_step(n)
#else
#define HF_STEP(n) ((void)0)
#endif

#endif
