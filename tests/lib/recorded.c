#include "lib/recorded.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "lib/recording.h"

#define BUCKETS 4096
#define NS_IN_MS 1000000u

/* Of this process: calls under way by their futures, claims by their handles.
 * The mutex is for these, and for what a call becomes after its beginning. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct recorded_call *buckets[BUCKETS];

/* In a forked child: what is under way is the parent's. */
static void begin_anew(void)
{
    memset(buckets, 0, sizeof(buckets));
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static void see_forks(void)
{
    if (pthread_atfork(NULL, NULL, begin_anew))
        abort();
}

void recorded_init(bool fifo)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, see_forks);
    recording_init(fifo);
    memset(buckets, 0, sizeof(buckets));
}

int recorded_check(const char *name)
{
    return recording_check(name);
}

static uint64_t deadline_ns(const struct hf_lock *lock)
{
    return recording_instant(hf_lock_deadline(lock));
}

static struct recorded_call *begin(enum hf_op_kind kind,
                                   struct hf_client *client, struct hf_key key)
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

static struct recorded_call *find(const void *pointer)
{
    struct recorded_call *call = *bucket_of(pointer);

    while (call && call->known_by != pointer)
        call = call->next_near;
    return call;
}

static void forget(struct recorded_call *call)
{
    struct recorded_call **at = NULL;

    if (!call->known_by)
        return;
    for (at = bucket_of(call->known_by); *at != call; at = &(*at)->next_near)
        continue;
    *at = call->next_near;
    call->known_by = NULL;
}

/* Of two that are known by one pointer, the newer is found. */
static void know_by(struct recorded_call *call, const void *pointer)
{
    struct recorded_call **bucket = bucket_of(pointer);

    forget(call);
    call->known_by = pointer;
    call->next_near = *bucket;
    *bucket = call;
}

/* ---- Answers ------------------------------------------------------------*/

static void learn_grant(struct recorded_call *call)
{
    call->token = hf_lock_token(call->lock);
    hf_lock_nonce(call->lock, call->nonce);
}

/* What was given up can have been done: a claim that stood in line can have been
 * granted at the last moment, and have held the key until its withdrawal gave
 * it back. */
static enum hf_err in_doubt_if_given_up(enum hf_err err)
{
    bool given_up =
        err == HF_ETIMEDOUT || err == HF_ECANCELED || err == HF_ECLOSED;

    return given_up ? HF_EINDOUBT : err;
}

static void granted(struct recorded_call *call)
{
    if (call->out)
        call->lock = *call->out;
    learn_grant(call);
    call->deadline = deadline_ns(call->lock);
    call->held = true;
    know_by(call, call->lock);
}

/* A handle whose validity is over is lost, whatever the server knows: that
 * answer tells nothing about the key. */
static enum hf_err as_seen_by_the_server(enum hf_err err, uint64_t deadline)
{
    return err == HF_EEXPIRED && recording_now() >= deadline ? HF_EINDOUBT
                                                             : err;
}

static void write_answer(struct recorded_call *call, enum hf_err err)
{
    call->err = in_doubt_if_given_up(err);
    if (call->kind == HF_OP_RENEW || call->kind == HF_OP_UPDATE)
        call->err = as_seen_by_the_server(call->err, call->deadline);
    if (call->kind == HF_OP_LOCK && !err)
        granted(call);
    if (call->kind == HF_OP_RENEW && !err)
        call->deadline = deadline_ns(call->lock);
    if (call->kind == HF_OP_UNLOCK && !err && !call->token)
        learn_grant(call); /* its claim was under way */
    call->answer = recording_now();
    atomic_store(&call->answered, true);
}

/* Once: a callback and who waits for the future may both come here. */
static enum hf_err end(struct recorded_call *call, enum hf_err err)
{
    pthread_mutex_lock(&mutex);
    if (!call->answered) {
        forget(call);
        write_answer(call, err);
    }
    pthread_mutex_unlock(&mutex);
    return err;
}

static void on_done(enum hf_err err, void *arg)
{
    struct recorded_call *call = arg;

    end(call, err);
    call->done(err, call->done_arg);
}

/* Where the user wants no callback, there is none. */
static hf_done_fn *listen_for_end(struct recorded_call *call, hf_done_fn *done,
                                  void *arg)
{
    call->done = done;
    call->done_arg = arg;
    return done ? on_done : NULL;
}

/* To be found by its future, or by its handle, unless it is answered already. */
static void under_way(struct recorded_call *call, const void *known_by)
{
    pthread_mutex_lock(&mutex);
    if (!call->answered)
        know_by(call, known_by);
    pthread_mutex_unlock(&mutex);
}

static enum hf_err started(struct recorded_call *call, enum hf_err err,
                           struct hf_future **future)
{
    if (err)
        return end(call, err);
    if (future)
        under_way(call, *future);
    return HF_OK;
}

/* Who is known by `pointer`, if anybody is, was answered. */
static enum hf_err end_known(const void *pointer, enum hf_err err)
{
    struct recorded_call *call = NULL;

    pthread_mutex_lock(&mutex);
    call = find(pointer);
    pthread_mutex_unlock(&mutex);
    return call ? end(call, err) : err;
}

enum hf_err recorded_future_wait(struct hf_future *future, uint32_t wait_ms,
                                 enum hf_err *err)
{
    enum hf_err waited = hf_future_wait(future, wait_ms, err);

    if (!waited)
        end_known(future, *err);
    return waited;
}

/* ---- Taking -------------------------------------------------------------*/

static void on_event(struct hf_lock *lock, enum hf_lock_event event, void *arg)
{
    struct recorded_call *call = arg;

    pthread_mutex_lock(&mutex);
    if (event == HF_LOCK_EVENT_WAITING && !call->answered)
        call->queued = recording_now();
    if (event == HF_LOCK_EVENT_LOST && !call->lost)
        call->lost = recording_now();
    pthread_mutex_unlock(&mutex);
    call->on_event(lock, event, call->event_arg);
}

/* The user's options; where it listens, so do we. Where it does not, neither:
 * a client that has events to tell may need a thread. */
static const struct hf_lock_opts *listening(struct recorded_call *call,
                                            const struct hf_lock_opts *opts,
                                            struct hf_lock_opts *heard)
{
    if (!opts || !opts->on_event)
        return opts;
    call->on_event = opts->on_event;
    call->event_arg = opts->arg;
    *heard = *opts;
    heard->on_event = on_event;
    heard->arg = call;
    return heard;
}

static struct recorded_call *begin_lock(struct hf_client *client,
                                        struct hf_key key,
                                        const struct hf_lock_opts *opts,
                                        struct hf_lock **lock)
{
    struct recorded_call *call = begin(HF_OP_LOCK, client, key);
    struct hf_lock_opts defaults;

    hf_lock_opts_init(&defaults);
    if (!opts)
        opts = &defaults;
    call->lease = (uint64_t)(opts->ttl_ms ? opts->ttl_ms : 10000) * NS_IN_MS;
    call->out = lock;
    return call;
}

enum hf_err recorded_lock(struct hf_client *client, struct hf_key key,
                          const struct hf_lock_opts *opts,
                          struct hf_lock **lock)
{
    struct recorded_call *call = begin_lock(client, key, opts, lock);
    struct hf_lock_opts heard;

    return end(call,
               hf_acquire(client, key, listening(call, opts, &heard), lock));
}

enum hf_err recorded_lock_start(struct hf_client *client, struct hf_key key,
                                const struct hf_lock_opts *opts,
                                struct hf_lock **lock, hf_done_fn *done,
                                void *arg, struct hf_future **future)
{
    struct recorded_call *call = begin_lock(client, key, opts, lock);
    struct hf_lock_opts heard;
    enum hf_err err =
        hf_acquire_start(client, key, listening(call, opts, &heard), lock,
                         listen_for_end(call, done, arg), call, future);

    return started(call, err, future);
}

enum hf_err recorded_lock_new(struct hf_client *client, struct hf_key key,
                              const struct hf_lock_opts *opts,
                              struct hf_lock **lock)
{
    struct hf_lock_opts heard;
    struct recorded_call *call = NULL;
    enum hf_err err = HF_OK;

    hf_lock_opts_init(&heard);
    if (opts ? opts->idle : heard.idle)
        return hf_lock_new(client, key, opts, lock);
    call = begin_lock(client, key, opts, NULL);
    err = hf_lock_new(client, key, listening(call, opts, &heard), lock);
    if (err)
        return end(call, err);
    call->lock = *lock;
    hf_lock_nonce(*lock, call->nonce);
    under_way(call, *lock);
    return HF_OK;
}

/* The case holds nothing by `lock` any more; a claim under way stays. */
static void no_longer_held(const struct hf_lock *lock)
{
    struct recorded_call *claim = NULL;

    pthread_mutex_lock(&mutex);
    claim = find(lock);
    if (claim && claim->held)
        forget(claim);
    pthread_mutex_unlock(&mutex);
}

/* Without a lease: the handle's ttl is not known here, its deadline will be. */
static struct recorded_call *begin_claim(struct hf_client *client,
                                         struct hf_lock *lock)
{
    struct recorded_call *call = begin(HF_OP_LOCK, client, hf_lock_key(lock));

    call->lock = lock;
    no_longer_held(lock);
    return call;
}

enum hf_err recorded_claim(struct hf_client *client, struct hf_lock *lock)
{
    struct recorded_call *call = begin_claim(client, lock);

    return end(call, hf_lock_acquire(lock));
}

enum hf_err recorded_claim_start(struct hf_client *client, struct hf_lock *lock,
                                 hf_done_fn *done, void *arg,
                                 struct hf_future **future)
{
    struct recorded_call *call = begin_claim(client, lock);
    enum hf_err err = hf_lock_acquire_start(
        lock, listen_for_end(call, done, arg), call, future);

    if (!err && !future)
        under_way(call, lock);
    return started(call, err, future);
}

enum hf_err recorded_claim_wait(struct hf_lock *lock)
{
    return end_known(lock, hf_lock_wait(lock));
}

void recorded_queued(const struct hf_lock *lock)
{
    struct recorded_call *call;

    pthread_mutex_lock(&mutex);
    call = find(lock);
    if (call && !call->answered)
        call->queued = recording_now();
    pthread_mutex_unlock(&mutex);
}

enum hf_err recorded_lock_in_line(struct hf_client *client, struct hf_key key,
                                  const struct hf_lock_opts *opts,
                                  struct hf_lock **lock)
{
    struct hf_lock_opts idle = *opts;
    struct hf_lock *made;
    enum hf_err err;

    idle.idle = true;
    err = hf_lock_new(client, key, &idle, &made);
    if (err)
        return err;
    err = recorded_claim_start(client, made, NULL, NULL, NULL);
    if (!err && hf_lock_position(made) > 0)
        recorded_queued(made);
    if (!err)
        err = recorded_claim_wait(made);
    if (err)
        hf_lock_free(made);
    else
        *lock = made;
    return err;
}

/* ---- On a handle --------------------------------------------------------*/

static struct recorded_call *begin_on(enum hf_op_kind kind,
                                      struct hf_client *client,
                                      struct hf_lock *lock)
{
    struct recorded_call *call = begin(kind, client, hf_lock_key(lock));

    call->lock = lock;
    call->deadline = deadline_ns(lock);
    learn_grant(call);
    return call;
}

static struct recorded_call *begin_unlock(struct hf_client *client,
                                          struct hf_lock *lock)
{
    struct recorded_call *call = begin_on(HF_OP_UNLOCK, client, lock);

    no_longer_held(lock);
    return call;
}

enum hf_err recorded_unlock(struct hf_client *client, struct hf_lock *lock)
{
    struct recorded_call *call = begin_unlock(client, lock);

    return end(call, hf_release(lock));
}

enum hf_err recorded_unlock_start(struct hf_client *client,
                                  struct hf_lock *lock, hf_done_fn *done,
                                  void *arg, struct hf_future **future)
{
    struct recorded_call *call = begin_unlock(client, lock);
    enum hf_err err =
        hf_release_start(lock, listen_for_end(call, done, arg), call, future);

    return started(call, err, future);
}

enum hf_err recorded_renew(struct hf_client *client, struct hf_lock *lock,
                           uint32_t ttl_ms)
{
    struct recorded_call *call = begin_on(HF_OP_RENEW, client, lock);

    return end(call, hf_renew(lock, ttl_ms));
}

enum hf_err recorded_renew_start(struct hf_client *client, struct hf_lock *lock,
                                 uint32_t ttl_ms, hf_done_fn *done, void *arg,
                                 struct hf_future **future)
{
    struct recorded_call *call = begin_on(HF_OP_RENEW, client, lock);
    enum hf_err err = hf_renew_start(
        lock, ttl_ms, listen_for_end(call, done, arg), call, future);

    return started(call, err, future);
}

enum hf_err recorded_update(struct hf_client *client, struct hf_lock *lock,
                            const struct hf_bytes *expected,
                            struct hf_bytes value)
{
    struct recorded_call *call = begin_on(HF_OP_UPDATE, client, lock);

    return end(call, hf_update(lock, expected, value));
}

enum hf_err recorded_update_start(struct hf_client *client,
                                  struct hf_lock *lock,
                                  const struct hf_bytes *expected,
                                  struct hf_bytes value, hf_done_fn *done,
                                  void *arg, struct hf_future **future)
{
    struct recorded_call *call = begin_on(HF_OP_UPDATE, client, lock);
    enum hf_err err = hf_update_start(
        lock, expected, value, listen_for_end(call, done, arg), call, future);

    return started(call, err, future);
}

bool recorded_valid(struct hf_client *client, struct hf_lock *lock)
{
    struct recorded_call *call = begin_on(HF_OP_RENEW, client, lock);
    bool valid = hf_lock_valid_for(lock, 0);

    /* Not valid is not an answer of the server's. */
    end(call, valid ? HF_OK : HF_EINDOUBT);
    return valid;
}

/* ---- A function under a lock --------------------------------------------*/

struct errand {
    struct recorded_call *claim, *release; /* release is NULL until it ran */
    hf_run_fn *run;
    void *arg;
};

static int run_errand(struct hf_lock *lock, void *arg)
{
    struct errand *errand = arg;
    int result = 0;

    errand->claim->lock = lock;
    end(errand->claim, HF_OK);
    result = errand->run(lock, errand->arg);
    errand->release = begin_unlock(errand->claim->client, lock);
    return result;
}

enum hf_err recorded_run(struct hf_client *client, struct hf_key key,
                         const struct hf_lock_opts *opts, hf_run_fn *run,
                         void *arg, int *result)
{
    struct errand errand = {
        .claim = begin_lock(client, key, opts, NULL),
        .run = run,
        .arg = arg,
    };
    struct hf_lock_opts heard;
    enum hf_err err = hf_run(client, key, listening(errand.claim, opts, &heard),
                             run_errand, &errand, result);

    /* That it was lost meanwhile is not the server's word. */
    if (errand.release)
        end(errand.release, err == HF_EEXPIRED ? HF_EINDOUBT : err);
    else
        end(errand.claim, err);
    return err;
}

/* ---- On a key -----------------------------------------------------------*/

enum hf_err recorded_read(struct hf_client *client, struct hf_key key,
                          struct hf_info *info)
{
    struct recorded_call *call = begin(HF_OP_READ, client, key);
    enum hf_err err = hf_read(client, key, HF_LINEARIZABLE, info);

    call->token = !err && info->held ? info->token : 0;
    return end(call, err);
}

enum hf_err recorded_force_now(struct hf_client *client, struct hf_key key,
                               uint64_t token)
{
    struct recorded_call *call = begin(HF_OP_FORCE, client, key);

    call->token = token;
    return end(call, hf_force(client, key, token, true));
}

/* ---- Ends ---------------------------------------------------------------*/

/* What is held ends, at some time from now on: whether it is confirmed or not,
 * and in whichever way, nobody is told. Under the mutex; the handle may be gone
 * already. */
static void let_go(struct recorded_call *claim)
{
    struct hf_key key = {claim->key, claim->key_size};
    struct recorded_call *release = NULL;

    forget(claim);
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
                let_go(call);
        }
    }
    pthread_mutex_unlock(&mutex);
    return hf_close(client, timeout_ms);
}

void recorded_free(struct hf_lock *lock)
{
    struct recorded_call *claim = NULL;

    pthread_mutex_lock(&mutex);
    claim = find(lock);
    if (claim)
        let_go(claim);
    pthread_mutex_unlock(&mutex);
    hf_lock_free(lock);
}

void recorded_kill(pid_t pid)
{
    recording_death(pid);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}
