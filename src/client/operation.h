/* operation.h - a call with a future: renew, update, read, list, force, wait.
 *
 * One block holds the future, the call and copies of the bytes it sends, so
 * that nothing can fail once it has begun. */
#ifndef HF_CLIENT_OPERATION_H
#define HF_CLIENT_OPERATION_H

#include <stdatomic.h>

#include "client/call.h"
#include "client/future.h"

struct hf_lock;
struct hf_watch;

struct hf_operation {
    struct hf_future future;
    struct hf_call call;
    struct hf_dlist link; /* in the client, until it is answered */
    struct hf_lock *lock; /* renew, update: the handle, referenced */
    /* Take what the answer says to where the user wants it; returns what the
     * user is told. NULL: nothing to take. */
    enum hf_err (*finish)(struct hf_operation *operation);

    uint32_t ttl_ms;      /* renew */
    struct hf_info *info; /* read */
    hf_list_fn *each;     /* list */
    void *each_arg;
    struct hf_callback list_callback; /* list: `each` is to be called */
    bool is_calling;                  /* list: `each` is being called */
    _Atomic(enum hf_err) ended;       /* list: meanwhile, with this */
    uint8_t bytes[];                  /* key, value, expected */
};

/* What the user passes to every hf_X_start(). */
struct hf_listener {
    hf_done_fn *done;
    void *arg;
    struct hf_future **future;
};

/* Make one for `kind`, with copies of the bytes. HF_ENOMEM, HF_ELIMIT. */
enum hf_err hf_operation_new(struct hf_client *client,
                             enum hf_request_kind kind,
                             const struct hf_command *command,
                             struct hf_listener listener,
                             struct hf_operation **operation);

/* Send it; it is answered, and frees itself. */
void hf_operation_start(struct hf_operation *operation, uint32_t timeout_ms,
                        struct hf_future **future);

/* Answer it now: the client closes, or the user gave up. A list whose `each` is
 * running ends when that returns: `each` may use what the caller frees next. */
void hf_operation_end(struct hf_operation *operation, enum hf_err err);

/* The blocking form of a call whose start answered `err`: wait, free, say. */
enum hf_err hf_operation_wait(enum hf_err err, struct hf_future *future);

#define HF_ANSWER_TIMEOUT_MS 5000

#endif
