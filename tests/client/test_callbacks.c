/* What a callback may rely on: nothing calls back after the call that gave the
 * callback has ended. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "client/one_client.h"

static atomic_uint failures;

/* ---- A gate in which a callback waits -----------------------------------*/

static pthread_mutex_t gate_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static bool gate_reached, gate_open;

static void set_gate(bool *gate)
{
    pthread_mutex_lock(&gate_mutex);
    *gate = true;
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&gate_mutex);
}

static void wait_for(const bool *gate)
{
    pthread_mutex_lock(&gate_mutex);
    while (!*gate)
        pthread_cond_wait(&gate_changed, &gate_mutex);
    pthread_mutex_unlock(&gate_mutex);
}

static void stay_in_callback(void)
{
    set_gate(&gate_reached);
    wait_for(&gate_open);
}

static void *open_gate_main(void *arg)
{
    sleep_ms(100);
    set_gate(&gate_open);
    return arg;
}

/* ---- Lists --------------------------------------------------------------*/

static atomic_bool list_returned;

static bool stay_in_list(const struct hf_info *info, void *arg)
{
    (void)info;
    (void)arg;
    if (atomic_load(&list_returned))
        atomic_fetch_add(&failures, 1);
    stay_in_callback();
    if (atomic_load(&list_returned))
        atomic_fetch_add(&failures, 1);
    return true;
}

static void *list_main(void *arg)
{
    *(enum hf_err *)arg = hf_list(client, hf_key(""), stay_in_list, NULL);
    atomic_store(&list_returned, true);
    return NULL;
}

static void take_two(struct hf_lock *locks[2])
{
    assert_int_equal(hf_lock(client, hf_key("a"), NULL, &locks[0]), HF_OK);
    assert_int_equal(hf_lock(client, hf_key("b"), NULL, &locks[1]), HF_OK);
}

static void start_list(pthread_t *thread, struct hf_lock *locks[2],
                       enum hf_err *err)
{
    take_two(locks);
    assert_int_equal(pthread_create(thread, NULL, list_main, err), 0);
    wait_for(&gate_reached);
}

static void an_interrupted_list_calls_back_no_more(void **state)
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
    assert_true(err == HF_EINTR || err == HF_OK); /* it came late */
    sleep_ms(100);
    assert_int_equal(failures, 0);
    hf_lock_free(locks[0]);
    hf_lock_free(locks[1]);
}

/* The future is answered when the call that is running has returned. */
static void a_canceled_list_calls_back_no_more(void **state)
{
    struct hf_lock *locks[2];
    struct hf_future *future;
    enum hf_err err;

    (void)state;
    take_two(locks);
    assert_int_equal(hf_list_start(client, hf_key(""), stay_in_list, NULL, NULL,
                                   NULL, &future),
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

static void a_closed_list_calls_back_no_more(void **state)
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

/* ---- Claims that fail ---------------------------------------------------*/

static atomic_bool event_returned;

static void stay_in_event(struct hf_lock *lock, enum hf_lock_event event,
                          void *arg)
{
    (void)lock;
    (void)event;
    (void)arg;
    stay_in_callback();
    sleep_ms(20);
    atomic_store(&event_returned, true);
}

/* There is no handle whose hf_lock_free() could wait for the callback. */
static void a_refused_lock_has_left_its_callback(void **state)
{
    struct hf_lock_opts opts;
    struct hf_lock *held, *lock;
    pthread_t thread;

    (void)state;
    assert_int_equal(hf_lock(client, hf_key("k"), NULL, &held), HF_OK);
    hf_lock_opts_init(&opts);
    opts.wait_ms = 20;
    opts.on_event = stay_in_event;
    assert_int_equal(pthread_create(&thread, NULL, open_gate_main, NULL), 0);
    assert_int_not_equal(hf_lock(client, hf_key("k"), &opts, &lock), HF_OK);
    assert_true(event_returned);
    assert_int_equal(pthread_join(thread, NULL), 0);
    hf_lock_free(held);
}

int main(void)
{
#define CASE(name, open, close)                                                \
    cmocka_unit_test_setup_teardown(name, open, close)
    const struct CMUnitTest cases[] = {
        CASE(an_interrupted_list_calls_back_no_more, open_background,
             close_client),
        CASE(a_canceled_list_calls_back_no_more, open_background, close_client),
        CASE(a_closed_list_calls_back_no_more, open_background, NULL),
        CASE(a_refused_lock_has_left_its_callback, open_background,
             close_client),
    };

    return hf_test_main("callbacks", cases, HF_TEST_COUNT(cases), 0);
}
