#include "client/client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/thread.h"

const char *hf_version(void)
{
    return HF_VERSION;
}

/* ---- Entering and leaving -----------------------------------------------*/

/* A thread that waits for the mutex holds the turnstile, and later threads
 * queue for the turnstile. hf_client_enter_any() tries the mutex first, so an
 * uncontended call does not touch the turnstile. */
void hf_client_lock(struct hf_client *client)
{
    pthread_mutex_lock(&client->turnstile);
    pthread_mutex_lock(&client->mutex);
    pthread_mutex_unlock(&client->turnstile);
}

/* In a forked child the mutexes may be locked by threads that do not exist
 * there, so they are initialized again. */
void hf_client_relock(struct hf_client *client)
{
    if (hf_client_is_forked(client)) {
        pthread_mutex_init(&client->turnstile, NULL);
        pthread_mutex_init(&client->mutex, NULL);
    }
    hf_client_lock(client);
}

enum hf_err hf_client_enter_any(struct hf_client *client)
{
    if (hf_client_is_forked(client))
        return HF_EFORK;
    hf_thread_disable_cancel();
    if (pthread_mutex_trylock(&client->mutex))
        hf_client_lock(client);
    hf_client_reset_now(client);
    return HF_OK;
}

enum hf_err hf_client_enter(struct hf_client *client)
{
    enum hf_err err = hf_client_enter_any(client);

    if (!err && (client->closing || !client->opened)) {
        err = client->opening ? HF_ESTATE : HF_ECLOSED;
        pthread_mutex_unlock(&client->mutex);
        hf_thread_restore_cancel();
    }
    return err;
}

enum hf_err hf_client_may_block(struct hf_client *client)
{
    enum hf_err err;
    bool in_callback;

    if (!client)
        return HF_EINVAL;
    err = hf_client_enter(client);
    if (err)
        return err;
    in_callback = hf_loop_is_in_callback(client);
    hf_client_leave(client);
    return in_callback ? HF_EDEADLK : HF_OK;
}

void hf_client_destroy(struct hf_client *client)
{
    hf_loop_close(client);
    pthread_mutex_destroy(&client->mutex);
    pthread_mutex_destroy(&client->turnstile);
    munmap((void *)(uintptr_t)client->alive, sizeof(*client->alive));
    hf_map_fini(&client->waiting);
    free(client->self);
    explicit_bzero(&client->random, sizeof(client->random));
    free(client);
}

void hf_client_leave(struct hf_client *client)
{
    struct hf_waker *waker;
    bool last;

    if (hf_client_is_forked(client)) {
        pthread_mutex_unlock(&client->mutex);
        hf_thread_restore_cancel();
        return;
    }
    hf_loop_end_turn(client);
    waker = hf_loop_notify(client);
    last = client->references == 0;
    pthread_mutex_unlock(&client->mutex);
    if (waker)
        hf_waker_wake(waker);
    if (last)
        hf_client_destroy(client);
    hf_thread_restore_cancel();
}

struct timespec hf_client_monotonic(const struct hf_client *client,
                                    hf_time deadline)
{
    uint32_t left = hf_time_left(deadline, hf_client_clock(client));
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += left / 1000;
    at.tv_nsec += (left % 1000 + 1) * 1000000L;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

void hf_client_ref(struct hf_client *client)
{
    client->references++;
}

void hf_client_unref(struct hf_client *client)
{
    client->references--;
}

enum hf_err hf_client_fail(struct hf_client *client, enum hf_err code,
                           const char *format, ...)
{
    va_list args;

    client->error.code = code;
    va_start(args, format);
    (void)vsnprintf(client->error.text, sizeof(client->error.text), format,
                    args);
    va_end(args);
    return code;
}

/* ---- Public functions ---------------------------------------------------*/

void hf_client_error(const struct hf_client *client, struct hf_error *error)
{
    struct hf_client *mutable_client = (struct hf_client *)(uintptr_t)client;

    if (!error)
        return;
    hf_error_set_code(error, HF_OK);
    if (!client || hf_client_enter_any(mutable_client))
        return;
    if (client->error.code)
        *error = client->error;
    hf_client_leave(mutable_client);
}

int hf_fd(struct hf_client *client)
{
    int fd;

    if (!client || hf_client_enter_any(client))
        return -1;
    client->loop.self_driven = true;
    fd = client->loop.outer >= 0 ? client->loop.outer : client->loop.epoll;
    hf_client_leave(client);
    return fd;
}

/* Async-signal-safe: uses atomics and one write(), and preserves errno. */
void hf_interrupt(struct hf_client *client)
{
    int saved_errno = errno;

    if (!client || hf_client_is_forked(client))
        return;
    atomic_fetch_add(&client->loop.interrupts, 1);
    hf_waker_wake(hf_waker_ref(client->loop.waker));
    errno = saved_errno;
}

enum hf_err hf_process(struct hf_client *client)
{
    enum hf_err err;

    if (!client)
        return HF_EINVAL;
    err = hf_client_enter_any(client);
    if (err)
        return err;
    if (client->closing && !client->close.started) {
        hf_client_leave(client);
        return HF_ECLOSED;
    }
    client->loop.self_driven = true;
    hf_client_ref(client); /* keeps the client if a callback closes it */
    hf_loop_process(client);
    err = hf_client_is_forked(client) ? HF_EFORK : HF_OK;
    hf_client_unref(client);
    hf_client_leave(client);
    return err;
}
