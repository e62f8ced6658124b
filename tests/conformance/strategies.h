/* strategies.h - the strategies that the conformance suite tests.
 *
 * To add a strategy, write a function that makes its URL, and add a row to
 * strategies.c. The suite reads hf_caps() to find out which promises the
 * strategy makes. */
#ifndef HF_TESTS_CONFORMANCE_STRATEGIES_H
#define HF_TESTS_CONFORMANCE_STRATEGIES_H

#include <stdbool.h>
#include <stddef.h>

#define URL_SIZE 512

struct strategy {
    const char *name; /* the first part of the names of its cases */

    /* Write a URL for one case. If possible, no other case shares its locks;
     * `unique` is a word that no other case gets. */
    void (*url)(char url[URL_SIZE], const char *unique);

    /* Write a URL at which no server, or no majority of the servers, can be
     * reached. NULL if the strategy has no server. */
    void (*unreachable_url)(char url[URL_SIZE]);

    /* Start the servers before the first case, and stop them after the last
     * one, in the process that runs the suite, if a case of this strategy runs.
     * May be NULL. `start` returns false if a server cannot be started, `stop`
     * if one had failed. */
    bool (*start)(void);
    bool (*stop)(void);

    unsigned slowness; /* how many times slower than memory:, roughly */
};

extern const struct strategy strategies[];
extern const size_t strategy_count;

#endif
