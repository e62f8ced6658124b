/* conformance.c - the conformance suite: the promises of holdfast.h, tested
 * with every strategy.
 *
 * Comments above the cases name the rows of docs/conformance.md that the cases
 * cover. */
#include "conformance/suite.h"

int main(void)
{
    /* The slowest chapters come first, so that they do not run alone at the
     * end. */
    const struct chapter *const chapters[] = {
        &chapter_stress,   &chapter_leases,      &chapter_waiting,
        &chapter_acquire,  &chapter_calls,       &chapter_release,
        &chapter_handles,  &chapter_arguments,   &chapter_read,
        &chapter_watching, &chapter_transitions, &chapter_handovers,
    };

    return suite_main(chapters, HF_TEST_COUNT(chapters));
}
