/* A process that stands still inside the section, where it holds up all others:
 * they say who it is, and go on as soon as it does, or is killed. */
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
#define LONG_MS 60000 /* far more than anything here takes */

static atomic_int *helper; /* a process that the culprit has forked */

/* It inherits the lock of the culprit's slot. */
static void fork_helper(void)
{
    pid_t pid = fork();

    while (pid == 0)
        pause();
    atomic_store(helper, pid);
}

/* If `arg` is not NULL, with a helper. */
static void stop_inside(void *arg)
{
    struct hf_arena arena;
    struct hf_error error = {.text = ""};
    pid_t other;

    if (hf_arena_open(&arena, hf_site_path("locks"), 0700, &error))
        fail_msg("%s", error.text);
    assert_int_equal(hf_arena_lock(&arena, &other), HF_OK);
    if (arg)
        fork_helper();
    assert_int_equal(raise(SIGSTOP), 0);
    hf_arena_unlock(&arena);
    hf_arena_close(&arena);
}

static pid_t start_culprit(void)
{
    pid_t pid = hf_child_start(stop_inside, helper);

    hf_child_await_stop(pid);
    return pid;
}

static struct hf_lock_opts patience(uint32_t ms)
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
        fail_msg("\"%s\" names no %s", error->text, words);
}

static void callers_are_told_who_stands_inside(void **state)
{
    struct hf_client *client = hf_site_open();
    struct hf_lock_opts opts = patience(SHORT_MS);
    struct hf_error error = {.text = ""};
    struct hf_lock *held, *lock;
    enum hf_err err;
    pid_t culprit;

    (void)state;
    while ((err = hf_acquire(client, hf_key_of("held"), &opts, &held)) ==
           HF_EUNAVAIL)
        continue; /* a busy machine */
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
    assert_int_equal(hf_close(client, HF_TEST_PATIENCE_MS), HF_OK);
}

static void who_opens_is_told_who_stands_inside(void **state)
{
    struct hf_error error = {.text = ""};
    struct hf_client *client;
    pid_t culprit = start_culprit();

    (void)state;
    assert_int_equal(hf_site_try("locks", "", &error, &client), HF_EUNAVAIL);
    expect_named(&error, culprit);
}

/* A lock that is asked for while the culprit stands still is granted after
 * `end`. */
static void expect_to_go_on(void (*end)(pid_t culprit))
{
    struct hf_client *client = hf_site_open();
    struct hf_lock_opts opts = patience(LONG_MS);
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
    assert_int_equal(hf_close(client, HF_TEST_PATIENCE_MS), HF_OK);
}

static void continue_and_join(pid_t culprit)
{
    hf_child_continue(culprit);
    hf_child_join(culprit);
}

static void callers_go_on_when_it_continues(void **state)
{
    (void)state;
    expect_to_go_on(continue_and_join);
}

static void callers_go_on_when_it_is_killed(void **state)
{
    (void)state;
    expect_to_go_on(hf_child_kill);
}

/* The kernel keeps its lock for the helper, and its number for its parent. */
static void callers_go_on_when_it_is_a_zombie(void **state)
{
    struct hf_client *client = hf_site_open();
    struct hf_lock_opts opts = patience(LONG_MS);
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
    assert_int_equal(hf_close(client, HF_TEST_PATIENCE_MS), HF_OK);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        HF_SITE_CASE(callers_are_told_who_stands_inside),
        HF_SITE_CASE(who_opens_is_told_who_stands_inside),
        HF_SITE_CASE(callers_go_on_when_it_continues),
        HF_SITE_CASE(callers_go_on_when_it_is_killed),
        HF_SITE_CASE(callers_go_on_when_it_is_a_zombie),
    };

    return hf_test_main("inside", cases, HF_TEST_COUNT(cases), 0);
}
