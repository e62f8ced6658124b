/* strategies.h - what the suite runs over.
 *
 * A strategy joins by a function for its URL and a row in strategies.c. Which
 * promises it must keep, it says itself: hf_caps(). */
#ifndef HF_TESTS_CONFORMANCE_STRATEGIES_H
#define HF_TESTS_CONFORMANCE_STRATEGIES_H

#include <stdbool.h>
#include <stddef.h>

#define URL_SIZE 512

struct strategy {
    const char *name; /* the first part of each case's name */

    /* Write the URL of locks that no other case uses, as far as this strategy
     * can; `unique` is a word that no other case has. */
    void (*url)(char url[URL_SIZE], const char *unique);

    /* The URL of a server that is not there; NULL where there is none to
     * miss. */
    void (*unreachable_url)(char url[URL_SIZE]);

    /* Start, before the first case, what all cases share, and stop it after
     * the last one, in the process that runs the suite. May be NULL. False:
     * it cannot be started. */
    bool (*start)(void);
    void (*stop)(void);

    unsigned slowness; /* cases of very many keys take so many times fewer */
};

extern const struct strategy strategies[];
extern const size_t strategy_count;

#endif
