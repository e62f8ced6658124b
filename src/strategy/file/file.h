/* file.h - file:DIR, locks for the processes of one machine, without a daemon.
 *
 * Every client has a replica of the lock table, and keeps it up to date from
 * a shared log in a mapped file in DIR (arena.h). To run a command, a client
 * enters the critical section, applies the entries of the other clients,
 * appends and publishes its own entry, and then wakes the clients that the
 * command concerns.
 *
 * directory.h says which directory `file:` without DIR means. */
#ifndef HF_STRATEGY_FILE_FILE_H
#define HF_STRATEGY_FILE_FILE_H

#include "strategy/strategy.h"

extern const struct hf_strategy hf_strategy_file;

#endif
