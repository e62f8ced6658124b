/* A busy client: more events than it can report, and slow callbacks. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "client/gate.h"

/* ---- A flood of events --------------------------------------------------*/

enum {
    PRODUCERS = 2,
    WATCHES = 128,
};

static atomic_bool stop;
static atomic_uint failures;
static pthread_t producers[PRODUCERS];
static struct hf_watch *watches[WATCHES];
static atomic_uint seen[WATCHES];

/* Acquire and release a key until the test ends. */
static void *producer_main(void *arg)
{
    struct hf_client *own;
    struct hf_lock *lock;
    char key[16];

    (void)snprintf(key, sizeof(key), "p%d", *(const int *)arg);
    if (hf_open(STORE_URL, NULL, &own)) {
        atomic_fetch_add(&failures, 1);
        return NULL;
    }
    while (!atomic_load(&stop)) {
        if (hf_acquire(own, hf_key_of(key), NULL, &lock)) {
            atomic_fetch_add(&failures, 1);
            break;
        }
        (void)hf_release(lock);
        hf_lock_free(lock);
    }
    (void)hf_close(own, 10000);
    return NULL;
}

static void count_event(const struct hf_event *event, void *arg)
{
    (void)event;
    atomic_fetch_add((atomic_uint *)arg, 1);
}

static void start_producers(void)
{
    static const int numbers[PRODUCERS] = {0, 1};

    for (unsigned i = 0; i < PRODUCERS; i++)
        assert_int_equal(pthread_create(&producers[i], NULL, producer_main,
                                        (void *)(uintptr_t)&numbers[i]),
                         0);
}

static void stop_producers(void)
{
    atomic_store(&stop, true);
    for (unsigned i = 0; i < PRODUCERS; i++)
        assert_int_equal(pthread_join(producers[i], NULL), 0);
    assert_int_equal(failures, 0);
}

static void watch_everything(void)
{
    for (unsigned i = 0; i < WATCHES; i++)
        assert_int_equal(hf_watch_open(client, hf_key_of(""), NULL, count_event,
                                       &seen[i], &watches[i]),
                         HF_OK);
}

static void close_watches(void)
{
    for (unsigned i = 0; i < WATCHES; i++)
        hf_watch_close(watches[i]);
}

/* The producers run until every watch has received events, so this case ends
 * only if no watch starves. */
static void every_watch_is_served_in_a_flood(void **state)
{
    (void)state;
    watch_everything();
    start_producers();
    for (unsigned i = 0; i < WATCHES; i++) {
        while (atomic_load(&seen[i]) < 3)
            sleep_ms(1);
    }
    stop_producers();
    close_watches();
}

/* The lock is lost unless it is renewed during the flood. */
static void a_lock_is_renewed_in_a_flood(void **state)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    int64_t deadline;

    (void)state;
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 3000 * hf_test_slowness();
    opts.renew = true;
    watch_everything();
    start_producers();
    assert_int_equal(hf_acquire(client, hf_key_of("kept"), &opts, &lock),
                     HF_OK);
    deadline = hf_lock_deadline(lock);
    for (unsigned i = 0; i < 3; i++) {
        while (hf_lock_deadline(lock) == deadline)
            sleep_ms(1);
        deadline = hf_lock_deadline(lock);
        assert_true(deadline > 0);
    }
    stop_producers();
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
    close_watches();
}

/* The producers run until hf_close() has returned, so it must return during the
 * flood. */
static void closing_returns_in_a_flood(void **state)
{
    (void)state;
    watch_everything();
    start_producers();
    while (atomic_load(&seen[0]) == 0)
        sleep_ms(1);
    (void)hf_close(client, 100);
    stop_producers();
    close_watches();
}

/* ---- Slow callbacks -----------------------------------------------------*/

static void a_lock_is_renewed_while_a_callback_is_stuck(void **state)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    int64_t deadline;

    (void)state;
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 3000 * hf_test_slowness();
    opts.renew = true;
    assert_int_equal(hf_acquire(client, hf_key_of("kept"), &opts, &lock),
                     HF_OK);
    enter_stuck_callback();
    deadline = hf_lock_deadline(lock);
    for (unsigned i = 0; i < 4; i++) {
        while (hf_lock_deadline(lock) == deadline)
            sleep_ms(1);
        deadline = hf_lock_deadline(lock);
        assert_true(hf_lock_valid_for(lock, 0));
    }
    leave_stuck_callback();
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
}

static atomic_uint lost;

static void count_lost(struct hf_lock *lock, enum hf_lock_event event,
                       void *arg)
{
    (void)lock;
    (void)arg;
    if (event == HF_LOCK_EVENT_LOST)
        atomic_fetch_add(&lost, 1);
}

/* Store 1 plus the number of losses reported so far. The value 0 means that
 * this callback has not run. */
static void note_losses(enum hf_err err, void *arg)
{
    (void)err;
    atomic_store((atomic_uint *)arg, 1 + atomic_load(&lost));
}

/* hf_lock_error() and hf_lock_state() report the loss before its callback can
 * run. The callback for the loss then runs before a callback that was queued
 * earlier. */
static void a_loss_is_recorded_while_a_callback_is_stuck(void **state)
{
    static atomic_uint lost_before;
    struct hf_lock_opts opts;
    struct hf_error error;
    struct hf_info info;
    struct hf_lock *lock;

    (void)state;
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 300;
    opts.on_event = count_lost;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_OK);
    enter_stuck_callback();
    assert_int_equal(hf_read_start(client, hf_key_of("any"), HF_LOCAL, &info,
                                   note_losses, &lost_before, NULL),
                     HF_OK);
    do {
        sleep_ms(1);
        hf_lock_error(lock, &error);
    } while (error.code != HF_EEXPIRED);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    assert_int_equal(lost, 0);
    leave_stuck_callback();
    while (atomic_load(&lost_before) == 0)
        sleep_ms(1);
    assert_int_equal(lost, 1);
    assert_int_equal(lost_before, 2);
    hf_info_fini(&info);
    hf_lock_free(lock);
}

/* A request that a callback has started is sent before the callback returns. */
static void release_and_block(enum hf_err err, void *arg)
{
    if (hf_release_start(arg, NULL, NULL, NULL))
        atomic_fetch_add(&failures, 1);
    stuck(err, NULL);
}

static void a_stuck_callback_delays_no_request(void **state)
{
    struct hf_lock *first, *second;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &first), HF_OK);
    assert_int_equal(hf_read_start(client, hf_key_of("any"), HF_LOCAL,
                                   &stuck_info, release_and_block, first, NULL),
                     HF_OK);
    wait_for(&gate_reached);
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &second), HF_OK);
    assert_int_equal(hf_release(second), HF_OK);
    leave_stuck_callback();
    hf_lock_free(first);
    hf_lock_free(second);
    assert_int_equal(failures, 0);
}

/* hf_close() waits for a running callback, but not beyond its deadline. The
 * queued callbacks run when the stuck callback returns. */
static void closing_leaves_a_stuck_callback_at_its_deadline(void **state)
{
    static atomic_uint answered;
    struct hf_info info;
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    enter_stuck_callback();
    assert_int_equal(hf_read_start(client, hf_key_of("any"), HF_LOCAL, &info,
                                   note_losses, &answered, NULL),
                     HF_OK);
    assert_int_equal(hf_close(client, 200), HF_OK);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_IDLE);
    assert_int_equal(answered, 0);
    leave_stuck_callback();
    while (atomic_load(&answered) == 0)
        sleep_ms(1);
    hf_info_fini(&info);
    hf_lock_free(lock);
}

/* ---- Freeing handles that have callbacks --------------------------------*/

static atomic_bool returned;

static void block_lock_event(struct hf_lock *lock, enum hf_lock_event event,
                             void *arg)
{
    (void)lock;
    (void)event;
    stuck(HF_OK, arg);
    sleep_ms(20);
    atomic_store(&returned, true);
}

static void block_watch_event(const struct hf_event *event, void *arg)
{
    (void)event;
    stuck(HF_OK, arg);
    sleep_ms(20);
    atomic_store(&returned, true);
}

/* The program may free `arg` when hf_lock_free() has returned, so no callback
 * may still be running then. */
static void freeing_a_lock_waits_for_its_callback(void **state)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    pthread_t thread;

    (void)state;
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 20;
    opts.on_event = block_lock_event;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_OK);
    wait_for(&gate_reached);
    assert_int_equal(pthread_create(&thread, NULL, open_gate_main, NULL), 0);
    hf_lock_free(lock);
    assert_true(returned);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void freeing_a_watch_waits_for_its_callback(void **state)
{
    struct hf_watch *watch;
    struct hf_lock *lock;
    pthread_t thread;

    (void)state;
    assert_int_equal(hf_watch_open(client, hf_key_of(""), NULL,
                                   block_watch_event, NULL, &watch),
                     HF_OK);
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    wait_for(&gate_reached);
    assert_int_equal(pthread_create(&thread, NULL, open_gate_main, NULL), 0);
    hf_watch_close(watch);
    assert_true(returned);
    assert_int_equal(pthread_join(thread, NULL), 0);
    hf_lock_free(lock);
}

static void free_in_callback(struct hf_lock *lock, enum hf_lock_event event,
                             void *arg)
{
    (void)event;
    hf_lock_free(lock);
    set_gate(arg);
}

static void a_callback_may_free_its_own_handle(void **state)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    (void)state;
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 20;
    opts.on_event = free_in_callback;
    opts.arg = &gate_reached;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_OK);
    wait_for(&gate_reached);
}

static struct hf_future *awaited;

static void free_future(enum hf_err err, void *arg)
{
    (void)err;
    (void)arg;
    hf_future_free(awaited);
    set_gate(&gate_reached);
}

static void *future_wait_main(void *arg)
{
    enum hf_err err = HF_EBUSY;

    if (hf_future_wait(arg, HF_FOREVER, &err) || err)
        atomic_fetch_add(&failures, 1);
    return NULL;
}

/* Threads that wait for a future get its result even if its callback has freed
 * it before they run. */
static void a_future_may_be_freed_while_threads_wait(void **state)
{
    struct hf_lock *held, *lock = NULL;
    pthread_t threads[8];

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &held), HF_OK);
    assert_int_equal(hf_acquire_start(client, hf_key_of("k"), NULL, &lock,
                                      free_future, NULL, &awaited),
                     HF_OK);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, future_wait_main, awaited), 0);
    sleep_ms(100);
    assert_int_equal(hf_release(held), HF_OK);
    wait_for(&gate_reached);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(failures, 0);
    hf_lock_free(held);
    hf_lock_free(lock);
}

int main(void)
{
#define CASE(name, open, close)                                                \
    cmocka_unit_test_setup_teardown(name, open, close)
    const struct CMUnitTest cases[] = {
        CASE(every_watch_is_served_in_a_flood, open_background, close_client),
        CASE(a_lock_is_renewed_in_a_flood, open_background, close_client),
        CASE(closing_returns_in_a_flood, open_background, NULL),
        CASE(a_lock_is_renewed_while_a_callback_is_stuck, open_background,
             close_client),
        CASE(a_loss_is_recorded_while_a_callback_is_stuck, open_background,
             close_client),
        CASE(a_stuck_callback_delays_no_request, open_background, close_client),
        CASE(closing_leaves_a_stuck_callback_at_its_deadline, open_background,
             NULL),
        CASE(freeing_a_lock_waits_for_its_callback, open_background,
             close_client),
        CASE(freeing_a_watch_waits_for_its_callback, open_background,
             close_client),
        CASE(a_callback_may_free_its_own_handle, open_background, close_client),
        CASE(a_future_may_be_freed_while_threads_wait, open_background,
             close_client),
    };

    return hf_test_main("busy", cases, HF_TEST_COUNT(cases), 1);
}
