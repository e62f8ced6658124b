/* hf_open() of a Redis server: which servers and URLs it refuses. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/time.h"
#include "lib/loopback.h"
#include "lib/redis_client.h"
#include "lib/runner.h"

static struct hf_test_redis redis;

/* The clock of the library (--wrap in tests/meson.build): it stands still at
 * this time, unless that is 0. */
static _Atomic hf_time stopped_at;

hf_time __wrap_hf_time_now(void);
hf_time __real_hf_time_now(void);

hf_time __wrap_hf_time_now(void)
{
    hf_time stopped = stopped_at;

    return stopped ? stopped : __real_hf_time_now();
}

static int tear_down(void **state)
{
    (void)state;
    hf_test_redis_stop(&redis);
    return 0;
}

static void start(const char *const *options)
{
    assert_true(hf_test_redis_start(&redis, options));
}

/* Open `url`, which must fail with the code `wanted` and a text that contains
 * `word`. */
static void expect_refusal(const char *url, enum hf_err wanted,
                           const char *word)
{
    struct hf_error error = {.text = ""};
    struct hf_client *client = NULL;
    struct hf_client_opts opts;
    enum hf_err err;

    hf_client_opts_init(&opts);
    opts.error = &error;
    err = hf_open(url, &opts, &client);
    if (err != wanted || !strstr(error.text, word))
        fail_msg("%s: %s, '%s': not %s, '%s'", url, hf_err_name(err),
                 error.text, hf_err_name(wanted), word);
    assert_null(strstr(error.text, "sesame"));
    assert_null(strstr(error.text, "secret"));
}

static void expect_a_lock(const char *url)
{
    struct hf_client *client = NULL;
    struct hf_lock *lock = NULL;

    expect_ok(hf_open(url, NULL, &client));
    expect_ok(hf_acquire(client, hf_key_of("k"), NULL, &lock));
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
}

static void a_password_is_required_and_never_shown(void **state)
{
    const char *const options[] = {"--requirepass", "sesame", NULL};

    (void)state;
    start(options);
    expect_refusal(hf_test_redis_url(&redis, NULL, NULL), HF_EDENIED, "NOAUTH");
    expect_refusal(hf_test_redis_url(&redis, ":secret@", NULL), HF_EDENIED,
                   "WRONGPASS");
    expect_refusal(hf_test_redis_url(&redis, "eve:secret@", NULL), HF_EDENIED,
                   "WRONGPASS");
    expect_a_lock(hf_test_redis_url(&redis, ":sesame@", NULL));
    assert_string_equal(
        hf_test_redis_command(&redis,
                              "ACL SETUSER eve on >sec%%40ret ~* &* +@all"),
        "OK");
    expect_a_lock(hf_test_redis_url(&redis, "eve:sec%2540ret@", NULL));
}

/* hf_open() reports a missing permission that every client needs; hf_release()
 * reports one that only a release needs. */
static void a_missing_permission_is_reported(void **state)
{
    struct hf_client *client = NULL;
    struct hf_error error;
    struct hf_lock *lock = NULL;

    (void)state;
    start(NULL);
    (void)hf_test_redis_command(&redis,
                                "ACL SETUSER eve on >sesame ~k* &* +@all");
    expect_refusal(hf_test_redis_url(&redis, "eve:sesame@", NULL), HF_EDENIED,
                   "NOPERM");
    (void)hf_test_redis_command(
        &redis, "ACL SETUSER eve on >sesame ~k* ~hf:* &* +@all -config -del");
    expect_ok(
        hf_open(hf_test_redis_url(&redis, "eve:sesame@", NULL), NULL, &client));
    expect_ok(hf_acquire(client, hf_key_of("k"), NULL, &lock));
    expect_err(hf_release(lock), HF_EDENIED);
    hf_lock_error(lock, &error);
    assert_non_null(strstr(error.text, "script"));
    hf_lock_free(lock);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
}

static void an_eviction_policy_is_refused(void **state)
{
    static const char *const policies[] = {
        "allkeys-lru",     "volatile-lru",   "volatile-ttl",
        "volatile-random", "allkeys-random", "allkeys-lfu",
    };

    (void)state;
    start(NULL);
    (void)hf_test_redis_command(&redis, "CONFIG SET maxmemory 100mb");
    for (size_t i = 0; i < HF_TEST_COUNT(policies); i++) {
        (void)hf_test_redis_command(&redis, "CONFIG SET maxmemory-policy %s",
                                    policies[i]);
        expect_refusal(hf_test_redis_url(&redis, NULL, NULL), HF_EUNSUPPORTED,
                       policies[i]);
    }
    (void)hf_test_redis_command(&redis,
                                "CONFIG SET maxmemory-policy noeviction");
    expect_a_lock(hf_test_redis_url(&redis, NULL, NULL));
    (void)hf_test_redis_command(&redis,
                                "CONFIG SET maxmemory-policy allkeys-lru");
    (void)hf_test_redis_command(&redis, "CONFIG SET maxmemory 0");
    expect_a_lock(hf_test_redis_url(&redis, NULL, NULL));
}

static void a_cluster_is_refused(void **state)
{
    const char *const options[] = {"--cluster-enabled", "yes", "--databases",
                                   "1", NULL};

    (void)state;
    start(options);
    expect_refusal(hf_test_redis_url(&redis, NULL, NULL), HF_EUNSUPPORTED,
                   "Cluster");
}

static void a_replica_is_refused(void **state)
{
    struct hf_test_redis replica;
    char port[16];
    const char *const options[] = {"--replicaof", "127.0.0.1", port, NULL};

    (void)state;
    start(NULL);
    (void)snprintf(port, sizeof(port), "%d", redis.port);
    assert_true(hf_test_redis_start(&replica, options));
    expect_refusal(hf_test_redis_url(&replica, NULL, NULL), HF_EUNAVAIL,
                   "READONLY");
    hf_test_redis_stop(&replica);
}

static void malformed_urls_are_refused(void **state)
{
    static const struct {
        const char *url;
        enum hf_err err;
        const char *word;
    } refused[] = {
        {"redis:", HF_EINVAL, "host"},
        {"redis://", HF_EINVAL, "host:port"},
        {"redis://:6379", HF_EINVAL, "host:port"},
        {"redis://h:0", HF_EINVAL, "host:port"},
        {"redis://h:65536", HF_EINVAL, "host:port"},
        {"redis://h:6379x", HF_EINVAL, "host:port"},
        {"redis://[::1", HF_EINVAL, "host:port"},
        {"redis://h/x", HF_EINVAL, "database"},
        {"redis://h/99999", HF_EINVAL, "database"},
        {"redis://user@h", HF_EINVAL, "password"},
        {"redis://h?wait_replicas=x", HF_EINVAL, "wait_replicas"},
        {"redis+unix:x", HF_EINVAL, "socket"},
        {"redis+unix://h/x", HF_EINVAL, "socket"},
        {"redis+unix:///x?db=a", HF_EINVAL, "db"},
    };

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(refused); i++)
        expect_refusal(refused[i].url, refused[i].err, refused[i].word);
}

#ifdef HF_REDIS_TLS
/* Create a self-signed certificate for localhost in `folder`. */
static void make_certificate(const char *folder)
{
    char command[400];

    (void)snprintf(command, sizeof(command),
                   "openssl req -x509 -newkey rsa:2048 -nodes -days 2 "
                   "-subj /CN=localhost -addext subjectAltName=DNS:localhost "
                   "-keyout %s/key -out %s/cert 2>/dev/null",
                   folder, folder);
    assert_int_equal(system(command), 0);
}

static void tls_verifies_the_server(void **state)
{
    char folder[] = HF_TEST_FOLDER;
    char cert[64], key[64], port[16], url[HF_TEST_URL_SIZE];
    const char *const options[] = {"--tls-port",
                                   port,
                                   "--tls-cert-file",
                                   cert,
                                   "--tls-key-file",
                                   key,
                                   "--tls-auth-clients",
                                   "no",
                                   "--tls-ca-cert-file",
                                   cert,
                                   NULL};

    (void)state;
    assert_true(hf_test_folder_make(folder));
    make_certificate(folder);
    (void)snprintf(cert, sizeof(cert), "%s/cert", folder);
    (void)snprintf(key, sizeof(key), "%s/key", folder);
    (void)snprintf(port, sizeof(port), "%d", 20000 + (int)getpid() % 20000);
    start(options);
    (void)snprintf(url, sizeof(url), "rediss://localhost:%s?cacert=%s", port,
                   cert);
    expect_a_lock(url);
    (void)snprintf(url, sizeof(url), "rediss://localhost:%s", port);
    expect_refusal(url, HF_EUNAVAIL, "certificate");
    (void)snprintf(url, sizeof(url), "rediss://127.0.0.1:%s?cacert=%s", port,
                   cert);
    expect_refusal(url, HF_EUNAVAIL, "certificate");
    (void)snprintf(url, sizeof(url), "rediss://localhost:%s?cacert=%s.not",
                   port, cert);
    expect_refusal(url, HF_EINVAL, "cacert");
    (void)snprintf(url, sizeof(url), "rediss://localhost:%s?cert=%s", port,
                   cert);
    expect_refusal(url, HF_EINVAL, "key");
    assert_true(hf_test_folder_remove(folder));
}
#else
static void a_build_without_tls_refuses_rediss(void **state)
{
    (void)state;
    expect_refusal("rediss://localhost", HF_EUNSUPPORTED, "without TLS");
}
#endif

static void a_unix_socket_works(void **state)
{
    char url[HF_TEST_URL_SIZE];

    (void)state;
    start(NULL);
    (void)snprintf(url, sizeof(url), "redis+unix://%s?db=3", redis.socket);
    expect_a_lock(url);
    (void)snprintf(url, sizeof(url), "redis+unix://%s.not", redis.socket);
    expect_refusal(url, HF_EUNAVAIL, "No such file");
}

static void durable_is_reported_if_every_write_is_on_disk(void **state)
{
    const char *const options[] = {"--appendonly", "yes", "--appendfsync",
                                   "everysec", NULL};
    struct hf_client *client;

    (void)state;
    start(options);
    client = hf_test_redis_open(&redis, NULL);
    assert_false(hf_caps(client) & HF_CAP_DURABLE);
    assert_true(hf_caps(client) & HF_CAP_FENCE);
    assert_false(hf_caps(client) & HF_CAP_FAILOVER_SAFE);
    assert_false(hf_caps(client) & HF_CAP_STEADY);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
    (void)hf_test_redis_command(&redis, "CONFIG SET appendfsync always");
    expect_refusal(hf_test_redis_url(&redis, NULL, "?require=failover-safe"),
                   HF_EUNSUPPORTED, "failover-safe");
    client = hf_test_redis_open(&redis, "?require=durable,fence,fifo,push");
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
}

/* Start a process that listens on a free port, and sends `bytes` to each client
 * that connects. Sets `*port`, and returns the pid. */
static pid_t answer_with(const char *bytes, int *port)
{
    int fd = hf_test_listen(port), connection;
    pid_t pid;

    assert_true(fd >= 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (;;) {
            connection = accept(fd, NULL, NULL);
            (void)!write(connection, bytes, strlen(bytes));
        }
    }
    (void)close(fd);
    return pid;
}

static void a_server_that_is_not_redis_is_refused(void **state)
{
    static const char *const replies[] = {
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "$-2\r\n",
        "*9999999999\r\n",
        "+OK\r\n+OK\r\n+OK\r\n+OK\r\n",
        ":1\r\n:1\r\n",
        "-ERR max number of clients reached\r\n",
    };
    char url[HF_TEST_URL_SIZE];
    int port;

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(replies); i++) {
        struct hf_client *client = NULL;
        pid_t pid = answer_with(replies[i], &port);
        enum hf_err err;

        (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%d", port);
        err = hf_open(url, NULL, &client);
        assert_true(err == HF_EPROTO || err == HF_EUNAVAIL);
        assert_null(client);
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
}

/* The length of an array alone must not make the client reserve memory or wait
 * for the elements. */
static void a_huge_array_is_refused_at_once(void **state)
{
    char url[HF_TEST_URL_SIZE];
    int port;
    pid_t pid = answer_with("*2147483647\r\n", &port);

    (void)state;
    (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%d", port);
    expect_refusal(url, HF_EPROTO, "");
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

/* Start a process that listens on a free port, and sends a string that never
 * ends to the first client. Sets `*port`, and returns the pid. */
static pid_t answer_without_end(int *port)
{
    static const char begin[] = "$536870912\r\n";
    static char part[65536];
    int fd = hf_test_listen(port), connection;
    pid_t pid;

    assert_true(fd >= 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        connection = accept(fd, NULL, NULL);
        (void)!write(connection, begin, sizeof(begin) - 1);
        while (write(connection, part, sizeof(part)) > 0)
            ;
        _exit(0);
    }
    (void)close(fd);
    return pid;
}

/* The clock stands still, because a slow machine may not receive as much as the
 * client allows before hf_open() times out. */
static void a_reply_that_never_ends_is_refused(void **state)
{
    char url[HF_TEST_URL_SIZE];
    int port;
    pid_t pid = answer_without_end(&port);

    (void)state;
    (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%d", port);
    stopped_at = hf_time_now();
    expect_refusal(url, HF_EPROTO, "too long");
    stopped_at = 0;
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

static void reserved_keys_are_refused(void **state)
{
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    struct hf_error error;
    struct hf_info info;

    (void)state;
    start(NULL);
    client = hf_test_redis_open(&redis, NULL);
    expect_err(hf_acquire(client, hf_key_of("hf:token"), NULL, &lock),
               HF_EINVAL);
    hf_client_error(client, &error);
    assert_non_null(strstr(error.text, "hf:"));
    expect_err(hf_read(client, hf_key_of("hf:q:k"), HF_LOCAL, &info),
               HF_EINVAL);
    expect_ok(hf_acquire(client, hf_key_of("hf"), NULL, &lock));
    hf_lock_free(lock);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_teardown(name, tear_down)
        CASE(a_password_is_required_and_never_shown),
        CASE(a_missing_permission_is_reported),
        CASE(an_eviction_policy_is_refused),
        CASE(a_cluster_is_refused),
        CASE(a_replica_is_refused),
        cmocka_unit_test(malformed_urls_are_refused),
#ifdef HF_REDIS_TLS
        CASE(tls_verifies_the_server),
#else
        cmocka_unit_test(a_build_without_tls_refuses_rediss),
#endif
        CASE(a_unix_socket_works),
        CASE(durable_is_reported_if_every_write_is_on_disk),
        cmocka_unit_test(a_server_that_is_not_redis_is_refused),
        cmocka_unit_test(a_huge_array_is_refused_at_once),
        cmocka_unit_test(a_reply_that_never_ends_is_refused),
        CASE(reserved_keys_are_refused),
    };

    return hf_test_main("redis opening", cases, HF_TEST_COUNT(cases), 4);
}
