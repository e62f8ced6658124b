/* conformance.c - one suite of promises, over every strategy.
 *
 * The promises are those of holdfast.h and of the rows in docs/conformance.md,
 * whose ids stand above the cases that cover them. */
#include "conformance/suite.h"

int main(void)
{
    /* Those that take longest come first. */
    const struct chapter *const chapters[] = {
        &chapter_stress,   &chapter_leases,      &chapter_waiting,
        &chapter_acquire,  &chapter_calls,       &chapter_release,
        &chapter_handles,  &chapter_arguments,   &chapter_read,
        &chapter_watching, &chapter_transitions, &chapter_handovers,
    };

    return suite_main(chapters, HF_TEST_COUNT(chapters));
}
