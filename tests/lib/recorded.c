#include "lib/recorded.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "lib/recording.h"

#define BUCKETS 4096
#define NS_IN_MS 1000000u

/* A hash table of this process's calls: pending calls by their futures, claims
 * by their handles. The mutex protects the table, and changes to a call after
 * its start. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct recorded_call *buckets[BUCKETS];

/* In a forked child, forget all calls, because pending calls belong to the
 * parent, and unlock the mutex, which a thread of the parent may have
 * locked. */
static void reset_after_fork(void)
{
    memset(buckets, 0, sizeof(buckets));
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static void install_fork_handler(void)
{
    if (pthread_atfork(NULL, NULL, reset_after_fork))
        abort();
}

void recorded_init(bool fifo)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, install_fork_handler);
    recording_init(fifo);
    memset(buckets, 0, sizeof(buckets));
}

void recorded_set_no_fence(void)
{
    recording_set_no_fence();
}

int recorded_check(const char *name)
{
    return recording_check(name);
}

static uint64_t deadline_ns(const struct hf_lock *lock)
{
    return recording_instant(hf_lock_deadline(lock));
}

static struct recorded_call *begin_call(enum hf_op_kind kind,
                                        struct hf_client *client,
                                        struct hf_key key)
{
    struct recorded_call *call = NULL;

    pthread_mutex_lock(&mutex);
    call = recording_begin(kind, recording_number(client), key);
    call->client = client;
    pthread_mutex_unlock(&mutex);
    return call;
}

/* ---- Calls by pointer, under the mutex ----------------------------------*/

static struct recorded_call **bucket_of(const void *pointer)
{
    return &buckets[(uintptr_t)pointer / 16 % BUCKETS];
}

static struct recorded_call *find_call(const void *pointer)
{
    struct recorded_call *call = *bucket_of(pointer);

    while (call && call->known_by != pointer)
        call = call->next_near;
    return call;
}

static void forget_call(struct recorded_call *call)
{
    struct recorded_call **at = NULL;

    if (!call->known_by)
        return;
    for (at = bucket_of(call->known_by); *at != call; at = &(*at)->next_near)
        continue;
    *at = call->next_near;
    call->known_by = NULL;
}

/* If two calls have the same pointer, find_call() returns the newer one. */
static void remember_call(struct recorded_call *call, const void *pointer)
{
    struct recorded_call **bucket = bucket_of(pointer);

    forget_call(call);
    call->known_by = pointer;
    call->next_near = *bucket;
    *bucket = call;
}

/* ---- Answers ------------------------------------------------------------*/

static void copy_grant(struct recorded_call *call)
{
    call->token = hf_lock_token(call->lock);
    hf_lock_nonce(call->lock, call->nonce);
}

/* A call that was given up may have been executed, so its result is in doubt: a
 * waiting claim may have been granted at the last moment, and have held the key
 * until it was withdrawn. */
static enum hf_err in_doubt_if_given_up(enum hf_err err)
{
    bool given_up =
        err == HF_ETIMEDOUT || err == HF_ECANCELED || err == HF_ECLOSED;

    return given_up ? HF_EINDOUBT : err;
}

/* A claim that had to enter the queue again, at its end, has a new nonce. It is
 * unknown when it did. */
static void record_grant(struct recorded_call *call)
{
    if (call->out)
        call->lock = *call->out;
    copy_grant(call);
    if (memcmp(call->queued_nonce, call->nonce, sizeof(call->nonce)) != 0)
        call->queued = 0;
    call->deadline = deadline_ns(call->lock);
    call->held = true;
    remember_call(call, call->lock);
}

/* A handle is lost when its validity ends, whatever the server knows. So
 * HF_EEXPIRED after the deadline says nothing about the key. */
static enum hf_err in_doubt_if_expired(enum hf_err err, uint64_t deadline)
{
    return err == HF_EEXPIRED && recording_now() >= deadline ? HF_EINDOUBT
                                                             : err;
}

static void write_answer(struct recorded_call *call, enum hf_err err)
{
    call->err = in_doubt_if_given_up(err);
    if (call->kind == HF_OP_RENEW || call->kind == HF_OP_UPDATE)
        call->err = in_doubt_if_expired(call->err, call->deadline);
    if (call->kind == HF_OP_LOCK && !err)
        record_grant(call);
    if (call->kind == HF_OP_RENEW && !err)
        call->deadline = deadline_ns(call->lock);
    if (call->kind == HF_OP_UNLOCK && !err && !call->token)
        copy_grant(call); /* the token was not known when the call started */
    call->answer = recording_now();
    atomic_store(&call->answered, true);
}

/* Record the result only once, because both a callback and hf_future_wait() may
 * get here. */
static enum hf_err end_call(struct recorded_call *call, enum hf_err err)
{
    pthread_mutex_lock(&mutex);
    if (!call->answered) {
        forget_call(call);
        write_answer(call, err);
    }
    pthread_mutex_unlock(&mutex);
    return err;
}

static void on_done(enum hf_err err, void *arg)
{
    struct recorded_call *call = arg;

    end_call(call, err);
    call->done(err, call->done_arg);
}

/* Keep the callback of the case, and return the one to pass to the library
 * instead: NULL if the case has none. */
static hf_done_fn *wrap_done(struct recorded_call *call, hf_done_fn *done,
                             void *arg)
{
    call->done = done;
    call->done_arg = arg;
    return done ? on_done : NULL;
}

/* Make a call findable by its future or its handle, unless it has its result
 * already. */
static void add_pending(struct recorded_call *call, const void *known_by)
{
    pthread_mutex_lock(&mutex);
    if (!call->answered)
        remember_call(call, known_by);
    pthread_mutex_unlock(&mutex);
}

static enum hf_err record_start(struct recorded_call *call, enum hf_err err,
                                struct hf_future **future)
{
    if (err)
        return end_call(call, err);
    if (future)
        add_pending(call, *future);
    return HF_OK;
}

/* End the call that is known by `pointer`, if there is one. */
static enum hf_err end_known(const void *pointer, enum hf_err err)
{
    struct recorded_call *call = NULL;

    pthread_mutex_lock(&mutex);
    call = find_call(pointer);
    pthread_mutex_unlock(&mutex);
    return call ? end_call(call, err) : err;
}

enum hf_err recorded_future_wait(struct hf_future *future, uint32_t wait_ms,
                                 enum hf_err *err)
{
    enum hf_err waited = hf_future_wait(future, wait_ms, err);

    if (!waited)
        end_known(future, *err);
    return waited;
}

/* ---- Acquiring ----------------------------------------------------------*/

static void set_queued(struct recorded_call *call, const struct hf_lock *lock)
{
    hf_lock_nonce(lock, call->queued_nonce);
    call->queued = recording_now();
}

static void on_event(struct hf_lock *lock, enum hf_lock_event event, void *arg)
{
    struct recorded_call *call = arg;

    pthread_mutex_lock(&mutex);
    if (event == HF_LOCK_EVENT_WAITING && !call->answered)
        set_queued(call, lock);
    if (event == HF_LOCK_EVENT_LOST && !call->lost)
        call->lost = recording_now();
    pthread_mutex_unlock(&mutex);
    call->on_event(lock, event, call->event_arg);
}

/* The options of the case, with the event callback wrapped. If the case has no
 * callback, none is added, because a client with events to report may need a
 * thread. */
static const struct hf_lock_opts *wrap_events(struct recorded_call *call,
                                              const struct hf_lock_opts *opts,
                                              struct hf_lock_opts *wrapped)
{
    if (!opts || !opts->on_event)
        return opts;
    call->on_event = opts->on_event;
    call->event_arg = opts->arg;
    *wrapped = *opts;
    wrapped->on_event = on_event;
    wrapped->arg = call;
    return wrapped;
}

static struct recorded_call *begin_acquire(struct hf_client *client,
                                           struct hf_key key,
                                           const struct hf_lock_opts *opts,
                                           struct hf_lock **lock)
{
    struct recorded_call *call = begin_call(HF_OP_LOCK, client, key);
    struct hf_lock_opts defaults;

    hf_lock_opts_init(&defaults);
    if (!opts)
        opts = &defaults;
    call->lease = (uint64_t)(opts->ttl_ms ? opts->ttl_ms : 10000) * NS_IN_MS;
    call->out = lock;
    return call;
}

enum hf_err recorded_acquire(struct hf_client *client, struct hf_key key,
                             const struct hf_lock_opts *opts,
                             struct hf_lock **lock)
{
    struct recorded_call *call = begin_acquire(client, key, opts, lock);
    struct hf_lock_opts wrapped;

    return end_call(
        call, hf_acquire(client, key, wrap_events(call, opts, &wrapped), lock));
}

enum hf_err recorded_acquire_start(struct hf_client *client, struct hf_key key,
                                   const struct hf_lock_opts *opts,
                                   struct hf_lock **lock, hf_done_fn *done,
                                   void *arg, struct hf_future **future)
{
    struct recorded_call *call = begin_acquire(client, key, opts, lock);
    struct hf_lock_opts wrapped;
    enum hf_err err =
        hf_acquire_start(client, key, wrap_events(call, opts, &wrapped), lock,
                         wrap_done(call, done, arg), call, future);

    return record_start(call, err, future);
}

enum hf_err recorded_lock_new(struct hf_client *client, struct hf_key key,
                              const struct hf_lock_opts *opts,
                              struct hf_lock **lock)
{
    struct hf_lock_opts wrapped;
    struct recorded_call *call = NULL;
    enum hf_err err = HF_OK;

    hf_lock_opts_init(&wrapped);
    if (opts ? opts->idle : wrapped.idle)
        return hf_lock_new(client, key, opts, lock);
    call = begin_acquire(client, key, opts, NULL);
    err = hf_lock_new(client, key, wrap_events(call, opts, &wrapped), lock);
    if (err)
        return end_call(call, err);
    call->lock = *lock;
    hf_lock_nonce(*lock, call->nonce);
    add_pending(call, *lock);
    return HF_OK;
}

/* Forget that the case holds `lock`. A pending claim on the handle stays in the
 * table. */
static void forget_hold(const struct hf_lock *lock)
{
    struct recorded_call *claim = NULL;

    pthread_mutex_lock(&mutex);
    claim = find_call(lock);
    if (claim && claim->held)
        forget_call(claim);
    pthread_mutex_unlock(&mutex);
}

/* Leave the lease 0, because the ttl of the handle is not known here. The
 * deadline is recorded with the result. */
static struct recorded_call *begin_lock_acquire(struct hf_client *client,
                                                struct hf_lock *lock)
{
    struct recorded_call *call =
        begin_call(HF_OP_LOCK, client, hf_lock_key(lock));

    call->lock = lock;
    forget_hold(lock);
    return call;
}

enum hf_err recorded_lock_acquire(struct hf_client *client,
                                  struct hf_lock *lock)
{
    struct recorded_call *call = begin_lock_acquire(client, lock);

    return end_call(call, hf_lock_acquire(lock));
}

enum hf_err recorded_lock_acquire_start(struct hf_client *client,
                                        struct hf_lock *lock, hf_done_fn *done,
                                        void *arg, struct hf_future **future)
{
    struct recorded_call *call = begin_lock_acquire(client, lock);
    enum hf_err err =
        hf_lock_acquire_start(lock, wrap_done(call, done, arg), call, future);

    if (!err && !future)
        add_pending(call, lock);
    return record_start(call, err, future);
}

enum hf_err recorded_lock_wait(struct hf_lock *lock)
{
    return end_known(lock, hf_lock_wait(lock));
}

void recorded_set_queued(const struct hf_lock *lock)
{
    struct recorded_call *call;

    pthread_mutex_lock(&mutex);
    call = find_call(lock);
    if (call && !call->answered)
        set_queued(call, lock);
    pthread_mutex_unlock(&mutex);
}

enum hf_err recorded_acquire_fifo(struct hf_client *client, struct hf_key key,
                                  const struct hf_lock_opts *opts,
                                  struct hf_lock **lock)
{
    struct hf_lock_opts idle = *opts;
    struct hf_lock *handle;
    enum hf_err err;

    idle.idle = true;
    err = hf_lock_new(client, key, &idle, &handle);
    if (err)
        return err;
    err = recorded_lock_acquire_start(client, handle, NULL, NULL, NULL);
    if (!err && hf_lock_position(handle) > 0)
        recorded_set_queued(handle);
    if (!err)
        err = recorded_lock_wait(handle);
    if (err)
        hf_lock_free(handle);
    else
        *lock = handle;
    return err;
}

/* ---- On a handle --------------------------------------------------------*/

static struct recorded_call *begin_on_lock(enum hf_op_kind kind,
                                           struct hf_client *client,
                                           struct hf_lock *lock)
{
    struct recorded_call *call = begin_call(kind, client, hf_lock_key(lock));

    call->lock = lock;
    call->deadline = deadline_ns(lock);
    copy_grant(call);
    return call;
}

static struct recorded_call *begin_release(struct hf_client *client,
                                           struct hf_lock *lock)
{
    struct recorded_call *call = begin_on_lock(HF_OP_UNLOCK, client, lock);

    forget_hold(lock);
    return call;
}

enum hf_err recorded_release(struct hf_client *client, struct hf_lock *lock)
{
    struct recorded_call *call = begin_release(client, lock);

    return end_call(call, hf_release(lock));
}

enum hf_err recorded_release_start(struct hf_client *client,
                                   struct hf_lock *lock, hf_done_fn *done,
                                   void *arg, struct hf_future **future)
{
    struct recorded_call *call = begin_release(client, lock);
    enum hf_err err =
        hf_release_start(lock, wrap_done(call, done, arg), call, future);

    return record_start(call, err, future);
}

enum hf_err recorded_renew(struct hf_client *client, struct hf_lock *lock,
                           uint32_t ttl_ms)
{
    struct recorded_call *call = begin_on_lock(HF_OP_RENEW, client, lock);

    return end_call(call, hf_renew(lock, ttl_ms));
}

enum hf_err recorded_renew_start(struct hf_client *client, struct hf_lock *lock,
                                 uint32_t ttl_ms, hf_done_fn *done, void *arg,
                                 struct hf_future **future)
{
    struct recorded_call *call = begin_on_lock(HF_OP_RENEW, client, lock);
    enum hf_err err =
        hf_renew_start(lock, ttl_ms, wrap_done(call, done, arg), call, future);

    return record_start(call, err, future);
}

enum hf_err recorded_update(struct hf_client *client, struct hf_lock *lock,
                            const struct hf_bytes *expected,
                            struct hf_bytes value)
{
    struct recorded_call *call = begin_on_lock(HF_OP_UPDATE, client, lock);

    return end_call(call, hf_update(lock, expected, value));
}

enum hf_err recorded_update_start(struct hf_client *client,
                                  struct hf_lock *lock,
                                  const struct hf_bytes *expected,
                                  struct hf_bytes value, hf_done_fn *done,
                                  void *arg, struct hf_future **future)
{
    struct recorded_call *call = begin_on_lock(HF_OP_UPDATE, client, lock);
    enum hf_err err = hf_update_start(lock, expected, value,
                                      wrap_done(call, done, arg), call, future);

    return record_start(call, err, future);
}

bool recorded_is_valid(struct hf_client *client, struct hf_lock *lock)
{
    struct recorded_call *call = begin_on_lock(HF_OP_RENEW, client, lock);
    bool valid = hf_lock_valid_for(lock, 0);

    /* hf_lock_valid_for() does not ask the server, so if the lock is not valid,
     * the key may still be held there, and the result is in doubt. */
    end_call(call, valid ? HF_OK : HF_EINDOUBT);
    return valid;
}

/* ---- A function under a lock --------------------------------------------*/

struct locked_run {
    struct recorded_call *claim,
        *release; /* release is NULL until the function has run */
    hf_run_fn *run;
    void *arg;
};

static int on_locked_run(struct hf_lock *lock, void *arg)
{
    struct locked_run *locked_run = arg;
    int result = 0;

    locked_run->claim->lock = lock;
    end_call(locked_run->claim, HF_OK);
    result = locked_run->run(lock, locked_run->arg);
    locked_run->release = begin_release(locked_run->claim->client, lock);
    return result;
}

enum hf_err recorded_run(struct hf_client *client, struct hf_key key,
                         const struct hf_lock_opts *opts, hf_run_fn *run,
                         void *arg, int *result)
{
    struct locked_run locked_run = {
        .claim = begin_acquire(client, key, opts, NULL),
        .run = run,
        .arg = arg,
    };
    struct hf_lock_opts wrapped;
    enum hf_err err =
        hf_run(client, key, wrap_events(locked_run.claim, opts, &wrapped),
               on_locked_run, &locked_run, result);

    /* HF_EEXPIRED may come from the local clock and not from the server, so the
     * result of the release is in doubt. */
    if (locked_run.release)
        end_call(locked_run.release, err == HF_EEXPIRED ? HF_EINDOUBT : err);
    else
        end_call(locked_run.claim, err);
    return err;
}

/* ---- On a key -----------------------------------------------------------*/

enum hf_err recorded_read(struct hf_client *client, struct hf_key key,
                          struct hf_info *info)
{
    struct recorded_call *call = begin_call(HF_OP_READ, client, key);
    enum hf_err err = hf_read(client, key, HF_LINEARIZABLE, info);

    call->token = !err && info->held ? info->token : 0;
    return end_call(call, err);
}

enum hf_err recorded_force_now(struct hf_client *client, struct hf_key key,
                               uint64_t token)
{
    struct recorded_call *call = begin_call(HF_OP_FORCE, client, key);

    call->token = token;
    return end_call(call, hf_force(client, key, token, true));
}

/* ---- Closing and killing ------------------------------------------------*/

/* Forget `claim`. If it holds its key, record a release without a result,
 * because the hold ends at some time from now on, but the case does not learn
 * when or how. Call it with the mutex locked; the handle may be freed
 * already. */
static void record_unconfirmed_release(struct recorded_call *claim)
{
    struct hf_key key = {claim->key, claim->key_size};
    struct recorded_call *release = NULL;

    forget_call(claim);
    if (!claim->held)
        return;
    release = recording_begin(HF_OP_UNLOCK, claim->number, key);
    memcpy(release->nonce, claim->nonce, sizeof(claim->nonce));
    release->token = claim->token;
}

enum hf_err recorded_close(struct hf_client *client, uint32_t timeout_ms)
{
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct recorded_call *call = buckets[i], *next = NULL; call;
             call = next) {
            next = call->next_near;
            if (call->held && call->client == client)
                record_unconfirmed_release(call);
        }
    }
    pthread_mutex_unlock(&mutex);
    return hf_close(client, timeout_ms);
}

void recorded_lock_free(struct hf_lock *lock)
{
    struct recorded_call *claim = NULL;

    pthread_mutex_lock(&mutex);
    claim = find_call(lock);
    if (claim)
        record_unconfirmed_release(claim);
    pthread_mutex_unlock(&mutex);
    hf_lock_free(lock);
}

void recorded_kill(pid_t pid)
{
    recording_death(pid);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}
