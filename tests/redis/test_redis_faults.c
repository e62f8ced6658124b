/* Faults of a Redis server: clients recover or report an error, and never give
 * a wrong answer. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/redis_client.h"
#include "lib/runner.h"

static struct hf_test_redis redis, replica;
static struct hf_client *client, *other;

static const char *const on_disk[] = {"--appendonly", "yes", "--appendfsync",
                                      "always", NULL};

static void start(const char *const *options)
{
    assert_true(hf_test_redis_start(&redis, options));
    client = hf_test_redis_open(&redis, NULL);
    other = hf_test_redis_open(&redis, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    if (client)
        (void)hf_close(client, 1000);
    if (other)
        (void)hf_close(other, 1000);
    hf_test_redis_stop(&redis);
    if (replica.pid > 0)
        hf_test_redis_stop(&replica);
    return 0;
}

/* Call hf_acquire() until its result is not in doubt. Returns that result. */
static enum hf_err lock_until_answered(struct hf_client *by, const char *key,
                                       const struct hf_lock_opts *opts)
{
    struct hf_lock *none = NULL;
    enum hf_err err;

    do
        err = hf_acquire(by, hf_key_of(key), opts, &none);
    while (err == HF_EINDOUBT);
    hf_lock_free(none);
    return err;
}

/* Take and release a lock, with enough time for a reconnect. Returns the
 * token. */
static uint64_t expect_a_lock(struct hf_client *by, const char *key)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL;
    uint64_t token;

    expect_ok(hf_acquire(by, hf_key_of(key), &opts, &lock));
    token = hf_lock_token(lock);
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    return token;
}

/* Wait until `count` waiters are queued. `future` belongs to the last of them;
 * waiting for it drives its client. */
static void await_waiters(const char *key, int count, struct hf_future *future)
{
    char wanted[16];

    (void)snprintf(wanted, sizeof(wanted), "%d", count);
    while (strcmp(hf_test_redis_command(&redis, "ZCARD hf:q:%s", key),
                  wanted) != 0)
        expect_err(hf_future_wait(future, 5, NULL), HF_ETIMEDOUT);
}

/* ---- Restarts -----------------------------------------------------------*/

static void a_restart_keeps_locks_on_disk(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL, *none = NULL, *next = NULL;
    struct hf_info info;
    uint64_t token;

    (void)state;
    start(on_disk);
    opts.value = hf_bytes_of("v");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    token = hf_lock_token(lock);
    hf_test_redis_kill(&redis);
    assert_true(hf_test_redis_restart(&redis, true));

    expect_ok(hf_renew(lock, 0));
    expect_ok(hf_read(other, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_true(info.held);
    assert_int_equal(info.token, token);
    assert_int_equal(info.value.size, 1);
    hf_info_fini(&info);
    expect_err(hf_acquire(other, hf_key_of("k"), &opts, &none), HF_EBUSY);
    expect_ok(hf_release(lock));
    expect_ok(hf_acquire(other, hf_key_of("k"), &opts, &next));
    assert_true(hf_lock_token(next) > token);
    hf_lock_free(lock);
    hf_lock_free(next);
}

static void a_restart_without_persistence_repeats_no_token(void **state)
{
    uint64_t before, after;

    (void)state;
    start(NULL);
    before = expect_a_lock(client, "k");
    before += expect_a_lock(client, "k") > before;
    hf_test_redis_kill(&redis);
    assert_true(hf_test_redis_restart(&redis, true));
    after = expect_a_lock(client, "k");

    assert_true(after > before);
}

/* The server forgets the grants that were made after the snapshot, but must not
 * repeat their tokens. */
static void an_old_snapshot_repeats_no_token(void **state)
{
    uint64_t last = 0;

    (void)state;
    start(NULL);
    (void)expect_a_lock(client, "k");
    assert_string_equal(hf_test_redis_command(&redis, "SAVE"), "OK");
    for (unsigned i = 0; i < 50; i++)
        last = expect_a_lock(client, "k");
    hf_test_redis_kill(&redis);
    assert_true(hf_test_redis_restart(&redis, true));

    assert_true(expect_a_lock(client, "k") > last);
}

/* All data is deleted while the clients stay connected, so no handshake raises
 * the token counter. */
static void a_flushed_server_repeats_no_token(void **state)
{
    uint64_t before;

    (void)state;
    start(NULL);
    before = expect_a_lock(client, "k");
    assert_string_equal(hf_test_redis_command(&redis, "FLUSHALL"), "OK");

    assert_true(expect_a_lock(client, "k") > before);
}

/* The server has no persistence. The holder notices the loss at its next
 * renewal. */
static void the_holder_learns_that_a_restart_lost_its_lock(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL;

    (void)state;
    start(NULL);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    hf_test_redis_kill(&redis);
    assert_true(hf_test_redis_restart(&redis, true));

    expect_err(hf_renew(lock, 0), HF_EEXPIRED);
    assert_false(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
}

static void waiters_survive_a_restart(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, HF_FOREVER, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;

    (void)state;
    start(on_disk);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL, NULL,
                               &future));
    expect_err(hf_future_wait(future, 300, &err), HF_ETIMEDOUT);
    hf_test_redis_kill(&redis);
    assert_true(hf_test_redis_restart(&redis, true));
    expect_ok(hf_release(lock));

    expect_ok(hf_future_wait(future, HF_TEST_TIMEOUT_MS, &err));
    expect_ok(err);
    assert_true(hf_lock_token(next) > hf_lock_token(lock));
    hf_future_free(future);
    hf_lock_free(lock);
    hf_lock_free(next);
}

static void an_unreachable_server_is_reported(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 0, 300);
    struct hf_lock *none = NULL;

    (void)state;
    start(NULL);
    hf_test_redis_kill(&redis);
    expect_err(hf_acquire(client, hf_key_of("k"), &opts, &none), HF_EINDOUBT);
    expect_err(hf_acquire(client, hf_key_of("k"), &opts, &none), HF_EUNAVAIL);
    expect_error_text(client, "refused");
    assert_true(hf_test_redis_restart(&redis, true));
    (void)expect_a_lock(client, "k");
}

/* The client writes to a closed connection before it notices that the server
 * closed it. */
static void a_closed_connection_raises_no_sigpipe(void **state)
{
    struct hf_future *futures[8] = {0};
    struct hf_lock *locks[8] = {0};

    (void)state;
    start(NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)hf_fd(client); /* now nobody drives the client or reads the EOF */
    (void)hf_test_redis_command(&redis, "CLIENT KILL TYPE normal SKIPME yes");
    for (unsigned i = 0; i < HF_TEST_COUNT(futures); i++) {
        expect_ok(hf_acquire_start(client, hf_key_of("k"), NULL, &locks[i],
                                   NULL, NULL, &futures[i]));
        (void)poll(NULL, 0, 5);
    }
    for (unsigned i = 0; i < HF_TEST_COUNT(futures); i++) {
        hf_future_cancel(futures[i]);
        hf_future_free(futures[i]);
    }
}

/* ---- Connections --------------------------------------------------------*/

static void killed_connections_are_reestablished(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, HF_FOREVER, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;

    (void)state;
    start(NULL);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL, NULL,
                               &future));
    await_waiters("k", 1, future);
    (void)hf_test_redis_command(&redis, "CLIENT KILL TYPE pubsub");
    (void)hf_test_redis_command(&redis, "CLIENT KILL TYPE normal SKIPME yes");
    expect_ok(hf_release(lock));

    expect_ok(hf_future_wait(future, HF_TEST_TIMEOUT_MS, &err));
    expect_ok(err);
    hf_future_free(future);
    hf_lock_free(lock);
    hf_lock_free(next);
}

/* The waiter polls by repeating its LOCK, and the reply contains the grant. */
static void a_lost_grant_message_is_recovered_by_polling(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, HF_FOREVER, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;

    (void)state;
    start(NULL);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL, NULL,
                               &future));
    await_waiters("k", 1, future);
    (void)hf_test_redis_command(&redis, "CLIENT KILL TYPE pubsub");
    expect_ok(hf_release(lock)); /* the waiter has no subscription */

    expect_ok(hf_future_wait(future, HF_TEST_TIMEOUT_MS, &err));
    expect_ok(err);
    hf_future_free(future);
    hf_lock_free(lock);
    hf_lock_free(next);
}

struct seen {
    unsigned granted, released;
};

static void count_event(const struct hf_event *event, void *arg)
{
    struct seen *seen = arg;

    seen->granted += event->kind == HF_EVENT_GRANTED;
    seen->released += event->kind == HF_EVENT_RELEASED;
}

static void a_watch_receives_events_after_a_reconnect(void **state)
{
    struct seen seen = {0};
    struct hf_watch *watch = NULL;

    (void)state;
    start(NULL);
    (void)hf_fd(other);
    expect_ok(
        hf_watch_open(other, hf_key_of(""), NULL, count_event, &seen, &watch));
    (void)hf_test_redis_command(&redis, "CLIENT KILL TYPE pubsub");
    (void)expect_a_lock(client, "k");
    while (seen.granted < 1 || seen.released < 1) {
        struct pollfd fd = {.fd = hf_fd(other), .events = POLLIN};

        (void)poll(&fd, 1, 1000);
        expect_ok(hf_process(other));
    }
    (void)hf_test_redis_command(&redis, "CLIENT KILL TYPE normal SKIPME yes");
    (void)expect_a_lock(client, "k");
    while (seen.granted < 2 || seen.released < 2) {
        struct pollfd fd = {.fd = hf_fd(other), .events = POLLIN};

        (void)poll(&fd, 1, 1000);
        expect_ok(hf_process(other));
    }
    hf_watch_close(watch);
}

/* A client has one pub/sub connection, no matter how many waiters it has. */
static void many_waiters_share_one_subscription(void **state)
{
    enum {
        WAITERS = 20
    };
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, HF_FOREVER, HF_TEST_TIMEOUT_MS);
    struct hf_future *futures[WAITERS];
    struct hf_lock *held[WAITERS], *none[WAITERS];
    char key[8];
    unsigned pubsub = 0;

    (void)state;
    start(NULL);
    for (unsigned i = 0; i < WAITERS; i++) {
        (void)snprintf(key, sizeof(key), "k%u", i);
        expect_ok(hf_acquire(client, hf_key_of(key), &opts, &held[i]));
        expect_ok(hf_acquire_start(other, hf_key_of(key), &opts, &none[i], NULL,
                                   NULL, &futures[i]));
    }
    await_waiters("k19", 1, futures[WAITERS - 1]);
    for (const char *at = hf_test_redis_command(&redis, "CLIENT LIST");
         (at = strstr(at, " sub=1")); at++)
        pubsub++;

    assert_int_equal(pubsub, 1);
    for (unsigned i = 0; i < WAITERS; i++) {
        hf_future_cancel(futures[i]);
        hf_future_free(futures[i]);
        hf_lock_free(held[i]);
    }
}

/* ---- A busy server ------------------------------------------------------*/

/* Thread: keep the server busy with `command`, which blocks it. */
static void *slow_command_main(void *command)
{
    char text[160];

    /* Run redis-cli, because hf_test_redis_command() is not thread-safe. */
    (void)snprintf(text, sizeof(text), "redis-cli -s %s %s >/dev/null 2>&1",
                   redis.socket, (const char *)command);
    (void)!system(text);
    return NULL;
}

static void a_sleeping_server_is_waited_for(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    char command[] = "DEBUG SLEEP 1";
    struct hf_lock *lock = NULL;
    pthread_t thread;

    (void)state;
    start(NULL);
    assert_int_equal(pthread_create(&thread, NULL, slow_command_main, command),
                     0);
    for (unsigned i = 0; i < 30; i++) {
        expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
        assert_true(hf_lock_valid_for(lock, 0));
        expect_ok(hf_release(lock));
        hf_lock_free(lock);
        (void)poll(NULL, 0, 10);
    }
    (void)pthread_join(thread, NULL);
}

/* While the server sleeps, it receives no heartbeats. No waiter may lose its
 * position because of that. */
static void a_sleeping_server_keeps_the_queue_in_order(void **state)
{
    enum {
        WAITERS = 10
    };
    struct hf_lock_opts opts = hf_test_opts(1000, HF_FOREVER, 20000);
    struct hf_client *clients[WAITERS];
    struct hf_future *futures[WAITERS];
    struct hf_lock *lock = NULL, *locks[WAITERS];
    uint64_t before;

    (void)state;
    start(NULL);
    opts.ttl_ms = 60000;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    for (int i = 0; i < WAITERS; i++) {
        clients[i] = hf_test_redis_open(&redis, NULL);
        opts.ttl_ms = 500; /* a heartbeat every 20 ms, so silence shows soon */
        opts.on_event = NULL;
        expect_ok(hf_acquire_start(clients[i], hf_key_of("k"), &opts, &locks[i],
                                   NULL, NULL, &futures[i]));
        await_waiters("k", i + 1, futures[i]);
    }
    before = hf_lock_token(lock);
    /* Nobody drives the waiters' clients, so they send no heartbeats for two
     * seconds. */
    (void)hf_test_redis_command(&redis, "DEBUG SLEEP 2");
    expect_ok(hf_release(lock));
    for (int i = 0; i < WAITERS; i++) {
        enum hf_err err = HF_ECANCELED;

        expect_ok(hf_future_wait(futures[i], HF_TEST_TIMEOUT_MS, &err));
        expect_ok(err);
        assert_true(hf_lock_token(locks[i]) > before);
        before = hf_lock_token(locks[i]);
        (void)hf_release(locks[i]);
        hf_future_free(futures[i]);
        hf_lock_free(locks[i]);
    }
    for (int i = 0; i < WAITERS; i++)
        (void)hf_close(clients[i], 1000);
    hf_lock_free(lock);
}

static void a_busy_server_is_reported(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 0, 1500);
    char command[] = "EVAL 'while true do end' 0";
    pthread_t thread;

    (void)state;
    start(NULL);
    (void)hf_test_redis_command(&redis, "CONFIG SET busy-reply-threshold 50");
    assert_int_equal(pthread_create(&thread, NULL, slow_command_main, command),
                     0);
    while (strncmp(hf_test_redis_command(&redis, "GET x"), "(error) BUSY",
                   12) != 0)
        (void)poll(NULL, 0, 10);
    expect_err(lock_until_answered(client, "k", &opts), HF_EUNAVAIL);
    expect_error_text(client, "BUSY");
    (void)hf_test_redis_command(&redis, "SCRIPT KILL");
    (void)pthread_join(thread, NULL);
    (void)expect_a_lock(client, "k");
}

static void a_loading_server_is_waited_for(void **state)
{
    (void)state;
    start(on_disk);
    (void)hf_test_redis_command(&redis, "DEBUG POPULATE 3000");
    (void)hf_test_redis_command(&redis, "BGREWRITEAOF");
    while (!strstr(hf_test_redis_command(&redis, "INFO persistence"),
                   "aof_rewrite_in_progress:0") ||
           !strstr(hf_test_redis_command(&redis, "INFO persistence"),
                   "aof_rewrite_scheduled:0"))
        (void)poll(NULL, 0, 10);
    hf_test_redis_kill(&redis);
    (void)strcpy(redis.options[4], "--key-load-delay");
    (void)strcpy(redis.options[5], "500");
    assert_true(hf_test_redis_restart(&redis, false));
    while (!strncmp(hf_test_redis_command(&redis, "GET x"), "(lost)", 6))
        (void)poll(NULL, 0, 5);
    /* Both an existing client and a new client get the lock. */
    (void)expect_a_lock(client, "k");
    (void)hf_close(other, 1000);
    other = hf_test_redis_open(&redis, NULL);
    (void)expect_a_lock(other, "k");
}

static void flushed_scripts_are_loaded_again(void **state)
{
    struct hf_lock *lock = NULL;

    (void)state;
    start(NULL);
    expect_ok(hf_acquire(client, hf_key_of("k"), NULL, &lock));
    assert_string_equal(hf_test_redis_command(&redis, "SCRIPT FLUSH"), "OK");
    expect_ok(hf_release(lock));
    assert_string_equal(hf_test_redis_command(&redis, "SCRIPT FLUSH"), "OK");
    (void)expect_a_lock(client, "k");
    hf_lock_free(lock);
}

/* ---- A server that refuses ----------------------------------------------*/

static void a_full_server_is_reported_and_releases_locks(void **state)
{
    struct hf_lock_opts brief = hf_test_opts(10000, 0, 300);
    struct hf_lock *lock = NULL;

    (void)state;
    start(NULL);
    expect_ok(hf_acquire(client, hf_key_of("k"), NULL, &lock));
    (void)hf_test_redis_command(&redis, "CONFIG SET maxmemory 1");
    expect_err(lock_until_answered(client, "l", &brief), HF_EUNAVAIL);
    expect_error_text(client, "OOM");
    expect_ok(hf_release(lock));
    (void)hf_test_redis_command(&redis, "CONFIG SET maxmemory 0");
    (void)expect_a_lock(client, "l");
    hf_lock_free(lock);
}

/* The password changes while the client is connected. */
static void a_changed_password_is_reported(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 0, 1000);
    struct hf_lock *none = NULL;

    (void)state;
    start(NULL);
    (void)hf_test_redis_command(&redis, "CONFIG SET requirepass sesame");
    (void)strcpy(redis.options[0], "--requirepass");
    (void)strcpy(redis.options[1], "sesame");
    (void)hf_test_redis_command(&redis, "CLIENT KILL TYPE normal SKIPME yes");
    (void)hf_acquire(client, hf_key_of("k"), &opts, &none);
    expect_err(lock_until_answered(client, "k", &opts), HF_EUNAVAIL);
    expect_error_text(client, "NOAUTH");
}

static void a_key_of_another_type_is_reported(void **state)
{
    struct hf_lock *none = NULL;
    struct hf_info info;

    (void)state;
    start(NULL);
    (void)hf_test_redis_command(&redis, "HSET k a b");
    expect_err(hf_acquire(client, hf_key_of("k"), NULL, &none), HF_EINVAL);
    expect_error_text(client, "'k' holds a hash");
    expect_err(hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info),
               HF_EINVAL);
    expect_error_text(client, "'k' holds a hash");
}

/* ---- Replicas -----------------------------------------------------------*/

static void start_replica(void)
{
    char port[16];
    const char *const options[] = {"--replicaof", "127.0.0.1", port, NULL};

    (void)snprintf(port, sizeof(port), "%d", redis.port);
    assert_true(hf_test_redis_start(&replica, options));
    while (!strstr(hf_test_redis_command(&replica, "INFO replication"),
                   "master_link_status:up"))
        (void)poll(NULL, 0, 10);
}

static void a_demoted_master_is_refused(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 0, 1000);
    struct hf_client *new_client;
    uint64_t before;

    (void)state;
    start(NULL);
    start_replica();
    before = expect_a_lock(client, "k");
    assert_string_equal(hf_test_redis_command(&redis, "FAILOVER"), "OK");
    while (!strstr(hf_test_redis_command(&replica, "INFO replication"),
                   "role:master"))
        (void)poll(NULL, 0, 10);
    while (!strstr(hf_test_redis_command(&redis, "INFO replication"),
                   "role:slave"))
        (void)poll(NULL, 0, 10);
    expect_err(lock_until_answered(client, "k", &opts), HF_EUNAVAIL);
    expect_error_text(client, "READONLY");

    new_client = hf_test_redis_open(&replica, NULL);
    assert_true(expect_a_lock(new_client, "k") > before);
    expect_ok(hf_close(new_client, HF_TEST_TIMEOUT_MS));
}

/* Start a sentinel that monitors both servers. It dies with the test. */
static pid_t start_sentinel(void)
{
    char path[sizeof(replica.folder) + 16];
    FILE *file;
    pid_t pid;

    (void)snprintf(path, sizeof(path), "%s/sentinel", replica.folder);
    file = fopen(path, "w");
    assert_non_null(file);
    (void)fprintf(file,
                  "port 0\nunixsocket %s.socket\nlogfile %s.log\n"
                  "sentinel monitor m 127.0.0.1 %d 1\n"
                  "sentinel down-after-milliseconds m 300\n"
                  "sentinel failover-timeout m 5000\n",
                  path, path, redis.port);
    (void)fclose(file);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)execlp("redis-sentinel", "redis-sentinel", path, (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* The master is killed, and a sentinel promotes the replica. The replica
 * refused clients before, and grants locks now, without repeating a token. */
static void a_promoted_replica_grants_locks(void **state)
{
    struct hf_client *none = NULL, *new_client;
    uint64_t before;
    pid_t sentinel;

    (void)state;
    start(NULL);
    start_replica();
    before = expect_a_lock(client, "k");
    expect_err(hf_open(hf_test_redis_url(&replica, NULL, NULL), NULL, &none),
               HF_EUNAVAIL);
    sentinel = start_sentinel();
    while (!strstr(hf_test_redis_command(&replica, "CLIENT LIST"), "sentinel"))
        (void)poll(NULL, 0, 20); /* until the sentinel knows the replica */
    hf_test_redis_kill(&redis);
    while (!strstr(hf_test_redis_command(&replica, "INFO replication"),
                   "role:master"))
        (void)poll(NULL, 0, 20);

    new_client = hf_test_redis_open(&replica, NULL);
    assert_true(expect_a_lock(new_client, "k") > before);
    expect_ok(hf_close(new_client, HF_TEST_TIMEOUT_MS));
    (void)kill(sentinel, SIGKILL);
    (void)waitpid(sentinel, NULL, 0);
}

static void too_few_replicas_are_an_error(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 0, 600);
    struct hf_client *replicated;
    struct hf_lock *none = NULL;
    struct hf_error error;

    (void)state;
    start(NULL);
    replicated = hf_test_redis_open(&redis, "?wait_replicas=1");
    do { /* on a busy machine the error may have another cause */
        expect_err(hf_acquire(replicated, hf_key_of("k"), &opts, &none),
                   HF_EINDOUBT);
        hf_client_error(replicated, &error);
    } while (!strstr(error.text, "replicas"));
    start_replica();
    (void)expect_a_lock(replicated, "l");
    (void)kill(replica.pid, SIGSTOP);
    expect_err(hf_acquire(replicated, hf_key_of("m"), &opts, &none),
               HF_EINDOUBT);
    (void)kill(replica.pid, SIGCONT);
    (void)expect_a_lock(replicated, "n");
    (void)hf_close(replicated, 1000);
}

/* The grant that a waiter receives by message was written on another client's
 * connection, so WAIT on the waiter's own connection does not cover the grant.
 * So the waiter renews its lock first, and the replicas must confirm the
 * renewal. */
static void a_granted_waiter_waits_for_the_replicas(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, HF_FOREVER, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *future = NULL;
    struct hf_client *replicated;
    char token[32];
    enum hf_err err = HF_ECANCELED;

    (void)state;
    start(NULL);
    start_replica();
    replicated = hf_test_redis_open(&redis, "?wait_replicas=1");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_acquire_start(replicated, hf_key_of("k"), &opts, &next, NULL,
                               NULL, &future));
    await_waiters("k", 1, future);
    (void)kill(replica.pid, SIGSTOP);
    expect_ok(hf_release(lock));
    expect_err(hf_future_wait(future, 400, &err), HF_ETIMEDOUT);
    (void)kill(replica.pid, SIGCONT);
    expect_ok(hf_future_wait(future, HF_TEST_TIMEOUT_MS, &err));
    expect_ok(err);
    (void)snprintf(token, sizeof(token), "hf1 %llu ",
                   (unsigned long long)hf_lock_token(next));
    assert_int_equal(
        strncmp(hf_test_redis_command(&replica, "GET k"), token, strlen(token)),
        0);
    hf_future_free(future);
    hf_lock_free(lock);
    hf_lock_free(next);
    (void)hf_close(replicated, 1000);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_teardown(name, tear_down)
        CASE(a_restart_keeps_locks_on_disk),
        CASE(a_restart_without_persistence_repeats_no_token),
        CASE(an_old_snapshot_repeats_no_token),
        CASE(a_flushed_server_repeats_no_token),
        CASE(the_holder_learns_that_a_restart_lost_its_lock),
        CASE(waiters_survive_a_restart),
        CASE(an_unreachable_server_is_reported),
        CASE(a_closed_connection_raises_no_sigpipe),
        CASE(killed_connections_are_reestablished),
        CASE(a_lost_grant_message_is_recovered_by_polling),
        CASE(a_watch_receives_events_after_a_reconnect),
        CASE(many_waiters_share_one_subscription),
        CASE(a_sleeping_server_is_waited_for),
        CASE(a_sleeping_server_keeps_the_queue_in_order),
        CASE(a_busy_server_is_reported),
        CASE(a_loading_server_is_waited_for),
        CASE(flushed_scripts_are_loaded_again),
        CASE(a_full_server_is_reported_and_releases_locks),
        CASE(a_changed_password_is_reported),
        CASE(a_key_of_another_type_is_reported),
        CASE(a_demoted_master_is_refused),
        CASE(a_promoted_replica_grants_locks),
        CASE(too_few_replicas_are_an_error),
        CASE(a_granted_waiter_waits_for_the_replicas),
    };

    return hf_test_main("redis faults", cases, HF_TEST_COUNT(cases), 4);
}
