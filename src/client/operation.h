/* operation.h - a call with a future: renew, update, read, list and force.
 *
 * One allocation holds the future, the call and a copy of the arguments, so an
 * operation that has started cannot run out of memory. All functions but
 * hf_operation_wait() require the client's mutex. */
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
    struct hf_dlist link; /* in client->operations, until it is answered */
    struct hf_lock *lock; /* renew, update: the handle, with a reference */

    /* Convert the answer into outputs and the result of the operation. If it is
     * NULL, the result is that of the call. */
    enum hf_err (*finish)(struct hf_operation *operation);

    uint32_t ttl_ms;      /* renew */
    struct hf_info *info; /* read */
    hf_list_fn *each;     /* list */
    void *each_arg;
    struct hf_callback list_callback; /* list: runs `each` */
    bool is_calling;                  /* list: `each` is running */
    _Atomic(enum hf_err) ended;       /* list: the error, if hf_operation_end()
                                         was called while `each` was running */
    uint8_t bytes[]; /* copies of the command's key, value and expected value */
};

/* The last arguments of the hf_X_start() functions that return a future. */
struct hf_listener {
    hf_done_fn *done;
    void *arg;
    struct hf_future **future;
};

/* Create an operation. The bytes in `command` are copied. Can fail with
 * HF_ENOMEM or HF_ELIMIT. */
enum hf_err hf_operation_new(struct hf_client *client,
                             enum hf_request_kind kind,
                             const struct hf_command *command,
                             struct hf_listener listener,
                             struct hf_operation **operation);

/* Send the request. The operation frees itself when it is complete and, unless
 * `future` is NULL, the user has freed `*future`. */
void hf_operation_start(struct hf_operation *operation, uint32_t timeout_ms,
                        struct hf_future **future);

/* Complete the operation now with `err`: it was canceled, or the client is
 * closing. If `each` of a list is running, the list completes only when `each`
 * returns, because the user may free the argument of `each` once the list is
 * complete. */
void hf_operation_end(struct hf_operation *operation, enum hf_err err);

/* Turn hf_X_start() into hf_X(): if `err`, the result of hf_X_start(), is
 * HF_OK, wait for the future, free it and return its result; otherwise return
 * `err`. */
enum hf_err hf_operation_wait(enum hf_err err, struct hf_future *future);

#define HF_ANSWER_TIMEOUT_MS 5000

#endif
