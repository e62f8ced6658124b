#include "strategy/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "strategy/local.h"

#define RINGS 8 /* a command hands over once; the rest are watchers */

/* One store of locks, and who has it open. `mutex` guards all of it; a member's
 * own client calls in with its own lock held, so nothing here calls a client
 * but for hf_host.post, which takes no lock of the client's. */
struct shared {
    struct hf_list link; /* in `stores` */
    char *name;
    unsigned members;
    pthread_mutex_t mutex;
    struct hf_store store;
    struct member *inside;         /* who has entered */
    struct hf_waker *rings[RINGS]; /* of those to be woken when it leaves */
    unsigned ring_count;
    struct hf_map by_session; /* members */
    struct hf_list watchers;  /* members with a watch */
};

/* One open client. */
struct member {
    struct hf_host *host;
    struct shared *shared;
    struct hf_map_link link; /* by session */
    uint64_t session;
    struct hf_post news; /* grants and events wait to be told */
    bool own_news;       /* and this very call made them */
    bool telling;        /* and they are being told */
    struct hf_list watching;
    struct hf_list watches;
    struct hf_timer tick; /* while it watches: the next lease ends */
};

/* The stores of this process: that a name means the same to every client is
 * what memory: is for. */
static pthread_mutex_t stores_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct hf_list stores = {&stores, &stores};
static unsigned store_count;
static uint64_t last_token; /* of the stores that are gone: none comes again */

/* ---- Inside -------------------------------------------------------------*/

/* What a member does to its own waiters it tells itself, on its way out:
 * waking itself up would cost two system calls. */
static void post_news(struct member *member)
{
    struct shared *shared = member->shared;
    struct hf_waker *waker;

    if (member == shared->inside) {
        member->own_news = true;
        return;
    }
    waker = member->host->ops->post(member->host, &member->news);
    if (waker && shared->ring_count < RINGS)
        shared->rings[shared->ring_count++] = waker;
    else if (waker)
        hf_waker_ring(waker);
}

static void on_event(void *arg, const struct hf_table_event *event)
{
    struct shared *shared = arg;
    struct hf_map_link *waiter = NULL;

    if (event->waited)
        waiter = hf_map_find(&shared->by_session, event->session->id);
    if (waiter)
        post_news(HF_CONTAINER(waiter, struct member, link));
    for (struct hf_list *link = shared->watchers.next;
         link != &shared->watchers; link = link->next)
        post_news(HF_CONTAINER(link, struct member, watching));
}

/* Enter: the store is as it ought to be at this instant. */
static hf_time enter(struct member *member)
{
    struct shared *shared = member->shared;
    hf_time now = member->host->ops->now(member->host);
    struct hf_command expire;
    struct hf_result result;

    pthread_mutex_lock(&shared->mutex);
    shared->inside = member;
    while (hf_store_due(&shared->store, now, &expire)) {
        hf_store_run(&shared->store, now, &expire, &result);
        HF_ASSERT(result.err == HF_OK);
    }
    return now;
}

static void leave(struct member *member)
{
    struct shared *shared = member->shared;
    struct hf_waker *rings[RINGS];
    unsigned count = shared->ring_count;

    for (unsigned i = 0; i < count; i++)
        rings[i] = shared->rings[i];
    shared->ring_count = 0;
    shared->inside = NULL;
    pthread_mutex_unlock(&shared->mutex);
    for (unsigned i = 0; i < count; i++)
        hf_waker_ring(rings[i]);
}

/* ---- News ---------------------------------------------------------------*/

static bool next_grant(struct member *member, struct hf_push_grant *grant)
{
    bool found;

    enter(member);
    found = hf_local_next_grant(&member->shared->store, member->session, grant);
    leave(member);
    return found;
}

static bool next_event(struct member *member, struct hf_local_event *event)
{
    bool found;

    enter(member);
    found =
        hf_local_next_event(&member->shared->store, &member->watches, event);
    leave(member);
    return found;
}

/* Who watches sees to it that leases end on time, also where nobody waits for
 * them. Each event that may bring the next end nearer wakes it anyway. */
static void set_tick(struct member *member)
{
    hf_time at = HF_NEVER;

    enter(member);
    if (!hf_list_empty(&member->watches))
        at = hf_store_next(&member->shared->store);
    leave(member);
    hf_timer_set(member->host, &member->tick, at);
}

/* In the member's own context: tell what has gathered, one by one and outside
 * the store, because who hears of it may ask again at once. */
static void tell_news(struct hf_post *post)
{
    struct member *member = HF_CONTAINER(post, struct member, news);
    struct hf_push_grant grant;
    struct hf_local_event event;

    member->telling = true;
    do {
        member->own_news = false;
        while (next_grant(member, &grant))
            member->host->ops->grant(member->host, &grant);
        while (!hf_list_empty(&member->watches) && next_event(member, &event))
            member->host->ops->event(member->host, &event.push);
        set_tick(member);
    } while (member->own_news);
    member->telling = false;
}

static void on_tick(struct hf_timer *timer)
{
    tell_news(&HF_CONTAINER(timer, struct member, tick)->news);
}

/* ---- Requests -----------------------------------------------------------*/

static enum hf_err watch(struct member *member,
                         const struct hf_request *request)
{
    struct shared *shared = member->shared;
    enum hf_err err = hf_local_watch(&shared->store, &member->watches, request);

    if (err)
        return err;
    if (!hf_list_linked(&member->watching))
        hf_list_push_back(&shared->watchers, &member->watching);
    post_news(member); /* what it wants of the past, and its first tick */
    return HF_OK;
}

static void unwatch(struct member *member, uint64_t number)
{
    hf_local_unwatch(&member->watches, number);
    if (hf_list_empty(&member->watches))
        hf_list_remove(&member->watching);
}

static void submit(void *self, struct hf_request *request)
{
    struct member *member = self;
    struct hf_store *store = &member->shared->store;
    struct hf_answer *answer = &request->answer;
    hf_time now = enter(member);

    switch (request->kind) {
    case HF_REQUEST_COMMAND:
        request->command.session = member->session;
        hf_store_run(store, now, &request->command, &answer->result);
        hf_local_tell_time(store, request);
        break;
    case HF_REQUEST_READ:
        hf_local_read(store, now, request);
        break;
    case HF_REQUEST_LIST:
        hf_local_list(store, now, request);
        break;
    case HF_REQUEST_WATCH:
        answer->result.err = watch(member, request);
        break;
    case HF_REQUEST_UNWATCH:
        unwatch(member, request->watch);
        break;
    }
    answer->index = store->table.index;
    leave(member);
    member->host->ops->answer(member->host, request);
    if (member->own_news && !member->telling)
        tell_news(&member->news);
}

/* Every request is answered as it is submitted: there is none to give up. */
static void cancel(void *self, struct hf_request *request)
{
    (void)self;
    (void)request;
}

/* ---- Opening and closing ------------------------------------------------*/

static struct shared *find_store(const char *name)
{
    for (struct hf_list *link = stores.next; link != &stores;
         link = link->next) {
        struct shared *shared = HF_CONTAINER(link, struct shared, link);

        if (!strcmp(shared->name, name))
            return shared;
    }
    return NULL;
}

/* Commands are short: who finds another inside does better to spin a little
 * than to sleep. */
static void init_mutex(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

static struct shared *new_store(const char *name, struct hf_random *random)
{
    struct shared *shared = calloc(1, sizeof(*shared));
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
    hf_store_init(&shared->store, &seed, on_event, shared);
    shared->store.table.token = last_token;
    hf_map_init(&shared->by_session);
    hf_list_init(&shared->watchers);
    hf_list_push_back(&stores, &shared->link);
    store_count++;
    return shared;
}

static void drop_store(struct shared *shared)
{
    if (--shared->members > 0)
        return;
    hf_list_remove(&shared->link);
    store_count--;
    if (shared->store.table.token > last_token)
        last_token = shared->store.table.token;
    hf_store_fini(&shared->store);
    hf_map_fini(&shared->by_session);
    pthread_mutex_destroy(&shared->mutex);
    free(shared->name);
    free(shared);
}

static enum hf_err join(struct member *member)
{
    const char *owner = member->host->ops->owner(member->host);
    struct hf_command open = {
        .kind = HF_COMMAND_OPEN,
        .note = {owner, strlen(owner)},
    };
    struct hf_result result;

    hf_store_run(&member->shared->store, enter(member), &open, &result);
    if (!result.err) {
        member->session = result.session;
        hf_map_insert(&member->shared->by_session, &member->link,
                      result.session);
    }
    leave(member);
    return result.err;
}

static enum hf_err open_store(struct member *member, const char *name,
                              struct hf_error *error)
{
    struct shared *shared = find_store(name);
    enum hf_err err;

    if (!shared && store_count >= HF_MEMORY_MAX)
        return hf_error_set(error, HF_ELIMIT,
                            "memory: %u stores are open already", store_count);
    if (!shared)
        shared = new_store(name, member->host->ops->random(member->host));
    if (!shared)
        return hf_error_code(error, HF_ENOMEM);
    shared->members++;
    member->shared = shared;
    err = join(member);
    if (err) {
        drop_store(shared);
        return hf_error_set(error, err, "memory:%s: cannot join: %s", name,
                            hf_err_text(err));
    }
    return HF_OK;
}

static enum hf_err memory_open(void *self, struct hf_url *url,
                               struct hf_host *host, struct hf_error *error)
{
    struct member *member = self;
    enum hf_err err;

    if (url->hosts || *url->path == '\0')
        return hf_error_set(error, HF_EINVAL,
                            "url: memory: wants a name, as in memory:jobs");
    member->host = host;
    member->news.run = tell_news;
    member->tick.fire = on_tick;
    hf_list_init(&member->watches);
    hf_list_init(&member->watching);
    err = host->ops->timer_add(host, &member->tick);
    if (err)
        return hf_error_code(error, err);
    pthread_mutex_lock(&stores_mutex);
    err = open_store(member, url->path, error);
    pthread_mutex_unlock(&stores_mutex);
    if (err)
        host->ops->timer_remove(host, &member->tick);
    return err;
}

static uint32_t caps(const void *self)
{
    (void)self;
    return HF_CAP_FENCE | HF_CAP_FIFO | HF_CAP_PUSH | HF_CAP_STEADY |
           HF_CAP_LINEARIZABLE_READ | HF_CAP_VALUE | HF_CAP_WATCH;
}

static void memory_close(void *self)
{
    struct member *member = self;
    struct hf_command close = {
        .kind = HF_COMMAND_CLOSE,
        .session = member->session,
    };
    struct hf_result result;
    hf_time now;

    pthread_mutex_lock(&stores_mutex);
    now = enter(member);
    hf_map_remove(&member->shared->by_session, &member->link);
    hf_store_run(&member->shared->store, now, &close, &result);
    hf_list_remove(&member->watching);
    hf_local_unwatch_all(&member->watches);
    leave(member);
    member->host->ops->unpost(member->host, &member->news);
    member->host->ops->timer_remove(member->host, &member->tick);
    drop_store(member->shared);
    pthread_mutex_unlock(&stores_mutex);
}

const struct hf_strategy hf_strategy_memory = {
    .scheme = "memory",
    .size = sizeof(struct member),
    .open = memory_open,
    .caps = caps,
    .submit = submit,
    .cancel = cancel,
    .close = memory_close,
};
