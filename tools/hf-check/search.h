/* search.h - decide linearizability by exhaustive search, to test check.h.
 *
 * It decides promise 3 of check.h, the linearizability of the lock, by trying
 * all orders: J. M. Wing and C. Gong, "Testing and verifying concurrent
 * objects" (1993), with the cache of visited states of G. Lowe, "Testing for
 * linearizability" (2017), one key at a time, as Porcupine does. It follows the
 * table of the model in check.h row by row and shares no code with check.c, so
 * that the same mistake is unlikely in both.
 *
 * Its time is exponential: it is for histories of a dozen operations. */
#ifndef HF_CHECK_TOOL_SEARCH_H
#define HF_CHECK_TOOL_SEARCH_H

#include "history.h"

enum hf_search_verdict {
    HF_SEARCH_LINEARIZABLE,
    HF_SEARCH_NOT_LINEARIZABLE,
    HF_SEARCH_TOO_LARGE /* more than 64 steps of one key */
};

enum hf_search_verdict hf_search_run(const struct hf_check_history *h);

#endif
