#include "strategy/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "core/history.h"
#include "core/table.h"

#define RINGS 8 /* a command hands over once; the rest are watchers */

/* One table, and what drives it. `mutex` guards all of it; a member's own
 * client calls in with its own lock held, so nothing here calls a client but
 * for hf_host.post, which takes no lock of the client's. */
struct store {
    struct hf_list link; /* in `stores` */
    char *name;
    unsigned members;
    pthread_mutex_t mutex;
    struct member *inside;         /* who has entered */
    struct hf_waker *rings[RINGS]; /* of those to be woken when it leaves */
    unsigned ring_count;
    hf_time now;             /* of the command being applied */
    struct hf_hold *touched; /* by it: granted, renewed or waited for */
    struct hf_table table;
    struct hf_leases leases;
    struct hf_history history; /* kept from the first watch on */
    struct hf_map by_session;  /* members */
    struct hf_list watchers;   /* members with a watch */
};

/* One watch of one member: the prefix follows. */
struct watch {
    struct hf_list link;
    uint64_t number;
    struct hf_cursor cursor;
    size_t size;
    uint8_t prefix[];
};

/* One open client. */
struct member {
    struct hf_host *host;
    struct store *store;
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

/* ---- Driving the table --------------------------------------------------*/

/* What a member does to its own waiters it tells itself, on its way out:
 * waking itself up would cost two system calls. */
static void post_news(struct member *member)
{
    struct store *store = member->store;
    struct hf_waker *waker;

    if (member == store->inside) {
        member->own_news = true;
        return;
    }
    waker = member->host->ops->post(member->host, &member->news);
    if (waker && store->ring_count < RINGS)
        store->rings[store->ring_count++] = waker;
    else if (waker)
        hf_waker_ring(waker);
}

static void keep_history(struct store *store,
                         const struct hf_table_event *event)
{
    struct hf_event kept = {
        .kind = event->kind,
        .index = event->index,
        .key = hf_hold_key(event->hold),
        .token = event->hold->token,
        .owner = event->session->label,
        .freed = event->freed,
    };

    if (event->kind == HF_EVENT_QUEUED || event->kind == HF_EVENT_WITHDRAWN)
        kept.token = 0;
    hf_history_add(&store->history, &kept);
    for (struct hf_list *link = store->watchers.next; link != &store->watchers;
         link = link->next)
        post_news(HF_CONTAINER(link, struct member, watching));
}

/* Leases are counted here, from the instant of the grant on: the clock is the
 * clients' own, so the stamp of a grant is its base. */
static void on_event(void *arg, const struct hf_table_event *event)
{
    struct store *store = arg;
    struct hf_hold *hold = event->hold;
    struct hf_map_link *link;

    store->touched = event->ends ? NULL : hold;
    if (event->ends)
        hf_leases_drop(&store->leases, &hold->lease);
    if (event->kind == HF_EVENT_GRANTED)
        hold->since = store->now;
    if (event->kind == HF_EVENT_GRANTED || event->kind == HF_EVENT_RENEWED)
        hf_leases_set(&store->leases, &hold->lease,
                      hf_time_add(store->now, event->lease_ms));
    link = event->waited ? hf_map_find(&store->by_session, event->session->id)
                         : NULL;
    if (link)
        post_news(HF_CONTAINER(link, struct member, link));
    if (store->history.bytes)
        keep_history(store, event);
}

/* Only a LOCK can add a lease: a hand-over ends one before it begins one. */
static void apply(struct store *store, const struct hf_command *command,
                  struct hf_result *result)
{
    if ((command->kind == HF_COMMAND_LOCK &&
         hf_leases_reserve(&store->leases)) ||
        hf_table_apply(&store->table, command, result))
        *result = (struct hf_result){.err = HF_ENOMEM};
}

static void expire_due(struct store *store)
{
    struct hf_lease *lease;

    while ((lease = hf_leases_due(&store->leases, store->now))) {
        struct hf_hold *hold = HF_CONTAINER(lease, struct hf_hold, lease);
        struct hf_command command = {
            .kind = HF_COMMAND_EXPIRE,
            .key = hf_hold_key(hold),
            .token = hold->token,
            .generation = hold->generation,
        };
        struct hf_result result;

        apply(store, &command, &result);
        HF_ASSERT(result.err == HF_OK);
    }
}

/* Enter the store: it is as it ought to be at this instant. */
static void enter(struct member *member)
{
    struct store *store = member->store;

    pthread_mutex_lock(&store->mutex);
    store->inside = member;
    store->now = member->host->ops->now(member->host);
    expire_due(store);
}

static void leave(struct member *member)
{
    struct store *store = member->store;
    struct hf_waker *rings[RINGS];
    unsigned count = store->ring_count;

    hf_copy(rings, store->rings, count * sizeof(*rings));
    store->ring_count = 0;
    store->inside = NULL;
    pthread_mutex_unlock(&store->mutex);
    for (unsigned i = 0; i < count; i++)
        hf_waker_ring(rings[i]);
}

/* ---- Requests -----------------------------------------------------------*/

/* In line: nobody but those who wait looks at the clock, so each looks when
 * the lease ends, the first on time and the others a little later in turn. */
static uint32_t look_again(const struct store *store,
                           const struct hf_hold *hold, uint32_t place)
{
    hf_time end = hf_leases_deadline(&store->leases, &hold->lease);
    uint32_t turn = place < 4 ? (place - 1) * 10 : 30;

    return hf_time_left(end, store->now) + turn;
}

/* What the answer to a LOCK or a RENEW says of time. A command that was asked
 * before touches nothing: then a grant is as old as it is, and from when a
 * renewal counts is for the client to say. */
static void tell_time(const struct store *store, struct hf_request *request)
{
    struct hf_answer *answer = &request->answer;
    const struct hf_hold *hold = store->touched;
    bool again = !hold;

    if (again && request->command.kind == HF_COMMAND_LOCK)
        hold = hf_table_find(&store->table, request->command.key);
    if (!hold)
        return;
    if (answer->result.place > 0)
        answer->look_again_ms = look_again(store, hold, answer->result.place);
    else if (answer->result.err == HF_OK && hold->token == answer->result.token)
        answer->anchor = (struct hf_anchor){.known = true, .sent = hold->since};
    else if (answer->result.err == HF_OK && !again)
        answer->anchor = (struct hf_anchor){.known = true, .sent = store->now};
}

static void command(struct member *member, struct hf_request *request)
{
    struct store *store = member->store;

    request->command.session = member->session;
    store->touched = NULL;
    apply(store, &request->command, &request->answer.result);
    if (request->command.kind == HF_COMMAND_LOCK ||
        request->command.kind == HF_COMMAND_RENEW)
        tell_time(store, request);
}

static struct hf_info info_of(const struct store *store,
                              const struct hf_hold *hold)
{
    hf_time end = hf_leases_deadline(&store->leases, &hold->lease);

    return (struct hf_info){
        .key = hf_hold_key(hold),
        .held = true,
        .forced = hold->forced,
        .token = hold->token,
        .held_ms = hf_time_left(store->now, hold->since),
        .left_ms = hf_time_left(end, store->now),
        .waiters = hold->waiters,
        .value = hf_hold_value(hold),
        .owner = hold->session->label,
        .note = "",
        .index = store->table.index,
    };
}

/* The note is bytes in the table and text outside. */
static enum hf_err copy_info(const struct store *store,
                             const struct hf_hold *hold, struct hf_info *info)
{
    struct hf_info from = info_of(store, hold);
    struct hf_bytes bytes = hf_hold_note(hold);
    char note[HF_NOTE_MAX + 1];

    hf_copy(note, bytes.data, bytes.size);
    note[bytes.size] = '\0';
    from.note = note;
    return hf_info_copy(info, &from);
}

static void read_one(struct member *member, struct hf_request *request)
{
    struct store *store = member->store;
    struct hf_answer *answer = &request->answer;
    struct hf_key key = request->command.key;
    const struct hf_hold *hold = hf_table_find(&store->table, key);
    struct hf_info none = {.key = key, .owner = "", .note = ""};
    enum hf_err err;

    answer->infos = calloc(1, sizeof(*answer->infos));
    none.index = store->table.index;
    if (!answer->infos)
        err = HF_ENOMEM;
    else if (hold)
        err = copy_info(store, hold, answer->infos);
    else
        err = hf_info_copy(answer->infos, &none);
    answer->count = err ? 0 : 1;
    answer->result.err = err;
}

static void list(struct member *member, struct hf_request *request)
{
    struct store *store = member->store;
    struct hf_answer *answer = &request->answer;
    struct hf_hold *hold = NULL;
    size_t matches = 0;

    while ((hold = hf_table_next(&store->table, hold)))
        matches += hf_key_has_prefix(hf_hold_key(hold), request->command.key);
    if (matches > HF_LIST_MAX) {
        answer->result.err = HF_ELIMIT;
        return;
    }
    answer->infos = calloc(matches + 1, sizeof(*answer->infos));
    if (!answer->infos)
        answer->result.err = HF_ENOMEM;
    while (!answer->result.err && (hold = hf_table_next(&store->table, hold))) {
        if (!hf_key_has_prefix(hf_hold_key(hold), request->command.key))
            continue;
        answer->result.err =
            copy_info(store, hold, &answer->infos[answer->count]);
        if (!answer->result.err)
            answer->count++;
    }
    answer->index = store->table.index;
}

/* ---- Watching -----------------------------------------------------------*/

static struct watch *watch_of(struct hf_list *link)
{
    return HF_CONTAINER(link, struct watch, link);
}

static struct watch *find_watch(const struct member *member, uint64_t number)
{
    for (struct hf_list *link = member->watches.next; link != &member->watches;
         link = link->next) {
        if (watch_of(link)->number == number)
            return watch_of(link);
    }
    return NULL;
}

/* A repeat finds its watch in place: each event is told once. */
static enum hf_err watch(struct member *member,
                         const struct hf_request *request)
{
    struct store *store = member->store;
    struct hf_key prefix = request->command.key;
    uint64_t next = store->table.index + 1;
    struct watch *watch;

    if (find_watch(member, request->watch))
        return HF_OK;
    watch = malloc(sizeof(*watch) + prefix.size);
    if (!watch)
        return HF_ENOMEM;
    if (!store->history.bytes && hf_history_init(&store->history, next)) {
        free(watch);
        return HF_ENOMEM;
    }
    *watch = (struct watch){.number = request->watch, .size = prefix.size};
    hf_copy(watch->prefix, prefix.data, prefix.size);
    watch->cursor =
        hf_history_from(&store->history, request->from ? request->from : next);
    hf_list_push_back(&member->watches, &watch->link);
    if (!hf_list_linked(&member->watching))
        hf_list_push_back(&store->watchers, &member->watching);
    post_news(member); /* what it wants of the past, and its first tick */
    return HF_OK;
}

static void end_watch(struct member *member, struct watch *watch)
{
    hf_list_remove(&watch->link);
    if (hf_list_empty(&member->watches))
        hf_list_remove(&member->watching);
    free(watch);
}

static void unwatch(struct member *member, uint64_t number)
{
    struct watch *watch = find_watch(member, number);

    if (watch)
        end_watch(member, watch);
}

/* The next event for any watch of this member, copied out of the history. */
struct news {
    struct hf_push_event push;
    char owner[HF_NOTE_MAX + 1];
    uint8_t key[HF_KEY_MAX];
};

static bool read_watch(struct member *member, struct watch *watch,
                       struct news *news)
{
    struct hf_key prefix = {watch->prefix, watch->size};
    struct hf_event *event = &news->push.event;

    while (hf_history_read(&member->store->history, &watch->cursor, event)) {
        if (event->kind != HF_EVENT_DROPPED &&
            !hf_key_has_prefix(event->key, prefix))
            continue;
        news->push.watch = watch->number;
        hf_copy(news->owner, event->owner, strlen(event->owner) + 1);
        hf_copy(news->key, event->key.data, event->key.size);
        event->owner = news->owner;
        event->key.data = news->key;
        return true;
    }
    return false;
}

static bool next_event(struct member *member, struct news *news)
{
    bool found = false;

    enter(member);
    for (struct hf_list *link = member->watches.next;
         !found && link != &member->watches; link = link->next)
        found = read_watch(member, watch_of(link), news);
    leave(member);
    return found;
}

static bool next_grant(struct member *member, struct hf_push_grant *push)
{
    struct hf_table *table = &member->store->table;
    struct hf_grant grant;
    bool found;

    enter(member);
    found = hf_table_take_grant(table, hf_table_session(table, member->session),
                                &grant);
    if (found)
        *push = (struct hf_push_grant){
            .nonce = grant.nonce,
            .token = grant.token,
            .generation = grant.generation,
            .anchor = {.known = true, .sent = grant.hold->since},
        };
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
        at = hf_leases_next(&member->store->leases);
    leave(member);
    hf_timer_set(member->host, &member->tick, at);
}

/* In the member's own context: tell what has gathered, one by one and outside
 * the store, because who hears of it may ask again at once. */
static void tell_news(struct hf_post *post)
{
    struct member *member = HF_CONTAINER(post, struct member, news);
    struct hf_push_grant grant;
    struct news news;

    member->telling = true;
    do {
        member->own_news = false;
        while (next_grant(member, &grant))
            member->host->ops->grant(member->host, &grant);
        while (!hf_list_empty(&member->watches) && next_event(member, &news))
            member->host->ops->event(member->host, &news.push);
        set_tick(member);
    } while (member->own_news);
    member->telling = false;
}

static void on_tick(struct hf_timer *timer)
{
    tell_news(&HF_CONTAINER(timer, struct member, tick)->news);
}

static void submit(void *self, struct hf_request *request)
{
    struct member *member = self;

    enter(member);
    switch (request->kind) {
    case HF_REQUEST_COMMAND:
        command(member, request);
        break;
    case HF_REQUEST_READ:
        read_one(member, request);
        break;
    case HF_REQUEST_LIST:
        list(member, request);
        break;
    case HF_REQUEST_WATCH:
        request->answer.result.err = watch(member, request);
        break;
    case HF_REQUEST_UNWATCH:
        unwatch(member, request->watch);
        break;
    }
    request->answer.index = member->store->table.index;
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

static struct store *find_store(const char *name)
{
    for (struct hf_list *link = stores.next; link != &stores;
         link = link->next) {
        struct store *store = HF_CONTAINER(link, struct store, link);

        if (!strcmp(store->name, name))
            return store;
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

static struct store *new_store(const char *name, struct hf_random *random)
{
    struct store *store = calloc(1, sizeof(*store));
    struct hf_seed seed;

    if (!store)
        return NULL;
    store->name = strdup(name);
    if (!store->name || hf_random_bytes(random, &seed, sizeof(seed))) {
        free(store->name);
        free(store);
        return NULL;
    }
    init_mutex(&store->mutex);
    hf_table_init(&store->table, &seed, on_event, store);
    store->table.token = last_token;
    hf_map_init(&store->by_session);
    hf_list_init(&store->watchers);
    hf_list_push_back(&stores, &store->link);
    store_count++;
    return store;
}

static void drop_store(struct store *store)
{
    if (--store->members > 0)
        return;
    hf_list_remove(&store->link);
    store_count--;
    if (store->table.token > last_token)
        last_token = store->table.token;
    hf_table_fini(&store->table);
    hf_leases_fini(&store->leases);
    hf_history_fini(&store->history);
    hf_map_fini(&store->by_session);
    pthread_mutex_destroy(&store->mutex);
    free(store->name);
    free(store);
}

static enum hf_err join(struct member *member)
{
    const char *owner = member->host->ops->owner(member->host);
    struct hf_command open = {
        .kind = HF_COMMAND_OPEN,
        .note = {owner, strlen(owner)},
    };
    struct hf_result result;

    enter(member);
    apply(member->store, &open, &result);
    if (!result.err) {
        member->session = result.session;
        hf_map_insert(&member->store->by_session, &member->link,
                      result.session);
    }
    leave(member);
    return result.err;
}

static enum hf_err open_store(struct member *member, const char *name,
                              struct hf_error *error)
{
    struct store *store = find_store(name);
    enum hf_err err;

    if (!store && store_count >= HF_MEMORY_MAX)
        return hf_error_set(error, HF_ELIMIT,
                            "memory: %u stores are open already", store_count);
    if (!store)
        store = new_store(name, member->host->ops->random(member->host));
    if (!store)
        return hf_error_code(error, HF_ENOMEM);
    store->members++;
    member->store = store;
    err = join(member);
    if (err) {
        drop_store(store);
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
    struct hf_list *link;

    pthread_mutex_lock(&stores_mutex);
    enter(member);
    hf_map_remove(&member->store->by_session, &member->link);
    apply(member->store, &close, &result);
    while ((link = hf_list_first(&member->watches)))
        end_watch(member, watch_of(link));
    leave(member);
    member->host->ops->unpost(member->host, &member->news);
    member->host->ops->timer_remove(member->host, &member->tick);
    drop_store(member->store);
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
