#include "strategy/file/transaction.h"

#include <errno.h>
#include <string.h>

#include "base/crash_point.h"
#include "strategy/file/layout.h"

#define RETRY_MS 5
#define CHECK_MS 100 /* interval between checks of the directory */

static struct hf_file *file_of(struct hf_in_process *local)
{
    return HF_CONTAINER(local, struct hf_file, local);
}

/* ---- Events -------------------------------------------------------------*/

unsigned hf_transaction_find_slot(const struct hf_file *file, uint64_t session)
{
    unsigned count = hf_slot_count(&file->arena);

    for (unsigned i = 0; i < count; i++) {
        if (hf_slot_at(&file->arena, i)->session == session)
            return i;
    }
    return HF_ARENA_SLOTS;
}

/* Drop the unreported grants if the replica was loaded again, because they may
 * have ended, or were never published. */
static void drop_old_grants(struct hf_file *file)
{
    if (file->replica.reloaded)
        hf_in_process_drop_grants(&file->local);
    file->replica.reloaded = false;
}

void hf_transaction_on_event(void *arg, const struct hf_table_event *event)
{
    struct hf_file *file = arg;
    bool ours = event->session->id == file->local.session;
    bool concerns = event->waited || event->kind == HF_EVENT_FORCED;

    drop_old_grants(file);
    if ((ours && hf_in_process_note_event(&file->local, event)) ||
        !hf_watches_is_empty(&file->local.watches))
        file->local.has_reports = true;
    if (!file->is_own_command)
        return;
    file->wake_watchers = true;
    if (concerns && !ours && file->wake_count < HF_TRANSACTION_WAKES_MAX)
        file->wake_slots[file->wake_count++] =
            hf_transaction_find_slot(file, event->session->id);
}

/* ---- Commands -----------------------------------------------------------*/

/* End the sessions of dead waiters at the head of the queue. Call it before a
 * command that may grant `key` to the first waiter, so that this waiter is
 * alive. */
static void reap_dead_waiters(struct hf_file *file, struct hf_key key)
{
    struct hf_hold *hold;

    while ((hold = hf_table_find(&file->replica.store.table, key)) &&
           !hf_dlist_is_empty(&hold->queue)) {
        struct hf_table_waiter *first =
            HF_CONTAINER(hold->queue.next, struct hf_table_waiter, in_queue);
        enum hf_err err;

        if (first->session->id == file->local.session ||
            hf_reaper_is_running(file, first->session->id))
            return;
        err = hf_in_process_close_session(&file->local, first->session->id);
        HF_CRASH_POINT(29);
        if (err)
            return;
    }
}

/* If this client renews a lock that was granted to another client, mark that
 * client as detached: the lock is in use here, so it may outlive the process
 * that it was granted to. */
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
    slot = hf_transaction_find_slot(file, hold->session->id);
    if (slot < HF_ARENA_SLOTS)
        hf_slot_at(&file->arena, slot)->detached = 1;
}

/* If our claim waits, watch the client in front of it. */
static void file_follow(struct hf_in_process *local,
                        const struct hf_command *command)
{
    struct hf_file *file = file_of(local);
    const struct hf_table *table = &file->replica.store.table;
    const struct hf_hold *hold = hf_table_find(table, command->key);
    const struct hf_table_waiter *waiter =
        hold ? hf_table_find_waiter(table, hold, &command->nonce) : NULL;

    if (waiter)
        hf_reaper_follow(file, waiter);
}

static bool may_hand_over(enum hf_command_kind kind)
{
    return kind == HF_COMMAND_UNLOCK || kind == HF_COMMAND_EXPIRE ||
           kind == HF_COMMAND_CANCEL || kind == HF_COMMAND_FORCE;
}

static enum hf_err set_cannot_write(struct hf_file *file)
{
    return hf_error_set(&file->failure, HF_EUNAVAIL,
                        "file:%s/arena: cannot be written: the disk is full or "
                        "failing; free some space",
                        file->arena.path);
}

static void file_run(struct hf_in_process *local, hf_time now,
                     const struct hf_command *command, struct hf_result *result)
{
    struct hf_file *file = file_of(local);
    bool has_waiters;

    if (command->kind == HF_COMMAND_LOCK)
        (void)hf_reaper_free_key(file, command->key);
    if (command->kind == HF_COMMAND_RENEW)
        detach_renewed(file, command);
    has_waiters = file->replica.store.table.waiting.count > 0;
    if (has_waiters && may_hand_over(command->kind))
        reap_dead_waiters(file, command->key);
    file->is_own_command = true;
    hf_replica_run(&file->replica, now, command, result);
    file->is_own_command = false;
    if (result->err == HF_EUNAVAIL) {
        (void)set_cannot_write(file);
        local->cause = file->failure.text;
    }
    if (command->kind == HF_COMMAND_LOCK && result->position > 0)
        file_follow(local, command);
}

static void expire_due(struct hf_file *file)
{
    hf_time now = hf_in_process_now(&file->local);
    struct hf_store *store = &file->replica.store;
    struct hf_command expire;
    struct hf_result result;

    while (hf_store_take_due(store, now, &expire, 1) > 0) {
        file_run(&file->local, now, &expire, &result);
        if (result.err && result.err != HF_ENOTHELD) {
            /* no memory or disk space; the next transaction retries */
            hf_store_retry_due(store);
            return;
        }
    }
}

/* ---- The critical section -----------------------------------------------*/

static enum hf_err set_broken(struct hf_file *file, const char *what)
{
    file->broken = true;
    return hf_error_set(&file->failure, HF_EPROTO, "file:%s/arena: %s",
                        file->arena.path, what);
}

/* Check that the directory and the arena were not removed or replaced, and
 * reserve tokens ahead of time. If the reservation fails, it is tried again
 * before the last reserved token is granted. */
static void check_arena_files(struct hf_file *file)
{
    const struct hf_table *table = &file->replica.store.table;

    file->broken = hf_arena_check(&file->arena, &file->failure) != HF_OK;
    if (!file->broken)
        (void)hf_token_file_refill(&file->arena, table->token);
}

/* Do slow work before taking the arena lock, so that no other client waits for
 * it. */
static enum hf_err prepare_transaction(struct hf_file *file)
{
    hf_time now = hf_in_process_now(&file->local);

    if (hf_arena_is_lost(&file->arena))
        (void)hf_arena_recover(&file->arena);
    if (!file->broken)
        hf_replica_read_ahead(&file->replica);
    if (!file->broken && now - file->checked_at >= CHECK_MS) {
        file->checked_at = now;
        check_arena_files(file);
    }
    return file->broken ? HF_EPROTO : HF_OK;
}

static enum hf_err set_busy(struct hf_file *file)
{
    file->delay = HF_TRANSACTION_BUSY;
    if (file->busy_pid)
        return hf_error_set(&file->failure, HF_EUNAVAIL,
                            "file:%s: process %ld keeps the arena locked; if "
                            "it is stopped, continue or end it",
                            file->arena.path, (long)file->busy_pid);
    return hf_error_set(
        &file->failure, HF_EUNAVAIL,
        "file:%s: too many clients use the arena at once; try again",
        file->arena.path);
}

static enum hf_err lock_arena(struct hf_file *file)
{
    switch (hf_arena_lock(&file->arena, &file->busy_pid)) {
    case HF_ARENA_LOCKED:
        return HF_OK;
    case HF_ARENA_BUSY:
        return set_busy(file);
    case HF_ARENA_UNWRITABLE:
        return set_cannot_write(file);
    case HF_ARENA_BAD_HEADER:
        break;
    }
    return set_broken(file, "its header is damaged");
}

static enum hf_err catch_up_replica(struct hf_file *file)
{
    struct hf_replica *replica = &file->replica;
    enum hf_err err = hf_replica_catch_up(replica);

    drop_old_grants(file);
    if (err == HF_EPROTO)
        return set_broken(file, replica->damage);
    if (err)
        hf_error_set(&file->failure, err, "file:%s: %s", file->arena.path,
                     hf_err_text(err));
    return err;
}

/* Other clients end the session of a live client only if they are hostile, or
 * if that client has lost the lock on its slot. The fate of our claims is then
 * unknown, so every later call fails. Only entries of other clients can end our
 * session, so most transactions skip the lookup. */
static enum hf_err check_session(struct hf_file *file)
{
    const struct hf_session *own;

    if (file->local.session == 0 || !file->replica.updated)
        return HF_OK;
    own =
        hf_table_find_session(&file->replica.store.table, file->local.session);
    if (!own || own->ended)
        return set_broken(file, "another process has ended the session of this "
                                "client; open it again");
    file->replica.updated = false;
    return HF_OK;
}

/* The highest token that this transaction may grant. It grants keys only to
 * claims that are waiting now, or to the one request that it serves. */
static uint64_t last_needed_token(const struct hf_file *file)
{
    const struct hf_table *table = &file->replica.store.table;

    return table->token + table->waiting.count + 1;
}

/* Call it without the arena lock. */
static enum hf_err reserve_more_tokens(struct hf_file *file, uint64_t token)
{
    enum hf_err err = hf_token_file_reserve(&file->arena, token);

    if (!err)
        return HF_OK;
    if (err == HF_ESYSTEM)
        return hf_error_set(&file->failure, err,
                            "file:%s/token: cannot be replaced: %s",
                            file->arena.path, strerror(errno));
    return hf_error_set(&file->failure, err, "file:%s: %s", file->arena.path,
                        hf_err_text(err));
}

/* Tokens were reserved without the arena lock. */
static enum hf_err set_reserved(struct hf_file *file)
{
    file->delay = HF_TRANSACTION_RESERVED;
    return hf_error_set(&file->failure, HF_EUNAVAIL,
                        "file:%s: tokens are being reserved", file->arena.path);
}

/* Grant only tokens that the token file covers. To reserve more, leave the
 * critical section first, because replacing that file calls fsync(), which may
 * block for a long time. */
enum hf_err hf_transaction_begin(struct hf_in_process *local)
{
    struct hf_file *file = file_of(local);
    enum hf_err err = prepare_transaction(file);

    file->delay = HF_TRANSACTION_NO_DELAY;
    if (!err)
        err = lock_arena(file);
    if (err)
        return err;
    err = catch_up_replica(file);
    if (!err)
        err = check_session(file);
    if (err || !hf_token_file_covers(&file->arena, last_needed_token(file))) {
        hf_arena_unlock(&file->arena);
        if (!err)
            err = reserve_more_tokens(file, last_needed_token(file));
        return err ? err : set_reserved(file);
    }
    expire_due(file);
    return HF_OK;
}

void hf_transaction_end(struct hf_in_process *local)
{
    struct hf_file *file = file_of(local);
    unsigned wake_slots[HF_TRANSACTION_WAKES_MAX];
    unsigned count = file->wake_count;
    bool watchers = file->wake_watchers;

    memcpy(wake_slots, file->wake_slots, sizeof(wake_slots));
    file->wake_count = 0;
    file->wake_watchers = false;
    hf_arena_unlock(&file->arena);
    for (unsigned i = 0; i < count; i++) {
        if (wake_slots[i] < HF_ARENA_SLOTS)
            hf_slot_wake(&file->arena, wake_slots[i]);
    }
    for (unsigned i = 0; watchers && i < hf_slot_count(&file->arena); i++) {
        if (i != file->arena.slot && hf_slot_at(&file->arena, i)->watches)
            hf_slot_wake(&file->arena, i);
    }
    hf_reaper_watch_process(file);
}

/* The ring has commands from before this client was opened, back to the
 * snapshot. So if `from` is before our history, load the snapshot and apply the
 * ring again, which adds the events of these commands. */
static enum hf_err file_watch(struct hf_in_process *local, uint64_t from)
{
    struct hf_file *file = file_of(local);
    struct hf_store *store = &file->replica.store;

    hf_transaction_own_slot(file)->watches = 1;
    if (hf_store_enable_history(store, HF_HISTORY_BYTES))
        return HF_ENOMEM;
    if (from > 0 && from <= store->table.index && from < store->history.first)
        return hf_replica_reload_history(&file->replica);
    return HF_OK;
}

static void file_unwatch(struct hf_in_process *local)
{
    hf_transaction_own_slot(file_of(local))->watches = 0;
}

void hf_transaction_retry_soon(struct hf_file *file)
{
    struct hf_host *host = file->local.host;

    hf_timer_set(host, &file->retry, host->ops->now(host) + RETRY_MS);
}

static void file_retry_report(struct hf_in_process *local)
{
    if (!file_of(local)->broken)
        hf_transaction_retry_soon(file_of(local));
}

static void file_reap_holder(struct hf_in_process *local, struct hf_key key)
{
    (void)hf_reaper_free_key(file_of(local), key);
}

const struct hf_in_process_ops hf_transaction_ops = {
    .enter = hf_transaction_begin,
    .leave = hf_transaction_end,
    .retry_report = file_retry_report,
    .run = file_run,
    .reap_holder = file_reap_holder,
    .follow = file_follow,
    .watch = file_watch,
    .unwatch = file_unwatch,
};
