/* Threads, processes and real time: who drives a client, and how it ends. */
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

#include "client/one_client.h" /* last: `client` is a variable from here on */

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
static unsigned guarded; /* by the lock on "k" */

static void *contend(void *arg)
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

static void run_threads(void *(*run)(void *), void *arg)
{
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run, arg), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void blocked_threads_hand_the_role_on(void **state)
{
    unsigned rounds = ROUNDS;

    (void)state;
    run_threads(contend, &rounds);
    assert_int_equal(failures, 0);
    assert_int_equal(guarded, THREADS * ROUNDS);
}

/* A wait that ran out, or one whose withdrawal was not confirmed soon enough on
 * a busy machine. */
static bool ran_out(enum hf_err err)
{
    return err == HF_ETIMEDOUT || err == HF_EINDOUBT;
}

/* Each waits for an answer of its own; when one ends, another must drive. */
static void *wait_a_while(void *arg)
{
    struct hf_lock_opts opts = options(60000, 0);
    unsigned number = atomic_fetch_add((atomic_uint *)arg, 1);
    hf_time began = hf_time_now();
    struct hf_lock *lock;

    opts.wait_ms = 20 + number * 15;
    if (!ran_out(hf_acquire(client, hf_key_of("held"), &opts, &lock)) ||
        hf_time_now() - began < opts.wait_ms - 1)
        atomic_fetch_add(&failures, 1);
    return NULL;
}

static void each_blocked_thread_is_answered_in_its_time(void **state)
{
    struct hf_lock_opts opts = options(HF_TEST_LONG_MS, 0);
    atomic_uint number = 0;
    struct hf_lock *held;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("held"), &opts, &held),
                     HF_OK);
    run_threads(wait_a_while, &number);
    assert_int_equal(failures, 0);
    hf_lock_free(held);
}

static void *wait_for_future(void *arg)
{
    enum hf_err err;

    if (hf_future_wait(arg, HF_FOREVER, &err) || !ran_out(err))
        atomic_fetch_add(&failures, 1);
    return NULL;
}

/* Two hear one answer, and the first of those who wait is one of them. */
static void the_role_passes_by_who_is_answered_already(void **state)
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
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_future,
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

static void *process(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        if (hf_process(client) != HF_OK)
            atomic_fetch_add(&failures, 1);
        sleep_ms(1);
    }
    return NULL;
}

static atomic_uint answers;

static void count_answer(enum hf_err err, void *arg)
{
    (void)arg;
    if (err)
        atomic_fetch_add(&failures, 1);
    atomic_fetch_add(&answers, 1);
}

static void two_threads_may_process(void **state)
{
    static struct hf_info infos[ROUNDS];
    pthread_t threads[2];

    (void)state;
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, process, NULL), 0);
    for (unsigned i = 0; i < ROUNDS; i++)
        assert_int_equal(hf_read_start(client, hf_key_of("k"), HF_LINEARIZABLE,
                                       &infos[i], count_answer, NULL, NULL),
                         HF_OK);
    while (atomic_load(&answers) < ROUNDS)
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
    count_answer(err, arg);
}

static void a_background_thread_runs_the_callbacks(void **state)
{
    unsigned rounds = 20;
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_acquire_start(client, hf_key_of("x"), NULL, &lock,
                                      note_thread, NULL, NULL),
                     HF_OK);
    while (atomic_load(&answers) < 1)
        sleep_ms(1);
    assert_int_equal(failures, 0);
    assert_false(pthread_equal(callback_thread, pthread_self()));
    run_threads(contend, &rounds);
    assert_int_equal(failures, 0);
    hf_lock_free(lock);
}

/* False if the machine was too busy to renew in time. */
static bool is_kept(uint32_t ttl_ms)
{
    struct hf_lock_opts opts = options(ttl_ms, HF_TEST_PATIENCE_MS);
    struct hf_lock *lock;
    bool kept;

    opts.renew = true;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_OK);
    sleep_ms(4 * ttl_ms);
    kept = hf_lock_valid_for(lock, 0) && hf_release(lock) == HF_OK;
    hf_lock_free(lock);
    return kept;
}

static void a_background_thread_keeps_a_lock(void **state)
{
    uint32_t ttl_ms = 100;

    (void)state;
    while (!is_kept(ttl_ms)) {
        ttl_ms *= 3;
        assert_true(ttl_ms < HF_TEST_PATIENCE_MS);
    }
}

/* ---- Closing ------------------------------------------------------------*/

static void *wait_forever(void *arg)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_lock *lock;

    (void)arg;
    if (hf_acquire(client, hf_key_of("held"), &opts, &lock) != HF_ECLOSED)
        atomic_fetch_add(&failures, 1);
    return NULL;
}

static void closing_answers_whoever_is_blocked(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    pthread_t threads[3];
    struct hf_lock *held;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("held"), &opts, &held),
                     HF_OK);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_forever, NULL),
                         0);
    sleep_ms(50);
    assert_int_equal(hf_close(client, HF_TEST_PATIENCE_MS), HF_OK);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(failures, 0);
    assert_false(hf_lock_valid_for(held, 0));
    assert_int_equal(hf_release(held), HF_ECLOSED);
    hf_lock_free(held);
}

static hf_time real_clock(void *arg)
{
    (void)arg;
    return hf_time_now();
}

static struct hf_faulty_net net = {.clock = real_clock, .shared_clock = true};

static int open_faulty(void **state)
{
    struct hf_env env = {.strategy = &hf_strategy_faulty};

    (void)state;
    hf_faulty_use(&net);
    return hf_client_open(STORE_URL, NULL, &env, &client);
}

static enum hf_err answer_heard;

static void hear_answer(enum hf_err err, void *arg)
{
    (void)arg;
    answer_heard = err;
    atomic_fetch_add(&answers, 1);
}

static void closing_returns_by_its_deadline(void **state)
{
    struct hf_lock_opts opts = options(60000, 5000);
    struct hf_lock *held, *asked = NULL;
    struct hf_future *future;
    enum hf_err err;
    hf_time began;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &held), HF_OK);
    hf_faulty_cut(hf_faulty_of(client), HF_CUT_SILENT);
    assert_int_equal(hf_acquire_start(client, hf_key_of("x"), &opts, &asked,
                                      hear_answer, NULL, &future),
                     HF_OK);
    began = hf_time_now();
    assert_int_equal(hf_close(client, 300), HF_EINDOUBT);
    assert_true(hf_time_now() - began >= 299);
    assert_int_equal(answers, 1);
    assert_int_equal(answer_heard, HF_ECLOSED);
    assert_true(hf_future_done(future, &err));
    assert_int_equal(err, HF_ECLOSED);
    assert_null(asked);
    hf_future_free(future);
    hf_lock_free(held);
}

/* Also beyond the lease, after which nobody else would ask again. */
static void closing_gives_a_withdrawal_its_time(void **state)
{
    struct hf_lock_opts opts = options(100, HF_TEST_PATIENCE_MS);
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_OK);
    hf_faulty_cue(hf_faulty_of(client), HF_ON_CANCEL, HF_LOSE, 3, 0);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_PATIENCE_MS), HF_OK);
}

/* Its handle is freed and its client closed while a thread waits in it. */
static void *unlock_blocked(void *arg)
{
    enum hf_err err = hf_release(arg);

    if (err != HF_EINDOUBT && err != HF_ECLOSED)
        atomic_fetch_add(&failures, 1);
    return NULL;
}

static void a_client_outlives_the_calls_inside_it(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    struct hf_lock *lock;
    pthread_t thread;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_OK);
    hf_faulty_cut(hf_faulty_of(client), HF_CUT_SILENT);
    assert_int_equal(pthread_create(&thread, NULL, unlock_blocked, lock), 0);
    sleep_ms(50);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, 50), HF_EINDOUBT);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(failures, 0);
}

/* ---- Processes ----------------------------------------------------------*/

static void be_the_child(struct hf_lock *lock)
{
    struct hf_lock *other;
    int bad = 0;

    bad += hf_lock_valid_for(lock, 0);
    bad += hf_lock_remaining_ms(lock) != 0;
    bad += hf_release(lock) != HF_EFORK;
    bad += hf_renew(lock, 0) != HF_EFORK;
    bad += hf_acquire(client, hf_key_of("x"), NULL, &other) != HF_EFORK;
    bad += hf_process(client) != HF_EFORK;
    bad += hf_fd(client) != -1;
    bad += hf_close(client, 100) != HF_EFORK;
    hf_lock_free(lock);
    _exit(bad);
}

static void a_forked_child_holds_nothing(void **state)
{
    struct hf_lock *lock;
    int status;
    pid_t pid;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        be_the_child(lock);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(hf_lock_valid_for(lock, 0));
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
}

static int heard_fd;

static void say(char what)
{
    if (write(heard_fd, &what, 1) != 1)
        _exit(9);
}

static void say_event(struct hf_lock *lock, enum hf_lock_event event, void *arg)
{
    (void)arg;
    if (event == HF_LOCK_EVENT_LOST)
        say(hf_lock_valid_for(lock, 0) ? '?' : 'L');
}

static void say_read(enum hf_err err, void *arg)
{
    (void)err;
    (void)arg;
    say('d');
}

static volatile sig_atomic_t is_to_stop;

static void ask_to_stop(int number)
{
    (void)number;
    is_to_stop = 1;
}

/* Holds a lock, and hears callbacks all the time. It stops itself when no callback
 * has begun: one that had would go on first. */
static _Noreturn void hold_on(uint32_t ttl_ms)
{
    struct hf_lock_opts opts = options(ttl_ms, HF_FOREVER);
    struct hf_client *mine;
    struct hf_lock *lock;

    (void)signal(SIGUSR1, ask_to_stop);
    opts.renew = true;
    opts.on_event = say_event;
    if (hf_open("memory:child", NULL, &mine) ||
        hf_acquire(mine, hf_key_of("k"), &opts, &lock))
        _exit(8);
    for (;;) {
        struct pollfd fd = {.fd = hf_fd(mine), .events = POLLIN};
        struct hf_info info;

        if (is_to_stop)
            (void)raise(SIGSTOP);
        is_to_stop = 0;
        if (hf_read_start(mine, hf_key_of("k"), HF_LINEARIZABLE, &info,
                          say_read, NULL, NULL))
            _exit(7);
        (void)poll(&fd, 1, 5);
        (void)hf_process(mine);
        hf_info_fini(&info);
    }
}

/* Read what it has said so far; whether it was told of a loss. */
static bool has_lost(int fd)
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

/* False if it lost its lock before it was stopped. */
static bool hears_lost_first(uint32_t ttl_ms)
{
    int ends[2];
    pid_t pid;
    bool lost;
    char byte = 0;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        heard_fd = ends[1];
        hold_on(ttl_ms);
    }
    /* It lives on by its renewals. */
    assert_int_equal(read(ends[0], &byte, 1), 1);
    sleep_ms(3 * ttl_ms);
    lost = byte == 'L' || has_lost(ends[0]);
    assert_int_equal(kill(pid, SIGUSR1), 0);
    assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
    sleep_ms(2 * ttl_ms);
    lost = has_lost(ends[0]) || lost;
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_true(byte == 'L' || lost);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return !lost;
}

static void a_process_that_was_stopped_hears_lost_first(void **state)
{
    uint32_t ttl_ms = 200;

    (void)state;
    while (!hears_lost_first(ttl_ms)) {
        ttl_ms *= 3;
        assert_true(ttl_ms < HF_TEST_PATIENCE_MS);
    }
}

int main(void)
{
#define CASE(name, open, close)                                                \
    cmocka_unit_test_setup_teardown(name, open, close)
    const struct CMUnitTest cases[] = {
        CASE(blocked_threads_hand_the_role_on, open_client, close_client),
        CASE(each_blocked_thread_is_answered_in_its_time, open_client,
             close_client),
        CASE(the_role_passes_by_who_is_answered_already, open_client,
             close_client),
        CASE(two_threads_may_process, open_client, close_client),
        CASE(a_background_thread_runs_the_callbacks, open_background,
             close_client),
        CASE(a_background_thread_keeps_a_lock, open_background, close_client),
        CASE(closing_answers_whoever_is_blocked, open_client, NULL),
        CASE(closing_returns_by_its_deadline, open_faulty, NULL),
        CASE(closing_gives_a_withdrawal_its_time, open_faulty, NULL),
        CASE(a_client_outlives_the_calls_inside_it, open_faulty, NULL),
        CASE(a_forked_child_holds_nothing, open_client, close_client),
        CASE(a_process_that_was_stopped_hears_lost_first, NULL, NULL),
    };

    return hf_test_main("driving", cases, HF_TEST_COUNT(cases), 0);
}
