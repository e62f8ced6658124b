/* trace.h - record the events of a key, and start waiters for it. */
#ifndef HF_TESTS_CONFORMANCE_TRACE_H
#define HF_TESTS_CONFORMANCE_TRACE_H

#include "conformance/suite.h"

#define TRACE_MAX 32

/* Events of one key, as a watch reports them. */
struct trace {
    _Atomic unsigned count;
    struct hf_event events[TRACE_MAX]; /* copies; key and owner are invalid */
    char owners[TRACE_MAX][32];
};

/* Watch `key`. Events arrive only while the case calls hf_process(). */
struct hf_watch *trace_start(struct hf_client *client, struct hf_key key,
                             struct trace *trace);

struct expected_event {
    enum hf_event_kind kind;
    uint64_t token;
    bool freed;
};
void trace_expect(const struct trace *trace, unsigned at,
                  struct expected_event expected);

/* Open a background client with this owner. */
struct hf_client *trace_open_as(const char *owner);

/* Claim a held key, and return when the claim is in the queue. */
struct hf_future *trace_start_waiter(struct hf_client *client,
                                     struct hf_key key,
                                     struct hf_lock_opts opts,
                                     struct suite_lock_events *reported,
                                     struct hf_lock **lock);

#endif
