/* recording.h - the calls of a case, as they began and were answered, in memory
 * that its processes share; and their check, when the case ends.
 *
 * Nothing in it needs a mutex, with which a process could die. What a call
 * becomes after its beginning is for whoever began it to write, `answered`
 * last. */
#ifndef HF_TESTS_LIB_RECORDING_H
#define HF_TESTS_LIB_RECORDING_H

#include <stdatomic.h>
#include <sys/types.h>

#include <holdfast.h>

#include "hf-check/history.h"

/* One call, from its beginning on. The library may still call back when its
 * handle is gone from the case's sight, so it lives as long as the history. */
struct recorded_call {
    struct recorded_call *next;      /* in the history */
    struct recorded_call *next_near; /* in its bucket */
    const void *known_by; /* its future, or its handle; NULL: neither */

    struct hf_client *client;
    struct hf_lock *lock, **out;
    bool held; /* granted, and not given back by the case */
    hf_done_fn *done;
    void *done_arg;
    hf_lock_event_fn *on_event;
    void *event_arg;

    enum hf_op_kind kind;
    uint32_t number; /* the client's */
    uint8_t nonce[HF_NONCE_SIZE];
    uint64_t token;
    uint64_t lease, deadline;
    uint64_t invoke, queued, answer, lost; /* instants; 0: not so */
    enum hf_err err;
    _Atomic bool answered; /* last: its process may be killed at any time */
    size_t key_size;
    unsigned char key[];
};

/* Begin a recording, and end the one before; and check it: 0, or -1 with the
 * checker's report on stderr. */
void recording_init(bool fifo);
int recording_check(const char *name);

/* Locks granted, so far. */
size_t recording_grants(void);

/* The clock of it: nanoseconds of CLOCK_BOOTTIME, less what a time namespace
 * has added for this process; and that instant, as the process calls it. */
void recording_set_offset(int64_t offset_ms);
uint64_t recording_now(void);
uint64_t recording_instant(int64_t boottime_ms);

/* Clients are numbered as they come. One thread of a process at a time. */
uint32_t recording_number(const struct hf_client *client);

struct recorded_call *recording_begin(enum hf_op_kind kind, uint32_t number,
                                      struct hf_key key);

/* All clients of a process end now. */
void recording_death(pid_t pid);

#endif
