/* listing.h - execute LIST on a store in this process, in short steps.
 *
 * No other client can use the store during a critical section (in_process.h).
 * So a list of many keys enters it repeatedly, copies a limited number of holds
 * each time, and converts the copies into infos after it. A key that is held
 * all the time is listed once. A key that is acquired or released meanwhile may
 * or may not be listed. */
#ifndef HF_STRATEGY_LISTING_H
#define HF_STRATEGY_LISTING_H

#include "strategy/in_process.h"

#define HF_LISTING_HOLDS 256   /* holds visited in one step */
#define HF_LISTING_BYTES 65536 /* about this many bytes copied in one step */

/* Execute a LIST request and fill in its answer. If `enter` fails, returns its
 * error and leaves the answer empty. */
enum hf_err hf_listing_run(struct hf_in_process *local,
                           struct hf_request *request);

#endif
