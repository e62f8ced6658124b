#include "lib/mongo_queue.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/runner.h"

#define TIMEOUT_MS 60000

struct hf_client *open_driven(void)
{
    char url[HF_TEST_MONGO_URL_SIZE];
    struct hf_client *client = NULL;
    struct hf_client_opts opts;

    hf_test_mongo_url(&mongo, url, "");
    hf_client_opts_init(&opts);
    opts.background = true;
    expect_ok(hf_open(url, &opts, &client));
    return client;
}

struct hf_lock *hold_key(struct hf_client *client)
{
    struct hf_lock_opts opts = hf_test_opts(HF_TEST_TTL_MS, 0, TIMEOUT_MS);
    struct hf_lock *lock = NULL;

    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    return lock;
}

void join_queue(struct hf_client *client, struct queued *queued,
                const char *value)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_TTL_MS, HF_FOREVER, TIMEOUT_MS);

    opts.value = hf_bytes_of(value);
    expect_ok(hf_acquire_start(client, hf_key_of("k"), &opts, &queued->lock,
                               NULL, NULL, &queued->future));
}

void await_grant(struct queued *queued)
{
    enum hf_err err = HF_ECANCELED;

    expect_ok(hf_future_wait(queued->future, TIMEOUT_MS, &err));
    expect_ok(err);
    hf_future_free(queued->future);
}

/* ---- Processes ----------------------------------------------------------*/

static void wait_forever(unsigned claims)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_TTL_MS, HF_FOREVER, TIMEOUT_MS);
    struct queued *queued = calloc(claims, sizeof(*queued));
    char url[HF_TEST_MONGO_URL_SIZE];
    struct hf_client *client = NULL;

    hf_test_mongo_url(&mongo, url, "");
    if (!queued || hf_open(url, NULL, &client) != HF_OK)
        _exit(1);
    for (unsigned i = 0; i < claims; i++)
        (void)hf_acquire_start(client, hf_key_of("k"), &opts, &queued[i].lock,
                               NULL, NULL, &queued[i].future);
    for (;;)
        (void)hf_future_wait(queued[0].future, TIMEOUT_MS, &(enum hf_err){0});
}

struct waiting_process fork_waiters(unsigned claims)
{
    struct waiting_process process = {.claims = claims};
    int ends[2];
    char byte;

    assert_int_equal(pipe(ends), 0);
    process.pid = fork();
    assert_true(process.pid >= 0);
    process.start_fd = ends[1];
    if (process.pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (read(ends[0], &byte, 1) == 1)
            wait_forever(claims);
        _exit(1);
    }
    (void)close(ends[0]);
    return process;
}

void kill_in_queue(const struct waiting_process *processes, unsigned count)
{
    unsigned size = 0;

    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(write(processes[i].start_fd, "+", 1), 1);
        size += processes[i].claims;
        await_queue_length(size);
    }
    for (unsigned i = 0; i < count; i++) {
        (void)kill(processes[i].pid, SIGKILL);
        (void)waitpid(processes[i].pid, NULL, 0);
        (void)close(processes[i].start_fd);
    }
}
