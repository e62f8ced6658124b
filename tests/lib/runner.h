/* runner.h - runs the cases of a test program, each in its own process.
 *
 * A case is a cmocka test. If it crashes, hangs, leaks or leaves threads
 * behind, it affects no other case, and cases that wait for real time overlap.
 * The output is TAP on stdout, in the order of the cases. The output of a case
 * is shown only if it fails.
 *
 *     static void release_grants_the_first_waiter(void **state)
 *     {
 *         ...
 *         assert_int_equal(hf_table_apply(...), HF_OK);
 *     }
 *
 *     int main(void)
 *     {
 *         const struct CMUnitTest cases[] = {
 *             cmocka_unit_test(release_grants_the_first_waiter),
 *         };
 *
 *         return hf_test_main("table", cases, HF_TEST_COUNT(cases), 0);
 *     }
 *
 * A case passes if it returns, its teardown returns 0 and its process then
 * exits with status 0; a sanitizer that has found an error prevents that. It
 * fails by an assertion, a signal, an early exit or its time limit. Processes
 * that it leaves running are killed with its process group.
 *
 * Assert only in the thread that runs the case: a cmocka assertion jumps back
 * into the runner, on the stack of that thread.
 *
 * Arguments of the program:
 *   NAME...     run only the cases whose names contain one of these
 *   --list      print the names of the cases, run nothing
 *   --serial    run them in this process, one after another: for a debugger
 *   --jobs=N    run N at a time (at most 64), whatever the program asks for
 *
 * Environment:
 *   HF_TEST_TIMEOUT         seconds that a case may take, 300 if unset
 *   HF_TEST_SLOWNESS        a factor for the timeout, for slow sanitizer builds
 *   HF_TEST_FIRST_FAILURE   if set, end all cases when one has failed */
#ifndef HF_TESTS_LIB_RUNNER_H
#define HF_TESTS_LIB_RUNNER_H

/* cmocka.h needs all of these but stdbool.h before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define HF_TEST_COUNT(cases) (sizeof(cases) / sizeof((cases)[0]))

/* Run `count` cases, `jobs` at a time (0 for 2), and return the exit status for
 * main(): 0 if no case failed, 1 if one did, 2 if the arguments are invalid or
 * select no case.
 *
 * Runs setup and teardown of each case, with its initial state. Names and cases
 * are borrowed until the call returns, so they may be built at run time:
 * "memory/release_grants_the_first_waiter". Call it with one thread running. */
int hf_test_main(const char *suite, const struct CMUnitTest *cases,
                 size_t count, unsigned jobs);

/* Returns true if hf_test_main() will run a case with this name: the arguments
 * of the program select the case, and do not contain --list. */
bool hf_test_will_run(const char *name);

/* End this case as skipped, and show `why`. Call it from the setup or the body
 * of a case. */
_Noreturn void hf_test_skip(const char *why);

/* How many times slower this build is than a plain one, at least 1. Long cases
 * use it to do less in a slow build. */
unsigned hf_test_slowness(void);

#endif
