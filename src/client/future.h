/* future.h - the pending result of an operation, and the threads that wait for
 * it.
 *
 * A future is embedded in its operation, or stands alone. The operation holds
 * one reference until the result is delivered. If the user has asked for the
 * future, the user holds another. `release` frees the operation when the last
 * reference is dropped. All functions require the client's mutex. */
#ifndef HF_CLIENT_FUTURE_H
#define HF_CLIENT_FUTURE_H

#include "client/loop.h"

struct hf_future {
    struct hf_client *client;
    struct hf_callback callback;
    struct hf_dlist waiters; /* struct hf_blocked */
    hf_done_fn *done;
    void *arg;
    unsigned references;
    bool answered;
    bool is_observed; /* the user has seen the result, or is about to */
    enum hf_err err;
    char *text; /* the error message; NULL: hf_err_text(err) */
    void (*cancel)(struct hf_future *future); /* may be NULL */
    void (*release)(struct hf_future *future);
};

/* Initialize a future with one reference, the operation's. The caller sets
 * `release`, and `cancel` if the operation can be canceled. */
void hf_future_init(struct hf_future *future, struct hf_client *client,
                    hf_done_fn *done, void *arg);

/* The value of `release` for a future on the stack of a blocked caller. */
void hf_future_release_nothing(struct hf_future *future);

/* The value of `release` for a future that was allocated alone and holds a
 * reference to its client. */
void hf_future_release_heap(struct hf_future *future);

/* Deliver the result, exactly once. `text` is copied and may be NULL. */
void hf_future_answer(struct hf_future *future, enum hf_err err,
                      const char *text);

/* Set `*to` to a new reference to the future. Does nothing if `to` is NULL. */
void hf_future_give(struct hf_future *future, struct hf_future **to);

void hf_future_unref(struct hf_future *future);

/* Block until the result is delivered, and return it. If the thread is
 * interrupted and the operation can be canceled, cancel it and return HF_EINTR
 * in place of HF_ECANCELED. Returns HF_EFORK in a child that a callback has
 * forked. */
enum hf_err hf_future_await(struct hf_future *future);

#endif
