/* Promises of holdfast(3) that no other test covers. */
#include <dirent.h>
#include <unistd.h>

#include "holdfast.h"
#include "lib/runner.h"

static struct hf_client *client;

static int open_client(void **state)
{
    (void)state;
    return hf_open("memory:manual", NULL, &client);
}

static int close_client(void **state)
{
    (void)state;
    return hf_close(client, 10000) == HF_OK ? 0 : -1;
}

static struct hf_lock_opts renewed_opts(void)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.renew = true;
    return opts;
}

static unsigned count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    unsigned count = 0;

    assert_non_null(tasks);
    while (readdir(tasks))
        count++;
    (void)closedir(tasks);
    return count;
}

static void wait_until_invalid(const struct hf_lock *lock)
{
    while (hf_lock_valid_for(lock, 0))
        (void)usleep(1000);
}

/* ---- Threads ------------------------------------------------------------*/

/* Cases that expect new threads do not check how many, because a sanitizer may
 * start a thread of its own. */
static void start_calls_start_no_thread(void **state)
{
    struct hf_lock_opts opts = renewed_opts();
    unsigned before = count_threads();
    struct hf_lock *lock = NULL;

    (void)state;
    assert_int_equal(hf_acquire_start(client, hf_key_of("k"), &opts, &lock,
                                      NULL, NULL, NULL),
                     HF_OK);
    assert_int_equal(count_threads(), before);
    assert_non_null(lock);
    assert_int_equal(hf_release(lock), HF_OK);
    assert_int_equal(count_threads(), before);
    hf_lock_free(lock);
}

static void hf_future_wait_starts_threads_for_a_renewed_lock(void **state)
{
    struct hf_lock_opts opts = renewed_opts();
    unsigned before = count_threads();
    struct hf_future *future = NULL;
    struct hf_lock *lock = NULL;
    enum hf_err err;

    (void)state;
    assert_int_equal(hf_acquire_start(client, hf_key_of("k"), &opts, &lock,
                                      NULL, NULL, &future),
                     HF_OK);
    assert_int_equal(hf_future_wait(future, HF_FOREVER, &err), HF_OK);
    assert_true(count_threads() > before);
    hf_future_free(future);
    hf_lock_free(lock);
}

static void hf_renew_starts_threads_for_a_renewed_lock(void **state)
{
    struct hf_lock_opts opts = renewed_opts();
    unsigned before = count_threads();
    struct hf_lock *lock = NULL;

    (void)state;
    assert_int_equal(hf_acquire_start(client, hf_key_of("k"), &opts, &lock,
                                      NULL, NULL, NULL),
                     HF_OK);
    assert_int_equal(hf_renew(lock, 0), HF_OK);
    assert_true(count_threads() > before);
    hf_lock_free(lock);
}

static void blocking_calls_start_no_thread_without_a_renewed_lock(void **state)
{
    unsigned before = count_threads();
    struct hf_lock *lock = NULL;
    struct hf_info info;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    assert_int_equal(hf_renew(lock, 0), HF_OK);
    assert_int_equal(hf_read(client, hf_key_of("k"), HF_LOCAL, &info), HF_OK);
    hf_info_fini(&info);
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(count_threads(), before);
}

/* ---- The end of a lease -------------------------------------------------*/

static void a_lost_adopted_handle_cannot_be_renewed(void **state)
{
    struct hf_lock *lock = NULL, *adopted = NULL;
    uint8_t nonce[HF_NONCE_SIZE];

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    hf_lock_nonce(lock, nonce);
    assert_int_equal(hf_lock_adopt(client, hf_key_of("k"), nonce,
                                   hf_lock_token(lock), NULL, &adopted),
                     HF_OK);
    assert_false(hf_lock_valid_for(adopted, 0));
    assert_int_equal(hf_lock_state(adopted), HF_LOCK_HELD);
    assert_int_equal(hf_renew(adopted, 50), HF_OK);
    wait_until_invalid(adopted);
    assert_int_equal(hf_lock_state(adopted), HF_LOCK_LOST);
    assert_int_equal(hf_renew(adopted, 0), HF_EEXPIRED);
    assert_false(hf_lock_valid_for(adopted, 0));
    hf_lock_free(adopted);
    hf_lock_free(lock);
}

static int run_past_the_lease(struct hf_lock *lock, void *arg)
{
    (void)arg;
    wait_until_invalid(lock);
    return 7;
}

static void hf_run_past_the_lease_is_expired(void **state)
{
    struct hf_lock_opts opts;
    int result = 0;

    (void)state;
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 50;
    assert_int_equal(hf_run(client, hf_key_of("k"), &opts, run_past_the_lease,
                            NULL, &result),
                     HF_EEXPIRED);
    assert_int_equal(result, 7);
}

static void a_broken_lock_can_be_updated_but_not_renewed(void **state)
{
    struct hf_lock *lock = NULL;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    assert_int_equal(
        hf_force(client, hf_key_of("k"), hf_lock_token(lock), false), HF_OK);
    assert_int_equal(hf_update(lock, NULL, hf_bytes_of("v")), HF_OK);
    assert_int_equal(hf_renew(lock, 0), HF_EFORCED);
    assert_true(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
}

/* Let `other` acquire "k" and release it while the global `client` waits for it
 * with `ttl_ms`. `client` is not driven, so it does not learn of its grant.
 * Returns the token of that grant. */
static uint64_t hand_over(struct hf_client *other, uint32_t ttl_ms,
                          struct hf_lock **lock, struct hf_future **future)
{
    struct hf_key key = hf_key_of("k");
    struct hf_lock *first = NULL;
    struct hf_lock_opts opts;
    struct hf_info info;
    uint64_t token;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = ttl_ms;
    opts.wait_ms = HF_FOREVER;
    assert_int_equal(hf_acquire(other, key, &opts, &first), HF_OK);
    assert_int_equal(
        hf_acquire_start(client, key, &opts, lock, NULL, NULL, future), HF_OK);
    assert_int_equal(hf_release(first), HF_OK);
    hf_lock_free(first);
    assert_int_equal(hf_read(other, key, HF_LINEARIZABLE, &info), HF_OK);
    assert_true(info.held);
    token = info.token;
    hf_info_fini(&info);
    return token;
}

/* hf_force() with `now` ends the grant before the client learns of it. The
 * client must not report that grant, but claim the key again. */
static void a_grant_that_was_broken_is_not_reported(void **state)
{
    struct hf_client *other = NULL;
    struct hf_lock *lock = NULL;
    struct hf_future *future = NULL;
    enum hf_err err;
    uint64_t token;

    (void)state;
    assert_int_equal(hf_open("memory:manual", NULL, &other), HF_OK);
    token = hand_over(other, 300, &lock, &future);
    assert_int_equal(hf_force(other, hf_key_of("k"), token, true), HF_OK);
    assert_int_equal(hf_future_wait(future, HF_FOREVER, &err), HF_OK);
    assert_int_equal(err, HF_OK);
    assert_true(hf_lock_token(lock) > token);
    hf_future_free(future);
    hf_lock_free(lock);
    assert_int_equal(hf_close(other, 10000), HF_OK);
}

/* Grants that were not reported to the client are freed when it is closed;
 * otherwise a sanitizer would report a leak. */
static void unreported_grants_are_freed_with_their_client(void **state)
{
    struct hf_client *other = NULL;
    struct hf_lock *lock = NULL;
    struct hf_future *future = NULL;

    (void)state;
    assert_int_equal(hf_open("memory:manual", NULL, &other), HF_OK);
    (void)hand_over(other, 10000, &lock, &future);
    hf_future_free(future);
    hf_lock_free(lock);
    assert_int_equal(hf_close(other, 10000), HF_OK);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, open_client, close_client)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(start_calls_start_no_thread),
        CASE(hf_future_wait_starts_threads_for_a_renewed_lock),
        CASE(hf_renew_starts_threads_for_a_renewed_lock),
        CASE(blocking_calls_start_no_thread_without_a_renewed_lock),
        CASE(a_lost_adopted_handle_cannot_be_renewed),
        CASE(hf_run_past_the_lease_is_expired),
        CASE(a_broken_lock_can_be_updated_but_not_renewed),
        CASE(a_grant_that_was_broken_is_not_reported),
        CASE(unreported_grants_are_freed_with_their_client),
    };

    return hf_test_main("manual", cases, HF_TEST_COUNT(cases), 0);
}
