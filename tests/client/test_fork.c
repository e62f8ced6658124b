/* fork() in a process with busy threads: the child can use the library, is not
 * blocked by a mutex that was locked during the fork, and inherits no locks. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "holdfast.h"
#include "lib/folder.h"
#include "lib/runner.h"
#include "lib/sanitized.h"

enum {
    FORKS = 150,
    BUSY_THREADS = 3,
};

static const char *url;
static atomic_bool stop;

/* ---- Threads of the parent ----------------------------------------------*/

static void *lock_and_unlock(void *arg)
{
    struct hf_client *client = arg;
    struct hf_lock *lock;

    while (!atomic_load(&stop)) {
        if (hf_acquire(client, hf_key_of("busy"), NULL, &lock) == HF_OK) {
            (void)hf_release(lock);
            hf_lock_free(lock);
        }
    }
    return NULL;
}

static void *open_and_close(void *arg)
{
    struct hf_client *client;

    (void)arg;
    while (!atomic_load(&stop)) {
        if (hf_open(url, NULL, &client) == HF_OK)
            (void)hf_close(client, 1000);
    }
    return NULL;
}

static void *change_defaults(void *arg)
{
    struct hf_lock_opts opts;

    (void)arg;
    hf_lock_opts_init(&opts);
    for (uint32_t i = 1; !atomic_load(&stop); i++) {
        opts.ttl_ms = 1000 + i % 2 * 1000;
        opts.timeout_ms = opts.ttl_ms;
        (void)hf_lock_opts_set_default(&opts);
    }
    return NULL;
}

/* ---- Children -----------------------------------------------------------*/

static int acquire_and_release(const char *key)
{
    struct hf_client *client;
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    hf_lock_opts_init(&opts);
    opts.wait_ms = 0;
    if (hf_open(url, NULL, &client))
        return 1;
    if (hf_acquire(client, hf_key_of(key), &opts, &lock))
        return 2;
    if (!hf_lock_valid_for(lock, 0))
        return 3;
    if (hf_release(lock))
        return 4;
    hf_lock_free(lock);
    return hf_close(client, 1000) ? 5 : 0;
}

static int use_memory(void)
{
    return acquire_and_release("held by the parent");
}

static int use_file(void)
{
    return acquire_and_release("child");
}

/* The child must see either the old defaults or the new defaults, never a
 * mixture. In both, ttl_ms equals timeout_ms. */
static int use_defaults(void)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    if (opts.ttl_ms != opts.timeout_ms)
        return 1;
    if (hf_lock_opts_set_default(NULL))
        return 2;
    hf_lock_opts_init(&opts);
    return opts.ttl_ms == 10000 ? 0 : 3;
}

/* ---- Cases --------------------------------------------------------------*/

static void fork_children(int (*use)(void))
{
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        int status;

        assert_true(pid >= 0);
        if (pid == 0)
            _exit(use());
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static void fork_beside_threads(void *(*busy[BUSY_THREADS])(void *),
                                int (*use)(void))
{
    struct hf_client *clients[BUSY_THREADS];
    pthread_t threads[BUSY_THREADS];

    hf_test_needs_forks_beside_threads();
    for (int i = 0; i < BUSY_THREADS; i++) {
        assert_int_equal(hf_open(url, NULL, &clients[i]), HF_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, busy[i], clients[i]),
                         0);
    }
    fork_children(use);
    atomic_store(&stop, true);
    for (int i = 0; i < BUSY_THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(hf_close(clients[i], 10000), HF_OK);
    }
}

static void a_child_has_its_own_memory_stores(void **state)
{
    void *(*busy[BUSY_THREADS])(void *) = {lock_and_unlock, lock_and_unlock,
                                           open_and_close};
    struct hf_client *client;
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    (void)state;
    hf_test_needs_forks_beside_threads();
    url = "memory:fork";
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 600000;
    assert_int_equal(hf_open(url, NULL, &client), HF_OK);
    assert_int_equal(
        hf_acquire(client, hf_key_of("held by the parent"), &opts, &lock),
        HF_OK);
    fork_beside_threads(busy, use_memory);
    assert_true(hf_lock_valid_for(lock, 0));
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, 1000), HF_OK);
}

static void a_child_opens_a_directory_that_the_parent_uses(void **state)
{
    void *(*busy[BUSY_THREADS])(void *) = {lock_and_unlock, open_and_close,
                                           open_and_close};

    url = *state;
    fork_beside_threads(busy, use_file);
}

static void a_child_reads_and_sets_the_defaults(void **state)
{
    void *(*busy[BUSY_THREADS])(void *) = {change_defaults, change_defaults,
                                           change_defaults};
    struct hf_lock_opts opts;

    (void)state;
    url = "memory:fork";
    hf_lock_opts_init(&opts);
    opts.timeout_ms = opts.ttl_ms;
    assert_int_equal(hf_lock_opts_set_default(&opts), HF_OK);
    fork_beside_threads(busy, use_defaults);
}

/* ---- Forks inside callbacks ---------------------------------------------*/

enum {
    READS = 3
};

static struct hf_info infos[READS];
static atomic_uint answered;
static pid_t parent;
static _Atomic pid_t child;

/* The first callback forks, and returns in both processes. */
static void fork_in_callback(enum hf_err err, void *arg)
{
    (void)err;
    (void)arg;
    if (atomic_fetch_add(&answered, 1) == 0)
        atomic_store(&child, fork());
}

static void start_reads(struct hf_client *client)
{
    parent = getpid();
    for (unsigned i = 0; i < READS; i++)
        assert_int_equal(hf_read_start(client, hf_key_of("k"), HF_LOCAL,
                                       &infos[i], fork_in_callback, NULL, NULL),
                         HF_OK);
}

static bool is_child(void)
{
    return getpid() != parent;
}

/* Wait until the child has exited with the status `expected`, and until the
 * parent has run all callbacks: the child runs only the first one. */
static void check_child(int expected)
{
    int status;

    while (atomic_load(&child) == 0)
        (void)usleep(1000);
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), expected);
    while (atomic_load(&answered) < READS)
        (void)usleep(1000);
    for (unsigned i = 0; i < READS; i++)
        hf_info_fini(&infos[i]);
}

static void a_child_forked_in_a_callback_leaves_hf_process(void **state)
{
    struct hf_client *client;
    enum hf_err err;

    (void)state;
    assert_int_equal(hf_open("memory:fork", NULL, &client), HF_OK);
    start_reads(client);
    err = hf_process(client);
    if (is_child())
        _exit(err == HF_EFORK && answered == 1 ? 7 : 1);
    assert_int_equal(err, HF_OK);
    check_child(7);
    assert_int_equal(hf_close(client, 1000), HF_OK);
}

static void a_child_forked_in_a_callback_leaves_a_blocking_call(void **state)
{
    struct hf_client *client;
    struct hf_info info;
    enum hf_err err;

    (void)state;
    assert_int_equal(hf_open("memory:fork", NULL, &client), HF_OK);
    start_reads(client);
    err = hf_wait_held(client, hf_key_of("k"), 100, &info);
    if (is_child())
        _exit(err == HF_EFORK && answered == 1 ? 7 : 1);
    assert_int_equal(err, HF_ETIMEDOUT);
    check_child(7);
    assert_int_equal(hf_close(client, 1000), HF_OK);
}

static void a_child_forked_in_a_callback_leaves_hf_close(void **state)
{
    struct hf_client *client;
    enum hf_err err;

    (void)state;
    assert_int_equal(hf_open("memory:fork", NULL, &client), HF_OK);
    start_reads(client);
    err = hf_close(client, 1000);
    if (is_child())
        _exit(err == HF_EFORK && answered == 1 ? 7 : 1);
    assert_int_equal(err, HF_OK);
    check_child(7);
}

/* A background thread has no call that could return HF_EFORK, so the child must
 * exit. */
static void a_child_forked_in_a_background_thread_exits(void **state)
{
    struct hf_client_opts opts;
    struct hf_client *client;

    (void)state;
    hf_test_needs_forks_beside_threads();
    hf_client_opts_init(&opts);
    opts.background = true;
    assert_int_equal(hf_open("memory:fork", &opts, &client), HF_OK);
    start_reads(client);
    check_child(EXIT_FAILURE);
    assert_int_equal(hf_close(client, 1000), HF_OK);
}

/* ---- The directory of a file: store -------------------------------------*/

static char directory[] = HF_TEST_FOLDER;
static char file_url[sizeof(directory) + sizeof("file:")];

static int make_directory(void **state)
{
    if (!hf_test_folder_make(directory))
        return -1;
    (void)snprintf(file_url, sizeof(file_url), "file:%s", directory);
    *state = file_url;
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    return hf_test_folder_remove(directory) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_child_has_its_own_memory_stores),
        cmocka_unit_test_setup_teardown(
            a_child_opens_a_directory_that_the_parent_uses, make_directory,
            remove_directory),
        cmocka_unit_test(a_child_reads_and_sets_the_defaults),
        cmocka_unit_test(a_child_forked_in_a_callback_leaves_hf_process),
        cmocka_unit_test(a_child_forked_in_a_callback_leaves_a_blocking_call),
        cmocka_unit_test(a_child_forked_in_a_callback_leaves_hf_close),
        cmocka_unit_test(a_child_forked_in_a_background_thread_exits),
    };

    return hf_test_main("fork", cases, HF_TEST_COUNT(cases), 0);
}
