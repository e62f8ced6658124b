/* simulate.h - histories of a lock that keeps its promises, and of one that
 * does not.
 *
 * simulate_good() plays clients against a small lock service in one thread:
 * calls overlap, answers get lost, leases run out, clients die. All chance
 * comes from the seed. The service has its own idea of time (whole units), so
 * that instants often coincide, where checkers are most easily wrong. */
#ifndef CHECKER_SIMULATE_H
#define CHECKER_SIMULATE_H

#include "history.h"

struct simulate_opts {
    uint64_t seed;
    size_t ops;
    uint32_t clients; /* up to SIMULATE_CLIENTS_MAX */
    uint32_t keys;
    uint64_t lease_max; /* in units; the shortest is 1 */
    uint64_t unit_ns;
    unsigned trouble; /* in a thousand: answers lost, clients killed */
};

#define SIMULATE_CLIENTS_MAX 1024

/* Fill `h`, which history_init() made, with `opts->ops` operations. */
void simulate_good(struct history *h, const struct simulate_opts *opts);

/* Change `h` in one to five places as a broken service or recorder might:
 * tokens, instants and results are swapped, shifted, dropped or repeated. It
 * may be a good history still. */
void simulate_damage(struct history *h, uint64_t seed);

/* Fill `h` with up to `ops` operations on one key that no service had a hand
 * in: overlapping calls with answers by chance, rich in "busy" and unknown. */
void simulate_noise(struct history *h, uint64_t seed, size_t ops);

/* The next of a row of random numbers (splitmix64). */
uint64_t simulate_random(uint64_t *state);

#endif
