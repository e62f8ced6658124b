/* A child forked beside busy threads can use the library: no mutex that
 * another thread held at the fork blocks it, and it inherits no locks. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "holdfast.h"
#include "lib/folder.h"
#include "lib/runner.h"
#include "lib/sanitized.h"

enum {
    FORKS = 150,
    BUSY = 3,
};

static const char *url;
static atomic_bool stop;

/* ---- What the parent's threads are busy with ----------------------------*/

static void *lock_and_unlock(void *arg)
{
    struct hf_client *client = arg;
    struct hf_lock *lock;

    while (!atomic_load(&stop)) {
        if (hf_lock(client, hf_key("busy"), NULL, &lock) == HF_OK) {
            (void)hf_unlock(lock);
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

/* ---- What the children do -----------------------------------------------*/

static int take_and_give(const char *key)
{
    struct hf_client *client;
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    hf_lock_opts_init(&opts);
    opts.wait_ms = 0;
    if (hf_open(url, NULL, &client))
        return 1;
    if (hf_lock(client, hf_key(key), &opts, &lock))
        return 2;
    if (!hf_valid_for(lock, 0))
        return 3;
    if (hf_unlock(lock))
        return 4;
    hf_lock_free(lock);
    return hf_close(client, 1000) ? 5 : 0;
}

static int use_memory(void)
{
    return take_and_give("held by the parent");
}

static int use_file(void)
{
    return take_and_give("child");
}

/* The set of defaults is an old one or a new one, never half of each. */
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

static void run_beside(void *(*busy[BUSY])(void *), int (*use)(void))
{
    struct hf_client *clients[BUSY];
    pthread_t threads[BUSY];

    hf_test_needs_forks_beside_threads();
    for (int i = 0; i < BUSY; i++) {
        assert_int_equal(hf_open(url, NULL, &clients[i]), HF_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, busy[i], clients[i]),
                         0);
    }
    fork_children(use);
    atomic_store(&stop, true);
    for (int i = 0; i < BUSY; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(hf_close(clients[i], 10000), HF_OK);
    }
}

static void a_child_uses_memory_stores_of_its_own(void **state)
{
    void *(*busy[BUSY])(void *) = {lock_and_unlock, lock_and_unlock,
                                   open_and_close};
    struct hf_client *client;
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    (void)state;
    url = "memory:fork";
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 600000;
    assert_int_equal(hf_open(url, NULL, &client), HF_OK);
    assert_int_equal(
        hf_lock(client, hf_key("held by the parent"), &opts, &lock), HF_OK);
    run_beside(busy, use_memory);
    assert_true(hf_valid_for(lock, 0));
    assert_int_equal(hf_unlock(lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, 1000), HF_OK);
}

static void a_child_opens_a_directory_that_the_parent_uses(void **state)
{
    void *(*busy[BUSY])(void *) = {lock_and_unlock, open_and_close,
                                   open_and_close};

    url = *state;
    run_beside(busy, use_file);
}

static void a_child_reads_and_sets_the_defaults(void **state)
{
    void *(*busy[BUSY])(void *) = {change_defaults, change_defaults,
                                   change_defaults};
    struct hf_lock_opts opts;

    (void)state;
    url = "memory:fork";
    hf_lock_opts_init(&opts);
    opts.timeout_ms = opts.ttl_ms;
    assert_int_equal(hf_lock_opts_set_default(&opts), HF_OK);
    run_beside(busy, use_defaults);
}

/* ---- A directory --------------------------------------------------------*/

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
        cmocka_unit_test(a_child_uses_memory_stores_of_its_own),
        cmocka_unit_test_setup_teardown(
            a_child_opens_a_directory_that_the_parent_uses, make_directory,
            remove_directory),
        cmocka_unit_test(a_child_reads_and_sets_the_defaults),
    };

    return hf_test_main("fork", cases, HF_TEST_COUNT(cases), 0);
}
