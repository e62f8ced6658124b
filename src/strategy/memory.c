#include "strategy/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/wiped.h"
#include "strategy/in_process.h"

#define WAKERS_MAX                                                             \
    8 /* wakers kept for memory_leave(); others are woken with the mutex held */

/* A store and its clients, which are called members here. `mutex` guards
 * everything declared after it; the registry's mutex guards `link` and
 * `members`.
 *
 * A client holds its own mutex when it enters the store, so code in the
 * critical section must not call a client, except hf_host_ops.post, which does
 * not take the client's mutex. */
struct memory_store {
    struct hf_dlist link; /* in the registry */
    char *name;
    unsigned members;
    pthread_mutex_t mutex;
    struct hf_store store;
    struct member *current;              /* in its critical section */
    struct hf_waker *wakers[WAKERS_MAX]; /* to wake when `current` leaves */
    unsigned waker_count;
    struct hf_map by_session; /* members */
    struct hf_dlist watchers; /* members with watches */
};

/* One open client. */
struct member {
    struct hf_in_process local;
    struct memory_store *shared;
    struct hf_map_link link;  /* in shared->by_session */
    struct hf_post post;      /* makes this member report grants and events */
    struct hf_dlist watching; /* in shared->watchers */
};

/* The stores of this process, by name. A forked child starts with an empty
 * registry. It never touches the copies of its parent's stores, whose mutexes
 * may be locked. */
struct registry {
    pthread_mutex_t mutex;
    struct hf_dlist stores; /* zero until the first client is opened */
    unsigned count;
    uint64_t last_token; /* highest token of the freed stores, from which new
                            stores continue */
};
static void *_Atomic registry_page;

static struct registry *get_registry(void)
{
    return hf_wiped_get(&registry_page, sizeof(struct registry));
}

/* ---- The critical section -----------------------------------------------*/

/* Make `member` report its grants and events. `current` reports by itself
 * after `leave`, so it gets no post, which would cost two system calls. */
static void notify_member(struct member *member)
{
    struct memory_store *shared = member->shared;
    struct hf_waker *waker;

    if (member == shared->current) {
        member->local.has_reports = true;
        return;
    }
    waker = member->local.host->ops->post(member->local.host, &member->post);
    if (waker && shared->waker_count < WAKERS_MAX)
        shared->wakers[shared->waker_count++] = waker;
    else if (waker)
        hf_waker_wake(waker);
}

static void on_memory_event(void *arg, const struct hf_table_event *event)
{
    struct memory_store *shared = arg;
    struct hf_map_link *found = NULL;

    if (hf_in_process_needs(event))
        found = hf_map_find(&shared->by_session, event->session->id);
    if (found) {
        struct member *member = HF_CONTAINER(found, struct member, link);

        if (hf_in_process_note_event(&member->local, event))
            notify_member(member);
    }
    for (struct hf_dlist *link = shared->watchers.next;
         link != &shared->watchers; link = link->next)
        notify_member(HF_CONTAINER(link, struct member, watching));
}

static struct member *member_of(struct hf_in_process *local)
{
    return HF_CONTAINER(local, struct member, local);
}

static enum hf_err memory_enter(struct hf_in_process *local)
{
    struct memory_store *shared = member_of(local)->shared;
    hf_time now = hf_in_process_now(local);
    struct hf_command expire;
    struct hf_result result;

    pthread_mutex_lock(&shared->mutex);
    shared->current = member_of(local);
    while (hf_store_take_due(&shared->store, now, &expire, 1) > 0) {
        (void)hf_store_run(&shared->store, now, &expire, &result);
        HF_ASSERT(result.err == HF_OK);
    }
    return HF_OK;
}

static void memory_leave(struct hf_in_process *local)
{
    struct memory_store *shared = member_of(local)->shared;
    struct hf_waker *wakers[WAKERS_MAX];
    unsigned count = shared->waker_count;

    for (unsigned i = 0; i < count; i++)
        wakers[i] = shared->wakers[i];
    shared->waker_count = 0;
    shared->current = NULL;
    pthread_mutex_unlock(&shared->mutex);
    for (unsigned i = 0; i < count; i++)
        hf_waker_wake(wakers[i]);
}

static void memory_run(struct hf_in_process *local, hf_time now,
                       const struct hf_command *command,
                       struct hf_result *result)
{
    (void)hf_store_run(local->store, now, command, result);
}

/* The history starts with the first watch, so there are no older events to load
 * for `from`. */
static enum hf_err memory_watch(struct hf_in_process *local, uint64_t from)
{
    struct member *member = member_of(local);

    (void)from;
    if (!hf_dlist_is_linked(&member->watching))
        hf_dlist_push_back(&member->shared->watchers, &member->watching);
    return HF_OK;
}

static void memory_unwatch(struct hf_in_process *local)
{
    hf_dlist_remove(&member_of(local)->watching);
}

/* This is never called, because memory_enter() does not fail. */
static void memory_retry_report(struct hf_in_process *local)
{
    (void)local;
}

static const struct hf_in_process_ops local_ops = {
    .enter = memory_enter,
    .leave = memory_leave,
    .retry_report = memory_retry_report,
    .run = memory_run,
    .watch = memory_watch,
    .unwatch = memory_unwatch,
};

/* ---- Requests -----------------------------------------------------------*/

static void on_memory_post(struct hf_post *post)
{
    hf_in_process_report(&HF_CONTAINER(post, struct member, post)->local);
}

static void memory_submit(void *self, struct hf_request *request)
{
    struct member *member = self;
    enum hf_err err = hf_in_process_submit(&member->local, request);

    HF_ASSERT(err == HF_OK);
}

/* This is never called, because memory_submit() answers every request. */
static void memory_cancel(void *self, struct hf_request *request)
{
    (void)self;
    (void)request;
}

/* ---- Opening and closing ------------------------------------------------*/

static struct memory_store *find_store(const struct registry *registry,
                                       const char *name)
{
    for (struct hf_dlist *link = registry->stores.next;
         link != &registry->stores; link = link->next) {
        struct memory_store *shared =
            HF_CONTAINER(link, struct memory_store, link);

        if (!strcmp(shared->name, name))
            return shared;
    }
    return NULL;
}

/* Use an adaptive mutex: commands are short, so spinning for a moment is
 * cheaper than sleeping. */
static void init_mutex(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

static struct memory_store *new_store(struct registry *registry,
                                      const char *name,
                                      struct hf_random *random)
{
    struct memory_store *shared = calloc(1, sizeof(*shared));
    struct hf_seed seed;

    if (!shared)
        return NULL;
    shared->name = strdup(name);
    if (!shared->name || hf_random_bytes(random, &seed, sizeof(seed))) {
        free(shared->name);
        free(shared);
        return NULL;
    }
    init_mutex(&shared->mutex);
    (void)hf_store_init(&shared->store, &seed, 0, on_memory_event, shared);
    shared->store.table.token = registry->last_token;
    hf_map_init(&shared->by_session);
    hf_dlist_init(&shared->watchers);
    hf_dlist_push_back(&registry->stores, &shared->link);
    registry->count++;
    return shared;
}

static void drop_store(struct registry *registry, struct memory_store *shared)
{
    if (--shared->members > 0)
        return;
    hf_dlist_remove(&shared->link);
    registry->count--;
    if (shared->store.table.token > registry->last_token)
        registry->last_token = shared->store.table.token;
    hf_store_fini(&shared->store);
    hf_map_fini(&shared->by_session);
    pthread_mutex_destroy(&shared->mutex);
    free(shared->name);
    free(shared);
}

static enum hf_err open_member_session(struct member *member)
{
    struct hf_in_process *local = &member->local;
    enum hf_err err;

    local->store = &member->shared->store;
    memory_enter(local);
    err = hf_in_process_open_session(local);
    if (!err)
        hf_map_insert(&member->shared->by_session, &member->link,
                      local->session);
    memory_leave(local);
    return err;
}

static enum hf_err join_memory_store(struct registry *registry,
                                     struct member *member, const char *name,
                                     struct hf_error *error)
{
    struct hf_host *host = member->local.host;
    struct hf_random *random = host->ops->random(host);
    struct memory_store *shared;
    enum hf_err err;

    if (!registry->stores.next)
        hf_dlist_init(&registry->stores);
    shared = find_store(registry, name);
    if (!shared && registry->count >= HF_MEMORY_MAX)
        return hf_error_set(error, HF_ELIMIT,
                            "memory: limit of %u open stores reached",
                            registry->count);
    if (!shared)
        shared = new_store(registry, name, random);
    if (!shared)
        return hf_error_set_code(error, HF_ENOMEM);
    shared->members++;
    member->shared = shared;
    err = open_member_session(member);
    if (err) {
        drop_store(registry, shared);
        return hf_error_set(error, err, "memory:%s: cannot open a session: %s",
                            name, hf_err_text(err));
    }
    return HF_OK;
}

static enum hf_err memory_open(void *self, struct hf_url *url,
                               struct hf_host *host, struct hf_error *error)
{
    struct member *member = self;
    struct registry *registry;
    enum hf_err err;

    if (url->hosts || *url->path == '\0')
        return hf_error_set(error, HF_EINVAL,
                            "url: memory: needs a name, as in memory:jobs");
    registry = get_registry();
    if (!registry)
        return hf_error_set_code(error, HF_ENOMEM);
    member->post.run = on_memory_post;
    hf_dlist_init(&member->watching);
    err = hf_in_process_init(&member->local, host, &local_ops);
    if (err)
        return hf_error_set_code(error, err);
    pthread_mutex_lock(&registry->mutex);
    err = join_memory_store(registry, member, url->path, error);
    pthread_mutex_unlock(&registry->mutex);
    if (err)
        hf_in_process_fini(&member->local);
    return err;
}

static void memory_close(void *self)
{
    struct member *member = self;
    struct hf_in_process *local = &member->local;
    struct registry *registry = get_registry();

    pthread_mutex_lock(&registry->mutex);
    memory_enter(local);
    hf_map_remove(&member->shared->by_session, &member->link);
    (void)hf_in_process_close_session(local, local->session);
    hf_dlist_remove(&member->watching);
    memory_leave(local);
    local->host->ops->unpost(local->host, &member->post);
    hf_in_process_fini(local);
    drop_store(registry, member->shared);
    pthread_mutex_unlock(&registry->mutex);
}

const struct hf_strategy hf_strategy_memory = {
    .scheme = "memory",
    .clock = CLOCK_MONOTONIC,
    .looks_up = true,
    .size = sizeof(struct member),
    .open = memory_open,
    .caps = hf_in_process_caps,
    .submit = memory_submit,
    .cancel = memory_cancel,
    .close = memory_close,
};
