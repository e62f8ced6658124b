/* ?prefix=: tenants share a server without interfering. */
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "lib/redis_client.h"
#include "lib/runner.h"

static struct hf_test_redis redis;
static struct hf_client *red, *blue;

static int set_up(void **state)
{
    (void)state;
    return hf_test_redis_start(&redis, NULL) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    hf_test_redis_stop(&redis);
    return 0;
}

static void open_both(void)
{
    red = hf_test_redis_open(&redis, "?prefix=red:");
    blue = hf_test_redis_open(&redis, "?prefix=blue:");
}

static void close_both(void)
{
    expect_ok(hf_close(red, 1000));
    expect_ok(hf_close(blue, 1000));
}

static struct hf_lock *take_lock(struct hf_client *by, uint32_t wait_ms)
{
    struct hf_lock_opts opts = hf_test_opts(60000, wait_ms, 5000);
    struct hf_lock *lock = NULL;

    expect_ok(hf_acquire(by, hf_key_of("k"), &opts, &lock));
    return lock;
}

static void two_prefixes_hold_the_same_key(void **state)
{
    struct hf_lock *of_red, *of_blue;

    (void)state;
    open_both();
    of_red = take_lock(red, 0);
    of_blue = take_lock(blue, 0);
    assert_string_equal(hf_test_redis_command(&redis, "EXISTS red:k blue:k"),
                        "2");
    expect_ok(hf_renew(of_red, 0));
    expect_ok(hf_release(of_red));
    expect_ok(hf_release(of_blue));
    hf_lock_free(of_red);
    hf_lock_free(of_blue);
    close_both();
}

/* Neither a waiter nor a watch uses a key or channel without the prefix. */
static void all_names_begin_with_the_prefix(void **state)
{
    struct hf_client *other;
    struct hf_lock_opts opts = hf_test_opts(60000, HF_FOREVER, 5000);
    struct hf_lock *held, *lock = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_OK;

    (void)state;
    open_both();
    other = hf_test_redis_open(&redis, "?prefix=red:");
    held = take_lock(red, 0);
    expect_err(hf_wait_free(other, hf_key_of("k"), 20, NULL), HF_ETIMEDOUT);
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &lock, NULL, NULL,
                               &future));
    while (strcmp(hf_test_redis_command(&redis, "ZCARD red:hf:q:k"), "1") != 0)
        (void)hf_future_wait(future, 10, &err);
    assert_string_equal(hf_test_redis_command(&redis, "KEYS hf:*"), "");
    assert_string_equal(hf_test_redis_command(&redis, "PUBSUB CHANNELS hf:*"),
                        "");
    expect_ok(hf_release(held));
    expect_ok(hf_future_wait(future, HF_FOREVER, &err));
    expect_ok(err);
    hf_future_free(future);
    hf_lock_free(held);
    hf_lock_free(lock);
    expect_ok(hf_close(other, 1000));
    close_both();
}

#define LISTED_SIZE 64

static bool note_key(const struct hf_info *info, void *arg)
{
    char *text = arg;
    size_t length = strlen(text);

    (void)snprintf(text + length, LISTED_SIZE - length, "%.*s ",
                   (int)info->key.size, (const char *)info->key.data);
    return true;
}

/* Set `*arg` to 1 if the key is reported as "k", and to 2 otherwise. Runs in a
 * thread of the client, so `*arg` is atomic. */
static void on_event(const struct hf_event *event, void *arg)
{
    bool right = hf_key_equal(event->key, hf_key_of("k"));

    atomic_store((atomic_int *)arg, right ? 1 : 2);
}

static void keys_are_reported_without_the_prefix(void **state)
{
    struct hf_watch *watch = NULL;
    struct hf_lock *held;
    char listed[LISTED_SIZE] = "";
    atomic_int watched = 0;

    (void)state;
    open_both();
    expect_ok(
        hf_watch_open(red, hf_key_of(""), NULL, on_event, &watched, &watch));
    hf_lock_free(take_lock(blue, 0));
    held = take_lock(red, 0);
    expect_ok(hf_list(red, hf_key_of(""), note_key, listed));
    assert_string_equal(listed, "k ");
    while (atomic_load(&watched) == 0)
        (void)poll(NULL, 0, 5);
    assert_int_equal(watched, 1);
    hf_watch_close(watch);
    hf_lock_free(held);
    close_both();
}

/* The user has the ACL that docs/man/holdfast.3 shows for a tenant. */
static void an_acl_confines_a_tenant(void **state)
{
    struct hf_client *tenant, *other;
    struct hf_lock_opts opts = hf_test_opts(60000, 20000, 5000);
    struct hf_lock *held = NULL, *lock = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_OK;
    const char *url;

    (void)state;
    (void)hf_test_redis_command(
        &redis,
        "ACL SETUSER tenant on >secret ~red:* resetchannels &red:* "
        "+@all -@admin -@dangerous +info +client|kill +client|id +config|get");
    url = hf_test_redis_url(&redis, "tenant:secret@", "?prefix=red:");
    expect_ok(hf_open(url, NULL, &tenant));
    expect_ok(hf_open(url, NULL, &other));
    expect_ok(hf_acquire(tenant, hf_key_of("k"), &opts, &held));
    expect_err(hf_wait_free(other, hf_key_of("k"), 20, NULL), HF_ETIMEDOUT);
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &lock, NULL, NULL,
                               &future));
    while (strcmp(hf_test_redis_command(&redis, "ZCARD red:hf:q:k"), "1") != 0)
        (void)hf_future_wait(future, 10, &err);
    expect_ok(hf_release(held));
    expect_ok(hf_future_wait(future, HF_FOREVER, &err));
    expect_ok(err);
    hf_future_free(future);
    hf_lock_free(held);
    hf_lock_free(lock);
    expect_ok(hf_close(tenant, 1000));
    expect_ok(hf_close(other, 1000));
    url = hf_test_redis_url(&redis, "tenant:secret@", "?prefix=blue:");
    expect_err(hf_open(url, NULL, &tenant), HF_EDENIED);
}

static void a_reserved_or_long_prefix_is_refused(void **state)
{
    struct hf_client *none = NULL;

    (void)state;
    expect_err(
        hf_open(hf_test_redis_url(&redis, NULL, "?prefix=hf:q:"), NULL, &none),
        HF_EINVAL);
    expect_err(
        hf_open(hf_test_redis_url(&redis, NULL,
                                  "?prefix=0123456789012345678901234567890123"
                                  "456789012345678901234567890123456789"),
                NULL, &none),
        HF_EINVAL);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(two_prefixes_hold_the_same_key),
        CASE(all_names_begin_with_the_prefix),
        CASE(keys_are_reported_without_the_prefix),
        CASE(an_acl_confines_a_tenant),
        CASE(a_reserved_or_long_prefix_is_refused),
    };

    return hf_test_main("redis prefix", cases, HF_TEST_COUNT(cases), 4);
}
