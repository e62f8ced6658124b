/* background.c - the threads of a client that runs in the background. */
#include "client/background.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"
#include "client/client.h"

static void *background_main(void *arg)
{
    struct hf_thread *thread = arg;
    struct hf_client *client = thread->until_stopped.client;

    hf_thread_disable_cancel();
    pthread_mutex_lock(&client->mutex);
    if (hf_loop_wait(client, &thread->until_stopped, HF_NEVER) == HF_EFORK)
        _exit(EXIT_FAILURE); /* this is a child that a callback forked */
    client->loop.threads_running--;
    pthread_cond_broadcast(&client->loop.returned);
    hf_client_unref(client);
    hf_client_leave(client);
    return NULL;
}

static int start_background_thread(struct hf_client *client,
                                   struct hf_thread *thread)
{
    struct hf_loop *loop = &client->loop;
    int failed;

    thread->until_stopped =
        (struct hf_blocked){.client = client, .background = true};
    hf_client_ref(client);
    failed = hf_thread_start(&thread->id, background_main, thread);
    if (failed)
        hf_client_unref(client);
    else
        loop->threads_running++;
    return failed;
}

enum hf_err hf_background_start(struct hf_client *client,
                                struct hf_error *error)
{
    struct hf_loop *loop = &client->loop;
    int failed = 0;

    loop->background = true;
    /* If a blocked caller drives, wake that caller, so that it passes the role
     * on to a background thread. */
    loop->wake_pending = loop->wake_pending || loop->sleeping;
    for (unsigned i = 0; i < HF_THREADS && !failed; i++) {
        failed = start_background_thread(client, &loop->threads[i]);
        loop->thread_count = i + !failed;
    }
    if (!failed)
        return HF_OK;
    hf_background_stop(client, HF_NEVER);
    return hf_error_set(error, HF_ESYSTEM,
                        "background: cannot start a thread: %s",
                        strerror(failed));
}

enum hf_err hf_background_ensure(struct hf_client *client)
{
    struct hf_error error;
    enum hf_err err;

    if (client->loop.background || client->loop.self_driven || client->closing)
        return HF_OK;
    err = hf_background_start(client, &error);
    return err ? hf_client_fail(client, err, "%s", error.text) : HF_OK;
}

/* Join the threads if all have finished, otherwise detach them. A thread counts
 * as finished before it has unlocked the mutex for the last time, so unlock the
 * mutex before joining it. */
static void join_threads(struct hf_client *client)
{
    struct hf_loop *loop = &client->loop;
    bool finished = loop->threads_running == 0;

    if (finished)
        pthread_mutex_unlock(&client->mutex);
    for (unsigned i = 0; i < loop->thread_count; i++) {
        if (finished)
            pthread_join(loop->threads[i].id, NULL);
        else
            pthread_detach(loop->threads[i].id);
    }
    if (finished)
        pthread_mutex_lock(&client->mutex);
}

static void release_threads(struct hf_loop *loop)
{
    loop->background = false;
    for (unsigned i = 0; i < loop->thread_count; i++)
        hf_loop_release(&loop->threads[i].until_stopped);
}

void hf_background_dismiss(struct hf_client *client)
{
    struct hf_loop *loop = &client->loop;

    release_threads(loop);
    for (unsigned i = 0; i < loop->thread_count; i++)
        pthread_detach(loop->threads[i].id);
    loop->thread_count = 0;
}

void hf_background_stop(struct hf_client *client, hf_time deadline)
{
    struct hf_loop *loop = &client->loop;
    struct timespec until = hf_client_monotonic(client, deadline);
    struct hf_waker *waker;

    if (!loop->background)
        return;
    release_threads(loop);
    waker = hf_loop_notify(client);
    if (waker)
        hf_waker_wake(waker);
    while (loop->threads_running > 0 &&
           !pthread_cond_clockwait(&loop->returned, &client->mutex,
                                   CLOCK_MONOTONIC, &until))
        continue;
    join_threads(client);
    loop->thread_count = 0;
}
