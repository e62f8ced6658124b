/* A client of quorum: with three masters in this process, over connections that
 * the test breaks, on a clock that it moves. */
#include <stdio.h>

#include "client/client.h"
#include "lib/runner.h"
#include "quorum/node.h"
#include "strategy/quorum/quorum.h"

#define START INT64_C(1000000000000) /* later than any CLOCK_BOOTTIME */
#define URL "quorum://127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003"
#define MASTERS 3
#define STREAMS 256
#define LEASE_MAX_MS 32000
#define LONG_MS 60000

struct stream {
    struct hf_net_stream *stream; /* NULL: closed by the client, or lost */
    unsigned master;
    bool is_open; /* at the master */
    bool opened;  /* at the client */
    struct hf_buf input;
};

static struct {
    struct {
        struct hf_quorum_node *node;
        uint64_t mark;    /* to be written; or 0 */
        uint64_t durable; /* the last one that was written */
        bool is_down;     /* connections are refused */
        bool is_mute;     /* what it sends waits */
    } masters[MASTERS];
    struct stream streams[STREAMS]; /* the index is the connection; 0: unused */
    unsigned count;
    hf_time now;
    struct hf_client *client;
    struct hf_host *host;
    struct hf_net_transport transport;
    struct hf_post post;
} test;

/* ---- Connections --------------------------------------------------------*/

static void wake_client(void)
{
    struct hf_waker *waker = test.host->ops->post(test.host, &test.post);

    if (waker)
        hf_waker_wake(waker);
}

static void deliver_to(struct stream *from)
{
    struct hf_net_stream *to = from->stream;
    struct hf_buf input = from->input;

    if (!from->is_open) {
        from->stream = NULL;
        to->handle = NULL;
        to->ops->lost(to, HF_EUNAVAIL, "Connection reset by peer");
        return;
    }
    if (!from->opened) {
        from->opened = true;
        to->ops->opened(to);
    }
    if (!from->stream || test.masters[from->master].is_mute)
        return;
    from->input = (struct hf_buf){0};
    if (input.size > 0)
        to->ops->data(to, input.data, input.size);
    hf_buf_fini(&input);
}

static void on_post(struct hf_post *post)
{
    (void)post;
    for (unsigned i = 1; i < test.count; i++) {
        if (test.streams[i].stream)
            deliver_to(&test.streams[i]);
    }
}

static void run_master(unsigned master)
{
    struct hf_quorum_node *node = test.masters[master].node;

    do {
        uint64_t mark = test.masters[master].mark;

        test.masters[master].mark = 0;
        if (mark > 0) {
            hf_quorum_node_on_mark(node, mark, true);
            test.masters[master].durable = mark;
        }
        hf_quorum_node_turn(node, test.now);
    } while (test.masters[master].mark > 0 ||
             hf_quorum_node_deadline(node) <= test.now);
}

static void close_at_master(struct stream *stream)
{
    if (!stream->is_open)
        return;
    stream->is_open = false;
    hf_quorum_node_on_client_closed(test.masters[stream->master].node,
                                    (uint64_t)(stream - test.streams));
    run_master(stream->master);
}

static enum hf_err connect_stream(struct hf_net_transport *transport,
                                  struct hf_net_stream *stream,
                                  struct hf_net_address *address,
                                  struct hf_error *error)
{
    unsigned master = address->port - 7001U;
    struct stream *opened = &test.streams[test.count];

    (void)transport;
    if (test.masters[master].is_down)
        return hf_error_set(error, HF_EUNAVAIL, "%s: Connection refused",
                            address->name);
    assert_true(test.count < STREAMS);
    *opened =
        (struct stream){.stream = stream, .master = master, .is_open = true};
    stream->handle = opened;
    hf_quorum_node_set_time(test.masters[master].node, test.now);
    hf_quorum_node_on_client_open(test.masters[master].node, test.count++);
    wake_client();
    return HF_OK;
}

static bool write_stream(struct hf_net_transport *transport,
                         struct hf_net_stream *stream, const void *data,
                         size_t size)
{
    struct stream *to = stream->handle;

    (void)transport;
    if (!to->is_open)
        return true;
    hf_quorum_node_set_time(test.masters[to->master].node, test.now);
    hf_quorum_node_on_client_data(test.masters[to->master].node,
                                  (uint64_t)(to - test.streams), data, size);
    run_master(to->master);
    return true;
}

static void close_stream(struct hf_net_transport *transport,
                         struct hf_net_stream *stream)
{
    struct stream *closed = stream->handle;

    (void)transport;
    closed->stream = NULL;
    stream->handle = NULL;
    close_at_master(closed);
}

static const struct hf_net_transport_ops transport_ops = {
    .connect = connect_stream,
    .write = write_stream,
    .close = close_stream,
};

/* ---- Masters ------------------------------------------------------------*/

static void on_send(void *arg, uint64_t conn, const void *bytes, size_t size)
{
    (void)arg;
    hf_buf_raw(&test.streams[conn].input, bytes, size);
    wake_client();
}

static void on_close(void *arg, uint64_t conn)
{
    (void)arg;
    test.streams[conn].is_open = false;
    wake_client();
}

static void on_pause(void *arg, uint64_t conn, bool stop_reading)
{
    (void)arg;
    (void)conn;
    (void)stop_reading;
}

static void on_write_mark(void *arg, uint64_t mark)
{
    *(uint64_t *)arg = mark;
}

static const struct hf_quorum_node_ops master_ops = {
    .send_client = on_send,
    .close_client = on_close,
    .pause_client = on_pause,
    .write_mark = on_write_mark,
};

static void start_master(unsigned master)
{
    struct hf_members members = {.set = 1, .lease_max_ms = LEASE_MAX_MS};
    const struct hf_quorum_node_opts opts = {
        .members = &members,
        .id = master + 1,
        .mark = test.masters[master].durable,
    };

    members.count = MASTERS;
    for (unsigned i = 0; i < MASTERS; i++) {
        members.masters[i].id = i + 1;
        (void)snprintf(members.masters[i].address,
                       sizeof(members.masters[i].address), "127.0.0.1:%u",
                       7001 + i);
    }
    assert_int_equal(hf_quorum_node_new(&opts, &master_ops,
                                        &test.masters[master].mark, test.now,
                                        &test.masters[master].node),
                     HF_OK);
    run_master(master);
}

/* The connections to the master break, and it accepts no new ones. What it knows
 * stays. */
static void cut_off(unsigned master)
{
    test.masters[master].is_down = true;
    for (unsigned i = 1; i < test.count; i++) {
        if (test.streams[i].master == master)
            close_at_master(&test.streams[i]);
    }
    wake_client();
}

static void restart_master(unsigned master)
{
    cut_off(master);
    hf_quorum_node_free(test.masters[master].node);
    start_master(master);
    test.masters[master].is_down = false;
}

/* ---- The client ---------------------------------------------------------*/

static hf_time test_clock(void *arg)
{
    (void)arg;
    return test.now;
}

static enum hf_err open_strategy(void *self, struct hf_url *url,
                                 struct hf_host *host, struct hf_error *error)
{
    test.host = host;
    return hf_voting_open_with(self, url, host, &test.transport, error);
}

static hf_time next_due(void)
{
    hf_time at = hf_loop_next_timer(test.client);

    for (unsigned i = 0; i < MASTERS; i++)
        at = hf_time_min(at, hf_quorum_node_deadline(test.masters[i].node));
    return at;
}

/* Run one turn. If nothing is due, advance the clock first, but not beyond
 * `until`: then return false. */
static bool step(hf_time until)
{
    bool is_busy = !hf_dlist_is_empty(&test.client->loop.posts) ||
                   !hf_dlist_is_empty(&test.client->loop.callbacks);
    hf_time next = next_due();

    if (!is_busy && next > until) {
        test.now = until;
        return false;
    }
    if (!is_busy && next > test.now)
        test.now = next;
    for (unsigned i = 0; i < MASTERS; i++)
        run_master(i);
    assert_int_equal(hf_process(test.client), HF_OK);
    return true;
}

static void run_for(uint32_t ms)
{
    hf_time until = test.now + ms;

    while (step(until))
        ;
}

static enum hf_err wait_for(struct hf_future *future)
{
    hf_time until = test.now + 2L * LONG_MS;
    enum hf_err err = HF_OK;

    while (!hf_future_done(future, &err))
        assert_true(step(until));
    hf_future_free(future);
    return err;
}

static struct hf_future *start_lock(const char *key, struct hf_lock **lock)
{
    struct hf_lock_opts opts;
    struct hf_future *future;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = 30000;
    opts.wait_ms = 0;
    opts.timeout_ms = LONG_MS;
    opts.renew = false;
    assert_int_equal(hf_acquire_start(test.client, hf_key_of(key), &opts, lock,
                                      NULL, NULL, &future),
                     HF_OK);
    return future;
}

static int set_up(void **state)
{
    static struct hf_strategy strategy;
    const struct hf_env env = {
        .clock = test_clock, .strategy = &strategy, .seed = 1};
    struct hf_client_opts opts;

    (void)state;
    memset(&test, 0, sizeof(test));
    test.now = START;
    test.count = 1;
    test.transport.ops = &transport_ops;
    test.post.run = on_post;
    for (unsigned i = 0; i < MASTERS; i++)
        start_master(i);
    strategy = hf_strategy_quorum;
    strategy.open = open_strategy;
    hf_client_opts_init(&opts);
    assert_int_equal(hf_client_open(URL, &opts, &env, &test.client), HF_OK);
    run_for(100);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)hf_close(test.client, 0);
    for (unsigned i = 1; i < test.count; i++)
        hf_buf_fini(&test.streams[i].input);
    for (unsigned i = 0; i < MASTERS; i++)
        hf_quorum_node_free(test.masters[i].node);
    return 0;
}

/* ---- Cases --------------------------------------------------------------*/

/* The replies of masters 1 and 2 are lost, and with their connections the
 * majority. The claim continues when they are back; until then, the client tries
 * less and less often. */
static void lose_majority_for_a_while(void)
{
    run_for(1);
    cut_off(1);
    cut_off(2);
    run_for(5000);
    for (unsigned i = 1; i < MASTERS; i++)
        test.masters[i].is_down = test.masters[i].is_mute = false;
}

static void mute_majority(void)
{
    test.masters[1].is_mute = true;
    test.masters[2].is_mute = true;
}

static void a_lock_is_acquired_and_released(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future;

    (void)state;
    assert_int_equal(wait_for(start_lock("a", &lock)), HF_OK);
    assert_true(hf_lock_valid_for(lock, 29000));
    assert_int_equal(hf_release_start(lock, NULL, NULL, &future), HF_OK);
    assert_int_equal(wait_for(future), HF_OK);
    hf_lock_free(lock);
}

static void a_release_that_nobody_awaited_is_reported(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future;

    (void)state;
    assert_int_equal(wait_for(start_lock("a", &lock)), HF_OK);
    mute_majority();
    assert_int_equal(hf_release_start(lock, NULL, NULL, &future), HF_OK);
    lose_majority_for_a_while();
    assert_int_equal(wait_for(future), HF_OK);
    hf_lock_free(lock);
}

static void a_refusal_that_nobody_awaited_is_reported(void **state)
{
    struct hf_lock *lock, *none;
    struct hf_future *future;

    (void)state;
    assert_int_equal(wait_for(start_lock("a", &lock)), HF_OK);
    mute_majority();
    future = start_lock("a", &none);
    lose_majority_for_a_while();
    assert_int_equal(wait_for(future), HF_EBUSY);
    hf_lock_free(lock);
}

/* LK-25: they decide nothing until the leases that they have forgotten must have
 * expired, and then they do. */
static void masters_that_were_quiet_count_again(void **state)
{
    struct hf_lock *lock, *next;
    hf_time restarted;

    (void)state;
    assert_int_equal(wait_for(start_lock("a", &lock)), HF_OK);
    for (unsigned i = 0; i < MASTERS; i++)
        restart_master(i);
    restarted = test.now;
    assert_int_equal(wait_for(start_lock("a", &next)), HF_OK);
    assert_true(test.now >= restarted + LEASE_MAX_MS);
    assert_false(hf_lock_valid_for(lock, 0));
    assert_true(hf_lock_token(next) > hf_lock_token(lock));
    hf_lock_free(lock);
    hf_lock_free(next);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest cases[] = {
        CASE(a_lock_is_acquired_and_released),
        CASE(a_release_that_nobody_awaited_is_reported),
        CASE(a_refusal_that_nobody_awaited_is_reported),
        CASE(masters_that_were_quiet_count_again),
    };

    return hf_test_main("quorum client", cases, HF_TEST_COUNT(cases), 0);
}
