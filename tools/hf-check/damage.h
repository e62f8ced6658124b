/* damage.h - make histories that a broken lock service might produce. */
#ifndef HF_CHECK_TOOL_DAMAGE_H
#define HF_CHECK_TOOL_DAMAGE_H

#include "history.h"

/* Change `h` in up to five places, as a broken service or recorder might: swap,
 * shift, drop or repeat tokens, instants and results. The result may still be a
 * correct history. */
void hf_damage_history(struct hf_check_history *h, uint64_t seed);

/* Fill `h` with up to `ops` random operations on one key, whose results are
 * random, too: overlapping calls, many of them busy or unknown. */
void hf_damage_noise(struct hf_check_history *h, uint64_t seed, size_t ops);

#endif
