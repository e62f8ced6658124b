/* transaction.h - the critical section of a file: client. Only one client at a
 * time is in it. The client applies the entries that the others have written to
 * the log, expires leases that are due and runs its command. After leaving, it
 * wakes the clients that the command concerns. */
#ifndef HF_STRATEGY_FILE_TRANSACTION_H
#define HF_STRATEGY_FILE_TRANSACTION_H

#include "strategy/file/arena.h"
#include "strategy/file/reaper.h"
#include "strategy/file/replica.h"
#include "strategy/in_process.h"

/* The most clients woken after one transaction, not counting those with
 * watches. Further clients notice the change when they poll. */
#define HF_TRANSACTION_WAKES_MAX 16

/* Why the last transaction did not begin, if the caller is to retry it soon. */
enum hf_transaction_delay {
    HF_TRANSACTION_NO_DELAY, /* it has begun, or has failed */
    HF_TRANSACTION_BUSY,     /* other clients stay in the critical section */
    HF_TRANSACTION_RESERVED, /* tokens were reserved outside the critical
                                section, so the table may have changed */
};

/* One open client: its slot in the arena, and its replica of the lock table. */
struct hf_file {
    struct hf_in_process local;
    struct hf_arena arena;
    struct hf_replica replica;
    hf_time checked_at;
    /* The files are damaged, removed or replaced, or our session was ended by
     * another client. */
    bool broken;
    enum hf_transaction_delay delay;
    pid_t busy_pid; /* process that keeps the arena locked; 0: several do */
    struct hf_error failure;

    struct hf_dlist pending; /* requests to retry after a `delay` */
    struct hf_timer retry;
    struct hf_fd wake_fd;
    struct hf_reaper reaper;
    bool is_own_command; /* events come from our command, so wake others */
    /* Slots of the clients to wake after the arena is unlocked. */
    unsigned wake_slots[HF_TRANSACTION_WAKES_MAX];
    unsigned wake_count;
    bool wake_watchers;
};

extern const struct hf_in_process_ops hf_transaction_ops;

/* The replica calls this for each event of its table. */
hf_table_event_fn hf_transaction_on_event;

static inline struct hf_slot *hf_transaction_own_slot(
    const struct hf_file *file)
{
    return hf_slot_at(&file->arena, file->arena.slot);
}

/* The slot of a session, or HF_ARENA_SLOTS if it has none. */
unsigned hf_transaction_find_slot(const struct hf_file *file, uint64_t session);

/* Enter the critical section, update the table and expire the leases that are
 * due. If this fails, file->failure has the text, and file->delay says whether
 * to retry it soon.
 *
 * HF_EUNAVAIL  see file->delay, or the arena cannot be written
 * HF_EPROTO    file->broken: no later call can succeed
 * HF_ESYSTEM, HF_ELIMIT  no tokens can be reserved
 * HF_ENOMEM    the replica cannot be updated */
enum hf_err hf_transaction_begin(struct hf_in_process *local);
void hf_transaction_end(struct hf_in_process *local);

/* Retry the pending requests soon. */
void hf_transaction_retry_soon(struct hf_file *file);

#endif
