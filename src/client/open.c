/* open.c - hf_open(), and what hf_open_start() does in the calling thread. */
#include "client/open.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/thread.h"
#include "client/background.h"
#include "client/operation.h"
#include "client/options.h"

static hf_time real_clock(void *arg)
{
    const struct hf_client *client = arg;

    return hf_time_on(client->clock_id);
}

/* Set the label that operators see. The default is "command[pid]@host". */
static void set_owner(struct hf_client *client, const char *owner)
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

/* Map a page that the kernel clears in a forked child. Reading the page costs
 * one load, whereas getpid() is a system call. */
static enum hf_err map_alive(struct hf_client *client, struct hf_error *error)
{
    uint32_t *alive = mmap(NULL, sizeof(*alive), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (alive == MAP_FAILED)
        return hf_error_set_code(error, HF_ENOMEM);
    if (madvise(alive, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK)) {
        munmap(alive, sizeof(*alive));
        return hf_error_set(error, HF_ESYSTEM,
                            "open: cannot detect forks: madvise "
                            "MADV_WIPEONFORK: %s; Linux 4.14 or newer is "
                            "required",
                            strerror(errno));
    }
    *alive = 1;
    client->alive = alive;
    return HF_OK;
}

static void init_client(struct hf_client *client, const struct hf_env *env,
                        const struct hf_client_opts *opts)
{
    client->host.ops = &hf_client_host_ops;
    client->clock = env && env->clock ? env->clock : real_clock;
    client->clock_arg = env && env->clock ? env->arg : client;
    /* With a test clock, behave as if the program drove the client, so that no
     * background threads are started: they would sleep by the real clock. */
    client->loop.self_driven = env && env->clock;
    client->references = 1;
    client->next_sequence = 1;
    hf_random_init(&client->random, env ? env->seed : 0);
    hf_dlist_init(&client->calls);
    hf_dlist_init(&client->parked);
    hf_dlist_init(&client->locks);
    hf_dlist_init(&client->watches);
    hf_dlist_init(&client->operations);
    hf_dlist_init(&client->withdrawals);
    hf_map_init(&client->waiting);
    set_owner(client, opts->owner);
    client->inherit = opts->inherit;
    pthread_mutex_init(&client->mutex, NULL);
    pthread_mutex_init(&client->turnstile, NULL);
}

static const struct {
    enum hf_cap cap;
    const char *name;
} caps[] = {
#define ROW(name, text, bit) {HF_CAP_##name, text},
    HF_CAPS(ROW)
#undef ROW
};

/* Parse a list such as "fence,fifo". An unknown name is an error even if the
 * strategy lacks another capability in the list. */
static enum hf_err parse_required(const char *list, uint32_t *required,
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
                                "url: require: unknown capability '%.*s'",
                                (int)size, list);
        *required |= (uint32_t)caps[i].cap;
        list += size + (list[size] == ',');
    }
    return HF_OK;
}

static enum hf_err check_required(const struct hf_strategy *strategy,
                                  uint32_t given, const char *list,
                                  struct hf_error *error)
{
    uint32_t required;
    enum hf_err err = parse_required(list, &required, error);

    for (size_t i = 0; !err && i < sizeof(caps) / sizeof(caps[0]); i++) {
        if (required & ~given & (uint32_t)caps[i].cap)
            err = hf_error_set(error, HF_EUNSUPPORTED,
                               "url: require: the strategy %s: does not have "
                               "the capability '%s'",
                               strategy->scheme, caps[i].name);
    }
    return err;
}

enum hf_err hf_open_strategy(struct hf_client *client, struct hf_url *url,
                             uint32_t *given, struct hf_error *error)
{
    const char *required = hf_url_param(url, "require");
    const struct hf_strategy *strategy = client->strategy;
    enum hf_err err = strategy->open(client->self, url, &client->host, error);

    if (err)
        return err;
    *given = strategy->caps(client->self);
    err = hf_url_check_used(url, error);
    if (!err)
        err = check_required(strategy, *given, required, error);
    if (err)
        strategy->close(client->self);
    return err;
}

/* Create a client whose strategy is not open yet. */
static enum hf_err create_client(const struct hf_url *url,
                                 const struct hf_client_opts *opts,
                                 const struct hf_env *env,
                                 struct hf_client **new_client,
                                 struct hf_error *error)
{
    struct hf_client *client = calloc(1, sizeof(*client));
    enum hf_err err = HF_OK;

    if (!client)
        return hf_error_set_code(error, HF_ENOMEM);
    if (env && env->strategy)
        client->strategy = env->strategy;
    else
        err = hf_registry_find(url->scheme, &client->strategy, error);
    if (err)
        goto fail;
    client->self = calloc(1, client->strategy->size);
    err = client->self ? HF_OK : hf_error_set_code(error, HF_ENOMEM);
    if (err)
        goto fail;
    err = map_alive(client, error);
    if (err)
        goto fail_self;
    client->clock_id = client->strategy->clock && !(env && env->clock)
                           ? client->strategy->clock
                           : CLOCK_BOOTTIME;
    err = hf_loop_open(client, error);
    if (err)
        goto fail_alive;
    init_client(client, env, opts);
    *new_client = client;
    return HF_OK;

fail_alive:
    munmap((void *)(uintptr_t)client->alive, sizeof(*client->alive));
fail_self:
    free(client->self);
fail:
    free(client);
    return err;
}

/* Check the arguments and create the client. On HF_OK the caller must call
 * hf_url_fini() on `parsed`. */
static enum hf_err prepare_open(
    const char *url, const struct hf_client_opts *opts,
    const struct hf_env *env, struct hf_client_opts *checked,
    struct hf_url *parsed, struct hf_client **client, struct hf_error *error)
{
    enum hf_err err = hf_options_client(checked, opts, error);

    if (err)
        return err;
    err = hf_url_parse(parsed, url, error);
    if (err)
        return err;
    err = create_client(parsed, checked, env, client, error);
    if (err)
        hf_url_fini(parsed);
    return err;
}

static enum hf_err start_background(struct hf_client *client,
                                    const struct hf_client_opts *opts,
                                    struct hf_error *error)
{
    return opts->background ? hf_background_start(client, error) : HF_OK;
}

/* Open the strategy in the calling thread. */
static enum hf_err open_now(struct hf_client *client, struct hf_url *url,
                            const struct hf_client_opts *opts,
                            struct hf_error *error)
{
    enum hf_err err = hf_open_strategy(client, url, &client->caps, error);

    hf_url_fini(url);
    pthread_mutex_lock(&client->mutex);
    if (!err) {
        client->opened = true;
        err = start_background(client, opts, error);
        if (err)
            client->strategy->close(client->self);
    }
    pthread_mutex_unlock(&client->mutex);
    return err;
}

enum hf_err hf_client_open(const char *url, const struct hf_client_opts *opts,
                           const struct hf_env *env, struct hf_client **client)
{
    struct hf_client_opts checked;
    struct hf_error discarded;
    struct hf_error *error = hf_options_client_error(opts, &discarded);
    struct hf_url parsed;
    struct hf_client *new_client;
    enum hf_err err;

    if (!client)
        return hf_error_set(error, HF_EINVAL, "client: NULL");
    err = prepare_open(url, opts, env, &checked, &parsed, &new_client, error);
    if (err)
        return err;
    hf_thread_disable_cancel();
    err = open_now(new_client, &parsed, &checked, error);
    if (err)
        hf_client_destroy(new_client);
    else
        *client = new_client;
    hf_thread_restore_cancel();
    return err;
}

enum hf_err hf_open(const char *url, const struct hf_client_opts *opts,
                    struct hf_client **client)
{
    return hf_client_open(url, opts, NULL, client);
}

/* Open the strategy in a new thread. The caller keeps the mutex locked until
 * `*client` and the future are set, so that no callback runs before that. */
static enum hf_err open_in_thread(struct hf_client *client, struct hf_url *url,
                                  const struct hf_client_opts *opts,
                                  struct hf_listener listener,
                                  struct hf_error *error)
{
    enum hf_err err = start_background(client, opts, error);

    if (err)
        return err;
    err = hf_opening_start(client, url, listener.done, listener.arg,
                           listener.future, error);
    if (err)
        hf_background_stop(client, HF_NEVER);
    return err;
}

enum hf_err hf_client_open_start(const char *url,
                                 const struct hf_client_opts *opts,
                                 const struct hf_env *env,
                                 struct hf_client **client,
                                 struct hf_listener listener)
{
    struct hf_client_opts checked;
    struct hf_error discarded;
    struct hf_error *error = hf_options_client_error(opts, &discarded);
    struct hf_url parsed;
    struct hf_client *new_client;
    enum hf_err err;

    if (!client)
        return hf_error_set(error, HF_EINVAL, "client: NULL");
    err = prepare_open(url, opts, env, &checked, &parsed, &new_client, error);
    if (err)
        return err;
    hf_thread_disable_cancel();
    pthread_mutex_lock(&new_client->mutex);
    err = open_in_thread(new_client, &parsed, &checked, listener, error);
    hf_url_fini(&parsed);
    if (err)
        hf_client_unref(new_client);
    else
        *client = new_client;
    hf_client_leave(new_client);
    return err;
}

enum hf_err hf_open_start(const char *url, const struct hf_client_opts *opts,
                          struct hf_client **client, hf_done_fn *done,
                          void *arg, struct hf_future **future)
{
    return hf_client_open_start(url, opts, NULL, client,
                                (struct hf_listener){done, arg, future});
}

/* ---- Capabilities and names ---------------------------------------------*/

uint32_t hf_caps(const struct hf_client *client)
{
    return client ? client->caps : 0;
}

enum hf_err hf_describe(struct hf_client *client, hf_fact_fn *each, void *arg)
{
    enum hf_err err = client && each ? hf_client_enter(client) : HF_EINVAL;

    if (err)
        return err;
    if (client->strategy->describe)
        client->strategy->describe(client->self, each, arg);
    hf_client_leave(client);
    return HF_OK;
}

const char *hf_cap_name(enum hf_cap cap)
{
    for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
        if (caps[i].cap == cap)
            return caps[i].name;
    }
    return "?";
}
