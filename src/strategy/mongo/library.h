/* library.h - libmongoc as a whole, and the threads that are inside it.
 *
 * What libmongoc does to a process, whoever uses it, and what is done about it:
 *
 * - It logs to the standard output and error: a handler drops that.
 * - It keeps counters in shared memory, /dev/shm/mongoc-PID, which a killed
 *   process would leave behind: it is unlinked right after it was made.
 * - At exit its destructor unmaps the counters, and OpenSSL frees its state. A
 *   thread that is still inside, or whose thread-specific data is still being
 *   destroyed, would crash. hf_close() does not wait for such threads: a
 *   worker, an orphan or the thread that closes a pool may outlive its client
 *   (workers.h). So they are counted for the whole process and joined at exit. */
#ifndef HF_STRATEGY_MONGO_LIBRARY_H
#define HF_STRATEGY_MONGO_LIBRARY_H

#include <stdbool.h>

/* Before anything else of libmongoc. */
void hf_mongo_library_init(void);

/* Start a thread that no client waits for. At exit the process waits for it, for
 * up to a second. False: it could not be started. */
bool hf_mongo_library_start_thread(void *(*run)(void *), void *arg);

#endif
