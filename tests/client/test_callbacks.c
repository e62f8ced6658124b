/* What callbacks can rely on: each loss is reported once, and no callback runs
 * after the call that it belongs to has returned. */
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "client/gate.h"

static atomic_uint failures;

/* ---- Losses -------------------------------------------------------------*/

static atomic_uint losses;

static void count_loss(struct hf_lock *lock, enum hf_lock_event event,
                       void *arg)
{
    (void)lock;
    (void)arg;
    if (event == HF_LOCK_EVENT_LOST)
        atomic_fetch_add(&losses, 1);
}

static struct hf_lock_opts short_lease(void)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = 20;
    opts.wait_ms = 1000;
    opts.timeout_ms = 1000;
    opts.on_event = count_loss;
    return opts;
}

static void acquire_and_lose(struct hf_lock **lock)
{
    struct hf_lock_opts opts = short_lease();

    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, lock), HF_OK);
    while (hf_lock_valid_for(*lock, 0))
        sleep_ms(1);
}

/* Lose a lock while another callback is stuck, so that LOST cannot be
 * reported. */
static void lose_unreported(struct hf_lock **lock)
{
    enter_stuck_callback();
    acquire_and_lose(lock);
}

static void a_claim_waits_for_the_report_of_the_previous_loss(void **state)
{
    struct hf_lock *lock;
    pthread_t thread;

    (void)state;
    lose_unreported(&lock);
    assert_int_equal(pthread_create(&thread, NULL, open_gate_main, NULL), 0);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_true(atomic_load(&losses) >= 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    while (atomic_load(&losses) < 2)
        sleep_ms(1);
    hf_lock_free(lock);
    assert_int_equal(losses, 2);
    hf_info_fini(&stuck_info);
}

/* A claim that waits for the report of the previous loss can be canceled, and
 * the next claim can time out. The loss is still reported exactly once. */
static void a_deferred_claim_can_be_canceled_or_time_out(void **state)
{
    struct hf_future *future;
    struct hf_lock *lock;
    enum hf_err err;

    (void)state;
    lose_unreported(&lock);
    assert_int_equal(hf_lock_acquire_start(lock, NULL, NULL, &future), HF_OK);
    hf_future_cancel(future);
    assert_int_equal(hf_future_wait(future, 0, &err), HF_OK);
    assert_int_equal(err, HF_ECANCELED);
    hf_future_free(future);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_IDLE);
    assert_int_equal(hf_lock_acquire(lock), HF_ETIMEDOUT);
    assert_int_equal(losses, 0);
    leave_stuck_callback();
    while (atomic_load(&losses) < 1)
        sleep_ms(1);
    sleep_ms(50);
    hf_lock_free(lock);
    assert_int_equal(losses, 1);
}

/* ---- Lists --------------------------------------------------------------*/

static atomic_bool list_returned;

static bool stay_in_list(const struct hf_info *info, void *arg)
{
    (void)info;
    (void)arg;
    if (atomic_load(&list_returned))
        atomic_fetch_add(&failures, 1);
    stuck(HF_OK, NULL);
    if (atomic_load(&list_returned))
        atomic_fetch_add(&failures, 1);
    return true;
}

static void *list_main(void *arg)
{
    *(enum hf_err *)arg = hf_list(client, hf_key_of(""), stay_in_list, NULL);
    atomic_store(&list_returned, true);
    return NULL;
}

static void take_two(struct hf_lock *locks[2])
{
    assert_int_equal(hf_acquire(client, hf_key_of("a"), NULL, &locks[0]),
                     HF_OK);
    assert_int_equal(hf_acquire(client, hf_key_of("b"), NULL, &locks[1]),
                     HF_OK);
}

static void start_list(pthread_t *thread, struct hf_lock *locks[2],
                       enum hf_err *err)
{
    take_two(locks);
    assert_int_equal(pthread_create(thread, NULL, list_main, err), 0);
    wait_for(&gate_reached);
}

static void an_interrupted_list_stops_calling_back(void **state)
{
    struct hf_lock *locks[2];
    pthread_t thread;
    enum hf_err err;

    (void)state;
    start_list(&thread, locks, &err);
    hf_interrupt(client);
    sleep_ms(100);
    set_gate(&gate_open);
    assert_int_equal(pthread_join(thread, NULL), 0);
    /* HF_OK if the list was complete before its thread noticed the
     * interrupt. */
    assert_true(err == HF_EINTR || err == HF_OK);
    sleep_ms(100);
    assert_int_equal(failures, 0);
    hf_lock_free(locks[0]);
    hf_lock_free(locks[1]);
}

/* A canceled future is done only when the running callback has returned. */
static void a_canceled_list_stops_calling_back(void **state)
{
    struct hf_lock *locks[2];
    struct hf_future *future;
    enum hf_err err;

    (void)state;
    take_two(locks);
    assert_int_equal(hf_list_start(client, hf_key_of(""), stay_in_list, NULL,
                                   NULL, NULL, &future),
                     HF_OK);
    wait_for(&gate_reached);
    hf_future_cancel(future);
    assert_false(hf_future_done(future, NULL));
    set_gate(&gate_open);
    assert_int_equal(hf_future_wait(future, HF_FOREVER, &err), HF_OK);
    atomic_store(&list_returned, true);
    assert_int_equal(err, HF_ECANCELED);
    sleep_ms(100);
    assert_int_equal(failures, 0);
    hf_future_free(future);
    hf_lock_free(locks[0]);
    hf_lock_free(locks[1]);
}

static void a_closed_list_stops_calling_back(void **state)
{
    struct hf_lock *locks[2];
    pthread_t thread;
    enum hf_err err;

    (void)state;
    start_list(&thread, locks, &err);
    (void)hf_close(client, 100);
    set_gate(&gate_open);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(err, HF_ECLOSED);
    sleep_ms(100);
    assert_int_equal(failures, 0);
    hf_lock_free(locks[0]);
    hf_lock_free(locks[1]);
}

/* ---- Failed claims ------------------------------------------------------*/

static atomic_bool event_returned;

static void stay_in_event(struct hf_lock *lock, enum hf_lock_event event,
                          void *arg)
{
    (void)lock;
    (void)event;
    (void)arg;
    stuck(HF_OK, NULL);
    sleep_ms(20);
    atomic_store(&event_returned, true);
}

/* A refused hf_acquire() returns no handle that the program could free, so
 * hf_acquire() itself waits for the callback. */
static void a_refused_lock_waits_for_its_callback(void **state)
{
    struct hf_lock_opts opts;
    struct hf_lock *held, *lock;
    pthread_t thread;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &held), HF_OK);
    hf_lock_opts_init(&opts);
    opts.wait_ms = 20;
    opts.on_event = stay_in_event;
    assert_int_equal(pthread_create(&thread, NULL, open_gate_main, NULL), 0);
    assert_int_not_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock),
                         HF_OK);
    assert_true(event_returned);
    assert_int_equal(pthread_join(thread, NULL), 0);
    hf_lock_free(held);
}

int main(void)
{
#define CASE(name, open, close)                                                \
    cmocka_unit_test_setup_teardown(name, open, close)
    const struct CMUnitTest cases[] = {
        CASE(a_claim_waits_for_the_report_of_the_previous_loss, open_background,
             close_client),
        CASE(a_deferred_claim_can_be_canceled_or_time_out, open_background,
             close_client),
        CASE(an_interrupted_list_stops_calling_back, open_background,
             close_client),
        CASE(a_canceled_list_stops_calling_back, open_background, close_client),
        CASE(a_closed_list_stops_calling_back, open_background, NULL),
        CASE(a_refused_lock_waits_for_its_callback, open_background,
             close_client),
    };

    return hf_test_main("callbacks", cases, HF_TEST_COUNT(cases), 0);
}
