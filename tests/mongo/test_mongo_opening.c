/* URLs, their options, and kinds of servers. */
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/mongo_case.h"
#include "lib/runner.h"

static void url_errors_name_the_part(void **state)
{
    (void)state;
    expect_refused("mongodb:host", HF_EINVAL, "server");
    expect_refused("mongodb://", HF_EINVAL, "server");
    expect_refused("mongodb://h/?keep=0", HF_EINVAL, "keep");
    expect_refused("mongodb://h/?keep=1x", HF_EINVAL, "keep");
    expect_refused("mongodb://h/?unsafe=2", HF_EINVAL, "unsafe");
    expect_refused("mongodb://h/?collection=a$b", HF_EINVAL, "collection");
    expect_refused("mongodb://h/?collection=system.x", HF_EINVAL, "collection");
    expect_refused("mongodb://h/?database=a.b", HF_EINVAL, "database");
    expect_refused("mongodb://u:hush@h:0/", HF_EINVAL, "url");
    expect_refused("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200",
                   HF_EUNAVAIL, "mongodb");
}

static void unknown_options_are_refused(void **state)
{
    char url[HF_TEST_MONGO_URL_SIZE];

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    hf_test_mongo_url(&mongo, url, "&colection=x");
    expect_refused(url, HF_EINVAL, "colection");
    hf_test_mongo_url(&mongo, url, "&require=steady");
    expect_refused(url, HF_EUNSUPPORTED, "steady");
}

/* ---- Concerns -----------------------------------------------------------*/

/* The number of commands of each kind in the server's log. */
struct logged {
    unsigned writes, proofs, indexes, reads, streams;
};

static void expect_in_line(const char *line, const char *words)
{
    if (!strstr(line, words))
        fail_msg("%s\nlacks %s", line, words);
}

/* Check one logged command. Reads whose result reaches a caller need the read
 * concern "majority"; a find, which only schedules a retry, uses "local".
 * Writes need the write concern "majority", with journaling. */
static void check_command(const char *line, struct logged *logged)
{
    static const char strict[] =
        "\"writeConcern\":{\"w\":\"majority\",\"j\":true";
    static const char whole[] = "\"whole\":true";
    bool stream = strstr(line, "$changeStream");

    if (strstr(line, "\"command\":{\"aggregate\"")) {
        if (stream || strstr(line, whole))
            expect_in_line(line, "\"readConcern\":{\"level\":\"majority\"");
        logged->streams += stream;
        logged->reads += !stream;
        return;
    }
    if (strstr(line, "\"command\":{\"find\":")) {
        expect_in_line(line, "\"readConcern\":{\"level\":\"local\"");
        return;
    }
    logged->writes += !!strstr(line, "\"command\":{\"findAndModify\"");
    logged->proofs += !!strstr(line, "\"command\":{\"update\"");
    logged->indexes += !!strstr(line, "\"command\":{\"createIndexes\"");
    if (strstr(line, "\"command\":{\"getMore\"") ||
        strstr(line, "\"command\":{\"killCursors\""))
        return;
    expect_in_line(line, strict);
    assert_null(strstr(line, "txnNumber")); /* not a retryable write */
}

static struct logged read_log(void)
{
    struct logged logged = {0};
    char path[128], *line = NULL;
    size_t room = 0;
    FILE *log;

    (void)snprintf(path, sizeof(path), "%s/log", mongo.members[0].folder);
    log = fopen(path, "re");
    assert_non_null(log);
    while (getline(&line, &room, log) > 0)
        if (strstr(line, "\"type\":\"command\",\"ns\":\"holdfast.") &&
            strstr(line, "\"appName\":\"holdfast\""))
            check_command(line, &logged);
    free(line);
    (void)fclose(log);
    return logged;
}

/* Log every command from now on, without truncating it. */
static void log_all_commands(void)
{
    static const char *const commands[] = {
        "{\"setParameter\":1,\"maxLogSizeKB\":100}",
        "{\"profile\":0,\"slowms\":-1}",
    };

    for (unsigned i = 0; i < HF_TEST_COUNT(commands); i++) {
        const char *reply =
            hf_test_mongo_command(&mongo, 0, "admin", commands[i]);

        assert_null(strstr(reply, "(lost)"));
    }
}

/* Send every kind of command: watch, hold, wait, renew, update, read, release
 * and force. */
static void send_all_commands(struct hf_client *client, struct hf_client *other)
{
    struct hf_lock_opts opts = hf_test_opts(60000, 60000, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *future = NULL;
    struct hf_watch *watch = NULL;
    enum hf_err err = HF_ECANCELED;
    struct hf_info info;
    sem_t released;

    assert_int_equal(sem_init(&released, 0, 0), 0);
    expect_ok(hf_watch_open(other, hf_key_of(""), NULL, on_release, &released,
                            &watch));
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL, NULL,
                               &future));
    expect_err(hf_future_wait(future, 200, &err), HF_ETIMEDOUT);
    expect_ok(hf_renew(lock, 0));
    expect_ok(hf_update(lock, NULL, hf_bytes_of("v")));
    expect_ok(hf_read(other, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_int_equal(info.token, hf_lock_token(lock));
    hf_info_fini(&info);
    expect_ok(hf_release(lock));
    expect_ok(hf_future_wait(future, HF_TEST_TIMEOUT_MS, &err));
    expect_ok(err);
    assert_true(is_posted_within(&released, 60));
    expect_ok(hf_force(client, hf_key_of("k"), hf_lock_token(next), true));
    hf_future_free(future);
    hf_watch_close(watch);
    hf_lock_free(lock);
    hf_lock_free(next);
}

/* Whatever the URL says, a majority confirms each write after journaling it,
 * reads return what a majority has, and all commands go to the primary. The
 * replica set of this case has no secondary, so a read from a secondary would
 * fail. */
static void a_url_cannot_weaken_concerns(void **state)
{
    static const char weaker[] =
        "&w=0&journal=false&readConcernLevel=local&retryWrites=true"
        "&readPreference=secondary";
    struct hf_client *client, *other;
    struct logged logged;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    log_all_commands();
    client = hf_test_mongo_open(&mongo, weaker);
    other = hf_test_mongo_open(&mongo, weaker);
    assert_true(hf_caps(client) & HF_CAP_FAILOVER_SAFE);
    send_all_commands(client, other);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
    expect_ok(hf_close(other, HF_TEST_TIMEOUT_MS));
    logged = read_log();
    assert_true(logged.writes >= 7);
    assert_true(logged.proofs > 0 && logged.indexes > 0);
    assert_true(logged.reads > 0 && logged.streams > 0);
}

/* ---- Kinds of server ----------------------------------------------------*/

static void a_standalone_server_needs_unsafe(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, HF_TEST_TIMEOUT_MS, HF_TEST_TIMEOUT_MS);
    char url[HF_TEST_MONGO_URL_SIZE];
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *future = NULL;
    struct hf_info info;
    enum hf_err err = HF_ECANCELED;

    (void)state;
    mongo.standalone = true;
    hf_test_mongo_require(&mongo, 1);
    (void)snprintf(url, sizeof(url), "mongodb://127.0.0.1:%d/",
                   mongo.members[0].port);
    expect_refused(url, HF_EUNSUPPORTED, "unsafe");
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    assert_false(hf_caps(client) & (HF_CAP_FENCE | HF_CAP_FAILOVER_SAFE |
                                    HF_CAP_PUSH | HF_CAP_WATCH));

    /* Grants are not pushed, so waiters poll every second, and not only when
     * the lease expires. */
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_read(other, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_true(info.held);
    hf_info_fini(&info);
    opts.wait_ms = HF_FOREVER;
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL, NULL,
                               &future));
    expect_err(hf_future_wait(future, 200, &err), HF_ETIMEDOUT);
    expect_ok(hf_release(lock));
    expect_ok(hf_future_wait(future, HF_TEST_TIMEOUT_MS, &err));
    expect_ok(err);
    assert_true(hf_lock_token(next) > hf_lock_token(lock));
    hf_future_free(future);
    hf_lock_free(lock);
    hf_lock_free(next);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
    expect_ok(hf_close(other, HF_TEST_TIMEOUT_MS));
}

static void tls_verifies_the_server(void **state)
{
    char url[HF_TEST_MONGO_URL_SIZE], options[128];
    struct hf_client *client;
    struct hf_lock *lock = NULL;

    (void)state;
    mongo.tls = true;
    hf_test_mongo_require(&mongo, 1);
    (void)snprintf(options, sizeof(options), "&tls=true&tlsCAFile=%s/cert",
                   mongo.folder);
    client = hf_test_mongo_open(&mongo, options);
    expect_ok(hf_acquire(client, hf_key_of("k"), NULL, &lock));
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
    hf_test_mongo_url(&mongo, url, "&tls=true&serverSelectionTimeoutMS=4000");
    expect_refused(url, HF_EUNAVAIL, "ertificate");
    hf_test_mongo_url(&mongo, url, "&tls=true&tlsCAFile=/nowhere/cert");
    expect_refused(url, HF_EINVAL, "tlsCAFile");
}

static void dns_errors_name_the_record(void **state)
{
    (void)state;
    expect_refused("mongodb+srv://db.nowhere.invalid/", HF_EUNAVAIL,
                   "_mongodb._tcp.db.nowhere.invalid");
    expect_refused("mongodb+srv://nowhere/", HF_EINVAL, "url");
}

/* ---- Short-lived clients ------------------------------------------------*/

static unsigned count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    unsigned count = 0;

    assert_non_null(tasks);
    for (const struct dirent *entry; (entry = readdir(tasks));)
        count += *entry->d_name != '.';
    (void)closedir(tasks);
    return count;
}

static void *empty_main(void *arg)
{
    return arg;
}

/* Count the threads while there is no client. Start a thread first, because
 * ThreadSanitizer then adds one of its own. */
static unsigned count_own_threads(void)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, empty_main, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return count_threads();
}

/* Returns true if a client that locks and unlocks starts one worker and no
 * other thread. */
static bool has_no_monitors(unsigned before)
{
    struct hf_lock_opts opts = hf_test_opts(60000, 0, 60000);
    struct hf_client *client = hf_test_mongo_open(&mongo, "");
    struct hf_lock *lock = NULL;
    unsigned count;

    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_release(lock));
    count = count_threads();
    hf_lock_free(lock);
    expect_ok(hf_close(client, 10000));
    while (count_threads() > before)
        (void)poll(NULL, 0, 10);
    return count == before + 1;
}

/* libmongoc's monitor threads take half a second to end, so a client does not
 * start them at once, and a client that is closed soon never has any. On a busy
 * machine an attempt may take so long that the client starts them, so try
 * several times. */
static void a_short_lived_client_starts_no_monitors(void **state)
{
    unsigned attempts = 20, before;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    before = count_own_threads();
    while (attempts > 0 && !has_no_monitors(before))
        attempts--;
    assert_true(attempts > 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(url_errors_name_the_part),
        CASE(unknown_options_are_refused),
        CASE(a_url_cannot_weaken_concerns),
        CASE(a_standalone_server_needs_unsafe),
        CASE(tls_verifies_the_server),
        CASE(dns_errors_name_the_record),
        CASE(a_short_lived_client_starts_no_monitors),
    };

    return hf_test_main("mongo opening", cases, HF_TEST_COUNT(cases), 4);
}
