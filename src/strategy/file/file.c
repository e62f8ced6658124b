#include "strategy/file/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>

#include "base/step.h"
#include "strategy/file/inside.h"
#include "strategy/file/layout.h"
#include "strategy/file/place.h"

#define STUCK_TRIES 500 /* to open while one client stays inside: 10 ms each */
#define LOOK_MS 1000 /* in line: who should ring may have been killed first */

/* ---- Requests -----------------------------------------------------------*/

static void on_bell(struct hf_fd *fd, uint32_t events)
{
    struct hf_file *file = HF_CONTAINER(fd, struct hf_file, bell);

    (void)events;
    hf_arena_hear(&file->arena);
    hf_local_tell_news(&file->local);
}

static void refuse(struct hf_file *file, struct hf_request *request,
                   enum hf_err err)
{
    struct hf_host *host = file->local.host;

    request->answer.result = (struct hf_result){.err = err};
    request->answer.cause = strdup(file->failure.text);
    host->ops->answer(host, request);
}

static void submit(void *self, struct hf_request *request)
{
    struct hf_file *file = self;
    enum hf_err err = hf_local_submit(&file->local, request);

    if (err == HF_EBUSY) {
        hf_list_push_back(&file->open, &request->link);
        hf_file_retry_soon(file);
    } else if (err) {
        refuse(file, request, err);
    }
}

static void on_retry(struct hf_timer *timer)
{
    struct hf_file *file = HF_CONTAINER(timer, struct hf_file, retry);
    struct hf_list waiting = {&waiting, &waiting};
    struct hf_list *link;

    while ((link = hf_list_take(&file->open)))
        hf_list_push_back(&waiting, link);
    while ((link = hf_list_take(&waiting)))
        submit(file, HF_CONTAINER(link, struct hf_request, link));
    if (file->local.late)
        hf_local_tell_news(&file->local);
}

/* It has not been inside: surely not done. */
static void cancel(void *self, struct hf_request *request)
{
    struct hf_file *file = self;

    hf_list_remove(&request->link);
    refuse(file, request, HF_EUNAVAIL);
}

/* ---- Opening and closing ------------------------------------------------*/

/* The client before us in this slot has died: so do its session and, unless it
 * detached any, its locks. */
static void bury(struct hf_file *file, const struct hf_arena_slot *slot)
{
    (void)hf_local_end_session(&file->local, slot->session);
    if (!slot->detached)
        hf_deaths_free_all(file, slot->session);
}

/* Open our session; one that died in this slot is ended first. */
static enum hf_err join(struct hf_file *file)
{
    struct hf_local *local = &file->local;
    struct hf_arena_slot *slot = hf_file_slot(file);
    enum hf_err err;

    if (slot->session != 0)
        bury(file, slot);
    HF_STEP(25);
    err = hf_local_open_session(local);
    if (err)
        return err;
    file->replica.session = local->session;
    HF_STEP(26);
    /* The session first: `detached` protects the locks of the one that it
     * names. */
    slot->session = local->session;
    HF_STEP(27);
    slot->watches = 0;
    slot->detached = 0;
    return hf_arena_is_lost(&file->arena) ? HF_EUNAVAIL : HF_OK;
}

/* The client that was inside when our last attempt failed; 0: several were. */
static uint32_t owner_seen(const struct hf_file *file)
{
    return file->inside ? hf_word_futex_value(file->arena.attempt.seen) : 0;
}

/* While clients come and go our turn will come, however many they are. Only if one
 * of them stays inside do we give up. How long to wait for all of it is up to the
 * program, which may close the client meanwhile. */
static enum hf_err enter_first(struct hf_file *file)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    uint32_t owner = 0;
    int tries = 0;
    enum hf_err err;

    while ((err = hf_file_enter(&file->local)) == HF_EBUSY) {
        uint32_t before = owner;

        owner = owner_seen(file);
        if (owner == 0 || owner != before)
            tries = 0;
        if (++tries > STUCK_TRIES)
            return HF_EUNAVAIL;
        if (owner == 0)
            (void)nanosleep(&moment, NULL);
    }
    return err;
}

static enum hf_err start(struct hf_file *file, struct hf_error *error)
{
    enum hf_err err = enter_first(file);

    if (!err) {
        err = join(file);
        hf_file_leave(&file->local);
    }
    if (err)
        hf_error_set(error, err, "%s",
                     *file->failure.text ? file->failure.text
                                         : hf_err_text(err));
    return err;
}

/* What the host has of ours: timers, the bell and the watched processes. */
static void detach(struct hf_file *file)
{
    struct hf_host *host = file->local.host;

    hf_deaths_fini(file);
    host->ops->fd_remove(host, &file->bell);
    host->ops->timer_remove(host, &file->retry);
    hf_local_fini(&file->local);
}

static enum hf_err attach(struct hf_file *file, struct hf_host *host)
{
    enum hf_err err = hf_local_init(&file->local, host, &hf_file_local_ops);

    if (err)
        return err;
    file->retry.fire = on_retry;
    err = host->ops->timer_add(host, &file->retry);
    if (err) {
        hf_local_fini(&file->local);
        return err;
    }
    file->bell = (struct hf_fd){
        .fd = file->arena.fifo,
        .events = EPOLLIN,
        .ready = on_bell,
    };
    err = host->ops->fd_add(host, &file->bell);
    if (err)
        goto no_bell;
    err = hf_deaths_init(file);
    if (err)
        goto no_deaths;
    return HF_OK;

no_deaths:
    host->ops->fd_remove(host, &file->bell);
no_bell:
    host->ops->timer_remove(host, &file->retry);
    hf_local_fini(&file->local);
    return err;
}

static enum hf_err open_arena(struct hf_file *file, struct hf_url *url,
                              bool inherit, struct hf_error *error)
{
    mode_t mode;
    char *path;
    enum hf_err err = hf_place_find(url, &path, &mode, error);

    if (err)
        return err;
    err = hf_arena_open(&file->arena, path, mode, error);
    free(path);
    if (!err && inherit) {
        err = hf_arena_inherit(&file->arena, error);
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
        return hf_error_code(error, err);
    err = open_arena(file, url, host->ops->inherit(host), error);
    if (err)
        return err;
    hf_replica_init(&file->replica, &file->arena, &seed, hf_file_on_event,
                    file);
    hf_list_init(&file->open);
    file->local.store = &file->replica.store;
    file->local.look_ms = LOOK_MS;
    err = hf_place_clock_offset(&file->local.offset, error);
    if (err) {
        close_arena(file);
        return err;
    }
    err = attach(file, host);
    if (err) {
        close_arena(file);
        return hf_error_code(error, err);
    }
    err = start(file, error);
    if (err) {
        detach(file);
        close_arena(file);
    }
    return err;
}

/* A lock of ours outlives us: our death says nothing about our locks any more. */
static void file_detach(void *self)
{
    struct hf_file *file = self;

    hf_file_slot(file)->detached = 1;
}

static void file_close(void *self)
{
    struct hf_file *file = self;
    struct hf_local *local = &file->local;

    if (!hf_file_enter(local)) {
        (void)hf_local_end_session(local, local->session);
        HF_STEP(28);
        hf_file_slot(file)->session = 0;
        hf_file_slot(file)->watches = 0;
        hf_file_leave(local);
    }
    detach(file);
    close_arena(file);
}

static void file_describe(const void *self, hf_fact_fn *each, void *arg)
{
    const struct hf_file *file = self;
    struct stat status;
    char text[64];

    each("directory", file->arena.path, arg);
    if (fstat(file->arena.directory, &status))
        return;
    (void)snprintf(text, sizeof(text), "mode %04o, uid %u, gid %u",
                   (unsigned)status.st_mode & 07777u, (unsigned)status.st_uid,
                   (unsigned)status.st_gid);
    each("permissions", text, arg);
}

const struct hf_strategy hf_strategy_file = {
    .scheme = "file",
    .clock = CLOCK_MONOTONIC,
    .size = sizeof(struct hf_file),
    .open = file_open,
    .caps = hf_local_caps,
    .describe = file_describe,
    .submit = submit,
    .cancel = cancel,
    .detach = file_detach,
    .close = file_close,
};
