/* What happens at the limits of a client and of hf_list(): HF_ELIMIT, or a
 * DROPPED event. The limits of the table and of the decoders are tested in
 * tests/unit. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/limits.h"
#include "client/client.h"
#include "lib/commands.h"
#include "lib/runner.h"
#include "strategy/in_process.h"

static void ignore_event(void *arg, const struct hf_table_event *event)
{
    (void)arg;
    (void)event;
}

/* A store that needs no mutex, and a clock that does not move. */
static enum hf_err enter_store(struct hf_in_process *local)
{
    (void)local;
    return HF_OK;
}

static void leave_store(struct hf_in_process *local)
{
    (void)local;
}

static hf_time zero_clock(struct hf_host *host)
{
    (void)host;
    return 0;
}

static void ignore_answer(struct hf_host *host, struct hf_request *request)
{
    (void)host;
    (void)request;
}

static void list_is_refused_beyond_its_limit(void **state)
{
    static const struct hf_host_ops host_ops = {
        .now = zero_clock,
        .answer = ignore_answer,
    };
    static const struct hf_in_process_ops local_ops = {
        .enter = enter_store,
        .leave = leave_store,
    };
    struct hf_host host = {&host_ops};
    static const struct hf_seed seed;
    struct hf_command open = hf_test_open("alice");
    struct hf_request request = {.kind = HF_REQUEST_LIST};
    struct hf_store store;
    struct hf_in_process local = {
        .ops = &local_ops,
        .host = &host,
        .store = &store,
    };
    struct hf_result result;

    (void)state;
    (void)hf_store_init(&store, &seed, 0, ignore_event, NULL);
    (void)hf_store_run(&store, 0, &open, &result);
    for (unsigned i = 0; i <= HF_LIST_MAX; i++) {
        char key[16];
        struct hf_command lock;

        (void)snprintf(key, sizeof(key), "k%u", i);
        lock = hf_test_lock(1, key, i + 1);
        lock.sequence = i + 1;
        lock.done = i + 1;
        (void)hf_store_run(&store, 0, &lock, &result);
        assert_int_equal(result.err, HF_OK);
    }
    assert_int_equal(hf_in_process_submit(&local, &request), HF_OK);
    assert_int_equal(request.answer.result.err, HF_ELIMIT);
    assert_null(request.answer.infos);
    hf_store_fini(&store);
}

static void stores_of_a_process_are_limited(void **state)
{
    static struct hf_client *clients[HF_MEMORY_MAX];
    const rlim_t wanted = 4 * (rlim_t)HF_MEMORY_MAX;
    struct rlimit files = {wanted, wanted};
    struct hf_error error = {.text = ""};
    struct hf_client_opts opts;
    struct hf_client *client;
    char url[32];

    (void)state;
    if (setrlimit(RLIMIT_NOFILE, &files))
        hf_test_skip("not enough descriptors: cannot raise RLIMIT_NOFILE");
    hf_client_opts_init(&opts);
    opts.error = &error;
    for (unsigned i = 0; i < HF_MEMORY_MAX; i++) {
        (void)snprintf(url, sizeof(url), "memory:%u", i);
        assert_int_equal(hf_open(url, &opts, &clients[i]), HF_OK);
    }
    assert_int_equal(hf_open("memory:more", &opts, &client), HF_ELIMIT);
    assert_non_null(strstr(error.text, "open stores reached"));
    assert_int_equal(hf_open("memory:0", &opts, &client), HF_OK);
    hf_close(client, 0);
    for (unsigned i = 0; i < HF_MEMORY_MAX; i++)
        hf_close(clients[i], 0);
}

/* The test sets the counter to its limit, because that many handles would need
 * gigabytes. */
static void handles_of_a_client_are_limited(void **state)
{
    struct hf_client *client;
    struct hf_lock *lock;
    size_t count;

    (void)state;
    assert_int_equal(hf_open("memory:x", NULL, &client), HF_OK);
    count = client->loop.timer_count;
    client->loop.timer_count = 4 * (size_t)HF_HANDLES_MAX;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock),
                     HF_ELIMIT);
    client->loop.timer_count = count;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    hf_lock_free(lock);
    hf_close(client, 1000);
}

/* A watch whose queue overflows during its first callback. */
struct overflow {
    struct hf_client *watcher, *other;
    unsigned events;
    unsigned dropped;
    uint64_t last; /* index of the last event */
};

static void process(struct hf_client *client, unsigned turns)
{
    for (unsigned i = 0; i < turns; i++)
        assert_int_equal(hf_process(client), HF_OK);
}

static void lock_and_unlock(struct hf_client *client, unsigned rounds)
{
    struct hf_lock *lock;

    for (unsigned i = 0; i < rounds; i++) {
        assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock),
                         HF_OK);
        assert_int_equal(hf_release(lock), HF_OK);
        hf_lock_free(lock);
    }
}

static void on_event(const struct hf_event *event, void *arg)
{
    struct overflow *overflow = arg;

    if (event->kind == HF_EVENT_DROPPED)
        overflow->dropped++;
    else
        overflow->events++;
    assert_true(event->index > overflow->last);
    if (overflow->last == 0) {
        lock_and_unlock(overflow->other, HF_WATCH_QUEUE_MAX);
        process(overflow->watcher, HF_WATCH_QUEUE_MAX);
    }
    overflow->last = event->index;
}

static void events_beyond_the_queue_are_reported_as_dropped(void **state)
{
    struct hf_watch *watch = NULL;
    struct overflow overflow = {0};

    (void)state;
    assert_int_equal(hf_open("memory:x", NULL, &overflow.watcher), HF_OK);
    assert_int_equal(hf_open("memory:x", NULL, &overflow.other), HF_OK);
    /* After hf_process(), the client starts no threads. */
    process(overflow.watcher, 1);
    assert_int_equal(hf_watch_open_start(overflow.watcher, hf_key_of(""), NULL,
                                         on_event, &overflow, &watch, NULL,
                                         NULL, NULL),
                     HF_OK);
    lock_and_unlock(overflow.other, 1);
    process(overflow.watcher, HF_WATCH_QUEUE_MAX);
    assert_int_equal(overflow.events, 1 + HF_WATCH_QUEUE_MAX);
    assert_int_equal(overflow.dropped, 1);
    hf_watch_close(watch);
    hf_close(overflow.other, 1000);
    hf_close(overflow.watcher, 1000);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(list_is_refused_beyond_its_limit),
        cmocka_unit_test(stores_of_a_process_are_limited),
        cmocka_unit_test(handles_of_a_client_are_limited),
        cmocka_unit_test(events_beyond_the_queue_are_reported_as_dropped),
    };

    return hf_test_main("limits", cases, HF_TEST_COUNT(cases), 0);
}
