/* deaths.h - hand over the locks of clients that died, at once.
 *
 * A lock ends with its holder's process, unless it was detached. A client that
 * waits for a key therefore watches its predecessor in the queue, or the holder
 * if it is the first, by a pidfd. So each death wakes one waiter, and a waiter
 * that is granted the key is watched by the next one already.
 *
 * A pidfd only wakes: whether a client is gone is decided by the lock on its
 * slot's byte, which the kernel drops when the last descriptor is closed. A
 * process that inherited the descriptor keeps the lock from being handed over.
 * Where there is no pidfd (another pid namespace, no descriptors left), waiters
 * find out when they ask again, after LOOK_MS or a multiple of it. */
#ifndef HF_STRATEGY_FILE_DEATHS_H
#define HF_STRATEGY_FILE_DEATHS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/table.h"
#include "strategy/strategy.h"

#define HF_DEATHS_MAX 64 /* processes watched at a time */

struct hf_file;

struct hf_death_watch {
    struct hf_fd pidfd; /* -1: the process has ended */
    struct hf_file *file;
    uint64_t session; /* 0: not in use */
};

struct hf_deaths {
    struct hf_death_watch watches[HF_DEATHS_MAX];
    unsigned next;           /* the one that is replaced when all are in use */
    uint64_t wanted;         /* the session to watch, once outside; 0: none */
    struct hf_timer recheck; /* a process has ended, its slot is locked still */
    uint32_t delay_ms;
};

enum hf_err hf_deaths_init(struct hf_file *file);
void hf_deaths_fini(struct hf_file *file);

/* Inside: end the hold of `key` if its holder is gone and has not detached any
 * lock: true. */
bool hf_deaths_free_key(struct hf_file *file, struct hf_key key);

/* Inside: end what the client held that was in our slot before us. Its session
 * has ended. */
void hf_deaths_free_all(struct hf_file *file, uint64_t session);

/* Inside: a claim of ours waits. Its predecessor is watched from the next
 * hf_deaths_watch() on, which is called outside. */
void hf_deaths_follow(struct hf_file *file, const struct hf_claim *claim);
void hf_deaths_watch(struct hf_file *file);

#endif
