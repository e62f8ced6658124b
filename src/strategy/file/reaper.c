#include "strategy/file/reaper.h"

#include <sys/epoll.h>
#include <unistd.h>

#include "base/container.h"
#include "base/crash_point.h"
#include "strategy/file/transaction.h"

#define RECHECK_MAX_MS 500 /* longest delay; waiters poll about as often */
#define SKIP_MAX 16 /* our own claims to skip when looking for a predecessor */
#define REMOVE_MAX 256 /* predecessors removed in one transaction */

/* ---- Expiring holds -----------------------------------------------------*/

/* Returns true if the client of `session` has died without detaching a lock,
 * and no process that inherited its descriptor keeps its slot locked. A closed
 * session has no slot any more, so this returns false for it. */
static bool has_abandoned_locks(const struct hf_file *file, uint64_t session)
{
    unsigned slot = hf_transaction_find_slot(file, session);

    return slot < HF_ARENA_SLOTS && !hf_slot_is_locked(&file->arena, slot) &&
           !hf_slot_at(&file->arena, slot)->detached;
}

static bool expire_hold(struct hf_file *file, const struct hf_hold *hold)
{
    const struct hf_command command = {
        .kind = HF_COMMAND_EXPIRE,
        .key = hf_hold_key(hold),
        .token = hold->token,
        .generation = hold->generation,
    };
    struct hf_in_process *local = &file->local;
    struct hf_result result;

    local->ops->run(local, hf_in_process_now(local), &command, &result);
    HF_CRASH_POINT(30);
    return !result.err;
}

/* Returns true if another client holds any key. If not, a LOCK need not look up
 * the holder of its key, which saves hashing the key. */
static bool others_hold_keys(const struct hf_file *file)
{
    const struct hf_table *table = &file->replica.store.table;
    const struct hf_session *own;

    if (table->holds.count == 0)
        return false;
    own = hf_table_find_session(table, file->local.session);
    return !own || own->holds < table->holds.count;
}

bool hf_reaper_free_key(struct hf_file *file, struct hf_key key)
{
    const struct hf_hold *hold;

    if (!others_hold_keys(file))
        return false;
    hold = hf_table_find(&file->replica.store.table, key);
    return hold && has_abandoned_locks(file, hold->session->id) &&
           expire_hold(file, hold);
}

void hf_reaper_free_session(struct hf_file *file, uint64_t session)
{
    struct hf_table *table = &file->replica.store.table;
    const struct hf_session *ended = hf_table_find_session(table, session);
    struct hf_table_walk walk;
    struct hf_hold *hold;

    if (!ended || ended->holds == 0)
        return;
    hf_table_walk_begin(table, &walk);
    while ((hold = hf_table_walk_next(table, &walk))) {
        if (hold->session->id == session && !expire_hold(file, hold))
            break; /* failed; the other holds expire with their leases */
    }
    hf_table_walk_end(&walk);
}

/* ---- Waiters ------------------------------------------------------------*/

static void close_pidfd(struct hf_reaper *reaper)
{
    if (reaper->pidfd >= 0)
        (void)close(reaper->pidfd);
    reaper->pidfd = -1;
}

/* A client mostly hands its keys over to the same other client, so one pidfd is
 * kept. A session never changes its process, and its id is never used again, so
 * the pidfd stays valid for the session. If the slot already has the pid of a
 * later client, the process of the session has ended; at worst the later
 * client's process is checked instead. */
bool hf_reaper_is_running(struct hf_file *file, uint64_t session)
{
    struct hf_reaper *reaper = &file->reaper;
    unsigned slot = hf_transaction_find_slot(file, session);

    if (slot == HF_ARENA_SLOTS || !hf_slot_is_locked(&file->arena, slot))
        return false;
    if (reaper->session != session) {
        close_pidfd(reaper);
        reaper->pidfd = hf_slot_open_process(&file->arena, slot);
        reaper->session = session;
    }
    return !hf_slot_has_process_ended(&file->arena, slot, reaper->pidfd);
}

/* ---- Predecessors -------------------------------------------------------*/

/* The session of the nearest claim in front of `waiter` that is another
 * client's: a waiter's if there is one, otherwise the holder's. Returns 0 if
 * the holder and all waiters in front are ours, or if the nearest SKIP_MAX
 * waiters in front are ours. */
static uint64_t find_predecessor(const struct hf_file *file,
                                 const struct hf_table_waiter *waiter)
{
    const struct hf_dlist *link = waiter->in_queue.prev;
    uint64_t own = file->local.session;
    uint64_t holder = waiter->hold->session->id;

    for (int i = 0; i < SKIP_MAX; i++, link = link->prev) {
        const struct hf_table_waiter *previous;

        if (link == &waiter->hold->queue)
            return holder != own ? holder : 0;
        previous = HF_CONTAINER(link, const struct hf_table_waiter, in_queue);
        if (previous->session->id != own)
            return previous->session->id;
    }
    return 0;
}

void hf_reaper_follow(struct hf_file *file,
                      const struct hf_table_waiter *waiter)
{
    file->reaper.wanted = find_predecessor(file, waiter);
}

/* ---- Watches ------------------------------------------------------------*/

static struct hf_reaper_watch *find_process_watch(struct hf_reaper *reaper,
                                                  uint64_t session)
{
    for (unsigned i = 0; i < HF_REAPER_WATCHES_MAX; i++) {
        if (reaper->watches[i].session == session)
            return &reaper->watches[i];
    }
    return NULL;
}

static void stop_process_watch(struct hf_reaper_watch *watch)
{
    struct hf_host *host = watch->file->local.host;

    if (watch->pidfd.fd < 0)
        return;
    host->ops->fd_remove(host, &watch->pidfd);
    (void)close(watch->pidfd.fd);
    watch->pidfd.fd = -1;
}

static struct hf_reaper_watch *new_process_watch(struct hf_file *file)
{
    struct hf_reaper *reaper = &file->reaper;
    struct hf_reaper_watch *watch = find_process_watch(reaper, 0);

    if (!watch) {
        watch = &reaper->watches[reaper->next];
        reaper->next = (reaper->next + 1) % HF_REAPER_WATCHES_MAX;
        stop_process_watch(watch);
    }
    *watch = (struct hf_reaper_watch){.pidfd = {.fd = -1}, .file = file};
    return watch;
}

/* Schedule another call of review_claims(). The delay doubles each time; beyond
 * RECHECK_MAX_MS no review is scheduled, because waiters poll about as
 * often. */
static void schedule_recheck(struct hf_file *file)
{
    struct hf_reaper *reaper = &file->reaper;
    struct hf_host *host = file->local.host;

    if (reaper->delay_ms > RECHECK_MAX_MS)
        return;
    hf_timer_set(host, &reaper->recheck,
                 host->ops->now(host) + reaper->delay_ms);
    reaper->delay_ms = reaper->delay_ms > 0 ? reaper->delay_ms * 2 : 1;
}

static void restart_rechecks(struct hf_file *file)
{
    file->reaper.delay_ms = 0;
    schedule_recheck(file);
}

static void on_process_end(struct hf_fd *pidfd, uint32_t events)
{
    struct hf_reaper_watch *watch =
        HF_CONTAINER(pidfd, struct hf_reaper_watch, pidfd);

    (void)events;
    stop_process_watch(watch);
    restart_rechecks(watch->file);
}

static void add_process_watch(struct hf_file *file, int pidfd, uint64_t session)
{
    struct hf_host *host = file->local.host;
    struct hf_reaper_watch *watch = new_process_watch(file);

    watch->pidfd = (struct hf_fd){
        .fd = pidfd,
        .events = EPOLLIN,
        .ready = on_process_end,
    };
    if (host->ops->fd_add(host, &watch->pidfd)) {
        (void)close(pidfd);
        watch->pidfd.fd = -1;
        return;
    }
    watch->session = session;
}

/* Watch the process of `session`, unless the session is closed or its client
 * has detached a lock. Returns false if the process has ended, so that a
 * recheck is due. The process may have ended before its pidfd was opened, and
 * another process may have its pid by now, so the lock on the slot decides. */
static bool watch_session(struct hf_file *file, uint64_t session)
{
    const struct hf_reaper_watch *watch =
        find_process_watch(&file->reaper, session);
    unsigned slot = hf_transaction_find_slot(file, session);
    int pidfd;

    if (watch)
        return watch->pidfd.fd >= 0;
    if (slot == HF_ARENA_SLOTS)
        return true;
    if (hf_slot_at(&file->arena, slot)->detached)
        return true;
    pidfd = hf_slot_open_process(&file->arena, slot);
    if (pidfd >= 0)
        add_process_watch(file, pidfd, session);
    return hf_slot_is_locked(&file->arena, slot);
}

void hf_reaper_watch_process(struct hf_file *file)
{
    uint64_t session = file->reaper.wanted;
    bool is_watched = find_process_watch(&file->reaper, session) != NULL;

    file->reaper.wanted = 0;
    /* A watched process has had its rechecks, or will have them when it ends,
     * so it needs none now. */
    if (session != 0 && !is_watched && !watch_session(file, session))
        restart_rechecks(file);
}

/* ---- After the end of a process -----------------------------------------*/

/* One review of our claims. Checking whether a client is dead takes system
 * calls, so the last client found alive is remembered. */
struct review {
    struct hf_file *file;
    uint64_t holder, waiter; /* sessions found alive; 0: none yet */
    int removed;
};

static const struct hf_table_waiter *claim_at(const struct hf_dlist *link)
{
    return HF_CONTAINER(link, const struct hf_table_waiter, in_session);
}

/* Returns true if `session`, which holds a key that we wait for (`is_holder`)
 * or waits in front of us, is dead. Remembers the last session found alive. */
static bool is_dead(struct review *review, uint64_t session, bool is_holder)
{
    uint64_t *known = is_holder ? &review->holder : &review->waiter;
    bool is_dead;

    if (session == 0 || session == *known)
        return false;
    HF_CRASH_POINT(32);
    is_dead = is_holder ? has_abandoned_locks(review->file, session)
                        : !hf_reaper_is_running(review->file, session);
    if (!is_dead)
        *known = session;
    return is_dead;
}

/* The next of our claims that is for another key. After a holder is removed,
 * one of our claims for its key may be granted and leave the list, so move on
 * to another key before that. */
static struct hf_dlist *find_next_key(const struct hf_session *own,
                                      struct hf_dlist *link)
{
    const struct hf_hold *hold = claim_at(link)->hold;

    while (link != &own->waiting && claim_at(link)->hold == hold)
        link = link->next;
    return link;
}

/* Remove the dead predecessors of our claims, up to REMOVE_MAX of them or
 * until the log is full. Claims that find_next_key() skips are handled in the
 * next call. */
static void remove_predecessors(struct review *review,
                                const struct hf_session *own)
{
    struct hf_in_process *local = &review->file->local;
    struct hf_dlist *link = own->waiting.next;

    while (link != &own->waiting && review->removed < REMOVE_MAX) {
        const struct hf_table_waiter *waiter = claim_at(link);
        uint64_t session = find_predecessor(review->file, waiter);
        bool is_holder = session == waiter->hold->session->id;

        if (!is_dead(review, session, is_holder)) {
            link = link->next;
            continue;
        }
        if (is_holder)
            link = find_next_key(own, link);
        if (is_holder ? !expire_hold(review->file, waiter->hold)
                      : hf_in_process_close_session(local, session) != HF_OK)
            return;
        review->removed++;
    }
}

/* Free the watches of sessions that need no recheck any more. */
static void drop_ended_watches(struct hf_file *file)
{
    for (unsigned i = 0; i < HF_REAPER_WATCHES_MAX; i++) {
        struct hf_reaper_watch *watch = &file->reaper.watches[i];
        unsigned slot;

        if (watch->session == 0 || watch->pidfd.fd >= 0)
            continue;
        slot = hf_transaction_find_slot(file, watch->session);
        if (slot == HF_ARENA_SLOTS || !hf_slot_is_locked(&file->arena, slot))
            watch->session = 0;
    }
}

/* Watch the predecessors of our first HF_REAPER_WATCHES_MAX claims. Returns
 * false if a predecessor's process has ended, but its slot is still locked or
 * the predecessor could not be removed. A recheck is then needed. */
static bool watch_predecessors(struct hf_file *file,
                               const struct hf_session *own)
{
    bool all_alive = true;
    unsigned count = 0;

    for (struct hf_dlist *link = own->waiting.next;
         link != &own->waiting && count < HF_REAPER_WATCHES_MAX;
         link = link->next, count++) {
        uint64_t session = find_predecessor(
            file, HF_CONTAINER(link, const struct hf_table_waiter, in_session));

        if (session != 0 && !watch_session(file, session))
            all_alive = false;
    }
    return all_alive;
}

/* Critical section. Remove the dead predecessors of our claims, and watch those
 * that remain. */
static void review_claims(struct hf_file *file)
{
    const struct hf_session *own =
        hf_table_find_session(&file->replica.store.table, file->local.session);
    struct review review = {.file = file};
    int before;

    if (!own)
        return;
    do {
        before = review.removed;
        remove_predecessors(&review, own);
    } while (review.removed > before && review.removed < REMOVE_MAX);
    if (hf_dlist_is_empty(&own->waiting))
        return;
    drop_ended_watches(file);
    if (review.removed == REMOVE_MAX)
        restart_rechecks(file);
    else if (!watch_predecessors(file, own))
        schedule_recheck(file);
}

static void on_recheck(struct hf_timer *timer)
{
    struct hf_reaper *reaper = HF_CONTAINER(timer, struct hf_reaper, recheck);
    struct hf_file *file = HF_CONTAINER(reaper, struct hf_file, reaper);
    enum hf_err err = hf_transaction_begin(&file->local);

    if (!err) {
        review_claims(file);
        hf_transaction_end(&file->local);
        hf_in_process_report(&file->local);
    } else if (file->delay) {
        schedule_recheck(file);
    }
}

/* ---- Opening and closing ------------------------------------------------*/

enum hf_err hf_reaper_init(struct hf_file *file)
{
    struct hf_host *host = file->local.host;

    file->reaper.pidfd = -1;
    file->reaper.recheck.fire = on_recheck;
    return host->ops->timer_add(host, &file->reaper.recheck);
}

void hf_reaper_fini(struct hf_file *file)
{
    struct hf_host *host = file->local.host;

    for (unsigned i = 0; i < HF_REAPER_WATCHES_MAX; i++) {
        if (file->reaper.watches[i].session != 0)
            stop_process_watch(&file->reaper.watches[i]);
    }
    close_pidfd(&file->reaper);
    host->ops->timer_remove(host, &file->reaper.recheck);
}
