/* hf_interrupt() and pthread_cancel() of threads in blocking calls. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "base/time.h"
#include "lib/faulty.h"

#include "client/one_client.h" /* last, because it defines `client` */

static struct hf_lock *held; /* the lock on "k" */

/* Acquire "k" if `err`, the result of opening the client, is 0. */
static int acquire_held(int err)
{
    return err ? err : hf_acquire(client, hf_key_of("k"), NULL, &held);
}

static int open_and_hold(void **state)
{
    return acquire_held(open_client(state));
}

static int open_background_and_hold(void **state)
{
    return acquire_held(open_background(state));
}

static int free_and_close(void **state)
{
    hf_lock_free(held);
    return close_client(state);
}

static struct hf_lock_opts wait_forever(void)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.wait_ms = HF_FOREVER;
    return opts;
}

/* ---- Calls that are interrupted -----------------------------------------*/

enum {
    THREADS = 3
};

static atomic_uint ended;
static atomic_uint interrupted;

static void *lock_main(void *arg)
{
    struct hf_lock_opts opts = wait_forever();
    struct hf_lock *lock;

    (void)arg;
    if (hf_acquire(client, hf_key_of("k"), &opts, &lock) == HF_EINTR)
        atomic_fetch_add(&interrupted, 1);
    atomic_fetch_add(&ended, 1);
    return NULL;
}

static uint32_t waiters(void)
{
    struct hf_info info;
    uint32_t count;

    assert_int_equal(hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info),
                     HF_OK);
    count = info.waiters;
    hf_info_fini(&info);
    return count;
}

/* Repeat hf_interrupt(), because the calls may not be blocked yet. */
static void interrupt_until_ended(unsigned count)
{
    while (atomic_load(&ended) < count) {
        hf_interrupt(client);
        sleep_ms(5);
    }
}

static void interrupt_blocked_claims(void)
{
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, lock_main, NULL), 0);
    while (waiters() < THREADS)
        sleep_ms(1);
    hf_interrupt(client); /* once is enough, because all threads are blocked */
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(interrupted, THREADS);
    assert_int_equal(waiters(), 0);
    assert_true(hf_lock_valid_for(held, 0));
}

static void every_blocked_claim_is_withdrawn(void **state)
{
    (void)state;
    interrupt_blocked_claims();
}

/* A background thread drives this client, so hf_interrupt() has to wake threads
 * that do not drive. */
static void threads_that_do_not_drive_are_woken(void **state)
{
    (void)state;
    interrupt_blocked_claims();
}

static void on_signal(int number)
{
    (void)number;
    hf_interrupt(client);
}

static void *signal_main(void *arg)
{
    while (atomic_load(&ended) == 0) {
        (void)pthread_kill(*(const pthread_t *)arg, SIGUSR1);
        sleep_ms(5);
    }
    return NULL;
}

static void a_signal_handler_may_interrupt(void **state)
{
    struct sigaction action = {.sa_handler = on_signal};
    pthread_t self = pthread_self(), thread;

    (void)state;
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, signal_main, &self), 0);
    (void)lock_main(NULL);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(interrupted, 1);
    assert_int_equal(waiters(), 0);
}

static void *wait_free_main(void *arg)
{
    if (hf_wait_free(client, hf_key_of("k"), HF_FOREVER, NULL) == HF_EINTR)
        atomic_fetch_add(&interrupted, 1);
    (void)arg;
    atomic_fetch_add(&ended, 1);
    return NULL;
}

static void hf_wait_free_is_interrupted(void **state)
{
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, wait_free_main, NULL), 0);
    interrupt_until_ended(1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(interrupted, 1);
}

/* ---- Operations that continue -------------------------------------------*/

static void the_next_wait_for_a_future_is_interrupted(void **state)
{
    struct hf_lock_opts opts = wait_forever();
    struct hf_future *future;
    struct hf_lock *lock = NULL;
    enum hf_err err = HF_OK;

    (void)state;
    assert_int_equal(hf_acquire_start(client, hf_key_of("k"), &opts, &lock,
                                      NULL, NULL, &future),
                     HF_OK);
    hf_interrupt(client);
    hf_interrupt(client);
    assert_int_equal(hf_future_wait(future, HF_FOREVER, &err), HF_EINTR);
    assert_int_equal(hf_future_wait(future, 1, &err), HF_ETIMEDOUT);
    assert_int_equal(hf_release(held), HF_OK);
    assert_int_equal(hf_future_wait(future, HF_FOREVER, &err), HF_OK);
    assert_int_equal(err, HF_OK);
    assert_true(hf_lock_valid_for(lock, 0));
    hf_future_free(future);
    hf_lock_free(lock);
}

static void *claim_wait_main(void *arg)
{
    if (hf_lock_wait(arg) == HF_EINTR)
        atomic_fetch_add(&interrupted, 1);
    atomic_fetch_add(&ended, 1);
    return NULL;
}

static void a_claim_survives_an_interrupted_wait(void **state)
{
    struct hf_lock_opts opts = wait_forever();
    struct hf_lock *lock;
    pthread_t thread;

    (void)state;
    assert_int_equal(hf_lock_new(client, hf_key_of("k"), &opts, &lock), HF_OK);
    assert_int_equal(pthread_create(&thread, NULL, claim_wait_main, lock), 0);
    interrupt_until_ended(1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(interrupted, 1);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_CLAIMING);
    assert_int_equal(hf_release(held), HF_OK);
    assert_int_equal(hf_lock_wait(lock), HF_OK);
    hf_lock_free(lock);
}

/* Only hf_future_wait() and hf_lock_wait() return HF_EINTR for an earlier
 * hf_interrupt(). */
static void a_pending_interrupt_ends_no_other_call(void **state)
{
    struct hf_lock *lock;

    (void)state;
    hf_interrupt(client);
    assert_int_equal(hf_release(held), HF_OK);
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
    hf_interrupt(NULL);
}

/* ---- In doubt -----------------------------------------------------------*/

static struct hf_faulty_net net = {.clock = hf_faulty_real_clock,
                                   .shared_clock = true};

static int open_faulty(void **state)
{
    struct hf_env env = {.strategy = &hf_strategy_faulty};

    (void)state;
    hf_faulty_use(&net);
    return acquire_held(hf_client_open(STORE_URL, NULL, &env, &client));
}

static int close_in_doubt(void **state)
{
    (void)state;
    hf_lock_free(held);
    return hf_close(client, 10) == HF_EINDOUBT ? 0 : -1;
}

static enum hf_err renewed;

static void *renew_main(void *arg)
{
    renewed = hf_renew(arg, 0);
    atomic_fetch_add(&ended, 1);
    return NULL;
}

static void an_interrupted_renewal_is_in_doubt(void **state)
{
    pthread_t thread;

    (void)state;
    hf_faulty_cut(hf_faulty_of(client), HF_CUT_ALL);
    assert_int_equal(pthread_create(&thread, NULL, renew_main, held), 0);
    interrupt_until_ended(1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(renewed, HF_EINDOUBT);
}

/* ---- Processes and cancellation -----------------------------------------*/

static void a_forked_child_does_not_interrupt_its_parent(void **state)
{
    struct hf_future *future;
    struct hf_lock *lock;
    enum hf_err err;
    pid_t pid = fork();

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0) {
        hf_interrupt(client);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(hf_acquire_start(client, hf_key_of("k"), NULL, &lock, NULL,
                                      NULL, &future),
                     HF_OK);
    assert_int_equal(hf_future_wait(future, 10, &err), HF_ETIMEDOUT);
    hf_future_cancel(future);
    hf_future_free(future);
}

static void *cancel_main(void *arg)
{
    (void)lock_main(arg);
    pthread_testcancel();
    return arg;
}

/* After pthread_cancel() the call continues, other threads can use the client,
 * and the thread is canceled after the call. */
static void no_call_is_a_cancellation_point(void **state)
{
    pthread_t threads[THREADS];
    void *result;

    (void)state;
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, cancel_main, NULL),
                         0);
    while (waiters() < THREADS)
        sleep_ms(1);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_cancel(threads[i]), 0);
    sleep_ms(50);
    assert_int_equal(waiters(), THREADS);
    interrupt_until_ended(THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, PTHREAD_CANCELED);
    }
    assert_int_equal(interrupted, THREADS);
}

int main(void)
{
#define CASE(name, open, close)                                                \
    cmocka_unit_test_setup_teardown(name, open, close)
    const struct CMUnitTest cases[] = {
        CASE(every_blocked_claim_is_withdrawn, open_and_hold, free_and_close),
        CASE(threads_that_do_not_drive_are_woken, open_background_and_hold,
             free_and_close),
        CASE(a_signal_handler_may_interrupt, open_and_hold, free_and_close),
        CASE(hf_wait_free_is_interrupted, open_background_and_hold,
             free_and_close),
        CASE(the_next_wait_for_a_future_is_interrupted, open_and_hold,
             free_and_close),
        CASE(a_claim_survives_an_interrupted_wait, open_background_and_hold,
             free_and_close),
        CASE(a_pending_interrupt_ends_no_other_call, open_and_hold,
             free_and_close),
        CASE(an_interrupted_renewal_is_in_doubt, open_faulty, close_in_doubt),
        CASE(a_forked_child_does_not_interrupt_its_parent, open_and_hold,
             free_and_close),
        CASE(no_call_is_a_cancellation_point, open_and_hold, free_and_close),
    };

    return hf_test_main("interrupt", cases, HF_TEST_COUNT(cases), 0);
}
