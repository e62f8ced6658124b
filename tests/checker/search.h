/* search.h - the stupid twin of check.h: try all orders.
 *
 * It decides promise 3 of check.h, the linearizability of the lock, by search:
 * J. M. Wing and C. Gong, "Testing and verifying concurrent objects" (1993),
 * with the memory of states seen by G. Lowe, "Testing for linearizability"
 * (2017), one key at a time, as Porcupine does. It follows the table of the
 * model in check.h line by line and shares no code with check.c, so that a
 * mistake in the one is unlikely to be in the other.
 *
 * Its time is exponential: it is for histories of a dozen operations. */
#ifndef CHECKER_SEARCH_H
#define CHECKER_SEARCH_H

#include "history.h"

enum search_verdict {
    SEARCH_LINEARIZABLE,
    SEARCH_NOT_LINEARIZABLE,
    SEARCH_TOO_LARGE /* more than 64 steps of one key */
};

enum search_verdict search_history(const struct history *h);

#endif
