#include "strategy/file/inside.h"

#include <errno.h>
#include <string.h>

#include "base/step.h"
#include "strategy/file/layout.h"

#define RETRY_MS 5
#define CHECK_MS 100 /* between two checks whether the files are still ours */

static struct hf_file *file_of(struct hf_local *local)
{
    return HF_CONTAINER(local, struct hf_file, local);
}

/* ---- Events -------------------------------------------------------------*/

unsigned hf_file_slot_of(const struct hf_file *file, uint64_t session)
{
    unsigned count = hf_arena_slots(&file->arena);

    for (unsigned i = 0; i < count; i++) {
        if (hf_arena_slot(&file->arena, i)->session == session)
            return i;
    }
    return HF_ARENA_SLOTS;
}

void hf_file_on_event(void *arg, const struct hf_table_event *event)
{
    struct hf_file *file = arg;
    bool broken = event->kind == HF_EVENT_FORCED;
    bool ours =
        (event->waited || broken) && event->session->id == file->local.session;

    if (ours && broken)
        hf_local_note_broken(&file->local, event->hold->token);
    if (ours || !hf_list_empty(&file->local.watches))
        file->local.news = true;
    if (!file->acting)
        return;
    file->ring_watchers = true;
    if ((event->waited || broken) && !ours && file->ring_count < HF_FILE_RINGS)
        file->rings[file->ring_count++] =
            hf_file_slot_of(file, event->session->id);
}

/* ---- Commands -----------------------------------------------------------*/

/* Before a command that may grant `key` to the first waiter: end the sessions of
 * waiters at the head of the queue that have died. */
static void bury_waiters(struct hf_file *file, struct hf_key key)
{
    struct hf_hold *hold;

    while ((hold = hf_table_find(&file->replica.store.table, key)) &&
           !hf_list_empty(&hold->line)) {
        struct hf_claim *first =
            HF_CONTAINER(hold->line.next, struct hf_claim, in_line);
        enum hf_err err;

        if (first->session->id == file->local.session ||
            hf_deaths_is_running(file, first->session->id))
            return;
        err = hf_local_end_session(&file->local, first->session->id);
        HF_STEP(29);
        if (err)
            return;
    }
}

/* The claim of a LOCK that is in the queue, or NULL. */
static const struct hf_claim *find_waiting_claim(
    const struct hf_file *file, const struct hf_command *command)
{
    const struct hf_table *table = &file->replica.store.table;
    const struct hf_hold *hold = hf_table_find(table, command->key);

    return hold ? hf_table_find_claim(table, hold, &command->nonce) : NULL;
}

/* Answer a LOCK that our own waiter repeats. It changes nothing, so it does not
 * go into the log. */
static bool stands_in_line(struct hf_file *file,
                           const struct hf_command *command,
                           struct hf_result *result)
{
    const struct hf_claim *claim = find_waiting_claim(file, command);

    if (!claim || claim->session->id != file->local.session)
        return false;
    *result = (struct hf_result){
        .err = HF_EBUSY,
        .place = hf_claim_place(claim),
    };
    file->replica.store.touched = NULL;
    hf_deaths_follow(file, claim);
    return true;
}

/* A lock that another client renews is in use there, so it may outlive the
 * process that it was granted to. */
static void detach_renewed(struct hf_file *file,
                           const struct hf_command *command)
{
    const struct hf_hold *hold =
        hf_table_find(&file->replica.store.table, command->key);
    unsigned slot;

    if (!hold || hold->token != command->token ||
        !hf_nonce_equal(&hold->nonce, &command->nonce) ||
        hold->session->id == file->local.session)
        return;
    slot = hf_file_slot_of(file, hold->session->id);
    if (slot < HF_ARENA_SLOTS)
        hf_arena_slot(&file->arena, slot)->detached = 1;
}

/* Our claim waits: watch the client in front of it. */
static void follow_predecessor(struct hf_file *file,
                               const struct hf_command *command)
{
    const struct hf_claim *claim = find_waiting_claim(file, command);

    if (claim)
        hf_deaths_follow(file, claim);
}

static bool may_hand_over(enum hf_command_kind kind)
{
    return kind == HF_COMMAND_UNLOCK || kind == HF_COMMAND_EXPIRE ||
           kind == HF_COMMAND_CANCEL || kind == HF_COMMAND_FORCE;
}

static const char *cannot_write(struct hf_file *file)
{
    (void)hf_error_set(&file->failure, HF_EUNAVAIL,
                       "file:%s/arena: cannot be written: the disk is full, or "
                       "fails; make room there",
                       file->arena.path);
    return file->failure.text;
}

static void run(struct hf_local *local, hf_time now,
                const struct hf_command *command, struct hf_result *result)
{
    struct hf_file *file = file_of(local);
    bool line;

    if (command->kind == HF_COMMAND_LOCK)
        (void)hf_deaths_free_key(file, command->key);
    if (command->kind == HF_COMMAND_RENEW)
        detach_renewed(file, command);
    line = file->replica.store.table.waiting.count > 0;
    if (line && command->kind == HF_COMMAND_LOCK &&
        stands_in_line(file, command, result))
        return;
    if (line && may_hand_over(command->kind))
        bury_waiters(file, command->key);
    file->acting = true;
    hf_replica_run(&file->replica, now, command, result);
    file->acting = false;
    if (result->err == HF_EUNAVAIL)
        local->cause = cannot_write(file);
    if (command->kind == HF_COMMAND_LOCK && result->place > 0)
        follow_predecessor(file, command);
}

static void expire_due(struct hf_file *file)
{
    hf_time now = hf_local_now(&file->local);
    struct hf_command expire;
    struct hf_result result;

    while (hf_store_due(&file->replica.store, now, &expire)) {
        run(&file->local, now, &expire, &result);
        if (result.err && result.err != HF_ENOTHELD)
            return; /* out of memory or of log space: retried on the next entry */
    }
}

/* ---- The critical section -----------------------------------------------*/

static enum hf_err broken(struct hf_file *file, const char *what)
{
    file->broken = true;
    return hf_error_set(&file->failure, HF_EPROTO, "file:%s/arena: %s",
                        file->arena.path, what);
}

/* Now and then: whether the files are still ours, and tokens for later. If those
 * cannot be had, there is time to try again until the last is used. */
static void check_files(struct hf_file *file)
{
    const struct hf_table *table = &file->replica.store.table;

    file->broken = hf_arena_check(&file->arena, &file->failure) != HF_OK;
    if (!file->broken)
        (void)hf_arena_refill_tokens(&file->arena, table->token);
}

/* Whatever takes long and can be done outside, where nobody waits for us. */
static enum hf_err prepare(struct hf_file *file)
{
    hf_time now = hf_local_now(&file->local);

    if (hf_arena_is_lost(&file->arena))
        (void)hf_arena_recover(&file->arena);
    if (!file->broken)
        hf_replica_read_ahead(&file->replica);
    if (!file->broken && now - file->checked >= CHECK_MS) {
        file->checked = now;
        check_files(file);
    }
    return file->broken ? HF_EPROTO : HF_OK;
}

enum hf_err hf_file_take_word(struct hf_file *file)
{
    enum hf_err err = hf_arena_enter(&file->arena, &file->inside);

    if (err == HF_EPROTO)
        return broken(file, "its header is damaged");
    if (err == HF_EUNAVAIL)
        (void)cannot_write(file);
    else if (err && file->inside)
        hf_error_set(&file->failure, HF_EUNAVAIL,
                     "file:%s: process %ld is inside and does not leave",
                     file->arena.path, (long)file->inside);
    else if (err)
        hf_error_set(&file->failure, HF_EUNAVAIL,
                     "file:%s: too many want to be inside at once",
                     file->arena.path);
    return err;
}

static enum hf_err catch_up(struct hf_file *file)
{
    struct hf_replica *replica = &file->replica;
    enum hf_err err = hf_replica_catch_up(replica);

    if (replica->reloaded)
        hf_local_rewatch(&file->local);
    replica->reloaded = false;
    if (err == HF_EPROTO)
        return broken(file, replica->damage);
    if (err)
        hf_error_set(&file->failure, err, "file:%s: %s", file->arena.path,
                     hf_err_text(err));
    return err;
}

/* Nobody ends the session of a client that lives, unless it is hostile or has
 * lost the lock on its slot. What happened to our claims since is not known. Only
 * entries of others can have ended it, so most visits need no lookup. */
static enum hf_err check_session(struct hf_file *file)
{
    const struct hf_session *own;

    if (file->local.session == 0 || !file->replica.updated)
        return HF_OK;
    own = hf_table_session(&file->replica.store.table, file->local.session);
    if (!own || own->ended)
        return broken(file, "another process has ended the session of this "
                            "client; open it again");
    file->replica.updated = false;
    return HF_OK;
}

/* The last token that may be granted before we leave: a grant goes to a claim
 * that waits now, or to the one request that is served. */
static uint64_t last_token(const struct hf_file *file)
{
    const struct hf_table *table = &file->replica.store.table;

    return table->token + table->waiting.count + 1;
}

/* Outside. HF_EBUSY: come back. */
static enum hf_err raise_tokens(struct hf_file *file, uint64_t token)
{
    enum hf_err err = hf_arena_raise_tokens(&file->arena, token);

    if (!err || err == HF_EBUSY)
        return hf_error_set(&file->failure, HF_EBUSY,
                            "file:%s: tokens are being reserved",
                            file->arena.path);
    if (err == HF_ESYSTEM)
        return hf_error_set(&file->failure, err,
                            "file:%s/token: cannot be replaced: %s",
                            file->arena.path, strerror(errno));
    return hf_error_set(&file->failure, err, "file:%s: %s", file->arena.path,
                        hf_err_text(err));
}

/* Inside, only tokens that the disk will not forget are used, and nothing is
 * written to the disk: that may take long. */
enum hf_err hf_file_enter(struct hf_local *local)
{
    struct hf_file *file = file_of(local);
    enum hf_err err = prepare(file);

    if (!err)
        err = hf_file_take_word(file);
    if (err)
        return err;
    err = catch_up(file);
    if (!err)
        err = check_session(file);
    if (err || !hf_arena_has_token(&file->arena, last_token(file))) {
        hf_arena_leave(&file->arena);
        return err ? err : raise_tokens(file, last_token(file));
    }
    expire_due(file);
    return HF_OK;
}

void hf_file_leave(struct hf_local *local)
{
    struct hf_file *file = file_of(local);
    unsigned rings[HF_FILE_RINGS];
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
    hf_deaths_watch(file);
}

/* Events from before this client was opened are in the ring, as far back as the
 * snapshot. */
static enum hf_err watch(struct hf_local *local, uint64_t from)
{
    struct hf_file *file = file_of(local);
    const struct hf_history *history = &file->replica.store.history;
    enum hf_err err = HF_OK;

    hf_file_slot(file)->watches = 1;
    file->replica.keeps_history = true;
    if (from > 0 && from <= file->replica.store.table.index &&
        (!history->bytes || from < history->first))
        err = hf_replica_go_back(&file->replica);
    return err;
}

static void unwatch(struct hf_local *local)
{
    struct hf_file *file = file_of(local);

    hf_file_slot(file)->watches = 0;
    file->replica.keeps_history = false;
}

void hf_file_retry_soon(struct hf_file *file)
{
    struct hf_host *host = file->local.host;

    hf_timer_set(host, &file->retry, host->ops->now(host) + RETRY_MS);
}

static void later(struct hf_local *local)
{
    if (!file_of(local)->broken)
        hf_file_retry_soon(file_of(local));
}

static void settle(struct hf_local *local, struct hf_key key)
{
    (void)hf_deaths_free_key(file_of(local), key);
}

const struct hf_local_ops hf_file_local_ops = {
    .enter = hf_file_enter,
    .leave = hf_file_leave,
    .later = later,
    .run = run,
    .settle = settle,
    .watch = watch,
    .unwatch = unwatch,
};
