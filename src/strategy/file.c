#include "strategy/file.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "core/snapshot.h"
#include "strategy/arena.h"
#include "strategy/local.h"

#define RINGS 16      /* clients rung for one request; more are watchers */
#define RETRY_MS 5    /* another is inside, and slow */
#define CHECK_MS 1000 /* between two looks whether the files are still ours */
#define LOCK_COST 256 /* bytes of a snapshot for a LOCK, besides its own */

/* One open client: its place in the arena, and its own copy of the table. */
struct file {
    struct hf_host *host;
    struct hf_arena arena;
    struct hf_store store;
    struct hf_seed seed;
    uint64_t position; /* in the log: applied up to here */
    uint64_t session;
    hf_time offset; /* of this time namespace's clock */
    hf_time checked;
    size_t snapshot_size;  /* at most, if it were taken now */
    struct hf_buf scratch; /* for the entry being written */
    bool broken;           /* the files are not what they were */
    struct hf_error failure;

    struct hf_list open; /* requests that could not go inside yet */
    struct hf_timer retry;
    struct hf_fd bell;
    struct hf_list watches;
    struct hf_timer tick; /* while it watches: the next lease ends */
    bool news;            /* a grant or an event for this client */
    bool telling;
    bool wants_past;       /* while it reloads */
    uint64_t granted;      /* the other session that a command granted to */
    unsigned rings[RINGS]; /* slots to be rung on the way out */
    unsigned ring_count;
    bool ring_watchers;
};

/* ---- The copy of the table ----------------------------------------------*/

static hf_time now_of(const struct file *file)
{
    return file->host->ops->now(file->host) - file->offset;
}

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

static void on_event(void *arg, const struct hf_table_event *event)
{
    struct file *file = arg;

    file->ring_watchers = true;
    if (!hf_list_empty(&file->watches))
        file->news = true;
    if (!event->waited)
        return;
    if (event->session->id == file->session) {
        file->news = true;
        return;
    }
    file->granted = event->session->id;
    if (file->ring_count < RINGS)
        file->rings[file->ring_count++] = slot_of(file, file->granted);
}

/* A grant to another client is told there; here it is only forgotten. */
static void apply(struct file *file, hf_time now,
                  const struct hf_command *command, struct hf_result *result)
{
    struct hf_session *session = NULL;
    struct hf_grant grant;

    file->granted = 0;
    hf_store_run(&file->store, now, command, result);
    if (file->granted)
        session = hf_table_session(&file->store.table, file->granted);
    while (session && hf_table_take_grant(&file->store.table, session, &grant))
        continue;
}

static enum hf_err broken(struct file *file, const char *what)
{
    file->broken = true;
    return hf_error_set(&file->failure, HF_EPROTO, "file:%s/arena: %s",
                        file->arena.path, what);
}

/* Snapshots hold, after the table, when each lease ends: count, and for each
 * hold its token, since and end. */
static void encode(const struct file *file, struct hf_buf *buf)
{
    struct hf_hold *hold = NULL;
    size_t size;

    hf_snapshot_encode(&file->store.table, buf);
    size = buf->size;
    while ((hold = hf_table_next(&file->store.table, hold))) {
        hf_buf_bytes(buf, hold->key, hold->key_size);
        hf_buf_u64(buf, (uint64_t)hold->since);
        hf_buf_u64(buf, (uint64_t)hf_store_end(&file->store, hold));
    }
    hf_buf_u64(buf, size);
}

static enum hf_err decode_leases(struct file *file, struct hf_reader *reader)
{
    while (reader->size > 0) {
        struct hf_bytes key = hf_reader_bytes(reader, HF_KEY_MAX);
        hf_time since = (hf_time)hf_reader_u64(reader);
        hf_time end = (hf_time)hf_reader_u64(reader);
        struct hf_hold *hold = hf_table_find(
            &file->store.table, (struct hf_key){key.data, key.size});

        if (reader->failed || !hold)
            return HF_EPROTO;
        if (hf_leases_reserve(&file->store.leases))
            return HF_ENOMEM;
        hold->since = since;
        hf_leases_set(&file->store.leases, &hold->lease, end);
    }
    return HF_OK;
}

static enum hf_err decode(struct file *file, struct hf_bytes bytes)
{
    struct hf_reader tail = {.size = 8};
    struct hf_reader leases = {0};
    uint64_t size;
    enum hf_err err;

    if (bytes.size < 8)
        return HF_EPROTO;
    tail.data = (const uint8_t *)bytes.data + bytes.size - 8;
    size = hf_reader_u64(&tail);
    if (size > bytes.size - 8)
        return HF_EPROTO;
    err = hf_snapshot_decode(&file->store.table, bytes.data, size);
    if (err)
        return err;
    leases.data = (const uint8_t *)bytes.data + size;
    leases.size = bytes.size - 8 - size;
    return decode_leases(file, &leases);
}

/* Begin anew from the snapshot in force. Watches go on: what they missed shows
 * as dropped. */
static enum hf_err reload(struct file *file)
{
    struct hf_history history = file->store.history;
    uint64_t position;
    struct hf_bytes bytes = hf_arena_snapshot(&file->arena, &position);
    enum hf_err err = HF_OK;

    file->store.history = (struct hf_history){0};
    hf_store_fini(&file->store);
    hf_store_init(&file->store, &file->seed, on_event, file);
    file->store.table.token = hf_arena_first_token(&file->arena);
    if (bytes.size > 0)
        err = decode(file, bytes);
    if (err == HF_EPROTO)
        return broken(file, "its snapshot is damaged");
    if (err)
        return err;
    hf_history_fini(&history);
    if (!hf_list_empty(&file->watches) || file->wants_past)
        err = hf_local_rewatch(&file->store, &file->watches);
    file->position = position;
    file->snapshot_size = bytes.size;
    return err;
}

/* Only a LOCK makes a snapshot larger, and an UPDATE by its value. */
static void grown(struct file *file, const struct hf_command *command)
{
    if (command->kind == HF_COMMAND_LOCK || command->kind == HF_COMMAND_OPEN)
        file->snapshot_size += LOCK_COST;
    file->snapshot_size +=
        command->key.size * 2 + command->value.size + command->note.size;
}

/* Apply what the others have written. */
static enum hf_err catch_up(struct file *file)
{
    for (;;) {
        struct hf_command command;
        struct hf_result result;
        struct hf_bytes entry;
        uint64_t position = file->position;
        hf_time stamp;
        enum hf_err err =
            hf_arena_read(&file->arena, &position, &stamp, &entry);

        if (err == HF_ENOTHELD)
            return HF_OK;
        if (err == HF_ELIMIT)
            err = reload(file);
        else if (err || hf_command_decode(&command, entry.data, entry.size))
            return broken(file, "its log is damaged");
        else {
            apply(file, stamp, &command, &result);
            if (result.err == HF_ENOMEM)
                return HF_ENOMEM;
            grown(file, &command);
            file->position = position;
        }
        if (err)
            return err;
    }
}

/* ---- Writing ------------------------------------------------------------*/

/* The ring is full, or the table has grown: put a snapshot in force. */
static enum hf_err compact(struct file *file)
{
    struct hf_buf buf = {0};
    enum hf_err err;

    hf_arena_publish(&file->arena);
    encode(file, &buf);
    err = buf.failed ? HF_ENOMEM
                     : hf_arena_set_snapshot(
                           &file->arena, (struct hf_bytes){buf.data, buf.size});
    file->snapshot_size = buf.size;
    hf_buf_fini(&buf);
    return err;
}

/* Make sure that whatever a LOCK adds can still be put into a snapshot. */
static enum hf_err check_room(struct file *file,
                              const struct hf_command *command)
{
    size_t cost = command->key.size * 2 + command->value.size +
                  command->note.size + LOCK_COST;

    if (hf_arena_reserve_snapshot(&file->arena, file->snapshot_size + cost) ==
        HF_OK)
        return HF_OK;
    /* The size is a guess that only rises: see what it really is. */
    if (compact(file))
        return HF_ELIMIT;
    return hf_arena_reserve_snapshot(&file->arena, file->snapshot_size + cost);
}

static enum hf_err write_entry(struct file *file, hf_time now,
                               const struct hf_command *command)
{
    struct hf_buf *buf = &file->scratch;
    struct hf_bytes entry;
    enum hf_err err;

    buf->size = 0;
    buf->failed = false;
    hf_command_encode(command, buf);
    entry = (struct hf_bytes){buf->data, buf->size};
    err = buf->failed ? HF_ENOMEM : hf_arena_write(&file->arena, now, entry);
    if (err == HF_ELIMIT) {
        err = compact(file);
        if (!err)
            err = hf_arena_write(&file->arena, now, entry);
    }
    return err;
}

/* Write a command, then run it on our own copy; it is published later. What
 * could not be run is taken back. */
static void run(struct file *file, hf_time now,
                const struct hf_command *command, struct hf_result *result)
{
    enum hf_err err = HF_OK;

    if (command->kind == HF_COMMAND_LOCK)
        err = check_room(file, command);
    if (!err)
        err = write_entry(file, now, command);
    if (!err) {
        apply(file, now, command, result);
        if (result->err != HF_ENOMEM) {
            hf_arena_publish(&file->arena);
            grown(file, command);
        } else {
            hf_arena_discard(&file->arena);
        }
    } else {
        *result = (struct hf_result){.err = err};
    }
    file->position = file->arena.pending;
}

/* Clients that died waiting are passed over: their sessions are ended before
 * whatever ends the holder. */
static void bury_waiters(struct file *file, hf_time now, struct hf_key key)
{
    struct hf_hold *hold;

    while ((hold = hf_table_find(&file->store.table, key)) &&
           !hf_list_empty(&hold->line)) {
        struct hf_claim *first =
            HF_CONTAINER(hold->line.next, struct hf_claim, in_line);
        unsigned slot = slot_of(file, first->session->id);
        struct hf_command close = {
            .kind = HF_COMMAND_CLOSE,
            .session = first->session->id,
        };
        struct hf_result result;

        if (slot < HF_ARENA_SLOTS && hf_arena_alive(&file->arena, slot))
            return;
        run(file, now, &close, &result);
        if (result.err)
            return;
    }
}

static bool may_hand_over(enum hf_command_kind kind)
{
    return kind == HF_COMMAND_UNLOCK || kind == HF_COMMAND_EXPIRE ||
           kind == HF_COMMAND_CANCEL || kind == HF_COMMAND_FORCE;
}

static void act(struct file *file, hf_time now,
                const struct hf_command *command, struct hf_result *result)
{
    if (may_hand_over(command->kind) && !HF_MUTANT(63))
        bury_waiters(file, now, command->key);
    run(file, now, command, result);
}

/* A grant may use only tokens that the disk will not forget. */
static enum hf_err reserve_tokens(struct file *file)
{
    return hf_arena_reserve_tokens(&file->arena,
                                   file->store.table.token + 1024);
}

static void expire_due(struct file *file, hf_time now)
{
    struct hf_command expire;
    struct hf_result result;

    while (hf_store_due(&file->store, now, &expire)) {
        act(file, now, &expire, &result);
        if (result.err && result.err != HF_ENOTHELD)
            return; /* no memory or no room: later */
    }
}

/* ---- Inside -------------------------------------------------------------*/

static void leave(struct file *file)
{
    unsigned rings[RINGS];
    unsigned count = file->ring_count;
    bool watchers = file->ring_watchers;

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

/* HF_OK: inside, and the table is as it ought to be at this instant. */
static enum hf_err enter(struct file *file)
{
    hf_time now = now_of(file);
    pid_t pid = 0;
    enum hf_err err;

    if (!file->broken && now - file->checked >= CHECK_MS) {
        file->checked = now;
        file->broken = hf_arena_check(&file->arena, &file->failure) != HF_OK;
    }
    if (file->broken)
        return HF_EPROTO;
    err = hf_arena_enter(&file->arena, &pid);
    if (err == HF_EPROTO)
        return broken(file, "its lock word is damaged");
    if (err) {
        hf_error_set(&file->failure, HF_EUNAVAIL,
                     "file:%s: process %ld is inside and does not leave",
                     file->arena.path, (long)pid);
        return HF_EBUSY;
    }
    /* What others wrote they have rung for. */
    err = catch_up(file);
    file->ring_count = 0;
    file->ring_watchers = false;
    if (!err)
        err = reserve_tokens(file);
    if (err) {
        if (!file->broken)
            hf_error_set(&file->failure, err, "file:%s: %s", file->arena.path,
                         hf_err_text(err));
        hf_arena_leave(&file->arena);
        return err;
    }
    expire_due(file, now);
    return HF_OK;
}

/* ---- News ---------------------------------------------------------------*/

static bool next_grant(struct file *file, struct hf_push_grant *grant)
{
    bool found;

    if (enter(file))
        return false;
    found = hf_local_next_grant(&file->store, file->session, grant);
    grant->anchor.sent += file->offset;
    leave(file);
    return found;
}

static bool next_event(struct file *file, struct hf_local_event *event)
{
    bool found;

    if (enter(file))
        return false;
    found = hf_local_next_event(&file->store, &file->watches, event);
    leave(file);
    return found;
}

static void set_tick(struct file *file)
{
    hf_time at = HF_NEVER;

    if (!hf_list_empty(&file->watches))
        at = hf_store_next(&file->store);
    if (at != HF_NEVER)
        at += file->offset; /* which may be below zero */
    hf_timer_set(file->host, &file->tick, at);
}

/* One by one and outside, because who hears of it may ask again at once. */
static void tell_news(struct file *file)
{
    struct hf_push_grant grant;
    struct hf_local_event event;

    file->telling = true;
    do {
        file->news = false;
        while (next_grant(file, &grant))
            file->host->ops->grant(file->host, &grant);
        while (!hf_list_empty(&file->watches) && next_event(file, &event))
            file->host->ops->event(file->host, &event.push);
    } while (file->news);
    set_tick(file);
    file->telling = false;
}

static void on_bell(struct hf_fd *fd, uint32_t events)
{
    struct file *file = HF_CONTAINER(fd, struct file, bell);

    (void)events;
    hf_arena_hear(&file->arena);
    tell_news(file);
}

static void on_tick(struct hf_timer *timer)
{
    tell_news(HF_CONTAINER(timer, struct file, tick));
}

/* ---- Requests -----------------------------------------------------------*/

static void answer(struct file *file, struct hf_request *request)
{
    file->host->ops->answer(file->host, request);
}

static void refuse(struct file *file, struct hf_request *request,
                   enum hf_err err)
{
    request->answer.result = (struct hf_result){.err = err};
    request->answer.cause = strdup(file->failure.text);
    answer(file, request);
}

/* Events of before our time are in the ring, as far back as the snapshot. */
static enum hf_err go_back(struct file *file)
{
    enum hf_err err;

    file->wants_past = true;
    err = reload(file);
    if (!err)
        err = catch_up(file);
    file->wants_past = false;
    return err;
}

static enum hf_err watch(struct file *file, const struct hf_request *request)
{
    const struct hf_history *history = &file->store.history;
    enum hf_err err = HF_OK;

    if (request->from > 0 && request->from <= file->store.table.index &&
        (!history->bytes || request->from < history->first))
        err = go_back(file);
    if (!err)
        err = hf_local_watch(&file->store, &file->watches, request);
    if (err)
        return err;
    hf_arena_slot(&file->arena, file->arena.slot)->watches = 1;
    file->news = true;
    return HF_OK;
}

static void unwatch(struct file *file, uint64_t number)
{
    hf_local_unwatch(&file->watches, number);
    if (hf_list_empty(&file->watches))
        hf_arena_slot(&file->arena, file->arena.slot)->watches = 0;
}

/* Inside. */
static void serve(struct file *file, struct hf_request *request)
{
    hf_time now = now_of(file);
    struct hf_answer *reply = &request->answer;

    switch (request->kind) {
    case HF_REQUEST_COMMAND:
        request->command.session = file->session;
        act(file, now, &request->command, &reply->result);
        hf_local_tell_time(&file->store, request);
        reply->anchor.sent += file->offset;
        break;
    case HF_REQUEST_READ:
        hf_local_read(&file->store, now, request);
        break;
    case HF_REQUEST_LIST:
        hf_local_list(&file->store, now, request);
        break;
    case HF_REQUEST_WATCH:
        reply->result.err = watch(file, request);
        break;
    case HF_REQUEST_UNWATCH:
        unwatch(file, request->watch);
        break;
    }
    reply->index = file->store.table.index;
}

static void wait_for_turn(struct file *file)
{
    hf_time at = file->host->ops->now(file->host) + RETRY_MS;

    hf_timer_set(file->host, &file->retry, at);
}

static void submit(void *self, struct hf_request *request)
{
    struct file *file = self;
    enum hf_err err = enter(file);

    if (err == HF_EBUSY) {
        hf_list_push_back(&file->open, &request->link);
        wait_for_turn(file);
        return;
    }
    if (err) {
        refuse(file, request, err);
        return;
    }
    serve(file, request);
    leave(file);
    answer(file, request);
    if (file->news && !file->telling)
        tell_news(file);
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
}

/* It has not been inside: surely not done. */
static void cancel(void *self, struct hf_request *request)
{
    struct file *file = self;

    hf_list_remove(&request->link);
    refuse(file, request, HF_EUNAVAIL);
}

/* ---- Opening and closing ------------------------------------------------*/

/* What this time namespace adds to the boot-time clock of the machine. */
static hf_time clock_offset(void)
{
    FILE *offsets = fopen("/proc/self/timens_offsets", "re");
    char line[128];
    hf_time offset = 0;

    if (!offsets)
        return 0;
    while (fgets(line, sizeof(line), offsets)) {
        char *end;

        if (strncmp(line, "boottime", 8) != 0)
            continue;
        offset = strtoll(line + 8, &end, 10) * 1000;
        offset += strtoll(end, NULL, 10) / 1000000;
    }
    (void)fclose(offsets);
    return offset;
}

/* Make the folders above a default directory. */
static void make_parents(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
}

static char *default_path(void)
{
    struct passwd *found = NULL, entry;
    char strings[4096];
    struct stat st;
    char *path = NULL;

    if (getpwuid_r(geteuid(), &entry, strings, sizeof(strings), &found) == 0 &&
        found && found->pw_dir[0] == '/' && !stat(found->pw_dir, &st) &&
        asprintf(&path, "%s/.local/state/holdfast", found->pw_dir) > 0) {
        make_parents(path);
        if (mkdir(path, 0700) == 0 || errno == EEXIST)
            return path;
        free(path);
    }
    if (asprintf(&path, "/var/tmp/holdfast-%u", (unsigned)geteuid()) < 0)
        return NULL;
    return path;
}

static enum hf_err parse_mode(const char *text, mode_t *mode,
                              struct hf_error *error)
{
    char *end;
    unsigned long value;

    *mode = 0700;
    if (!text)
        return HF_OK;
    errno = 0;
    value = strtoul(text, &end, 8);
    if (end == text || *end || errno || value > 01777 || (value & 0700) != 0700)
        return hf_error_set(error, HF_EINVAL,
                            "url: mode '%s' is no mode, as in mode=0770", text);
    *mode = (mode_t)value;
    return HF_OK;
}

/* Open our session; one that died in this slot is ended first. */
static enum hf_err join(struct file *file)
{
    const char *owner = file->host->ops->owner(file->host);
    struct hf_arena_slot *slot = hf_arena_slot(&file->arena, file->arena.slot);
    struct hf_command close = {
        .kind = HF_COMMAND_CLOSE,
        .session = slot->session,
    };
    struct hf_command open = {
        .kind = HF_COMMAND_OPEN,
        .note = {owner, strlen(owner)},
    };
    struct hf_result result;

    if (slot->session != 0)
        run(file, now_of(file), &close, &result);
    run(file, now_of(file), &open, &result);
    if (result.err)
        return result.err;
    file->session = result.session;
    *slot = (struct hf_arena_slot){
        .session = result.session,
        .pid = (int32_t)getpid(),
    };
    return HF_OK;
}

static enum hf_err start(struct file *file, struct hf_error *error)
{
    enum hf_err err = HF_EBUSY;

    for (int i = 0; i < 100 && err == HF_EBUSY; i++)
        err = enter(file);
    if (!err) {
        err = join(file);
        leave(file);
    }
    if (err == HF_EBUSY)
        err = HF_EUNAVAIL;
    if (err)
        hf_error_set(error, err, "%s",
                     *file->failure.text ? file->failure.text
                                         : hf_err_text(err));
    return err;
}

static void stop(struct file *file)
{
    struct hf_host *host = file->host;

    host->ops->fd_remove(host, &file->bell);
    host->ops->timer_remove(host, &file->tick);
    host->ops->timer_remove(host, &file->retry);
}

static enum hf_err attach(struct file *file, struct hf_error *error)
{
    struct hf_host *host = file->host;
    enum hf_err err = host->ops->timer_add(host, &file->retry);

    if (err)
        return hf_error_code(error, err);
    err = host->ops->timer_add(host, &file->tick);
    if (err) {
        host->ops->timer_remove(host, &file->retry);
        return hf_error_code(error, err);
    }
    file->bell.fd = file->arena.fifo;
    file->bell.events = EPOLLIN;
    err = host->ops->fd_add(host, &file->bell);
    if (err) {
        host->ops->timer_remove(host, &file->tick);
        host->ops->timer_remove(host, &file->retry);
        return hf_error_code(error, err);
    }
    err = start(file, error);
    if (err)
        stop(file);
    return err;
}

static enum hf_err file_open(void *self, struct hf_url *url,
                             struct hf_host *host, struct hf_error *error)
{
    struct file *file = self;
    mode_t mode;
    char *path;
    enum hf_err err = parse_mode(hf_url_param(url, "mode"), &mode, error);

    if (err)
        return err;
    if (url->hosts && *url->hosts)
        return hf_error_set(error, HF_EINVAL,
                            "url: file: has no host; write file:/path");
    path = *url->path ? strdup(url->path) : default_path();
    if (!path)
        return hf_error_code(error, HF_ENOMEM);
    file->host = host;
    file->offset = clock_offset();
    file->checked = now_of(file);
    file->retry.fire = on_retry;
    file->tick.fire = on_tick;
    file->bell.ready = on_bell;
    hf_list_init(&file->open);
    hf_list_init(&file->watches);
    err = hf_random_bytes(host->ops->random(host), &file->seed,
                          sizeof(file->seed));
    if (!err)
        err = hf_arena_open(&file->arena, path, mode, error);
    else
        hf_error_code(error, err);
    free(path);
    if (err)
        return err;
    hf_store_init(&file->store, &file->seed, on_event, file);
    file->store.table.token = hf_arena_first_token(&file->arena);
    err = attach(file, error);
    if (err) {
        hf_buf_fini(&file->scratch);
        hf_store_fini(&file->store);
        hf_arena_close(&file->arena);
    }
    return err;
}

static uint32_t caps(const void *self)
{
    (void)self;
    return HF_CAP_FENCE | HF_CAP_FIFO | HF_CAP_PUSH | HF_CAP_STEADY |
           HF_CAP_LINEARIZABLE_READ | HF_CAP_VALUE | HF_CAP_WATCH;
}

static void file_close(void *self)
{
    struct file *file = self;
    struct hf_command close = {
        .kind = HF_COMMAND_CLOSE,
        .session = file->session,
    };
    struct hf_result result;

    stop(file);
    if (!enter(file)) {
        run(file, now_of(file), &close, &result);
        hf_arena_slot(&file->arena, file->arena.slot)->session = 0;
        hf_arena_slot(&file->arena, file->arena.slot)->watches = 0;
        leave(file);
    }
    hf_local_unwatch_all(&file->watches);
    hf_buf_fini(&file->scratch);
    hf_store_fini(&file->store);
    hf_arena_close(&file->arena);
}

const struct hf_strategy hf_strategy_file = {
    .scheme = "file",
    .size = sizeof(struct file),
    .open = file_open,
    .caps = caps,
    .submit = submit,
    .cancel = cancel,
    .close = file_close,
};
