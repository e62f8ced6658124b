#include "strategy/file/deaths.h"

#include <sys/epoll.h>
#include <unistd.h>

#include "base/container.h"
#include "base/step.h"
#include "strategy/file/inside.h"

#define RECHECK_MAX_MS 500 /* waiters ask again by themselves after that */
#define SKIP_MAX 16        /* claims of our own before one in the queue */
#define REMOVE_MAX 256     /* predecessors in one critical section */

/* ---- Expiring holds -----------------------------------------------------*/

/* Whether the process of `session` has ended without closing its client, and
 * without detaching a lock. A session that was closed has no slot any more. */
static bool has_abandoned_locks(const struct hf_file *file, uint64_t session)
{
    unsigned slot = hf_file_slot_of(file, session);

    return slot < HF_ARENA_SLOTS && !hf_arena_locked(&file->arena, slot) &&
           !hf_arena_slot(&file->arena, slot)->detached;
}

static bool expire_hold(struct hf_file *file, const struct hf_hold *hold)
{
    const struct hf_command command = {
        .kind = HF_COMMAND_EXPIRE,
        .key = hf_hold_key(hold),
        .token = hold->token,
        .generation = hold->generation,
    };
    struct hf_local *local = &file->local;
    struct hf_result result;

    local->ops->run(local, hf_local_now(local), &command, &result);
    HF_STEP(30);
    return !result.err;
}

/* Whether any key is held by another client. If not, there is no need to look
 * for the holder of one, which costs a hash of the key for each LOCK. */
static bool others_hold_keys(const struct hf_file *file)
{
    const struct hf_table *table = &file->replica.store.table;
    const struct hf_session *own;

    if (table->holds.count == 0)
        return false;
    own = hf_table_session(table, file->local.session);
    return !own || own->holds < table->holds.count;
}

bool hf_deaths_free_key(struct hf_file *file, struct hf_key key)
{
    const struct hf_hold *hold;

    if (!others_hold_keys(file))
        return false;
    hold = hf_table_find(&file->replica.store.table, key);
    return hold && has_abandoned_locks(file, hold->session->id) &&
           expire_hold(file, hold);
}

void hf_deaths_free_all(struct hf_file *file, uint64_t session)
{
    struct hf_table *table = &file->replica.store.table;
    const struct hf_session *ended = hf_table_session(table, session);
    struct hf_walk walk;
    struct hf_hold *hold;

    if (!ended || ended->holds == 0)
        return;
    hf_table_walk(table, &walk);
    while ((hold = hf_walk_next(table, &walk))) {
        if (hold->session->id == session && !expire_hold(file, hold))
            break; /* the log is full: the rest ends with its leases */
    }
    hf_walk_end(&walk);
}

/* ---- Waiters ------------------------------------------------------------*/

static void close_pidfd(struct hf_deaths *deaths)
{
    if (deaths->pidfd >= 0)
        (void)close(deaths->pidfd);
    deaths->pidfd = -1;
}

/* A client mostly hands its keys over to one and the same other client, so one
 * pidfd is kept. A session never has another process, and its id is never used
 * again. If the slot has the pid of a later client already, then the process of
 * the session has ended; that of the later client is taken for it at worst. */
bool hf_deaths_is_running(struct hf_file *file, uint64_t session)
{
    struct hf_deaths *deaths = &file->deaths;
    unsigned slot = hf_file_slot_of(file, session);

    if (slot == HF_ARENA_SLOTS || !hf_arena_locked(&file->arena, slot))
        return false;
    if (deaths->session != session) {
        close_pidfd(deaths);
        deaths->pidfd = hf_arena_open_process(&file->arena, slot);
        deaths->session = session;
    }
    return !hf_arena_has_ended(&file->arena, slot, deaths->pidfd);
}

/* ---- Predecessors -------------------------------------------------------*/

/* The session of the next other client in front of `claim`: a waiter, else the
 * holder. 0: the holder is ours, or too many claims of our own are in front. */
static uint64_t find_predecessor(const struct hf_file *file,
                                 const struct hf_claim *claim)
{
    const struct hf_list *link = claim->in_line.prev;
    uint64_t own = file->local.session;
    uint64_t holder = claim->hold->session->id;

    for (int i = 0; i < SKIP_MAX; i++, link = link->prev) {
        const struct hf_claim *previous;

        if (link == &claim->hold->line)
            return holder != own ? holder : 0;
        previous = HF_CONTAINER(link, const struct hf_claim, in_line);
        if (previous->session->id != own)
            return previous->session->id;
    }
    return 0;
}

void hf_deaths_follow(struct hf_file *file, const struct hf_claim *claim)
{
    file->deaths.wanted = find_predecessor(file, claim);
}

/* ---- Watches ------------------------------------------------------------*/

static struct hf_death_watch *find_watch(struct hf_deaths *deaths,
                                         uint64_t session)
{
    for (unsigned i = 0; i < HF_DEATHS_MAX; i++) {
        if (deaths->watches[i].session == session)
            return &deaths->watches[i];
    }
    return NULL;
}

static void stop_watch(struct hf_death_watch *watch)
{
    struct hf_host *host = watch->file->local.host;

    if (watch->pidfd.fd < 0)
        return;
    host->ops->fd_remove(host, &watch->pidfd);
    (void)close(watch->pidfd.fd);
    watch->pidfd.fd = -1;
}

static struct hf_death_watch *new_watch(struct hf_file *file)
{
    struct hf_deaths *deaths = &file->deaths;
    struct hf_death_watch *watch = find_watch(deaths, 0);

    if (!watch) {
        watch = &deaths->watches[deaths->next];
        deaths->next = (deaths->next + 1) % HF_DEATHS_MAX;
        stop_watch(watch);
    }
    *watch = (struct hf_death_watch){.pidfd = {.fd = -1}, .file = file};
    return watch;
}

/* Review our claims again, after twice as long each time, up to the time at
 * which waiters ask again by themselves. */
static void schedule_recheck(struct hf_file *file)
{
    struct hf_deaths *deaths = &file->deaths;
    struct hf_host *host = file->local.host;

    if (deaths->delay_ms > RECHECK_MAX_MS)
        return;
    hf_timer_set(host, &deaths->recheck,
                 host->ops->now(host) + deaths->delay_ms);
    deaths->delay_ms = deaths->delay_ms > 0 ? deaths->delay_ms * 2 : 1;
}

static void restart_rechecks(struct hf_file *file)
{
    file->deaths.delay_ms = 0;
    schedule_recheck(file);
}

static void on_process_end(struct hf_fd *pidfd, uint32_t events)
{
    struct hf_death_watch *watch =
        HF_CONTAINER(pidfd, struct hf_death_watch, pidfd);

    (void)events;
    stop_watch(watch);
    restart_rechecks(watch->file);
}

static void add_watch(struct hf_file *file, int pidfd, uint64_t session)
{
    struct hf_host *host = file->local.host;
    struct hf_death_watch *watch = new_watch(file);

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

/* Watch the process of `session`. False: it has ended, so a recheck is due. It
 * may have ended before its pidfd was opened, and another process may have its
 * pid by now: only the lock on its slot shows that. */
static bool watch_session(struct hf_file *file, uint64_t session)
{
    const struct hf_death_watch *watch = find_watch(&file->deaths, session);
    unsigned slot = hf_file_slot_of(file, session);
    int pidfd;

    if (watch)
        return watch->pidfd.fd >= 0;
    if (slot == HF_ARENA_SLOTS)
        return true;
    if (hf_arena_slot(&file->arena, slot)->detached)
        return true;
    pidfd = hf_arena_open_process(&file->arena, slot);
    if (pidfd >= 0)
        add_watch(file, pidfd, session);
    return hf_arena_locked(&file->arena, slot);
}

void hf_deaths_watch(struct hf_file *file)
{
    uint64_t session = file->deaths.wanted;
    bool is_watched = find_watch(&file->deaths, session) != NULL;

    file->deaths.wanted = 0;
    /* One that is watched has had its rechecks, or will have them. */
    if (session != 0 && !is_watched && !watch_session(file, session))
        restart_rechecks(file);
}

/* ---- After the end of a process -----------------------------------------*/

/* One review of our claims. To ask whether a client is gone takes system calls,
 * so the last one that is there is remembered. */
struct review {
    struct hf_file *file;
    uint64_t holder, waiter; /* sessions that are there; 0: none known yet */
    int removed;
};

static const struct hf_claim *claim_at(const struct hf_list *link)
{
    return HF_CONTAINER(link, const struct hf_claim, of_session);
}

/* Whether the predecessor of a claim, a holder or a waiter, is gone. */
static bool is_gone(struct review *review, uint64_t session, bool is_holder)
{
    uint64_t *known = is_holder ? &review->holder : &review->waiter;
    bool is_gone;

    if (session == 0 || session == *known)
        return false;
    HF_STEP(32);
    is_gone = is_holder ? has_abandoned_locks(review->file, session)
                        : !hf_deaths_is_running(review->file, session);
    if (!is_gone)
        *known = session;
    return is_gone;
}

/* The next of our claims that is for another key. If a holder is removed, one of
 * our claims for its key may be granted, and is not in the list any more. */
static struct hf_list *find_next_key(const struct hf_session *own,
                                     struct hf_list *link)
{
    const struct hf_hold *hold = claim_at(link)->hold;

    while (link != &own->waiting && claim_at(link)->hold == hold)
        link = link->next;
    return link;
}

/* Remove the predecessors of our claims that are gone, up to REMOVE_MAX of them
 * or until the log is full. Claims that are passed over here are seen in the
 * next round. */
static void remove_predecessors(struct review *review,
                                const struct hf_session *own)
{
    struct hf_local *local = &review->file->local;
    struct hf_list *link = own->waiting.next;

    while (link != &own->waiting && review->removed < REMOVE_MAX) {
        const struct hf_claim *claim = claim_at(link);
        uint64_t session = find_predecessor(review->file, claim);
        bool is_holder = session == claim->hold->session->id;

        if (!is_gone(review, session, is_holder)) {
            link = link->next;
            continue;
        }
        if (is_holder)
            link = find_next_key(own, link);
        if (is_holder ? !expire_hold(review->file, claim->hold)
                      : hf_local_end_session(local, session) != HF_OK)
            return;
        review->removed++;
    }
}

/* Free the watches of sessions that need no recheck any more. */
static void drop_ended_watches(struct hf_file *file)
{
    for (unsigned i = 0; i < HF_DEATHS_MAX; i++) {
        struct hf_death_watch *watch = &file->deaths.watches[i];
        unsigned slot;

        if (watch->session == 0 || watch->pidfd.fd >= 0)
            continue;
        slot = hf_file_slot_of(file, watch->session);
        if (slot == HF_ARENA_SLOTS || !hf_arena_locked(&file->arena, slot))
            watch->session = 0;
    }
}

/* Watch the predecessors of our claims. False: the process of one has ended, but
 * its slot is still locked, or it could not be removed. */
static bool watch_predecessors(struct hf_file *file,
                               const struct hf_session *own)
{
    bool all_live = true;
    unsigned count = 0;

    for (struct hf_list *link = own->waiting.next;
         link != &own->waiting && count < HF_DEATHS_MAX;
         link = link->next, count++) {
        uint64_t session = find_predecessor(
            file, HF_CONTAINER(link, const struct hf_claim, of_session));

        if (session != 0 && !watch_session(file, session))
            all_live = false;
    }
    return all_live;
}

/* Remove the predecessors of our claims that are gone, and watch those that
 * come next. Critical section. */
static void review_claims(struct hf_file *file)
{
    const struct hf_session *own =
        hf_table_session(&file->replica.store.table, file->local.session);
    struct review review = {.file = file};
    int before;

    if (!own)
        return;
    do {
        before = review.removed;
        remove_predecessors(&review, own);
    } while (review.removed > before && review.removed < REMOVE_MAX);
    if (hf_list_empty(&own->waiting))
        return;
    drop_ended_watches(file);
    if (review.removed == REMOVE_MAX)
        restart_rechecks(file);
    else if (!watch_predecessors(file, own))
        schedule_recheck(file);
}

static void on_recheck(struct hf_timer *timer)
{
    struct hf_deaths *deaths = HF_CONTAINER(timer, struct hf_deaths, recheck);
    struct hf_file *file = HF_CONTAINER(deaths, struct hf_file, deaths);
    enum hf_err err = hf_file_enter(&file->local);

    if (!err) {
        review_claims(file);
        hf_file_leave(&file->local);
        hf_local_tell_news(&file->local);
    } else if (err == HF_EBUSY) {
        schedule_recheck(file);
    }
}

/* ---- Opening and closing ------------------------------------------------*/

enum hf_err hf_deaths_init(struct hf_file *file)
{
    struct hf_host *host = file->local.host;

    file->deaths.pidfd = -1;
    file->deaths.recheck.fire = on_recheck;
    return host->ops->timer_add(host, &file->deaths.recheck);
}

void hf_deaths_fini(struct hf_file *file)
{
    struct hf_host *host = file->local.host;

    for (unsigned i = 0; i < HF_DEATHS_MAX; i++) {
        if (file->deaths.watches[i].session != 0)
            stop_watch(&file->deaths.watches[i]);
    }
    close_pidfd(&file->deaths);
    host->ops->timer_remove(host, &file->deaths.recheck);
}
