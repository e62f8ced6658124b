/* words.h - byte strings as small numbers.
 *
 * A history names the same keys and nonces over and over. Kept once here, they
 * are compared and sorted as numbers everywhere else.
 *
 * Always true:
 *   1. equal bytes have equal numbers, and different bytes different ones;
 *   2. number 0 is the empty string, which stands for "not given";
 *   3. a number stays good until words_fini(); a pointer from words_bytes()
 *      only until the next words_add(). */
#ifndef CHECKER_WORDS_H
#define CHECKER_WORDS_H

#include <stddef.h>
#include <stdint.h>

struct words {
    char *bytes; /* all words, one behind the other */
    size_t bytes_len, bytes_room;
    struct word *list; /* by number */
    size_t count, list_room;
    uint32_t *slots; /* hash table of numbers; a power of two of them */
    size_t slot_count;
};

void words_init(struct words *w);
void words_fini(struct words *w);

/* The number of these bytes, which are copied if they are new. */
uint32_t words_add(struct words *w, const char *bytes, size_t len);

/* The bytes of `word`, borrowed and not terminated; their count in `*len`. */
const char *words_bytes(const struct words *w, uint32_t word, size_t *len);

#endif
