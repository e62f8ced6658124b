/* file.h - file:DIR, locks for the processes of one machine, with no daemon.
 *
 * Every client keeps a lock table of its own, and all are fed the same log,
 * which lies in a mapped file in DIR (arena.h). To act, a client goes inside,
 * applies what the others have written, writes what it wants, publishes, and
 * rings whoever that concerns.
 *
 * `file:` alone means a directory that depends on the user alone, and never on
 * the environment, so that a shell and a cron job meet. */
#ifndef HF_STRATEGY_FILE_FILE_H
#define HF_STRATEGY_FILE_FILE_H

#include "strategy/strategy.h"

extern const struct hf_strategy hf_strategy_file;

#endif
