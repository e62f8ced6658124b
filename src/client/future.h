/* future.h - an answer that is not there yet, and who waits for it.
 *
 * A future is the first member of what it belongs to, which `release` frees
 * when the last reference is gone: the operation holds one until the answer
 * has been told, the user one if it asked for the future. With the client's
 * mutex held throughout. */
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
    bool is_observed; /* the user has seen the answer, or is about to */
    enum hf_err err;
    char *text; /* the failure in words; NULL: the code's own */
    void (*cancel)(struct hf_future *future); /* may be NULL */
    void (*release)(struct hf_future *future);
};

/* One reference, the operation's. */
void hf_future_init(struct hf_future *future, struct hf_client *client,
                    hf_done_fn *done, void *arg);

/* For futures on the stack of a blocked caller, and for those that stand alone
 * on the heap and count their client. */
void hf_future_release_nothing(struct hf_future *future);
void hf_future_release_heap(struct hf_future *future);

/* Answer it, once. `text` is copied and may be NULL. */
void hf_future_answer(struct hf_future *future, enum hf_err err,
                      const char *text);

/* Give the user its reference, where it asked for one. */
void hf_future_give(struct hf_future *future, struct hf_future **to);

void hf_future_unref(struct hf_future *future);

/* Wait for the answer and return it; the operation keeps its reference. When
 * interrupted, cancel the operation, if it can be, and wait for the answer to
 * that: HF_EINTR in place of HF_ECANCELED. */
enum hf_err hf_future_await(struct hf_future *future);

#endif
