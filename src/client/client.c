#include "client/client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/thread.h"
#include "client/background.h"
#include "client/lock.h"
#include "client/operation.h"
#include "client/options.h"
#include "client/watch.h"
#include "client/withdrawal.h"

const char *hf_version(void)
{
    return HF_VERSION;
}

/* ---- Entering and leaving -----------------------------------------------*/

/* Only the slow path takes the turnstile, so a short call costs one mutex. */
void hf_client_lock(struct hf_client *client)
{
    pthread_mutex_lock(&client->turnstile);
    pthread_mutex_lock(&client->mutex);
    pthread_mutex_unlock(&client->turnstile);
}

enum hf_err hf_client_enter_closed(struct hf_client *client)
{
    if (*client->alive == 0)
        return HF_EFORK;
    hf_thread_guard();
    if (pthread_mutex_trylock(&client->mutex))
        hf_client_lock(client);
    hf_client_forget_now(client);
    return HF_OK;
}

enum hf_err hf_client_enter(struct hf_client *client)
{
    enum hf_err err = hf_client_enter_closed(client);

    if (!err && client->closing) {
        pthread_mutex_unlock(&client->mutex);
        hf_thread_unguard();
        err = HF_ECLOSED;
    }
    return err;
}

enum hf_err hf_client_may_block(struct hf_client *client)
{
    enum hf_err err;
    bool inside;

    if (!client)
        return HF_EINVAL;
    err = hf_client_enter(client);
    if (err)
        return err;
    inside = hf_loop_inside(client);
    hf_client_leave(client);
    return inside ? HF_EDEADLK : HF_OK;
}

static void destroy(struct hf_client *client)
{
    hf_loop_close(client);
    pthread_mutex_destroy(&client->mutex);
    pthread_mutex_destroy(&client->turnstile);
    munmap((void *)(uintptr_t)client->alive, sizeof(*client->alive));
    hf_map_fini(&client->waiting);
    free(client->self);
    explicit_bzero(&client->random, sizeof(client->random));
    free(client);
}

void hf_client_leave(struct hf_client *client)
{
    struct hf_waker *waker;
    bool last;

    hf_loop_end_turn(client);
    waker = hf_loop_notify(client);
    last = client->references == 0;
    pthread_mutex_unlock(&client->mutex);
    if (waker)
        hf_waker_ring(waker);
    if (last)
        destroy(client);
    hf_thread_unguard();
}

void hf_client_ref(struct hf_client *client)
{
    client->references++;
}

void hf_client_unref(struct hf_client *client)
{
    client->references--;
}

enum hf_err hf_client_fail(struct hf_client *client, enum hf_err code,
                           const char *format, ...)
{
    va_list args;

    client->error.code = code;
    va_start(args, format);
    (void)vsnprintf(client->error.text, sizeof(client->error.text), format,
                    args);
    va_end(args);
    return code;
}

/* ---- Opening ------------------------------------------------------------*/

static hf_time real_clock(void *arg)
{
    (void)arg;
    return hf_time_now();
}

/* "command[pid]@host": who to look for. */
static void describe_owner(struct hf_client *client, const char *owner)
{
    char host[65] = "";

    if (owner) {
        hf_copy(client->owner, owner, strlen(owner) + 1);
        return;
    }
    if (gethostname(host, sizeof(host) - 1))
        host[0] = '\0';
    (void)snprintf(client->owner, sizeof(client->owner), "%s[%ld]@%s",
                   program_invocation_short_name, (long)getpid(), host);
}

/* A page that the kernel empties in a forked child: asking it costs a load,
 * where asking for the process id costs a system call. */
static enum hf_err map_alive(struct hf_client *client, struct hf_error *error)
{
    uint32_t *alive = mmap(NULL, sizeof(*alive), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (alive == MAP_FAILED)
        return hf_error_code(error, HF_ENOMEM);
    if (madvise(alive, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK)) {
        munmap(alive, sizeof(*alive));
        return hf_error_set(error, HF_ESYSTEM,
                            "cannot notice forks: %s (Linux 4.14 can)",
                            strerror(errno));
    }
    *alive = 1;
    client->alive = alive;
    return HF_OK;
}

static void init(struct hf_client *client, const struct hf_env *env,
                 const char *owner)
{
    client->host.ops = &hf_client_host_ops;
    client->clock = env && env->clock ? env->clock : real_clock;
    client->clock_arg = env ? env->arg : NULL;
    /* A thread sleeps by the real clock only. */
    client->loop.self_driven = env && env->clock;
    client->references = 1;
    client->next_sequence = 1;
    hf_random_init(&client->random, env ? env->seed : 0);
    hf_list_init(&client->calls);
    hf_list_init(&client->parked);
    hf_list_init(&client->locks);
    hf_list_init(&client->watches);
    hf_list_init(&client->operations);
    hf_list_init(&client->withdrawals);
    hf_map_init(&client->waiting);
    describe_owner(client, owner);
    pthread_mutex_init(&client->mutex, NULL);
    pthread_mutex_init(&client->turnstile, NULL);
}

static enum hf_err open_strategy(struct hf_client *client, struct hf_url *url,
                                 struct hf_error *error)
{
    enum hf_err err;

    client->self = calloc(1, client->strategy->size);
    if (!client->self)
        return hf_error_code(error, HF_ENOMEM);
    err = client->strategy->open(client->self, url, &client->host, error);
    if (!err)
        client->caps = client->strategy->caps(client->self);
    return err;
}

static const struct {
    enum hf_cap cap;
    const char *name;
} caps[] = {
#define ROW(name, text, bit) {HF_CAP_##name, text},
    HF_CAPS(ROW)
#undef ROW
};

/* The capabilities in "fence,fifo", as bits: a word that is none is a mistake,
 * whatever else is asked for. */
static enum hf_err read_required(const char *list, uint32_t *required,
                                 struct hf_error *error)
{
    *required = 0;
    while (list && *list) {
        size_t size = strcspn(list, ",");
        size_t i = 0;

        while (i < sizeof(caps) / sizeof(caps[0]) &&
               (strlen(caps[i].name) != size ||
                strncmp(caps[i].name, list, size) != 0))
            i++;
        if (i == sizeof(caps) / sizeof(caps[0]))
            return hf_error_set(error, HF_EINVAL,
                                "url: require: '%.*s' is no capability",
                                (int)size, list);
        *required |= (uint32_t)caps[i].cap;
        list += size + (list[size] == ',');
    }
    return HF_OK;
}

static enum hf_err check_required(const struct hf_client *client,
                                  const char *list, struct hf_error *error)
{
    uint32_t required;
    enum hf_err err = read_required(list, &required, error);

    for (size_t i = 0; !err && i < sizeof(caps) / sizeof(caps[0]); i++) {
        if (required & ~client->caps & (uint32_t)caps[i].cap)
            err = hf_error_set(error, HF_EUNSUPPORTED,
                               "url: require: %s: does not give '%s'",
                               client->strategy->scheme, caps[i].name);
    }
    return err;
}

static enum hf_err connect(struct hf_client *client, struct hf_url *url,
                           const struct hf_client_opts *opts,
                           struct hf_error *error)
{
    const char *required = hf_url_param(url, "require");
    enum hf_err err = open_strategy(client, url, error);

    if (err)
        return err;
    err = hf_url_check_used(url, error);
    if (!err)
        err = check_required(client, required, error);
    if (!err && opts->background) {
        pthread_mutex_lock(&client->mutex);
        err = hf_background_start(client, error);
        pthread_mutex_unlock(&client->mutex);
    }
    if (err)
        client->strategy->close(client->self);
    return err;
}

static enum hf_err make(struct hf_url *url, const struct hf_client_opts *opts,
                        const struct hf_env *env, struct hf_client **made,
                        struct hf_error *error)
{
    struct hf_client *client = calloc(1, sizeof(*client));
    enum hf_err err = HF_OK;

    if (!client)
        return hf_error_code(error, HF_ENOMEM);
    if (env && env->strategy)
        client->strategy = env->strategy;
    else
        err = hf_strategy_find(url->scheme, &client->strategy, error);
    if (err) {
        free(client);
        return err;
    }
    init(client, env, opts->owner);
    err = map_alive(client, error);
    if (err)
        goto fail;
    err = hf_loop_open(client, error);
    if (err)
        goto fail_alive;
    err = connect(client, url, opts, error);
    if (err)
        goto fail_loop;
    *made = client;
    return HF_OK;

fail_loop:
    hf_loop_close(client);
fail_alive:
    munmap((void *)(uintptr_t)client->alive, sizeof(*client->alive));
fail:
    pthread_mutex_destroy(&client->mutex);
    pthread_mutex_destroy(&client->turnstile);
    free(client->self);
    free(client);
    return err;
}

enum hf_err hf_client_open(const char *url, const struct hf_client_opts *opts,
                           const struct hf_env *env, struct hf_client **client)
{
    struct hf_client_opts checked;
    struct hf_error unheard;
    struct hf_error *error = hf_options_client_error(opts, &unheard);
    struct hf_url parsed;
    enum hf_err err;

    if (!client)
        return hf_error_set(error, HF_EINVAL, "client: NULL");
    err = hf_options_client(&checked, opts, error);
    if (err)
        return err;
    err = hf_url_parse(&parsed, url, error);
    if (err)
        return err;
    hf_thread_guard();
    err = make(&parsed, &checked, env, client, error);
    hf_thread_unguard();
    hf_url_fini(&parsed);
    return err;
}

enum hf_err hf_open(const char *url, const struct hf_client_opts *opts,
                    struct hf_client **client)
{
    return hf_client_open(url, opts, NULL, client);
}

/* ---- Closing ------------------------------------------------------------*/

static void close_locks(struct hf_client *client, bool only_claiming)
{
    struct hf_list *link, *next;

    for (link = client->locks.next; link != &client->locks; link = next) {
        struct hf_lock *lock = HF_CONTAINER(link, struct hf_lock, link);

        next = link->next;
        if (!only_claiming || lock->state == HF_LOCK_CLAIMING)
            hf_lock_close(lock);
    }
}

/* Those who wait first: what the others give back is not for them. */
static void end_all(struct hf_client *client)
{
    struct hf_list *link;

    close_locks(client, true);
    close_locks(client, false);
    while ((link = hf_list_first(&client->watches)))
        hf_watch_close(hf_watch_of(link));
    while ((link = hf_list_first(&client->operations)))
        hf_operation_end(HF_CONTAINER(link, struct hf_operation, link),
                         HF_ECLOSED);
}

/* Releases and withdrawals are under way: let them be answered. Nobody else
 * waits for a withdrawal, so it has the time that the close has. */
static void drain(struct hf_client *client, hf_time deadline)
{
    struct hf_blocked blocked = {0};

    for (struct hf_list *link = client->withdrawals.next;
         link != &client->withdrawals; link = link->next)
        hf_call_extend(&HF_CONTAINER(link, struct hf_withdrawal, link)->call,
                       deadline);
    hf_host_settle(client);
    if (hf_list_empty(&client->calls) || hf_client_now(client) >= deadline)
        return;
    client->draining = &blocked;
    (void)hf_loop_wait(client, &blocked, deadline);
    client->draining = NULL;
}

/* What was not answered in time never will be. */
static void give_up(struct hf_client *client)
{
    struct hf_list *link;

    close_locks(client, false);
    while ((link = hf_list_first(&client->withdrawals)))
        hf_withdrawal_free(HF_CONTAINER(link, struct hf_withdrawal, link));
}

enum hf_err hf_close(struct hf_client *client, uint32_t timeout_ms)
{
    hf_time deadline;
    bool drained;
    enum hf_err err;

    if (!client)
        return HF_OK;
    err = hf_client_enter(client);
    if (err)
        return err;
    if (hf_loop_inside(client)) {
        hf_client_leave(client);
        return HF_EDEADLK;
    }
    deadline = hf_time_add(hf_client_now(client), timeout_ms);
    client->closing = true;
    client->unconfirmed = false;
    end_all(client);
    drain(client, deadline);
    drained = hf_list_empty(&client->calls) && !client->unconfirmed;
    client->closed = true;
    give_up(client);
    hf_background_stop(client, deadline);
    hf_loop_finish_callbacks(client, deadline); /* of what was ended */
    client->strategy->close(client->self);
    hf_client_unref(client);
    hf_client_leave(client);
    return drained ? HF_OK : HF_EINDOUBT;
}

/* ---- Asking -------------------------------------------------------------*/

uint32_t hf_caps(const struct hf_client *client)
{
    return client ? client->caps : 0;
}

const char *hf_cap_name(enum hf_cap cap)
{
    for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
        if (caps[i].cap == cap)
            return caps[i].name;
    }
    return "?";
}

void hf_client_error(const struct hf_client *client, struct hf_error *error)
{
    struct hf_client *asked = (struct hf_client *)(uintptr_t)client;

    if (!error)
        return;
    hf_error_code(error, HF_OK);
    if (!client || hf_client_enter_closed(asked))
        return;
    if (client->error.code)
        *error = client->error;
    hf_client_leave(asked);
}

int hf_fd(struct hf_client *client)
{
    int fd;

    if (!client || hf_client_enter_closed(client))
        return -1;
    client->loop.self_driven = true;
    fd = client->loop.epoll;
    hf_client_leave(client);
    return fd;
}

/* Runs in signal handlers: atomics and one write(), and errno as it was. */
void hf_interrupt(struct hf_client *client)
{
    int before = errno;

    if (!client || *client->alive == 0)
        return;
    atomic_fetch_add(&client->loop.interrupts, 1);
    hf_waker_ring(hf_waker_take(client->loop.waker));
    errno = before;
}

enum hf_err hf_process(struct hf_client *client)
{
    enum hf_err err;

    if (!client)
        return HF_EINVAL;
    err = hf_client_enter(client);
    if (err)
        return err;
    client->loop.self_driven = true;
    hf_client_ref(client); /* another thread may close it meanwhile */
    hf_loop_process(client);
    hf_client_unref(client);
    hf_client_leave(client);
    return HF_OK;
}
