/* library.h - initialize libmongoc, and count the threads that call it.
 *
 * libmongoc has three effects on the whole process, which this module limits:
 *
 * - It logs to standard output and error. A log handler drops the messages.
 * - It keeps counters in shared memory, /dev/shm/mongoc-PID, which a killed
 *   process would leave behind. hf_mongo_library_init() unlinks that file.
 * - Its destructor unmaps the counters at exit, and OpenSSL frees its state. A
 *   thread that is still inside libmongoc, or whose thread-specific data is
 *   still being destroyed, would crash. hf_close() does not wait for such
 *   threads: a worker, an orphan or the thread that closes a pool may outlive
 *   its client (workers.h). So threads are counted for the whole process, which
 *   waits up to a second for them at exit. */
#ifndef HF_STRATEGY_MONGO_LIBRARY_H
#define HF_STRATEGY_MONGO_LIBRARY_H

#include <stdbool.h>

/* Initialize libmongoc, once. Call this before any other function of
 * libmongoc. */
void hf_mongo_library_init(void);

/* Start a thread that may outlive its client. At exit the process waits up to a
 * second for it. Returns false if the thread could not be started. */
bool hf_mongo_library_start_thread(void *(*run)(void *), void *arg);

#endif
