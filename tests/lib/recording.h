/* recording.h - the history of a case: its calls, in memory that its processes
 * share, and the check at the end of the case.
 *
 * There is no mutex, because a process could die while holding one. Only the
 * process that started a call changes it, and it sets `answered` last. */
#ifndef HF_TESTS_LIB_RECORDING_H
#define HF_TESTS_LIB_RECORDING_H

#include <stdatomic.h>
#include <sys/types.h>

#include <holdfast.h>

#include "hf-check/history.h"

/* One call. The library may still call back after the case has freed the
 * handle, so a call lives as long as the history. */
struct recorded_call {
    struct recorded_call *next;      /* in the history */
    struct recorded_call *next_near; /* in its bucket */
    const void *known_by; /* future or handle that finds this call, or NULL */

    struct hf_client *client;
    struct hf_lock *lock, **out;
    bool held; /* granted, and not released by the case */
    hf_done_fn *done;
    void *done_arg;
    hf_lock_event_fn *on_event;
    void *event_arg;

    enum hf_op_kind kind;
    uint32_t number; /* of the client */
    uint8_t nonce[HF_NONCE_SIZE];
    uint8_t queued_nonce[HF_NONCE_SIZE]; /* of the claim that was queued */
    uint64_t token;
    uint64_t lease, deadline;
    uint64_t invoke, queued, answer, lost; /* times; 0 if it did not happen */
    enum hf_err err;
    _Atomic bool answered; /* set last: the process may be killed at any time */
    size_t key_size;
    unsigned char key[];
};

/* recording_init() discards the old history and starts a new one.
 * recording_check() checks it, for overtaken waiters only if `fifo` was set.
 * Returns 0, or -1 with the checker's report on stderr; `name` is its title. */
void recording_init(bool fifo);
int recording_check(const char *name);

/* Do not check the tokens of the history that recording_init() has started. */
void recording_set_no_fence(void);

/* The number of locks granted so far. */
size_t recording_grants(void);

/* The history's clock is CLOCK_BOOTTIME in nanoseconds, without the offset of a
 * time namespace, so that processes in different namespaces share one clock. A
 * process that is in a time namespace passes its offset to
 * recording_set_offset(). recording_instant() converts a time of this process
 * to that clock. */
void recording_set_offset(int64_t offset_ms);
uint64_t recording_now(void);
uint64_t recording_instant(int64_t boottime_ms);

/* The number of a client, in order of first use. Only one thread of a process
 * may call this at a time. */
uint32_t recording_number(const struct hf_client *client);

struct recorded_call *recording_begin(enum hf_op_kind kind, uint32_t number,
                                      struct hf_key key);

/* Record that all clients of a process die now. */
void recording_death(pid_t pid);

#endif
