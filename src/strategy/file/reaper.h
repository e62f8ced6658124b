/* reaper.h - releases the locks of clients whose process has ended.
 *
 * A lock ends with its holder's process, unless it was detached. To notice that
 * at once, a client that waits for a key watches one process through a pidfd:
 * that of the waiter before it in the queue, or that of the holder if it is the
 * first waiter. So the end of a process wakes one waiter, however long the
 * queue is, and a waiter that is granted the key is already watched by the next
 * one.
 *
 * A pidfd that becomes readable only wakes the client. The lock on its slot's
 * byte then decides whether a holder is dead. The kernel drops that lock when
 * the last copy of the descriptor is closed, so a child process that inherited
 * the descriptor keeps the locks. A waiter is dead as soon as its own process
 * has ended. Where a pidfd cannot be opened (another pid namespace, no free
 * descriptor), waiters notice the death when they poll; the first waiter polls
 * about once a second.
 *
 * Functions marked "critical section" are called between hf_transaction_begin()
 * and hf_transaction_end(). */
#ifndef HF_STRATEGY_FILE_REAPER_H
#define HF_STRATEGY_FILE_REAPER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/table.h"
#include "strategy/strategy.h"

#define HF_REAPER_WATCHES_MAX 64 /* processes watched at a time */

struct hf_file;

struct hf_reaper_watch {
    struct hf_fd pidfd; /* fd is -1 if the process has ended */
    struct hf_file *file;
    uint64_t session; /* session of the watched client; 0: unused */
};

struct hf_reaper {
    struct hf_reaper_watch watches[HF_REAPER_WATCHES_MAX];
    unsigned next;   /* watch to replace next when all are in use */
    uint64_t wanted; /* session to watch after the transaction; 0: none */
    struct hf_timer recheck; /* for an ended process with a locked slot */
    uint32_t delay_ms;       /* delay of the next recheck */
    int pidfd;        /* process of the waiter that was checked last; or -1 */
    uint64_t session; /* session of the waiter that was checked last */
};

enum hf_err hf_reaper_init(struct hf_file *file);
void hf_reaper_fini(struct hf_file *file);

/* Critical section. If the holder of `key` is dead and has not detached a lock,
 * expire its hold and return true. */
bool hf_reaper_free_key(struct hf_file *file, struct hf_key key);

/* Critical section. Expire every hold of `session`, which belonged to the
 * previous client of our slot and has ended. */
void hf_reaper_free_session(struct hf_file *file, uint64_t session);

/* Critical section. Returns true if the process of a waiter is running. A
 * process that inherited the waiter's descriptor does not count, because it
 * cannot use a lock that the waiter has not been granted. */
bool hf_reaper_is_running(struct hf_file *file, uint64_t session);

/* Critical section. Let the next hf_reaper_watch_process() watch the
 * predecessor of our `waiter`. */
void hf_reaper_follow(struct hf_file *file,
                      const struct hf_table_waiter *waiter);

/* Watch the process that hf_reaper_follow() chose, if any. Call it outside the
 * critical section, because it makes system calls. */
void hf_reaper_watch_process(struct hf_file *file);

#endif
