#include "conformance/trace.h"

#include <stdatomic.h>
#include <stdio.h>

#include "lib/recorded.h"

static void record_event(const struct hf_event *event, void *arg)
{
    struct trace *trace = arg;
    unsigned at = atomic_load(&trace->count);

    if (at < TRACE_MAX) {
        trace->events[at] = *event;
        (void)snprintf(trace->owners[at], sizeof(trace->owners[at]), "%s",
                       event->owner ? event->owner : "");
    }
    atomic_store(&trace->count, at + 1);
}

struct hf_watch *trace_start(struct hf_client *client, struct hf_key key,
                             struct trace *trace)
{
    struct hf_watch *watch = NULL;

    (void)hf_fd(client); /* after hf_fd(), a client starts no threads */
    expect_ok(hf_watch_open(client, key, NULL, record_event, trace, &watch));
    return watch;
}

void trace_expect(const struct trace *trace, unsigned at,
                  struct expected_event expected)
{
    assert_int_equal(trace->events[at].kind, expected.kind);
    assert_int_equal(trace->events[at].token, expected.token);
    assert_int_equal(trace->events[at].freed, expected.freed);
}

struct hf_client *trace_open_as(const char *owner)
{
    struct hf_client_opts opts;
    struct hf_client *client = NULL;

    hf_client_opts_init(&opts);
    opts.background = true;
    opts.owner = owner;
    expect_ok(hf_open(suite_url(), &opts, &client));
    return client;
}

struct hf_future *trace_start_waiter(struct hf_client *client,
                                     struct hf_key key,
                                     struct hf_lock_opts opts,
                                     struct suite_lock_events *reported,
                                     struct hf_lock **lock)
{
    struct hf_future *claim = NULL;

    opts.on_event = suite_on_lock_event;
    opts.arg = reported;
    expect_ok(
        recorded_acquire_start(client, key, &opts, lock, NULL, NULL, &claim));
    assert_true(suite_await(&reported->waiting, 1, NULL));
    return claim;
}
