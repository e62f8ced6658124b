#include "strategy/file/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/assert.h"
#include "base/mutant.h"
#include "base/step.h"
#include "strategy/file/arena.h"
#include "strategy/file/place.h"
#include "strategy/file/replica.h"
#include "strategy/local.h"

#define RINGS 16       /* clients rung for one request; more are watchers */
#define RETRY_MS 5     /* another is inside, and slow */
#define CHECK_MS 1000  /* between two looks whether the files are still ours */
#define TRIES 1000     /* to get inside when it is opened; */
#define STUCK_TRIES 10 /* behind who does not leave, each counts for so many */
#define LOOK_MS 1000   /* in line: who should ring may have been killed first */

/* One open client: its place in the arena, and its own copy of the table. */
struct file {
    struct hf_local local;
    struct hf_arena arena;
    struct hf_replica replica;
    hf_time checked;
    bool broken;  /* the files are not what they were */
    pid_t inside; /* who was, when we could not go in; 0: many */
    struct hf_error failure;

    struct hf_list open; /* requests that could not go inside yet */
    struct hf_timer retry;
    struct hf_fd bell;
    bool acting;           /* what happens is our doing: others are rung */
    unsigned rings[RINGS]; /* slots to be rung on the way out */
    unsigned ring_count;
    bool ring_watchers;
};

static struct file *file_of(struct hf_local *local)
{
    return HF_CONTAINER(local, struct file, local);
}

/* ---- Who is to hear of it -----------------------------------------------*/

/* The slot of a session, or HF_ARENA_SLOTS. */
static unsigned slot_of(const struct file *file, uint64_t session)
{
    unsigned count = hf_arena_slots(&file->arena);

    for (unsigned i = 0; i < count; i++) {
        if (hf_arena_slot(&file->arena, i)->session == session)
            return i;
    }
    return HF_ARENA_SLOTS;
}

static struct hf_arena_slot *own_slot(const struct file *file)
{
    return hf_arena_slot(&file->arena, file->arena.slot);
}

static void on_event(void *arg, const struct hf_table_event *event)
{
    struct file *file = arg;
    bool ours = event->waited && event->session->id == file->local.session;

    if (ours || !hf_list_empty(&file->local.watches))
        file->local.news = true;
    if (!file->acting)
        return;
    file->ring_watchers = true;
    if (event->waited && !ours && file->ring_count < RINGS)
        file->rings[file->ring_count++] = slot_of(file, event->session->id);
}

/* ---- Commands -----------------------------------------------------------*/

/* Clients that died waiting are passed over: their sessions are ended before
 * whatever ends the holder. */
static void bury_waiters(struct file *file, struct hf_key key)
{
    struct hf_hold *hold;

    while ((hold = hf_table_find(&file->replica.store.table, key)) &&
           !hf_list_empty(&hold->line)) {
        struct hf_claim *first =
            HF_CONTAINER(hold->line.next, struct hf_claim, in_line);
        unsigned slot = slot_of(file, first->session->id);
        enum hf_err err;

        if (slot < HF_ARENA_SLOTS && hf_arena_alive(&file->arena, slot))
            return;
        err = hf_local_end_session(&file->local, first->session->id);
        HF_STEP(29);
        if (err)
            return;
    }
}

/* A LOCK that is asked again by who stands in line changes nothing: the others
 * need not hear of it. */
static bool stands_in_line(struct file *file, const struct hf_command *command,
                           struct hf_result *result)
{
    struct hf_store *store = &file->replica.store;
    const struct hf_hold *hold = hf_table_find(&store->table, command->key);
    const struct hf_claim *claim =
        hold ? hf_table_find_claim(&store->table, hold, &command->nonce) : NULL;

    if (!claim || claim->session->id != file->local.session)
        return false;
    *result = (struct hf_result){
        .err = HF_EBUSY,
        .place = hf_claim_place(claim),
    };
    store->touched = NULL;
    return true;
}

static bool may_hand_over(enum hf_command_kind kind)
{
    return kind == HF_COMMAND_UNLOCK || kind == HF_COMMAND_EXPIRE ||
           kind == HF_COMMAND_CANCEL || kind == HF_COMMAND_FORCE;
}

static void run(struct hf_local *local, hf_time now,
                const struct hf_command *command, struct hf_result *result)
{
    struct file *file = file_of(local);
    bool line = file->replica.store.table.waiting.count > 0;

    if (line && command->kind == HF_COMMAND_LOCK &&
        stands_in_line(file, command, result))
        return;
    if (line && may_hand_over(command->kind) && !HF_MUTANT(63))
        bury_waiters(file, command->key);
    file->acting = true;
    hf_replica_run(&file->replica, now, command, result);
    file->acting = false;
}

static void expire_due(struct file *file)
{
    hf_time now = hf_local_now(&file->local);
    struct hf_command expire;
    struct hf_result result;

    while (hf_store_due(&file->replica.store, now, &expire)) {
        run(&file->local, now, &expire, &result);
        if (result.err && result.err != HF_ENOTHELD)
            return; /* no memory or no room: later */
    }
}

/* ---- Inside -------------------------------------------------------------*/

static enum hf_err broken(struct file *file, const char *what)
{
    file->broken = true;
    return hf_error_set(&file->failure, HF_EPROTO, "file:%s/arena: %s",
                        file->arena.path, what);
}

static enum hf_err check_files(struct file *file)
{
    hf_time now = hf_local_now(&file->local);

    if (!file->broken && now - file->checked >= CHECK_MS) {
        file->checked = now;
        file->broken = hf_arena_check(&file->arena, &file->failure) != HF_OK;
    }
    return file->broken ? HF_EPROTO : HF_OK;
}

static enum hf_err take_word(struct file *file)
{
    enum hf_err err = hf_arena_enter(&file->arena, &file->inside);

    if (err == HF_EPROTO)
        return broken(file, "its header is damaged");
    if (err && file->inside)
        hf_error_set(&file->failure, HF_EUNAVAIL,
                     "file:%s: process %ld is inside and does not leave",
                     file->arena.path, (long)file->inside);
    else if (err)
        hf_error_set(&file->failure, HF_EUNAVAIL,
                     "file:%s: too many want to be inside at once",
                     file->arena.path);
    return err;
}

/* A grant may use only tokens that the disk will not forget. */
static enum hf_err catch_up(struct file *file)
{
    struct hf_replica *replica = &file->replica;
    enum hf_err err = hf_replica_catch_up(replica);

    if (replica->reloaded)
        hf_local_rewatch(&file->local);
    replica->reloaded = false;
    if (err == HF_EPROTO)
        return broken(file, replica->damage);
    if (!err)
        err = hf_arena_reserve_tokens(&file->arena,
                                      replica->store.table.token + 1024);
    if (err == HF_ESYSTEM)
        hf_error_set(&file->failure, err,
                     "file:%s/token.new: cannot be put into place: %s",
                     file->arena.path, strerror(errno));
    else if (err)
        hf_error_set(&file->failure, err, "file:%s: %s", file->arena.path,
                     hf_err_text(err));
    return err;
}

/* HF_OK: inside, and the table is as it ought to be at this instant.
 * HF_EBUSY: another is inside, and does not leave. */
static enum hf_err enter(struct hf_local *local)
{
    struct file *file = file_of(local);
    enum hf_err err = check_files(file);

    if (!err)
        err = take_word(file);
    if (err)
        return err;
    err = catch_up(file);
    if (err) {
        hf_arena_leave(&file->arena);
        return err;
    }
    if (!HF_MUTANT(56))
        expire_due(file);
    return HF_OK;
}

static void leave(struct hf_local *local)
{
    struct file *file = file_of(local);
    unsigned rings[RINGS];
    unsigned count = file->ring_count;
    bool watchers = file->ring_watchers && !HF_MUTANT(54);

    memcpy(rings, file->rings, sizeof(rings));
    file->ring_count = 0;
    file->ring_watchers = false;
    hf_arena_leave(&file->arena);
    for (unsigned i = 0; i < count; i++) {
        if (rings[i] < HF_ARENA_SLOTS)
            hf_arena_ring(&file->arena, rings[i]);
    }
    for (unsigned i = 0; watchers && i < hf_arena_slots(&file->arena); i++) {
        if (i != file->arena.slot && hf_arena_slot(&file->arena, i)->watches)
            hf_arena_ring(&file->arena, i);
    }
}

/* Events of before our time are in the ring, as far back as the snapshot. */
static enum hf_err watch(struct hf_local *local, uint64_t from)
{
    struct file *file = file_of(local);
    const struct hf_history *history = &file->replica.store.history;
    enum hf_err err = HF_OK;

    own_slot(file)->watches = 1;
    file->replica.keeps_history = true;
    if (from > 0 && from <= file->replica.store.table.index &&
        (!history->bytes || from < history->first))
        err = hf_replica_go_back(&file->replica);
    return err;
}

static void unwatch(struct hf_local *local)
{
    struct file *file = file_of(local);

    own_slot(file)->watches = 0;
    file->replica.keeps_history = false;
}

static void retry_soon(struct file *file)
{
    struct hf_host *host = file->local.host;

    hf_timer_set(host, &file->retry, host->ops->now(host) + RETRY_MS);
}

static void later(struct hf_local *local)
{
    if (!file_of(local)->broken)
        retry_soon(file_of(local));
}

static const struct hf_local_ops local_ops = {
    .enter = enter,
    .leave = leave,
    .later = later,
    .run = run,
    .watch = watch,
    .unwatch = unwatch,
};

/* ---- Requests -----------------------------------------------------------*/

static void on_bell(struct hf_fd *fd, uint32_t events)
{
    struct file *file = HF_CONTAINER(fd, struct file, bell);

    (void)events;
    hf_arena_hear(&file->arena);
    hf_local_tell_news(&file->local);
}

static void refuse(struct file *file, struct hf_request *request,
                   enum hf_err err)
{
    struct hf_host *host = file->local.host;

    request->answer.result = (struct hf_result){.err = err};
    request->answer.cause = strdup(file->failure.text);
    host->ops->answer(host, request);
}

static void submit(void *self, struct hf_request *request)
{
    struct file *file = self;
    enum hf_err err = hf_local_submit(&file->local, request);

    if (err == HF_EBUSY) {
        hf_list_push_back(&file->open, &request->link);
        retry_soon(file);
    } else if (err) {
        refuse(file, request, err);
    }
}

static void on_retry(struct hf_timer *timer)
{
    struct file *file = HF_CONTAINER(timer, struct file, retry);
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
    struct file *file = self;

    hf_list_remove(&request->link);
    refuse(file, request, HF_EUNAVAIL);
}

/* ---- Opening and closing ------------------------------------------------*/

/* Open our session; one that died in this slot is ended first. */
static enum hf_err join(struct file *file)
{
    struct hf_local *local = &file->local;
    struct hf_arena_slot *slot = own_slot(file);
    enum hf_err err;

    if (slot->session != 0)
        (void)hf_local_end_session(local, slot->session);
    HF_STEP(25);
    err = hf_local_open_session(local);
    if (err)
        return err;
    file->replica.session = local->session;
    HF_STEP(26);
    slot->watches = 0;
    slot->session = local->session;
    HF_STEP(27);
    return HF_OK;
}

/* Decode a snapshot before going inside to stay: that of many locks takes
 * longer than others should have to wait. What comes of it is seen there. */
static void read_ahead(struct file *file)
{
    struct hf_bytes bytes;
    uint64_t position;
    void *copy;

    if (take_word(file))
        return;
    bytes = hf_arena_snapshot(&file->arena, &position);
    copy = bytes.size > 0 ? malloc(bytes.size) : NULL;
    if (copy)
        memcpy(copy, bytes.data, bytes.size);
    hf_arena_leave(&file->arena);
    if (!copy)
        return;
    bytes.data = copy;
    (void)hf_replica_load(&file->replica, bytes, position);
    free(copy);
}

static enum hf_err start(struct file *file, struct hf_error *error)
{
    int tries = 0;
    enum hf_err err = HF_EBUSY;

    read_ahead(file);
    while (err == HF_EBUSY && tries < TRIES) {
        err = enter(&file->local);
        tries += file->inside ? STUCK_TRIES : 1;
    }
    if (!err) {
        err = join(file);
        leave(&file->local);
    }
    if (err == HF_EBUSY)
        err = HF_EUNAVAIL;
    if (err)
        hf_error_set(error, err, "%s",
                     *file->failure.text ? file->failure.text
                                         : hf_err_text(err));
    return err;
}

/* What the host has of ours: two timers and the bell. */
static void detach(struct file *file)
{
    struct hf_host *host = file->local.host;

    host->ops->fd_remove(host, &file->bell);
    host->ops->timer_remove(host, &file->retry);
    hf_local_fini(&file->local);
}

static enum hf_err attach(struct file *file, struct hf_host *host)
{
    enum hf_err err = hf_local_init(&file->local, host, &local_ops);

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
    if (err) {
        host->ops->timer_remove(host, &file->retry);
        hf_local_fini(&file->local);
    }
    return err;
}

static enum hf_err open_arena(struct file *file, struct hf_url *url,
                              struct hf_error *error)
{
    mode_t mode;
    char *path;
    enum hf_err err = hf_place_find(url, &path, &mode, error);

    if (err)
        return err;
    err = hf_arena_open(&file->arena, path, mode, error);
    free(path);
    return err;
}

static void close_arena(struct file *file)
{
    hf_replica_fini(&file->replica);
    hf_arena_close(&file->arena);
}

static enum hf_err file_open(void *self, struct hf_url *url,
                             struct hf_host *host, struct hf_error *error)
{
    struct file *file = self;
    struct hf_seed seed;
    enum hf_err err =
        hf_random_bytes(host->ops->random(host), &seed, sizeof(seed));

    if (err)
        return hf_error_code(error, err);
    err = open_arena(file, url, error);
    if (err)
        return err;
    hf_replica_init(&file->replica, &file->arena, &seed, on_event, file);
    hf_list_init(&file->open);
    file->local.store = &file->replica.store;
    file->local.offset = HF_MUTANT(53) ? 0 : hf_place_clock_offset();
    file->local.look_ms = LOOK_MS;
    err = attach(file, host);
    if (err) {
        close_arena(file);
        return hf_error_code(error, err);
    }
    file->checked = hf_local_now(&file->local);
    err = start(file, error);
    if (err) {
        detach(file);
        close_arena(file);
    }
    return err;
}

static void file_close(void *self)
{
    struct file *file = self;
    struct hf_local *local = &file->local;

    if (!enter(local)) {
        (void)hf_local_end_session(local, local->session);
        HF_STEP(28);
        own_slot(file)->session = 0;
        own_slot(file)->watches = 0;
        leave(local);
    }
    detach(file);
    close_arena(file);
}

const struct hf_strategy hf_strategy_file = {
    .scheme = "file",
    .size = sizeof(struct file),
    .open = file_open,
    .caps = hf_local_caps,
    .submit = submit,
    .cancel = cancel,
    .close = file_close,
};
