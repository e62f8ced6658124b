#include "strategy/file/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>

#include "base/crash_point.h"
#include "strategy/file/clock.h"
#include "strategy/file/directory.h"
#include "strategy/file/layout.h"
#include "strategy/file/transaction.h"

#define STUCK_TRIES 500 /* attempts of 10 ms, while one client keeps us out */
/* Waiters poll this often, because the client that should wake them may be
 * killed before it does. */
#define POLL_MS 1000

/* ---- Requests -----------------------------------------------------------*/

static void on_wake_fd(struct hf_fd *fd, uint32_t events)
{
    struct hf_file *file = HF_CONTAINER(fd, struct hf_file, wake_fd);

    (void)events;
    hf_slot_clear_wakes(&file->arena);
    hf_in_process_report(&file->local);
}

static void file_refuse(struct hf_file *file, struct hf_request *request,
                        enum hf_err err)
{
    struct hf_host *host = file->local.host;

    request->answer.result = (struct hf_result){.err = err};
    request->answer.cause = strdup(file->failure.text);
    host->ops->answer(host, request);
}

static void file_submit(void *self, struct hf_request *request)
{
    struct hf_file *file = self;
    enum hf_err err = hf_in_process_submit(&file->local, request);

    if (err && file->delay) {
        hf_dlist_push_back(&file->pending, &request->link);
        hf_transaction_retry_soon(file);
    } else if (err) {
        file_refuse(file, request, err);
    }
}

static void on_transaction_retry(struct hf_timer *timer)
{
    struct hf_file *file = HF_CONTAINER(timer, struct hf_file, retry);
    struct hf_dlist waiting = {&waiting, &waiting};
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&file->pending)))
        hf_dlist_push_back(&waiting, link);
    while ((link = hf_dlist_take(&waiting)))
        file_submit(file, HF_CONTAINER(link, struct hf_request, link));
    if (file->local.report_failed)
        hf_in_process_report(&file->local);
}

/* A request that can be canceled is still pending, so nothing was done: answer
 * HF_EUNAVAIL, which means that. */
static void file_cancel(void *self, struct hf_request *request)
{
    struct hf_file *file = self;

    hf_dlist_remove(&request->link);
    file_refuse(file, request, HF_EUNAVAIL);
}

/* ---- Opening and closing ------------------------------------------------*/

/* Clean up after the slot's previous client, which has died: end its session,
 * and release its locks unless it detached one of them. */
static void reap_slot(struct hf_file *file, const struct hf_slot *slot)
{
    (void)hf_in_process_close_session(&file->local, slot->session);
    if (!slot->detached)
        hf_reaper_free_session(file, slot->session);
}

/* Open our session. End the session of the slot's previous client first, if
 * that client died. */
static enum hf_err open_slot_session(struct hf_file *file)
{
    struct hf_in_process *local = &file->local;
    struct hf_slot *slot = hf_transaction_own_slot(file);
    enum hf_err err;

    if (slot->session != 0)
        reap_slot(file, slot);
    HF_CRASH_POINT(25);
    err = hf_in_process_open_session(local);
    if (err)
        return err;
    HF_CRASH_POINT(26);
    /* Write our session before clearing `detached`. If we were killed in the
     * other order, the next client would release a lock that the previous
     * session detached. */
    slot->session = local->session;
    HF_CRASH_POINT(27);
    slot->watches = 0;
    slot->detached = 0;
    return hf_arena_is_lost(&file->arena) ? HF_EUNAVAIL : HF_OK;
}

/* The slot and the low bits of the tag of the client that kept us out in our
 * last attempt, as one number; 0 if several clients kept us out. */
static uint32_t owner_seen(const struct hf_file *file)
{
    return file->busy_pid ? hf_word_futex_value(file->arena.attempt.seen) : 0;
}

/* While different clients enter and leave the critical section, our turn will
 * come, however many there are, so the total wait has no limit. Give up only if
 * one client stays in it. A program that must not wait so long calls
 * hf_open_start(): it can close the client while this thread still waits. */
static enum hf_err begin_first_transaction(struct hf_file *file)
{
    const struct timespec delay = {.tv_nsec = 1000000};
    uint32_t owner = 0;
    int tries = 0;
    enum hf_err err;

    while ((err = hf_transaction_begin(&file->local)) && file->delay) {
        uint32_t before = owner;

        owner = owner_seen(file);
        if (owner == 0 || owner != before)
            tries = 0;
        if (++tries > STUCK_TRIES)
            return HF_EUNAVAIL;
        if (owner == 0)
            (void)nanosleep(&delay, NULL);
    }
    return err;
}

static enum hf_err file_start(struct hf_file *file, struct hf_error *error)
{
    enum hf_err err = begin_first_transaction(file);

    if (!err) {
        err = open_slot_session(file);
        hf_transaction_end(&file->local);
    }
    if (err)
        hf_error_set(error, err, "%s",
                     *file->failure.text ? file->failure.text
                                         : hf_err_text(err));
    return err;
}

/* Remove everything that is registered with the host: timers, the FIFO and the
 * watched processes. */
static void detach_host(struct hf_file *file)
{
    struct hf_host *host = file->local.host;

    hf_reaper_fini(file);
    host->ops->fd_remove(host, &file->wake_fd);
    host->ops->timer_remove(host, &file->retry);
    hf_in_process_fini(&file->local);
}

static enum hf_err attach_host(struct hf_file *file, struct hf_host *host)
{
    enum hf_err err =
        hf_in_process_init(&file->local, host, &hf_transaction_ops);

    if (err)
        return err;
    file->retry.fire = on_transaction_retry;
    err = host->ops->timer_add(host, &file->retry);
    if (err) {
        hf_in_process_fini(&file->local);
        return err;
    }
    file->wake_fd = (struct hf_fd){
        .fd = file->arena.fifo,
        .events = EPOLLIN,
        .ready = on_wake_fd,
    };
    err = host->ops->fd_add(host, &file->wake_fd);
    if (err)
        goto no_wake_fd;
    err = hf_reaper_init(file);
    if (err)
        goto no_reaper;
    return HF_OK;

no_reaper:
    host->ops->fd_remove(host, &file->wake_fd);
no_wake_fd:
    host->ops->timer_remove(host, &file->retry);
    hf_in_process_fini(&file->local);
    return err;
}

static enum hf_err open_arena(struct hf_file *file, struct hf_url *url,
                              bool inherit, struct hf_error *error)
{
    mode_t mode;
    char *path;
    enum hf_err err = hf_directory_find(url, &path, &mode, error);

    if (err)
        return err;
    err = hf_arena_open(&file->arena, path, mode, error);
    free(path);
    if (!err && inherit) {
        err = hf_slot_inherit(&file->arena, error);
        if (err)
            hf_arena_close(&file->arena);
    }
    return err;
}

static void close_arena(struct hf_file *file)
{
    hf_replica_fini(&file->replica);
    hf_arena_close(&file->arena);
}

static enum hf_err file_open(void *self, struct hf_url *url,
                             struct hf_host *host, struct hf_error *error)
{
    struct hf_file *file = self;
    struct hf_seed seed;
    enum hf_err err =
        hf_random_bytes(host->ops->random(host), &seed, sizeof(seed));

    if (err)
        return hf_error_set_code(error, err);
    err = open_arena(file, url, host->ops->inherit(host), error);
    if (err)
        return err;
    hf_replica_init(&file->replica, &file->arena, &seed,
                    hf_transaction_on_event, file);
    hf_dlist_init(&file->pending);
    file->local.store = &file->replica.store;
    file->local.poll_ms = POLL_MS;
    err = hf_clock_offset(&file->local.offset, error);
    if (err) {
        close_arena(file);
        return err;
    }
    err = attach_host(file, host);
    if (err) {
        close_arena(file);
        return hf_error_set_code(error, err);
    }
    err = file_start(file, error);
    if (err) {
        detach_host(file);
        close_arena(file);
    }
    return err;
}

/* One of this client's locks may have to outlive the process, so from now on
 * the end of the process does not release them. */
static void file_detach(void *self)
{
    struct hf_file *file = self;

    hf_transaction_own_slot(file)->detached = 1;
}

static void file_close(void *self)
{
    struct hf_file *file = self;
    struct hf_in_process *local = &file->local;

    if (!hf_transaction_begin(local)) {
        (void)hf_in_process_close_session(local, local->session);
        HF_CRASH_POINT(28);
        hf_transaction_own_slot(file)->session = 0;
        hf_transaction_own_slot(file)->watches = 0;
        hf_transaction_end(local);
    }
    detach_host(file);
    close_arena(file);
}

static void file_describe(const void *self, hf_fact_fn *each, void *arg)
{
    const struct hf_file *file = self;
    struct stat st;
    char text[64];

    each("directory", file->arena.path, arg);
    if (fstat(file->arena.directory, &st))
        return;
    (void)snprintf(text, sizeof(text), "mode %04o, uid %u, gid %u",
                   (unsigned)st.st_mode & 07777u, (unsigned)st.st_uid,
                   (unsigned)st.st_gid);
    each("permissions", text, arg);
}

const struct hf_strategy hf_strategy_file = {
    .scheme = "file",
    .clock = CLOCK_MONOTONIC,
    .looks_up = true,
    .size = sizeof(struct hf_file),
    .open = file_open,
    .caps = hf_in_process_caps,
    .describe = file_describe,
    .submit = file_submit,
    .cancel = file_cancel,
    .detach = file_detach,
    .close = file_close,
};
