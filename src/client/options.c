#include "client/options.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/limits.h"
#include "base/wiped.h"

/* No option struct will ever be larger. A larger `size` means that the struct
 * is not initialized, and that it is not safe to read that many bytes. */
#define OPTS_SIZE_MAX 4096

static const struct hf_lock_opts own_defaults = {
    .size = sizeof(struct hf_lock_opts),
    .ttl_ms = 10000,
    .wait_ms = 5000,
    .timeout_ms = 5000,
};

/* The defaults of the process, set by hf_lock_opts_set_default(). A program
 * that never sets them does not lock a mutex.
 *
 * A forked child inherits the defaults. A fork may happen during a change. So a
 * change writes to the slot that is not in use and then switches slots, and the
 * mutex is in memory that the kernel clears in the child: a zeroed mutex is
 * unlocked. */
static void *_Atomic defaults_page; /* a pthread_mutex_t; NULL: no change yet */
static struct hf_lock_opts defaults[2];
static atomic_uint defaults_slot;

static struct hf_lock_opts get_defaults(void)
{
    pthread_mutex_t *mutex = atomic_load(&defaults_page);
    struct hf_lock_opts opts;

    if (!mutex)
        return own_defaults;
    pthread_mutex_lock(mutex);
    opts = defaults[atomic_load(&defaults_slot)];
    pthread_mutex_unlock(mutex);
    return opts.size ? opts : own_defaults;
}

static enum hf_err set_defaults(const struct hf_lock_opts *opts)
{
    pthread_mutex_t *mutex =
        hf_wiped_get(&defaults_page, sizeof(pthread_mutex_t));
    unsigned slot;

    if (!mutex)
        return HF_ENOMEM;
    pthread_mutex_lock(mutex);
    slot = 1 - atomic_load(&defaults_slot);
    defaults[slot] = *opts;
    atomic_store(&defaults_slot, slot);
    pthread_mutex_unlock(mutex);
    return HF_OK;
}

/* Copy the members that both structs have. A program that was built with
 * another version of the header has a shorter or longer struct. */
static void copy_part(void *to, size_t to_size, const void *from,
                      size_t from_size)
{
    memcpy(to, from, to_size < from_size ? to_size : from_size);
}

void hf_lock_opts_fill(struct hf_lock_opts *opts, size_t size)
{
    struct hf_lock_opts filled = get_defaults();

    if (!opts)
        return;
    filled.size = size;
    memset(opts, 0, size);
    copy_part(opts, size, &filled, sizeof(filled));
}

void hf_client_opts_fill(struct hf_client_opts *opts, size_t size)
{
    struct hf_client_opts filled = {.size = size};

    if (!opts)
        return;
    memset(opts, 0, size);
    copy_part(opts, size, &filled, sizeof(filled));
}

void hf_watch_opts_fill(struct hf_watch_opts *opts, size_t size)
{
    struct hf_watch_opts filled = {.size = size, .kinds = HF_EVENT_ANY};

    if (!opts)
        return;
    memset(opts, 0, size);
    copy_part(opts, size, &filled, sizeof(filled));
}

#define HAS_MEMBER(opts, member)                                               \
    ((opts)->size >= (size_t)((const char *)(&(opts)->member + 1) -            \
                              (const char *)(opts)) &&                         \
     (opts)->size <= OPTS_SIZE_MAX)

struct hf_error *hf_options_lock_error(const struct hf_lock_opts *opts,
                                       struct hf_error *otherwise)
{
    return opts && HAS_MEMBER(opts, error) && opts->error ? opts->error
                                                          : otherwise;
}

struct hf_error *hf_options_client_error(const struct hf_client_opts *opts,
                                         struct hf_error *otherwise)
{
    return opts && HAS_MEMBER(opts, error) && opts->error ? opts->error
                                                          : otherwise;
}

/* Copy `opts` over the defaults in `to`. Both structs begin with their size;
 * `known` is the size of `to`. `name` is the name of the struct, for the error
 * text. */
static enum hf_err copy_opts(void *to, size_t known, const void *opts,
                             const char *name, struct hf_error *error)
{
    const unsigned char *bytes = opts;
    size_t size;

    memcpy(&size, opts, sizeof(size));
    if (size < sizeof(size_t) || size > OPTS_SIZE_MAX)
        return hf_error_set(error, HF_EINVAL,
                            "%s: size is %zu; call %s_init() first", name, size,
                            name);
    for (size_t i = known; i < size; i++) {
        if (bytes[i] != 0)
            return hf_error_set(error, HF_EUNSUPPORTED,
                                "%s: the option at byte %zu is set, but "
                                "holdfast %s does not know it. Upgrade the "
                                "library, or set the option to 0.",
                                name, i, HF_VERSION);
    }
    copy_part(to, known, opts, size);
    memcpy(to, &known, sizeof(known));
    return HF_OK;
}

enum hf_err hf_options_ttl(uint32_t ttl_ms, struct hf_error *error)
{
    if (ttl_ms < HF_TTL_MIN_MS || ttl_ms > HF_TTL_MAX_MS)
        return hf_error_set(error, HF_EINVAL,
                            "ttl_ms: %u is not between %d and %d", ttl_ms,
                            HF_TTL_MIN_MS, HF_TTL_MAX_MS);
    return HF_OK;
}

enum hf_err hf_options_bytes(const char *name, struct hf_bytes bytes,
                             struct hf_error *error)
{
    if (bytes.size > HF_VALUE_MAX)
        return hf_error_set(error, HF_EINVAL, "%s: %zu bytes; the limit is %d",
                            name, bytes.size, HF_VALUE_MAX);
    if (bytes.size > 0 && !bytes.data)
        return hf_error_set(error, HF_EINVAL,
                            "%s: data is NULL, but size is %zu", name,
                            bytes.size);
    return HF_OK;
}

static enum hf_err check_lock(const struct hf_lock_opts *opts,
                              struct hf_error *error)
{
    enum hf_err err = hf_options_ttl(opts->ttl_ms, error);

    if (!err)
        err = hf_options_bytes("value", opts->value, error);
    if (err)
        return err;
    if (opts->timeout_ms > HF_TTL_MAX_MS)
        return hf_error_set(error, HF_EINVAL, "timeout_ms: %u; the limit is %d",
                            opts->timeout_ms, HF_TTL_MAX_MS);
    if (opts->renew_ms > 0 && !opts->renew)
        return hf_error_set(error, HF_EINVAL,
                            "renew_ms: %u, but renew is not set",
                            opts->renew_ms);
    if (opts->renew_ms >= opts->ttl_ms)
        return hf_error_set(error, HF_EINVAL,
                            "renew_ms: %u must be less than ttl_ms, which is "
                            "%u",
                            opts->renew_ms, opts->ttl_ms);
    if (opts->ttl_includes_wait && opts->renew)
        return hf_error_set(error, HF_EINVAL,
                            "ttl_includes_wait: cannot be combined with renew");
    if (opts->note && strlen(opts->note) > HF_NOTE_MAX)
        return hf_error_set(error, HF_EINVAL,
                            "note: %zu bytes; the limit is %d",
                            strlen(opts->note), HF_NOTE_MAX);
    return HF_OK;
}

enum hf_err hf_options_lock(struct hf_lock_opts *to,
                            const struct hf_lock_opts *opts,
                            struct hf_error *error)
{
    *to = get_defaults();
    if (opts) {
        enum hf_err err =
            copy_opts(to, sizeof(*to), opts, "hf_lock_opts", error);

        if (err)
            return err;
    }
    if (to->ttl_ms == 0)
        to->ttl_ms = own_defaults.ttl_ms;
    if (to->timeout_ms == 0)
        to->timeout_ms = own_defaults.timeout_ms;
    return check_lock(to, error);
}

enum hf_err hf_lock_opts_set_default(const struct hf_lock_opts *opts)
{
    struct hf_lock_opts checked = own_defaults;

    if (opts) {
        enum hf_err err =
            hf_options_lock(&checked, opts, hf_options_lock_error(opts, NULL));

        if (err)
            return err;
    }
    checked.value = (struct hf_bytes){0};
    checked.note = NULL;
    checked.on_event = NULL;
    checked.arg = NULL;
    checked.error = NULL;
    return set_defaults(&checked);
}

enum hf_err hf_options_client(struct hf_client_opts *to,
                              const struct hf_client_opts *opts,
                              struct hf_error *error)
{
    hf_client_opts_fill(to, sizeof(*to));
    if (opts) {
        enum hf_err err =
            copy_opts(to, sizeof(*to), opts, "hf_client_opts", error);

        if (err)
            return err;
    }
    if (to->owner && strlen(to->owner) > HF_NOTE_MAX)
        return hf_error_set(error, HF_EINVAL,
                            "owner: %zu bytes; the limit is %d",
                            strlen(to->owner), HF_NOTE_MAX);
    return HF_OK;
}

enum hf_err hf_options_watch(struct hf_watch_opts *to,
                             const struct hf_watch_opts *opts,
                             struct hf_error *error)
{
    hf_watch_opts_fill(to, sizeof(*to));
    if (opts) {
        enum hf_err err =
            copy_opts(to, sizeof(*to), opts, "hf_watch_opts", error);

        if (err)
            return err;
    }
    if (to->kinds == 0 || (to->kinds & ~(uint32_t)HF_EVENT_ANY) != 0)
        return hf_error_set(error, HF_EINVAL,
                            "kinds: 0x%x is not a combination of HF_EVENT_...",
                            to->kinds);
    return HF_OK;
}

enum hf_err hf_options_prefix(struct hf_key prefix, struct hf_error *error)
{
    if (prefix.size > HF_KEY_MAX)
        return hf_error_set(error, HF_EINVAL, "key: %zu bytes; the limit is %d",
                            prefix.size, HF_KEY_MAX);
    if (prefix.size > 0 && !prefix.data)
        return hf_error_set(error, HF_EINVAL,
                            "key: data is NULL, but size is %zu", prefix.size);
    return HF_OK;
}

enum hf_err hf_options_key(struct hf_key key, struct hf_error *error)
{
    if (key.size == 0)
        return hf_error_set(error, HF_EINVAL,
                            "key: empty; a key has 1 to %d bytes", HF_KEY_MAX);
    return hf_options_prefix(key, error);
}
