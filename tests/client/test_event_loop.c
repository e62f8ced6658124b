/* Driving and closing a client with threads and processes, in real time. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/time.h"
#include "lib/faulty.h"

#include "client/one_client.h" /* last, because it defines `client` */

static struct hf_lock_opts options(uint32_t ttl_ms, uint32_t wait_ms)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = ttl_ms;
    opts.wait_ms = wait_ms;
    return opts;
}

/* ---- Threads on one client ----------------------------------------------*/

enum {
    THREADS = 8,
    ROUNDS = 200
};

static atomic_uint failures;
static unsigned guarded; /* changed only while "k" is locked */

static void *contender_main(void *arg)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    unsigned rounds = *(const unsigned *)arg;

    for (unsigned i = 0; i < rounds; i++) {
        struct hf_lock *lock;

        if (hf_acquire(client, hf_key_of("k"), &opts, &lock)) {
            atomic_fetch_add(&failures, 1);
            continue;
        }
        guarded++;
        if (hf_release(lock))
            atomic_fetch_add(&failures, 1);
        hf_lock_free(lock);
    }
    return NULL;
}

static void run_threads(void *(*thread_main)(void *), void *arg)
{
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_main, arg),
                         0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void blocked_threads_pass_the_driver_role_on(void **state)
{
    unsigned rounds = ROUNDS;

    (void)state;
    run_threads(contender_main, &rounds);
    assert_int_equal(failures, 0);
    assert_int_equal(guarded, THREADS * ROUNDS);
}

/* Returns true if the claim timed out. On a busy machine, the withdrawal may
 * not be confirmed in time; the result is then HF_EINDOUBT. */
static bool is_timeout(enum hf_err err)
{
    return err == HF_ETIMEDOUT || err == HF_EINDOUBT;
}

/* Each thread has a different timeout. When the thread that drives the client
 * times out and returns, another thread must drive it. */
static void *timeout_main(void *arg)
{
    struct hf_lock_opts opts = options(60000, 0);
    unsigned number = atomic_fetch_add((atomic_uint *)arg, 1);
    hf_time started = hf_time_now();
    struct hf_lock *lock;

    opts.wait_ms = 20 + number * 15;
    if (!is_timeout(hf_acquire(client, hf_key_of("held"), &opts, &lock)) ||
        hf_time_now() - started < opts.wait_ms - 1)
        atomic_fetch_add(&failures, 1);
    return NULL;
}

static void each_blocked_thread_times_out_by_itself(void **state)
{
    struct hf_lock_opts opts = options(HF_TEST_LONG_MS, 0);
    atomic_uint number = 0;
    struct hf_lock *held;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("held"), &opts, &held),
                     HF_OK);
    run_threads(timeout_main, &number);
    assert_int_equal(failures, 0);
    hf_lock_free(held);
}

static void *future_main(void *arg)
{
    enum hf_err err;

    if (hf_future_wait(arg, HF_FOREVER, &err) || !is_timeout(err))
        atomic_fetch_add(&failures, 1);
    return NULL;
}

/* The driver and the first blocked thread wait for the same future. When that
 * future is answered, the role of the driver must go to the third thread. */
static void the_driver_role_skips_released_threads(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    struct hf_lock *held, *never;
    struct hf_future *soon, *later;
    pthread_t threads[3];

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("held"), &opts, &held),
                     HF_OK);
    opts.wait_ms = 200;
    assert_int_equal(hf_acquire_start(client, hf_key_of("held"), &opts, &never,
                                      NULL, NULL, &soon),
                     HF_OK);
    opts.wait_ms = 400;
    assert_int_equal(hf_acquire_start(client, hf_key_of("held"), &opts, &never,
                                      NULL, NULL, &later),
                     HF_OK);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, future_main,
                                        i < 2 ? soon : later),
                         0);
        sleep_ms(30);
    }
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(failures, 0);
    hf_future_free(soon);
    hf_future_free(later);
    hf_lock_free(held);
}

static atomic_bool stop;

static void *process_main(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        if (hf_process(client) != HF_OK)
            atomic_fetch_add(&failures, 1);
        sleep_ms(1);
    }
    return NULL;
}

static atomic_uint results;

static void count_result(enum hf_err err, void *arg)
{
    (void)arg;
    if (err)
        atomic_fetch_add(&failures, 1);
    atomic_fetch_add(&results, 1);
}

static void two_threads_may_call_hf_process(void **state)
{
    static struct hf_info infos[ROUNDS];
    pthread_t threads[2];

    (void)state;
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, process_main, NULL),
                         0);
    for (unsigned i = 0; i < ROUNDS; i++)
        assert_int_equal(hf_read_start(client, hf_key_of("k"), HF_LINEARIZABLE,
                                       &infos[i], count_result, NULL, NULL),
                         HF_OK);
    while (atomic_load(&results) < ROUNDS)
        sleep_ms(1);
    atomic_store(&stop, true);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(failures, 0);
    for (unsigned i = 0; i < ROUNDS; i++)
        hf_info_fini(&infos[i]);
}

static pthread_t callback_thread;

static void note_thread(enum hf_err err, void *arg)
{
    callback_thread = pthread_self();
    count_result(err, arg);
}

static void a_background_thread_runs_the_callbacks(void **state)
{
    unsigned rounds = 20;
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_acquire_start(client, hf_key_of("x"), NULL, &lock,
                                      note_thread, NULL, NULL),
                     HF_OK);
    while (atomic_load(&results) < 1)
        sleep_ms(1);
    assert_int_equal(failures, 0);
    assert_false(pthread_equal(callback_thread, pthread_self()));
    run_threads(contender_main, &rounds);
    assert_int_equal(failures, 0);
    hf_lock_free(lock);
}

/* Acquire a renewed lock, sleep for four times its ttl, and release it. Returns
 * false if the machine was too busy to renew it in time. */
static bool is_renewed_in_time(uint32_t ttl_ms)
{
    struct hf_lock_opts opts = options(ttl_ms, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock;
    bool in_time;

    opts.renew = true;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_OK);
    sleep_ms(4 * ttl_ms);
    in_time = hf_lock_valid_for(lock, 0) && hf_release(lock) == HF_OK;
    hf_lock_free(lock);
    return in_time;
}

static void a_background_thread_renews_a_lock(void **state)
{
    uint32_t ttl_ms = 100;

    (void)state;
    while (!is_renewed_in_time(ttl_ms)) {
        ttl_ms *= 3;
        assert_true(ttl_ms < HF_TEST_TIMEOUT_MS);
    }
}

/* ---- Closing ------------------------------------------------------------*/

static void *waiter_main(void *arg)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_lock *lock;

    (void)arg;
    if (hf_acquire(client, hf_key_of("held"), &opts, &lock) != HF_ECLOSED)
        atomic_fetch_add(&failures, 1);
    return NULL;
}

static void closing_completes_blocked_calls(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    pthread_t threads[3];
    struct hf_lock *held;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("held"), &opts, &held),
                     HF_OK);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, waiter_main, NULL),
                         0);
    sleep_ms(50);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(failures, 0);
    assert_false(hf_lock_valid_for(held, 0));
    assert_int_equal(hf_release(held), HF_ECLOSED);
    hf_lock_free(held);
}

static struct hf_faulty_net net = {.clock = hf_faulty_real_clock,
                                   .shared_clock = true};

static int open_faulty(void **state)
{
    struct hf_env env = {.strategy = &hf_strategy_faulty};

    (void)state;
    hf_faulty_use(&net);
    return hf_client_open(STORE_URL, NULL, &env, &client);
}

static enum hf_err last_result;

static void note_result(enum hf_err err, void *arg)
{
    (void)arg;
    last_result = err;
    atomic_fetch_add(&results, 1);
}

static void closing_returns_by_its_deadline(void **state)
{
    struct hf_lock_opts opts = options(60000, 5000);
    struct hf_lock *held, *pending = NULL;
    struct hf_future *future;
    enum hf_err err;
    hf_time started;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &held), HF_OK);
    hf_faulty_cut(hf_faulty_of(client), HF_CUT_ALL);
    assert_int_equal(hf_acquire_start(client, hf_key_of("x"), &opts, &pending,
                                      note_result, NULL, &future),
                     HF_OK);
    started = hf_time_now();
    assert_int_equal(hf_close(client, 300), HF_EINDOUBT);
    assert_true(hf_time_now() - started >= 299);
    assert_int_equal(results, 1);
    assert_int_equal(last_result, HF_ECLOSED);
    assert_true(hf_future_done(future, &err));
    assert_int_equal(err, HF_ECLOSED);
    assert_null(pending);
    hf_future_free(future);
    hf_lock_free(held);
}

/* hf_close() waits until the withdrawal is confirmed, although the first three
 * CANCELs are lost. */
static void closing_waits_for_withdrawals(void **state)
{
    struct hf_lock_opts opts = options(100, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_OK);
    hf_faulty_cue(hf_faulty_of(client), HF_ON_CANCEL, HF_LOSE, 3, 0);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

/* The test frees the handle and closes the client while this thread blocks. */
static void *release_main(void *arg)
{
    enum hf_err err = hf_release(arg);

    if (err != HF_EINDOUBT && err != HF_ECLOSED)
        atomic_fetch_add(&failures, 1);
    return NULL;
}

static void a_client_outlives_its_blocked_calls(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    struct hf_lock *lock;
    pthread_t thread;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_OK);
    hf_faulty_cut(hf_faulty_of(client), HF_CUT_ALL);
    assert_int_equal(pthread_create(&thread, NULL, release_main, lock), 0);
    sleep_ms(50);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, 50), HF_EINDOUBT);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(failures, 0);
}

/* ---- Processes ----------------------------------------------------------*/

static void child_main(struct hf_lock *lock)
{
    struct hf_lock *other;
    int errors = 0;

    errors += hf_lock_valid_for(lock, 0);
    errors += hf_lock_remaining_ms(lock) != 0;
    errors += hf_release(lock) != HF_EFORK;
    errors += hf_renew(lock, 0) != HF_EFORK;
    errors += hf_acquire(client, hf_key_of("x"), NULL, &other) != HF_EFORK;
    errors += hf_process(client) != HF_EFORK;
    errors += hf_fd(client) != -1;
    errors += hf_close(client, 100) != HF_EFORK;
    hf_lock_free(lock);
    _exit(errors);
}

static void a_forked_child_holds_no_locks(void **state)
{
    struct hf_lock *lock;
    int status;
    pid_t pid;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        child_main(lock);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(hf_lock_valid_for(lock, 0));
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
}

static int report_fd; /* the child writes a byte for each callback */

static void report(char byte)
{
    if (write(report_fd, &byte, 1) != 1)
        _exit(9);
}

static void report_lost(struct hf_lock *lock, enum hf_lock_event event,
                        void *arg)
{
    (void)arg;
    if (event == HF_LOCK_EVENT_LOST)
        report(hf_lock_valid_for(lock, 0) ? '?' : 'L');
}

static void report_done(enum hf_err err, void *arg)
{
    (void)err;
    (void)arg;
    report('d');
}

static volatile sig_atomic_t stop_requested;

static void on_stop_signal(int number)
{
    (void)number;
    stop_requested = 1;
}

/* Hold a lock, and run callbacks all the time. The process stops itself between
 * two callbacks, because a callback that is interrupted by the stop would
 * continue before LOST. */
static _Noreturn void holder_main(uint32_t ttl_ms)
{
    struct hf_lock_opts opts = options(ttl_ms, HF_FOREVER);
    struct hf_client *own;
    struct hf_lock *lock;

    (void)signal(SIGUSR1, on_stop_signal);
    opts.renew = true;
    opts.on_event = report_lost;
    if (hf_open("memory:child", NULL, &own) ||
        hf_acquire(own, hf_key_of("k"), &opts, &lock))
        _exit(8);
    for (;;) {
        struct pollfd fd = {.fd = hf_fd(own), .events = POLLIN};
        struct hf_info info;

        if (stop_requested)
            (void)raise(SIGSTOP);
        stop_requested = 0;
        if (hf_read_start(own, hf_key_of("k"), HF_LINEARIZABLE, &info,
                          report_done, NULL, NULL))
            _exit(7);
        (void)poll(&fd, 1, 5);
        (void)hf_process(own);
        hf_info_fini(&info);
    }
}

/* Consume the reports received so far. Returns true if LOST is among them. */
static bool has_reported_lost(int fd)
{
    struct pollfd now = {.fd = fd, .events = POLLIN};
    char bytes[4096];
    bool lost = false;

    while (poll(&now, 1, 0) > 0) {
        ssize_t size = read(fd, bytes, sizeof(bytes));

        assert_true(size > 0);
        lost = lost || memchr(bytes, 'L', (size_t)size) != NULL;
    }
    return lost;
}

/* Start a child that holds a lock, and stop it for longer than the ttl. Fail if
 * it then runs another callback before LOST. Returns false if the child lost
 * its lock before it was stopped. */
static bool gets_lost_first(uint32_t ttl_ms)
{
    int ends[2];
    pid_t pid;
    bool lost;
    char byte = 0;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        report_fd = ends[1];
        holder_main(ttl_ms);
    }
    /* After the first report, the child holds the lock. Sleep for longer than
     * its ttl, so that it needs renewals to keep the lock. */
    assert_int_equal(read(ends[0], &byte, 1), 1);
    sleep_ms(3 * ttl_ms);
    lost = byte == 'L' || has_reported_lost(ends[0]);
    assert_int_equal(kill(pid, SIGUSR1), 0);
    assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
    sleep_ms(2 * ttl_ms);
    lost = has_reported_lost(ends[0]) || lost;
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_true(byte == 'L' || lost);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return !lost;
}

static void a_stopped_process_gets_lost_first(void **state)
{
    uint32_t ttl_ms = 200;

    (void)state;
    while (!gets_lost_first(ttl_ms)) {
        ttl_ms *= 3;
        assert_true(ttl_ms < HF_TEST_TIMEOUT_MS);
    }
}

int main(void)
{
#define CASE(name, open, close)                                                \
    cmocka_unit_test_setup_teardown(name, open, close)
    const struct CMUnitTest cases[] = {
        CASE(blocked_threads_pass_the_driver_role_on, open_client,
             close_client),
        CASE(each_blocked_thread_times_out_by_itself, open_client,
             close_client),
        CASE(the_driver_role_skips_released_threads, open_client, close_client),
        CASE(two_threads_may_call_hf_process, open_client, close_client),
        CASE(a_background_thread_runs_the_callbacks, open_background,
             close_client),
        CASE(a_background_thread_renews_a_lock, open_background, close_client),
        CASE(closing_completes_blocked_calls, open_client, NULL),
        CASE(closing_returns_by_its_deadline, open_faulty, NULL),
        CASE(closing_waits_for_withdrawals, open_faulty, NULL),
        CASE(a_client_outlives_its_blocked_calls, open_faulty, NULL),
        CASE(a_forked_child_holds_no_locks, open_client, close_client),
        CASE(a_stopped_process_gets_lost_first, NULL, NULL),
    };

    return hf_test_main("event_loop", cases, HF_TEST_COUNT(cases), 0);
}
