/* A process that stops in the critical section blocks all others: they report
 * its pid, and continue as soon as it continues or is killed. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/expect.h"
#include "lib/site.h"
#include "strategy/file/arena.h"

#define SHORT_MS 500
#define LONG_MS 60000 /* far longer than any case takes */

static atomic_int *helper; /* pid of the culprit's child; NULL: none */

/* Fork a helper, which inherits the lock on the culprit's slot. */
static void fork_helper(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        for (;;)
            (void)pause();
    }
    atomic_store(helper, pid);
}

/* Stop in the critical section. Fork a helper before that if `arg` is not
 * NULL. */
static void culprit_main(void *arg)
{
    struct hf_arena arena;
    struct hf_error error = {.text = ""};
    pid_t other;

    if (hf_arena_open(&arena, hf_site_path("locks"), 0700, &error))
        fail_msg("%s", error.text);
    assert_int_equal(hf_arena_lock(&arena, &other), HF_ARENA_LOCKED);
    if (arg)
        fork_helper();
    assert_int_equal(raise(SIGSTOP), 0);
    hf_arena_unlock(&arena);
    hf_arena_close(&arena);
}

static pid_t start_culprit(void)
{
    pid_t pid = hf_child_start(culprit_main, helper);

    hf_child_await_stop(pid);
    return pid;
}

static struct hf_lock_opts timeout_opts(uint32_t ms)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.timeout_ms = ms;
    return opts;
}

static void expect_named(const struct hf_error *error, pid_t culprit)
{
    char words[32];

    (void)snprintf(words, sizeof(words), "process %ld ", (long)culprit);
    if (!strstr(error->text, words) ||
        !strstr(error->text, hf_site_path("locks")))
        fail_msg("\"%s\" does not contain \"%s\"", error->text, words);
}

static void callers_get_the_pid_of_a_stopped_process(void **state)
{
    struct hf_client *client = hf_site_open();
    struct hf_lock_opts opts = timeout_opts(SHORT_MS);
    struct hf_error error = {.text = ""};
    struct hf_lock *held, *lock;
    enum hf_err err;
    pid_t culprit;

    (void)state;
    while ((err = hf_acquire(client, hf_key_of("held"), &opts, &held)) ==
           HF_EUNAVAIL)
        continue; /* the machine may be too busy for SHORT_MS */
    assert_int_equal(err, HF_OK);
    culprit = start_culprit();
    opts.error = &error;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock),
                     HF_EUNAVAIL);
    expect_named(&error, culprit);
    assert_int_equal(hf_renew(held, 0), HF_EUNAVAIL);
    hf_client_error(client, &error);
    expect_named(&error, culprit);
    hf_child_kill(culprit);
    while ((err = hf_release(held)) == HF_EUNAVAIL)
        continue;
    assert_int_equal(err, HF_OK);
    hf_lock_free(held);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

static void opening_reports_the_pid_of_a_stopped_process(void **state)
{
    struct hf_error error = {.text = ""};
    struct hf_client *client;
    pid_t culprit = start_culprit();

    (void)state;
    assert_int_equal(hf_site_try("locks", "", &error, &client), HF_EUNAVAIL);
    expect_named(&error, culprit);
}

/* A lock that is requested while the culprit is stopped is granted after
 * `end`. */
static void expect_to_continue(void (*end)(pid_t culprit))
{
    struct hf_client *client = hf_site_open();
    struct hf_lock_opts opts = timeout_opts(LONG_MS);
    pid_t culprit = start_culprit();
    struct hf_future *future;
    struct hf_lock *lock;
    enum hf_err err = HF_ESTATE;

    assert_int_equal(hf_acquire_start(client, hf_key_of("k"), &opts, &lock,
                                      NULL, NULL, &future),
                     HF_OK);
    assert_int_equal(hf_future_wait(future, SHORT_MS, NULL), HF_ETIMEDOUT);
    end(culprit);
    assert_int_equal(hf_future_wait(future, LONG_MS, &err), HF_OK);
    assert_int_equal(err, HF_OK);
    assert_int_equal(hf_release(lock), HF_OK);
    hf_future_free(future);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

static void continue_and_join(pid_t culprit)
{
    hf_child_continue(culprit);
    hf_child_join(culprit);
}

static void callers_continue_when_the_process_continues(void **state)
{
    (void)state;
    expect_to_continue(continue_and_join);
}

static void callers_continue_when_the_process_is_killed(void **state)
{
    (void)state;
    expect_to_continue(hf_child_kill);
}

/* The helper keeps the slot locked, and the pid is not free before the zombie
 * is reaped. So neither the slot nor the pid shows that the culprit is dead. */
static void callers_continue_when_the_process_is_a_zombie(void **state)
{
    struct hf_client *client = hf_site_open();
    struct hf_lock_opts opts = timeout_opts(LONG_MS);
    struct hf_lock *lock;
    pid_t culprit;

    (void)state;
    helper = hf_child_share(sizeof(*helper));
    culprit = start_culprit();
    assert_int_equal(kill(culprit, SIGKILL), 0);
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_OK);
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(kill(atomic_load(helper), SIGKILL), 0);
    helper = NULL;
    hf_child_kill(culprit);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        HF_SITE_CASE(callers_get_the_pid_of_a_stopped_process),
        HF_SITE_CASE(opening_reports_the_pid_of_a_stopped_process),
        HF_SITE_CASE(callers_continue_when_the_process_continues),
        HF_SITE_CASE(callers_continue_when_the_process_is_killed),
        HF_SITE_CASE(callers_continue_when_the_process_is_a_zombie),
    };

    return hf_test_main("stopped_process", cases, HF_TEST_COUNT(cases), 0);
}
