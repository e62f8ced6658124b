/* Waiters: what they cost the server, and what happens to the queue when a
 * waiter dies. */
#include <poll.h>
#include <stdatomic.h>
#include <string.h>

#include "lib/mongo_queue.h"
#include "lib/runner.h"

#define TIMEOUT_MS 60000
#define WAITERS 16
#define DEAD 12

/* ---- Cost ---------------------------------------------------------------*/

static long count_cursors(void)
{
    const char *status =
        hf_test_mongo_command(&mongo, 0, "admin", "{\"serverStatus\":1}");

    status = strstr(status, "\"cursor\" : {");
    return find_number(status ? strstr(status, "\"open\" :") : NULL,
                       "\"total\" : ");
}

/* A waiter polls its position until the change stream is open, and then only
 * rarely. */
static void idle_waiters_do_not_poll(void **state)
{
    struct queued queued[WAITERS] = {{NULL, NULL}};
    struct hf_client *client, *other;
    struct hf_lock *lock;
    long before;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    other = open_driven();
    lock = hold_key(client);
    for (unsigned i = 0; i < WAITERS; i++)
        join_queue(other, &queued[i], "");
    await_queue_length(WAITERS);
    (void)poll(NULL, 0, 4000 * (int)hf_test_slowness());
    before = count_commands("find") + count_commands("findAndModify");
    assert_true(before > 0);
    (void)poll(NULL, 0, 5000);
    assert_true(count_commands("find") + count_commands("findAndModify") -
                    before <=
                WAITERS);
    expect_ok(hf_release(lock));
    for (unsigned i = 0; i < WAITERS; i++) {
        await_grant(&queued[i]);
        expect_ok(hf_release(queued[i].lock));
        hf_lock_free(queued[i].lock);
    }
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

/* The change stream ends when nobody waits any more, and starts again with the
 * next waiter. */
static void a_stream_ends_with_its_last_waiter(void **state)
{
    struct hf_client *client, *other;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    other = open_driven();
    for (unsigned round = 0; round < 2; round++) {
        struct hf_lock *lock = hold_key(client);
        struct queued queued = {NULL, NULL};

        join_queue(other, &queued, "");
        while (count_cursors() < 1)
            (void)poll(NULL, 0, 20);
        expect_ok(hf_release(lock));
        await_grant(&queued);
        expect_ok(hf_release(queued.lock));
        hf_lock_free(queued.lock);
        hf_lock_free(lock);
        while (count_cursors() > 0)
            (void)poll(NULL, 0, 20);
    }
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

/* A waiter's value is sent only when the waiter takes the key. */
static void the_queue_stores_no_values(void **state)
{
    struct hf_client *client, *other;
    struct queued queued = {NULL, NULL};
    struct hf_lock *lock;
    struct hf_info info;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    other = open_driven();
    lock = hold_key(client);
    join_queue(other, &queued, "mine");
    await_queue_length(1);
    assert_non_null(
        strstr(hf_test_mongo_command(&mongo, 0, "holdfast",
                                     "{\"count\":\"locks\",\"query\":"
                                     "{\"queue.0.value\":{\"$exists\":true}}}"),
               "\"n\" : 0"));
    expect_ok(hf_release(lock));
    await_grant(&queued);
    expect_ok(hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_int_equal(info.value.size, 4);
    assert_memory_equal(info.value.data, "mine", 4);
    hf_info_fini(&info);
    expect_ok(hf_release(queued.lock));
    hf_lock_free(queued.lock);
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

/* ---- Dead waiters -------------------------------------------------------*/

struct counts {
    atomic_uint offered, withdrawn;
};

static void count_event(const struct hf_event *event, void *arg)
{
    struct counts *counts = arg;

    atomic_fetch_add(&counts->offered, event->kind == HF_EVENT_GRANTED);
    atomic_fetch_add(&counts->withdrawn, event->kind == HF_EVENT_WITHDRAWN);
}

/* A client that died in the queue is offered the key once, no matter how many
 * claims it has there. */
static void a_dead_client_is_offered_the_key_once(void **state)
{
    struct counts counts = {0};
    struct hf_client *client, *other;
    struct hf_watch *watch = NULL;
    struct hf_watch_opts opts;
    struct queued queued = {NULL, NULL};
    struct hf_lock *lock;
    struct waiting_process dead;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    dead = fork_waiters(DEAD);
    client = hf_test_mongo_open(&mongo, "");
    other = open_driven();
    lock = hold_key(client);
    kill_in_queue(&dead, 1);
    join_queue(other, &queued, "");
    await_queue_length(DEAD + 1);
    hf_watch_opts_init(&opts);
    expect_ok(hf_watch_open(client, hf_key_of("k"), &opts, count_event, &counts,
                            &watch));
    expect_ok(hf_release(lock));
    await_grant(&queued);
    while (atomic_load(&counts.offered) < 2) /* to the dead client and ours */
        (void)poll(NULL, 0, 20);
    assert_int_equal(atomic_load(&counts.offered), 2);
    assert_int_equal(atomic_load(&counts.withdrawn), DEAD - 1);
    hf_watch_close(watch);
    hf_lock_free(queued.lock);
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

/* A timer that consists of a lease on another key and a waiter for that key. On
 * slow servers this timer is slow, too, so the test does not fail then. */
struct timer {
    struct hf_lock *held;
    struct queued queued;
};

static void start_timer(struct timer *timer, struct hf_client *client,
                        struct hf_client *other, uint32_t ttl_ms)
{
    struct hf_lock_opts opts = hf_test_opts(ttl_ms, 0, TIMEOUT_MS);

    expect_ok(hf_acquire(client, hf_key_of("later"), &opts, &timer->held));
    opts.wait_ms = HF_FOREVER;
    expect_ok(hf_acquire_start(other, hf_key_of("later"), &opts,
                               &timer->queued.lock, NULL, NULL,
                               &timer->queued.future));
}

/* Expect that `queued` is granted its key before the timer ends. */
static void expect_before_timer(struct queued *queued, struct timer *timer)
{
    enum hf_err err = HF_ECANCELED;

    await_grant(&timer->queued);
    expect_ok(hf_future_wait(queued->future, 0, &err));
    expect_ok(err);
    hf_future_free(queued->future);
    hf_lock_free(queued->lock);
    hf_lock_free(timer->queued.lock);
    hf_lock_free(timer->held);
}

/* The next waiter learns of the offer to a dead waiter, and ends that offer
 * after 3 seconds. So it is granted the key before the end of a lease of 10
 * seconds that began at the same time. */
static void the_next_waiter_ends_the_offer_of_a_dead_one(void **state)
{
    struct queued queued = {NULL, NULL};
    struct timer timer = {.held = NULL};
    struct waiting_process dead;
    struct hf_client *client, *other;
    struct hf_lock *lock;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    dead = fork_waiters(DEAD);
    client = hf_test_mongo_open(&mongo, "");
    other = open_driven();
    lock = hold_key(client);
    kill_in_queue(&dead, 1);
    join_queue(other, &queued, "");
    await_queue_length(DEAD + 1);
    (void)poll(NULL, 0, 4000); /* until the waiter stops polling */
    expect_ok(hf_release(lock));
    start_timer(&timer, client, other, 10000);
    expect_before_timer(&queued, &timer);
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

/* Two dead clients are in the queue before the waiter, and each costs one
 * offer. One of them has more claims than an event names. */
static void two_dead_clients_cost_one_offer_each(void **state)
{
    struct queued queued = {NULL, NULL};
    struct timer timer = {.held = NULL};
    struct waiting_process dead[2];
    struct hf_client *client, *other;
    struct hf_lock *lock;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    dead[0] = fork_waiters(1);
    dead[1] = fork_waiters(DEAD);
    client = hf_test_mongo_open(&mongo, "");
    other = open_driven();
    lock = hold_key(client);
    kill_in_queue(dead, 2);
    join_queue(other, &queued, "");
    await_queue_length(DEAD + 2);
    (void)poll(NULL, 0, 4000); /* until the waiter stops polling */
    expect_ok(hf_release(lock));
    start_timer(&timer, client, other, 15000);
    expect_before_timer(&queued, &timer);
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

/* The lock is detached, so nobody renews it. The client with the first claims
 * in the queue, which should end the expired lease, is dead. A later waiter
 * ends it instead. */
static void a_later_waiter_ends_the_lease_if_the_first_are_dead(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 0, TIMEOUT_MS);
    struct queued queued = {NULL, NULL};
    struct timer timer = {.held = NULL};
    struct waiting_process dead;
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    dead = fork_waiters(4);
    client = hf_test_mongo_open(&mongo, "");
    other = open_driven();
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_lock_detach(lock));
    kill_in_queue(&dead, 1);
    join_queue(other, &queued, "");
    await_queue_length(5);
    start_timer(&timer, client, other, 20000);
    expect_before_timer(&queued, &timer);
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(idle_waiters_do_not_poll),
        CASE(a_stream_ends_with_its_last_waiter),
        CASE(the_queue_stores_no_values),
        CASE(a_dead_client_is_offered_the_key_once),
        CASE(the_next_waiter_ends_the_offer_of_a_dead_one),
        CASE(two_dead_clients_cost_one_offer_each),
        CASE(a_later_waiter_ends_the_lease_if_the_first_are_dead),
    };

    return hf_test_main("mongo queue", cases, HF_TEST_COUNT(cases), 4);
}
