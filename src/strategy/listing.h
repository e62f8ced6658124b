/* listing.h - LIST over a table in this process, in short steps.
 *
 * Nobody else can use the table while this client is inside, so a list of many
 * keys goes inside again and again, copies a bounded part each time, and makes
 * the answer of it outside. A key that is held all the time is listed once.
 * One that is taken or freed meanwhile may be listed or not. */
#ifndef HF_STRATEGY_LISTING_H
#define HF_STRATEGY_LISTING_H

#include "strategy/in_process.h"

#define HF_LISTING_HOLDS 256   /* looked at in one step, */
#define HF_LISTING_BYTES 65536 /* and about how much of them is copied */

/* Fill in the answer to a LIST; or what enter said, and nothing is done. */
enum hf_err hf_listing_run(struct hf_in_process *local,
                           struct hf_request *request);

#endif
