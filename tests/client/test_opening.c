/* Opening and closing without blocking. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"
#include "client/operation.h"
#include "lib/faulty.h"
#include "lib/runner.h"

static struct hf_client *client;

static void sleep_ms(unsigned ms)
{
    (void)usleep(ms * 1000);
}

/* ---- A strategy whose `open` blocks -------------------------------------
 *
 * It is memory:, but `open` blocks until the test opens a gate, and then
 * returns `open_result`. */

static pthread_mutex_t gate_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static bool gate_open;
static enum hf_err open_result;
static atomic_bool early_timer;
static atomic_bool opened;
static atomic_uint closes;
static struct hf_timer timer;

static void open_gate(void)
{
    pthread_mutex_lock(&gate_mutex);
    gate_open = true;
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&gate_mutex);
}

/* Record a timer of the strategy that fires too early: none may fire while the
 * strategy is being opened. */
static void on_timer(struct hf_timer *fired)
{
    (void)fired;
    if (!atomic_load(&opened))
        atomic_store(&early_timer, true);
}

extern const struct hf_strategy hf_strategy_memory;

static enum hf_err gated_open(void *self, struct hf_url *url,
                              struct hf_host *host, struct hf_error *error)
{
    timer.fire = on_timer;
    if (host->ops->timer_add(host, &timer))
        return HF_ENOMEM;
    hf_timer_set(host, &timer, host->ops->now(host));
    pthread_mutex_lock(&gate_mutex);
    while (!gate_open)
        pthread_cond_wait(&gate_changed, &gate_mutex);
    pthread_mutex_unlock(&gate_mutex);
    if (open_result) {
        host->ops->timer_remove(host, &timer);
        return hf_error_set(error, open_result, "cannot open");
    }
    atomic_store(&opened, true);
    return hf_strategy_memory.open(self, url, host, error);
}

static void gated_close(void *self)
{
    client->host.ops->timer_remove(&client->host, &timer);
    hf_strategy_memory.close(self);
    atomic_fetch_add(&closes, 1);
}

static struct hf_strategy gated;

static atomic_uint results;
static enum hf_err last_result;

static void note_result(enum hf_err err, void *arg)
{
    (void)arg;
    last_result = err;
    atomic_fetch_add(&results, 1);
}

static enum hf_err start_opening(bool background, struct hf_future **future)
{
    struct hf_env env = {.strategy = &gated};
    struct hf_client_opts opts;

    gated = hf_strategy_memory;
    gated.open = gated_open;
    gated.close = gated_close;
    hf_client_opts_init(&opts);
    opts.background = background;
    return hf_client_open_start(
        "memory:opening", &opts, &env, &client,
        (struct hf_listener){note_result, NULL, future});
}

/* Drive the client like an event loop, until `count` callbacks have run. */
static void process_until(unsigned count)
{
    struct pollfd fd = {.fd = hf_fd(client), .events = POLLIN};

    while (atomic_load(&results) < count) {
        assert_int_equal(poll(&fd, 1, -1), 1);
        assert_int_equal(hf_process(client), HF_OK);
    }
}

static void use_and_close(void)
{
    struct hf_lock *lock;

    assert_true(hf_caps(client) & HF_CAP_FENCE);
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, 10000), HF_OK);
    assert_int_equal(closes, 1);
    assert_false(early_timer);
}

/* ---- Opening ------------------------------------------------------------*/

static void an_event_loop_opens_without_blocking(void **state)
{
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(start_opening(false, NULL), HF_OK);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(hf_process(client), HF_OK);
        sleep_ms(1);
    }
    assert_int_equal(results, 0);
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock),
                     HF_ESTATE);
    assert_int_equal(hf_caps(client), 0);
    open_gate();
    process_until(1);
    assert_int_equal(last_result, HF_OK);
    use_and_close();
}

static void a_future_reports_an_open_client(void **state)
{
    struct hf_future *future;
    enum hf_err err = HF_EBUSY;

    (void)state;
    assert_int_equal(start_opening(false, &future), HF_OK);
    assert_int_equal(hf_future_wait(future, 10, &err), HF_ETIMEDOUT);
    hf_interrupt(client);
    assert_int_equal(hf_future_wait(future, HF_FOREVER, &err), HF_EINTR);
    open_gate();
    assert_int_equal(hf_future_wait(future, HF_FOREVER, &err), HF_OK);
    assert_int_equal(err, HF_OK);
    hf_future_free(future);
    use_and_close();
    assert_int_equal(results, 1);
}

static void background_threads_report_an_open_client(void **state)
{
    (void)state;
    assert_int_equal(start_opening(true, NULL), HF_OK);
    open_gate();
    while (atomic_load(&results) == 0)
        sleep_ms(1);
    assert_int_equal(last_result, HF_OK);
    use_and_close();
}

static void a_client_that_failed_to_open_can_be_closed(void **state)
{
    struct hf_future *future;
    struct hf_error error;
    struct hf_lock *lock;

    (void)state;
    open_result = HF_EUNAVAIL;
    assert_int_equal(start_opening(false, &future), HF_OK);
    open_gate();
    process_until(1);
    assert_int_equal(last_result, HF_EUNAVAIL);
    hf_future_error(future, &error);
    assert_string_equal(error.text, "cannot open");
    hf_client_error(client, &error);
    assert_string_equal(error.text, "cannot open");
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock),
                     HF_ECLOSED);
    hf_future_free(future);
    assert_int_equal(hf_close(client, 10000), HF_OK);
    assert_int_equal(closes, 0);
}

static void invalid_arguments_fail_at_once(void **state)
{
    struct hf_error error;
    struct hf_client_opts opts;

    (void)state;
    hf_client_opts_init(&opts);
    opts.error = &error;
    assert_int_equal(
        hf_open_start("nothing:x", &opts, &client, note_result, NULL, NULL),
        HF_EUNSUPPORTED);
    assert_int_equal(error.code, HF_EUNSUPPORTED);
    assert_int_equal(
        hf_open_start("memory:x", NULL, NULL, note_result, NULL, NULL),
        HF_EINVAL);
    assert_int_equal(results, 0);
}

/* ---- Closing a client that is being opened ------------------------------*/

/* hf_close() returns while `open` is blocked. The thread that opens the
 * strategy closes it when `open` has returned. */
static void hf_close_does_not_wait_for_an_opening(void **state)
{
    (void)state;
    assert_int_equal(start_opening(true, NULL), HF_OK);
    assert_int_equal(hf_close(client, 20), HF_OK);
    assert_int_equal(results, 1);
    assert_int_equal(last_result, HF_ECLOSED);
    assert_int_equal(closes, 0);
    open_gate();
    while (atomic_load(&closes) == 0)
        sleep_ms(1);
    sleep_ms(20); /* let the thread free the client */
}

static void hf_close_start_does_not_wait_for_an_opening(void **state)
{
    (void)state;
    assert_int_equal(start_opening(false, NULL), HF_OK);
    assert_true(hf_fd(client) >= 0); /* after hf_fd(), no thread is started */
    assert_int_equal(hf_close_start(client, 20, note_result, NULL), HF_OK);
    process_until(2);
    assert_int_equal(last_result, HF_OK);
    assert_int_equal(closes, 0);
    open_gate();
    while (atomic_load(&closes) == 0)
        sleep_ms(1);
    sleep_ms(20);
}

static void an_opening_that_completes_in_time_is_closed(void **state)
{
    (void)state;
    assert_int_equal(start_opening(false, NULL), HF_OK);
    assert_true(hf_fd(client) >= 0); /* after hf_fd(), no thread is started */
    assert_int_equal(hf_close_start(client, 100000, note_result, NULL), HF_OK);
    open_gate();
    process_until(2);
    assert_int_equal(closes, 1);
}

/* ---- Closing without blocking -------------------------------------------*/

static void close_in_callback(enum hf_err err, void *arg)
{
    (void)err;
    if (hf_close(client, 10) != HF_EDEADLK ||
        hf_close_start(client, 10000, note_result, arg) != HF_OK ||
        hf_close_start(client, 10000, note_result, arg) != HF_ECLOSED)
        atomic_fetch_add(&results, 100);
}

/* hf_close_start() releases locks and completes calls before `done` runs. */
static void check_close_in_callback(bool background)
{
    struct hf_client_opts opts;
    struct hf_client *other;
    struct hf_lock *held, *lock;
    struct hf_future *future;
    enum hf_err err = HF_OK;

    hf_client_opts_init(&opts);
    opts.background = background;
    assert_int_equal(hf_open("memory:closing", &opts, &client), HF_OK);
    assert_int_equal(hf_open("memory:closing", NULL, &other), HF_OK);
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &held), HF_OK);
    assert_int_equal(hf_acquire_start(client, hf_key_of("k"), NULL, &lock, NULL,
                                      NULL, &future),
                     HF_OK);
    if (!background)
        (void)hf_fd(client); /* after hf_fd(), no thread is started */
    assert_int_equal(hf_wait_held_start(client, hf_key_of("k"), 0, NULL,
                                        close_in_callback, NULL, NULL),
                     HF_OK);
    while (background && atomic_load(&results) == 0)
        sleep_ms(1);
    if (!background)
        process_until(1);
    assert_int_equal(results, 1);
    assert_int_equal(last_result, HF_OK);
    assert_true(hf_future_done(future, &err));
    assert_int_equal(err, HF_ECLOSED);
    assert_int_equal(hf_lock_state(held), HF_LOCK_IDLE);
    hf_future_free(future);
    hf_lock_free(held);
    assert_int_equal(hf_acquire(other, hf_key_of("k"), NULL, &lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(other, 10000), HF_OK);
}

static void an_event_loop_closes_in_a_callback(void **state)
{
    (void)state;
    check_close_in_callback(false);
}

static void background_threads_close_in_a_callback(void **state)
{
    (void)state;
    check_close_in_callback(true);
}

static struct hf_faulty_net net = {.clock = hf_faulty_real_clock,
                                   .shared_clock = true};

/* The deadline passes before the release is confirmed, so `done` gets
 * HF_EINDOUBT. */
static void hf_close_start_completes_while_the_server_is_silent(void **state)
{
    struct hf_env env = {.strategy = &hf_strategy_faulty};
    struct hf_lock *held;

    (void)state;
    hf_faulty_use(&net);
    assert_int_equal(hf_client_open("memory:closing", NULL, &env, &client),
                     HF_OK);
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &held), HF_OK);
    hf_faulty_cut(hf_faulty_of(client), HF_CUT_ALL);
    (void)hf_fd(client);
    assert_int_equal(hf_close_start(client, 50, note_result, NULL), HF_OK);
    assert_int_equal(hf_close_start(client, 50, note_result, NULL), HF_ECLOSED);
    assert_int_equal(hf_close(client, 50), HF_ECLOSED);
    process_until(1);
    assert_int_equal(last_result, HF_EINDOUBT);
    hf_lock_free(held);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(an_event_loop_opens_without_blocking),
        cmocka_unit_test(a_future_reports_an_open_client),
        cmocka_unit_test(background_threads_report_an_open_client),
        cmocka_unit_test(a_client_that_failed_to_open_can_be_closed),
        cmocka_unit_test(invalid_arguments_fail_at_once),
        cmocka_unit_test(hf_close_does_not_wait_for_an_opening),
        cmocka_unit_test(hf_close_start_does_not_wait_for_an_opening),
        cmocka_unit_test(an_opening_that_completes_in_time_is_closed),
        cmocka_unit_test(an_event_loop_closes_in_a_callback),
        cmocka_unit_test(background_threads_close_in_a_callback),
        cmocka_unit_test(hf_close_start_completes_while_the_server_is_silent),
    };

    return hf_test_main("opening", cases, HF_TEST_COUNT(cases), 0);
}
