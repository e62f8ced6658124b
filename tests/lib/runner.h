/* runner.h - runs the cases of a test program, each in a process of its own.
 *
 * A case is a cmocka test. Its process can crash, hang, leak or leave threads
 * behind and spoils no other case; and cases that wait for real time overlap.
 * The answer is TAP on stdout, in the order of the cases, with the output of
 * a case shown only if it fails.
 *
 *     static void grant_passes_over_the_expired(void **state)
 *     {
 *         ...
 *         assert_int_equal(hf_table_step(...), HF_OK);
 *     }
 *
 *     int main(void)
 *     {
 *         const struct CMUnitTest cases[] = {
 *             cmocka_unit_test(grant_passes_over_the_expired),
 *         };
 *
 *         return hf_test_main("table", cases, HF_TEST_COUNT(cases), 0);
 *     }
 *
 * A case passes if it returns, its teardown answers 0 and its process then
 * ends with status 0, which a sanitizer that has found something prevents. It
 * fails by an assertion, a signal, an early exit or its time limit. What it
 * leaves running is killed with its process group.
 *
 * Assert in the thread that runs the case, and nowhere else: a cmocka
 * assertion jumps back into the runner, on that thread's stack.
 *
 * Arguments of the program:
 *   NAME...     run only the cases whose names contain one of these
 *   --list      print the names of the cases, run nothing
 *   --serial    run them here, one after another: for a debugger
 *   --jobs=N    run N at a time, whatever the program asks for
 *
 * Environment:
 *   HF_TEST_TIMEOUT    seconds that a case may take, 300 if unset
 *   HF_TEST_SLOWNESS   a factor for that, set where sanitizers slow it down */
#ifndef HF_TESTS_LIB_RUNNER_H
#define HF_TESTS_LIB_RUNNER_H

/* cmocka.h wants these four before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define HF_TEST_COUNT(cases) (sizeof(cases) / sizeof((cases)[0]))

/* Run `count` cases, `jobs` at a time (0 for 2), and return the exit status
 * for main(): 0 if none failed, 1 if one did, 2 if the arguments make no sense
 * or choose nothing.
 *
 * Setup, teardown and initial state of each case are honoured. Names and
 * cases are borrowed until it returns, so they may be built at run time:
 * "memory/grant_passes_over_the_expired". Call it with one thread running. */
int hf_test_main(const char *suite, const struct CMUnitTest *cases,
                 size_t count, unsigned jobs);

/* End this case as skipped; `why` is shown. From its setup or its body. */
_Noreturn void hf_test_skip(const char *why);

/* By how much this build is slower than a plain one, at least 1: to do less in
 * it of what takes long. */
unsigned hf_test_slowness(void);

#endif
