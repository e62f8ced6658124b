/* The configuration of a server: what the client derives from it, and how the
 * client notices a change. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/redis_client.h"
#include "lib/runner.h"

static struct hf_test_redis redis;
static struct hf_client *client, *other;

static const char *const on_disk[] = {"--appendonly", "yes", "--appendfsync",
                                      "always", NULL};

static int tear_down(void **state)
{
    (void)state;
    if (client)
        (void)hf_close(client, 1000);
    if (other)
        (void)hf_close(other, 1000);
    hf_test_redis_stop(&redis);
    return 0;
}

static void start(const char *const *options, const char *rest)
{
    assert_true(hf_test_redis_start(&redis, options));
    client = hf_test_redis_open(&redis, rest);
}

static void expect_refused_open(const char *url, const char *word)
{
    struct hf_error error = {.text = ""};
    struct hf_client *none = NULL;
    struct hf_client_opts opts;
    enum hf_err err;

    hf_client_opts_init(&opts);
    opts.error = &error;
    err = hf_open(url, &opts, &none);
    if (err != HF_EUNSUPPORTED || !strstr(error.text, word))
        fail_msg("%s: %s, '%s'", url, hf_err_name(err), error.text);
}

static enum hf_err take(struct hf_client *by, uint32_t ttl_ms, uint32_t wait_ms,
                        struct hf_lock **lock)
{
    struct hf_lock_opts opts = hf_test_opts(ttl_ms, wait_ms, 20000);

    return hf_acquire(by, hf_key_of("k"), &opts, lock);
}

static uint64_t expect_a_lock(struct hf_client *by)
{
    struct hf_lock *lock = NULL;
    uint64_t token;

    expect_ok(take(by, 10000, 0, &lock));
    token = hf_lock_token(lock);
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    return token;
}

/* ---- A restart without persistence --------------------------------------*/

static void nothing_is_granted_within_the_grace_period(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(3000, 0, 300);
    struct hf_lock *lock = NULL, *next = NULL;

    (void)state;
    start(NULL, NULL);
    expect_ok(take(client, 3000, 0, &lock));
    hf_test_redis_kill(&redis);
    assert_true(hf_test_redis_restart(&redis, true));

    other = hf_test_redis_open(&redis, "?grace=4s");
    expect_err(hf_acquire(other, hf_key_of("k"), &opts, &next), HF_EUNAVAIL);
    expect_error_text(other, "grace");
    expect_ok(take(other, 3000, 0, &next));
    assert_false(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
    hf_lock_free(next);
}

/* A lease longer than the grace period could still run when a restarted server
 * grants the key again. */
static void a_lease_longer_than_the_grace_period_is_refused(void **state)
{
    struct hf_lock *lock = NULL;

    (void)state;
    start(NULL, "?grace=2s");
    expect_err(take(client, 2000, 0, &lock), HF_EINVAL);
    expect_error_text(client, "grace");
    expect_ok(take(client, 1000, 0, &lock));
    expect_err(hf_renew(lock, 10000), HF_EINVAL);
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
}

static void a_durable_server_needs_no_grace_period(void **state)
{
    struct hf_lock *lock = NULL;

    (void)state;
    start(on_disk, "?grace=10m");
    expect_ok(take(client, 3600000, 0, &lock));
    hf_lock_free(lock);
}

static void malformed_options_are_refused(void **state)
{
    static const char *const refused[] = {
        "redis://h?grace=30",   "redis://h?grace=s",
        "redis://h?grace=",     "redis://h?grace=99999999m",
        "redis://h?unsafe=yes", "redis://a,b",
        "redis://a:1,b:2/0",    "redis://h?grace=1s2",
        "redis://h?grace=-1s",  "redis://h?grace=111111111111111s",
    };

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(refused); i++) {
        struct hf_client *none = NULL;

        expect_err(hf_open(refused[i], NULL, &none), HF_EINVAL);
    }
}

static void several_hosts_are_refused_with_a_hint_to_redlock(void **state)
{
    struct hf_error error = {.text = ""};
    struct hf_client *none = NULL;
    struct hf_client_opts opts;

    (void)state;
    hf_client_opts_init(&opts);
    opts.error = &error;
    expect_err(hf_open("redis://a,b", &opts, &none), HF_EINVAL);
    assert_non_null(strstr(error.text, "redlock://"));
}

/* ---- Changes ------------------------------------------------------------*/

static void durable_is_not_reported_if_a_rewrite_stops_fsync(void **state)
{
    (void)state;
    start(on_disk, NULL);
    assert_true(hf_caps(client) & HF_CAP_DURABLE);
    (void)hf_test_redis_command(&redis,
                                "CONFIG SET no-appendfsync-on-rewrite yes");
    expect_refused_open(hf_test_redis_url(&redis, NULL, "?require=durable"),
                        "durable");
    other = hf_test_redis_open(&redis, NULL);
    assert_false(hf_caps(other) & HF_CAP_DURABLE);
}

static void a_new_connection_reads_the_configuration_again(void **state)
{
    struct hf_lock *lock = NULL;

    (void)state;
    start(on_disk, "?require=durable");
    (void)expect_a_lock(client);
    (void)hf_test_redis_command(&redis, "CONFIG SET appendonly no");
    (void)hf_test_redis_command(&redis, "CLIENT KILL TYPE normal");
    expect_err(take(client, 10000, 0, &lock), HF_EUNSUPPORTED);
    expect_error_text(client, "durable");
}

/* Take and release a lock until the result is `wanted`. */
static void await_answer(enum hf_err wanted)
{
    for (unsigned round = 0; round < 2000; round++) {
        struct hf_lock *lock = NULL;
        enum hf_err err = take(client, 10000, 0, &lock);

        if (!err)
            expect_ok(hf_release(lock));
        hf_lock_free(lock);
        if (err == wanted)
            return;
        (void)poll(NULL, 0, 20);
    }
    fail_msg("the result is never %s", hf_err_name(wanted));
}

static void a_changed_eviction_policy_is_noticed(void **state)
{
    struct hf_lock *lock = NULL;

    (void)state;
    start(NULL, NULL);
    other = hf_test_redis_open(&redis, NULL);
    expect_ok(hf_acquire(other, hf_key_of("held"), NULL, &lock));
    (void)hf_test_redis_command(&redis, "CONFIG SET maxmemory 100mb");
    (void)hf_test_redis_command(&redis,
                                "CONFIG SET maxmemory-policy volatile-lru");
    await_answer(HF_EUNSUPPORTED);
    expect_error_text(client, "volatile-lru");
    expect_ok(hf_renew(lock, 0));
    expect_ok(hf_release(lock));
    (void)hf_test_redis_command(&redis,
                                "CONFIG SET maxmemory-policy noeviction");
    await_answer(HF_OK);
    hf_lock_free(lock);
}

static void unsafe_accepts_eviction_with_fewer_capabilities(void **state)
{
    (void)state;
    start(NULL, NULL);
    (void)hf_test_redis_command(&redis, "CONFIG SET maxmemory 100mb");
    (void)hf_test_redis_command(&redis,
                                "CONFIG SET maxmemory-policy allkeys-lru");
    expect_refused_open(hf_test_redis_url(&redis, NULL, NULL), "?unsafe=1");
    expect_refused_open(
        hf_test_redis_url(&redis, NULL, "?unsafe=1&require=fence"), "fence");
    other = hf_test_redis_open(&redis, "?unsafe=1");
    assert_int_equal(
        hf_caps(other) & (HF_CAP_FENCE | HF_CAP_FIFO | HF_CAP_DURABLE), 0);
    (void)expect_a_lock(other);
}

/* ---- A full server ------------------------------------------------------*/

static bool count_one(const struct hf_info *info, void *arg)
{
    (void)info;
    ++*(unsigned *)arg;
    return true;
}

static void a_full_server_accepts_connections(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(60000, 0, 300);
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_info info;
    unsigned count = 0;
    uint64_t token;

    (void)state;
    start(NULL, NULL);
    expect_ok(take(client, 60000, 0, &lock));
    token = hf_lock_token(lock);
    (void)hf_test_redis_command(&redis, "CONFIG SET maxmemory 1");
    other = hf_test_redis_open(&redis, NULL);
    expect_ok(hf_read(other, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_true(info.held && info.token == token);
    hf_info_fini(&info);
    expect_ok(hf_list(other, hf_key_of(""), count_one, &count));
    assert_int_equal(count, 1);
    (void)hf_test_redis_command(&redis, "CLIENT KILL TYPE normal");
    expect_ok(hf_release(lock));
    expect_ok(hf_read(other, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_false(info.held);
    hf_info_fini(&info);
    expect_err(hf_acquire(other, hf_key_of("l"), &opts, &none), HF_EUNAVAIL);
    expect_error_text(other, "OOM");

    (void)hf_test_redis_command(&redis, "CONFIG SET maxmemory 0");
    assert_true(expect_a_lock(other) > token);
    hf_lock_free(lock);
}

/* ---- The handshake ------------------------------------------------------*/

static long long bytes_received(void)
{
    static const char name[] = "total_net_input_bytes:";
    const char *line =
        strstr(hf_test_redis_command(&redis, "INFO stats"), name);

    assert_non_null(line);
    return strtoll(line + strlen(name), NULL, 10);
}

static void a_loaded_script_is_not_sent_again(void **state)
{
    long long before;

    (void)state;
    start(NULL, NULL);
    (void)expect_a_lock(client);
    before = bytes_received();
    other = hf_test_redis_open(&redis, NULL);
    (void)expect_a_lock(other);
    assert_true(bytes_received() - before < 5000);

    (void)hf_test_redis_command(&redis, "SCRIPT FLUSH");
    (void)expect_a_lock(other);
    (void)hf_test_redis_command(&redis, "CLIENT KILL TYPE normal");
    (void)hf_test_redis_command(&redis, "SCRIPT FLUSH");
    (void)expect_a_lock(other);
}

static void connections_have_a_client_name(void **state)
{
    (void)state;
    start(NULL, NULL);
    assert_non_null(
        strstr(hf_test_redis_command(&redis, "CLIENT LIST"), "name=holdfast:"));
}

/* Redis 6 wraps the error of a command inside a script in another text. */
static void script_errors_of_redis_6_are_understood(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(60000, 0, 300);
    struct hf_lock *none = NULL;

    (void)state;
    assert_int_equal(setenv("HF_TEST_REDIS", "6.2", 1), 0);
    start(NULL, NULL);
    (void)hf_test_redis_command(&redis, "LPUSH k x");
    expect_err(take(client, 60000, 0, &none), HF_EINVAL);
    (void)hf_test_redis_command(&redis, "CONFIG SET maxmemory 1");
    expect_err(hf_acquire(client, hf_key_of("l"), &opts, &none), HF_EUNAVAIL);
    (void)hf_test_redis_command(&redis, "CONFIG SET maxmemory 0");
    (void)hf_test_redis_command(&redis, "REPLICAOF 127.0.0.1 1");
    expect_err(hf_acquire(client, hf_key_of("l"), &opts, &none), HF_EUNAVAIL);
    (void)hf_test_redis_command(&redis, "REPLICAOF NO ONE");
    (void)hf_test_redis_command(&redis, "DEL k");
    (void)expect_a_lock(client);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_teardown(name, tear_down)
        CASE(nothing_is_granted_within_the_grace_period),
        CASE(a_lease_longer_than_the_grace_period_is_refused),
        CASE(a_durable_server_needs_no_grace_period),
        cmocka_unit_test(malformed_options_are_refused),
        cmocka_unit_test(several_hosts_are_refused_with_a_hint_to_redlock),
        CASE(durable_is_not_reported_if_a_rewrite_stops_fsync),
        CASE(a_new_connection_reads_the_configuration_again),
        CASE(a_changed_eviction_policy_is_noticed),
        CASE(unsafe_accepts_eviction_with_fewer_capabilities),
        CASE(a_full_server_accepts_connections),
        CASE(a_loaded_script_is_not_sent_again),
        CASE(connections_have_a_client_name),
        CASE(script_errors_of_redis_6_are_understood),
    };

    return hf_test_main("redis server info", cases, HF_TEST_COUNT(cases), 4);
}
