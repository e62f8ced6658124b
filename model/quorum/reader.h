/* reader.h - a client that reads whether the key is held, and by which token.
 *
 * READ counts and writes nothing: one round trip. Masters report at different
 * moments, and others do not report. The reader decides:
 *
 *   held       a token has leases on a majority, or fast votes and leases on a
 *              fast quorum. Where values change, these copies must have the
 *              same ballot: another value may be on its way to a majority, or
 *              may be replaced before it is there.
 *   free       no token can have that, whatever the others would report; the
 *              reports were true at one instant; and each claim that a report
 *              shows as released has ended on a majority
 *   undecided  otherwise; it asks again
 *
 * The instant is the beginning of the read: a report includes how long the
 * record has been unchanged, and the reader knows how long the read took. */
#ifndef HF_MODEL_QUORUM_READER_H
#define HF_MODEL_QUORUM_READER_H

#include "steps.h"

/* Take every step of the reader. */
void hf_reader_steps(struct hf_steps *steps);

/* While it reads, a step leads from `from` to `next`. */
void hf_reader_on_step(const struct hf_state *from, struct hf_state *next);

#endif
