/* library.h - libmongoc as a whole, and the threads that are inside it. */
#ifndef HF_STRATEGY_MONGO_LIBRARY_H
#define HF_STRATEGY_MONGO_LIBRARY_H

#include <stdbool.h>

/* Before anything else of libmongoc: it would write to the standard output
 * otherwise. */
void hf_mongo_library_init(void);

/* Start a thread that nobody waits for. False: it could not be started.
 *
 * When the program ends, libmongoc's own memory goes: those who are about to
 * come out of it are waited for a little. */
bool hf_mongo_thread_start(void *(*run)(void *), void *arg);

#endif
