/* torture_worker.c - a client that acquires, renews, updates, reads and
 * releases locks at random, and sends an event before and after each call.
 *
 * It makes every mistake that the library allows: it releases locks after they
 * have expired, abandons handles and waits, and closes clients that hold
 * locks. */
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "failure.h"
#include "torture.h"

#define NS_IN_MS 1000000u
#define SLICE_MS 20 /* how often a worker looks whether it has to end */
#define OPEN_PAUSE_MS 50
#define TIMEOUT_MS 2000
#define SHORT_TIMEOUT_MS 20

struct worker {
    const struct torture_plan *plan;
    const struct torture_job *job;
    uint64_t chance;    /* state of torture_random() */
    bool has_events;    /* with callbacks, the client starts its threads */
    atomic_bool failed; /* the parent cannot be reached */
    struct hf_client *client;
    struct hf_lock *lock; /* held or lost; or NULL */
    uint32_t key;         /* of the lock, or of the claim */
    char key_text[TORTURE_KEY_SIZE];
};

/* ---- Chance and time ----------------------------------------------------*/

static uint64_t draw(struct worker *worker, uint64_t limit)
{
    return torture_random(&worker->chance, limit);
}

static bool happens(struct worker *worker, unsigned percent)
{
    return draw(worker, 100) < percent;
}

static bool must_end(const struct worker *worker)
{
    return atomic_load(&worker->failed) || atomic_load(worker->job->stop);
}

/* Sleep in slices, to notice that the worker has to end. */
static void sleep_us(struct worker *worker, uint64_t us)
{
    uint64_t until = torture_now() + us * 1000;

    while (!must_end(worker)) {
        uint64_t now = torture_now();
        uint64_t left = until > now ? until - now : 0;
        uint64_t slice = (uint64_t)SLICE_MS * NS_IN_MS;
        struct timespec span = {.tv_nsec = (long)(left < slice ? left : slice)};

        if (left == 0)
            return;
        (void)nanosleep(&span, NULL);
    }
}

/* Mostly about a thousandth of the ttl; sometimes longer than the lease. */
static void sleep_a_while(struct worker *worker)
{
    uint64_t ttl_us = (uint64_t)worker->plan->ttl_ms * 1000;
    uint64_t kind = draw(worker, 1000);

    if (kind < 960)
        sleep_us(worker, draw(worker, ttl_us / 1000 + 1));
    else if (kind < 997)
        sleep_us(worker, draw(worker, ttl_us / 16 + 1));
    else
        sleep_us(worker, draw(worker, ttl_us / 2 * 3 + 1));
}

/* ---- Events -------------------------------------------------------------*/

/* A record is smaller than PIPE_BUF, so it is written whole or not at all, even
 * if this process is killed. A full pipe blocks the worker. */
static void send_event(struct worker *worker, struct torture_event event)
{
    ssize_t size;

    event.client = worker->job->client;
    do {
        size = write(worker->job->events, &event, sizeof(event));
    } while (size < 0 && errno == EINTR);
    if (size != (ssize_t)sizeof(event))
        atomic_store(&worker->failed, true);
}

/* The history has no deadline 0; a lock that is not valid has one in the
 * past. */
static uint64_t deadline_of(const struct hf_lock *lock)
{
    int64_t at = hf_lock_deadline(lock);

    return at > 0 ? (uint64_t)at * NS_IN_MS : 1;
}

static uint64_t lease_of(const struct worker *worker)
{
    return (uint64_t)worker->plan->ttl_ms * NS_IN_MS;
}

static void begin_worker_claim(struct worker *worker)
{
    send_event(worker, (struct torture_event){
                           .kind = TORTURE_BEGIN,
                           .call = HF_OP_LOCK,
                           .key = worker->key,
                           .lease = lease_of(worker),
                           .now = torture_now(),
                       });
}

static void begin_on_lock(struct worker *worker, enum hf_op_kind call,
                          uint64_t lease)
{
    struct torture_event event = {
        .kind = TORTURE_BEGIN,
        .call = call,
        .key = worker->key,
        .token = hf_lock_token(worker->lock),
        .lease = lease,
        .deadline = deadline_of(worker->lock),
    };

    hf_lock_nonce(worker->lock, event.nonce);
    event.now = torture_now();
    send_event(worker, event);
}

/* End a call on worker->lock. */
static void end_on_lock(struct worker *worker, enum hf_err err)
{
    struct torture_event event = {.kind = TORTURE_END, .err = err};

    event.token = hf_lock_token(worker->lock);
    event.deadline = deadline_of(worker->lock);
    hf_lock_nonce(worker->lock, event.nonce);
    event.now = torture_now();
    send_event(worker, event);
}

static void end_without_lock(struct worker *worker, enum hf_err err,
                             uint64_t token)
{
    send_event(worker, (struct torture_event){
                           .kind = TORTURE_END,
                           .err = err,
                           .token = token,
                           .now = torture_now(),
                       });
}

static void on_worker_lock_event(struct hf_lock *lock, enum hf_lock_event kind,
                                 void *arg)
{
    struct worker *worker = arg;

    if (kind == HF_LOCK_EVENT_LOST)
        send_event(worker, (struct torture_event){
                               .kind = TORTURE_LOST,
                               .key = worker->key,
                               .token = hf_lock_token(lock),
                               .now = torture_now(),
                           });
}

/* ---- Acquiring ----------------------------------------------------------*/

static void choose_key(struct worker *worker)
{
    worker->key = (uint32_t)draw(worker, worker->plan->keys);
    torture_key(worker->plan, worker->job->round, worker->key,
                worker->key_text);
}

static uint32_t choose_wait_ms(struct worker *worker)
{
    uint64_t kind = draw(worker, 100);

    if (kind < 35)
        return 0;
    return (uint32_t)draw(worker, kind < 85 ? worker->plan->ttl_ms / 4 + 1
                                            : 2 * worker->plan->ttl_ms);
}

static uint32_t choose_timeout_ms(struct worker *worker)
{
    return happens(worker, 10) ? 1 + (uint32_t)draw(worker, SHORT_TIMEOUT_MS)
                               : TIMEOUT_MS;
}

static void choose_lock_opts(struct worker *worker, struct hf_lock_opts *opts)
{
    hf_lock_opts_init(opts);
    opts->ttl_ms = worker->plan->ttl_ms;
    opts->wait_ms = choose_wait_ms(worker);
    opts->timeout_ms = choose_timeout_ms(worker);
    if (!worker->has_events)
        return;
    opts->renew = happens(worker, 30);
    opts->on_event = on_worker_lock_event;
    opts->arg = worker;
}

/* Wait for a claim, and cancel it when the worker has to end, or at `until`. */
static enum hf_err await_worker_claim(struct worker *worker,
                                      struct hf_future *future, uint64_t until)
{
    enum hf_err err = HF_OK;

    while (hf_future_wait(future, SLICE_MS, &err)) {
        if (must_end(worker) || torture_now() >= until)
            hf_future_cancel(future);
    }
    return err;
}

static enum hf_err acquire_or_cancel(struct worker *worker,
                                     const struct hf_lock_opts *opts)
{
    uint64_t patience =
        happens(worker, 10) ? draw(worker, opts->wait_ms + 1u) : UINT32_MAX;
    struct hf_future *future;
    enum hf_err err =
        hf_acquire_start(worker->client, hf_key_of(worker->key_text), opts,
                         &worker->lock, NULL, NULL, &future);

    if (err)
        return err;
    err =
        await_worker_claim(worker, future, torture_now() + patience * NS_IN_MS);
    hf_future_free(future);
    return err;
}

/* Acquire the lock on worker->key. Sets worker->lock if it is granted. */
static void acquire_lock(struct worker *worker)
{
    struct hf_lock_opts opts;
    enum hf_err err;

    choose_lock_opts(worker, &opts);
    begin_worker_claim(worker);
    if (opts.wait_ms > 0)
        err = acquire_or_cancel(worker, &opts);
    else
        err = hf_acquire(worker->client, hf_key_of(worker->key_text), &opts,
                         &worker->lock);
    if (err)
        end_without_lock(worker, err, 0);
    else
        end_on_lock(worker, HF_OK);
}

/* ---- While the lock is held ---------------------------------------------*/

static void renew_worker_lock(struct worker *worker)
{
    begin_on_lock(worker, HF_OP_RENEW, lease_of(worker));
    end_on_lock(worker, hf_renew(worker->lock, 0));
}

static void update_lock(struct worker *worker)
{
    struct hf_bytes expected = hf_bytes_of("another value");
    struct hf_bytes value = hf_bytes_of(worker->key_text);

    if (!(worker->plan->caps & HF_CAP_VALUE))
        return;
    begin_on_lock(worker, HF_OP_UPDATE, 0);
    end_on_lock(
        worker,
        hf_update(worker->lock, happens(worker, 20) ? &expected : NULL, value));
}

/* If the lock is valid, record that it is held until its deadline, which
 * renewals in the background may have extended. */
static void check_validity(struct worker *worker)
{
    struct torture_event event = {
        .kind = TORTURE_BEGIN,
        .call = HF_OP_RENEW,
        .key = worker->key,
        .token = hf_lock_token(worker->lock),
        .deadline = deadline_of(worker->lock),
        .now = torture_now(),
    };

    if (!hf_lock_valid_for(worker->lock, 0))
        return;
    hf_lock_nonce(worker->lock, event.nonce);
    send_event(worker, event);
    end_on_lock(worker, HF_OK);
}

static void read_random_key(struct worker *worker)
{
    struct torture_event event = {.kind = TORTURE_BEGIN, .call = HF_OP_READ};
    char key[TORTURE_KEY_SIZE];
    struct hf_info info;
    enum hf_err err;

    if (!(worker->plan->caps & HF_CAP_LINEARIZABLE_READ))
        return;
    event.key = (uint32_t)draw(worker, worker->plan->keys);
    torture_key(worker->plan, worker->job->round, event.key, key);
    event.now = torture_now();
    send_event(worker, event);
    err = hf_read(worker->client, hf_key_of(key), HF_LINEARIZABLE, &info);
    end_without_lock(worker, err, !err && info.held ? info.token : 0);
    if (!err)
        hf_info_fini(&info);
}

static void use_lock(struct worker *worker)
{
    for (uint64_t i = draw(worker, 5); i > 0 && !must_end(worker); i--) {
        uint64_t kind = draw(worker, 100);

        if (kind < 30)
            renew_worker_lock(worker);
        else if (kind < 50)
            update_lock(worker);
        else if (kind < 70)
            read_random_key(worker);
        else if (kind < 85)
            check_validity(worker);
        else
            sleep_a_while(worker);
    }
}

/* ---- The end of a lock --------------------------------------------------*/

static void free_lock(struct worker *worker)
{
    hf_lock_free(worker->lock);
    worker->lock = NULL;
}

static void release_worker_lock(struct worker *worker)
{
    begin_on_lock(worker, HF_OP_UNLOCK, 0);
    end_on_lock(worker, hf_release(worker->lock));
    free_lock(worker);
}

static void release_after_expiry(struct worker *worker)
{
    uint64_t ms = hf_lock_remaining_ms(worker->lock);

    sleep_us(worker, (ms + draw(worker, worker->plan->ttl_ms / 2 + 1)) * 1000);
    release_worker_lock(worker);
}

/* Free the handle, or close the client. Either releases the lock, at a time
 * that the worker does not learn: the call has no end. */
static void abandon_lock(struct worker *worker)
{
    begin_on_lock(worker, HF_OP_UNLOCK, 0);
    if (happens(worker, 50)) {
        (void)hf_close(worker->client, TIMEOUT_MS);
        worker->client = NULL;
    }
    free_lock(worker);
}

static void end_lock(struct worker *worker)
{
    uint64_t kind = draw(worker, 1000);

    if (kind < 900)
        release_worker_lock(worker);
    else if (kind < 904)
        release_after_expiry(worker);
    else
        abandon_lock(worker);
}

/* ---- The worker ---------------------------------------------------------*/

/* Open the store. Tries again until the worker has to end: the server may be
 * down, because the user restarts it. */
static bool open_client(struct worker *worker)
{
    struct hf_client_opts opts;
    enum hf_err err;

    hf_client_opts_init(&opts);
    opts.background = worker->has_events;
    while (!worker->client && !must_end(worker)) {
        err = hf_open(worker->plan->url, &opts, &worker->client);
        if (!err)
            break;
        send_event(worker,
                   (struct torture_event){.kind = TORTURE_FAILED, .err = err});
        sleep_us(worker, OPEN_PAUSE_MS * 1000UL);
    }
    return worker->client != NULL;
}

int torture_worker_main(const struct torture_plan *plan,
                        const struct torture_job *job)
{
    struct worker worker = {
        .plan = plan,
        .job = job,
        .chance = plan->seed ^ ((uint64_t)job->round << 32 | job->client),
    };

    worker.has_events = happens(&worker, 50);
    while (!must_end(&worker) && open_client(&worker)) {
        choose_key(&worker);
        acquire_lock(&worker);
        if (worker.lock) {
            use_lock(&worker);
            end_lock(&worker);
        } else {
            read_random_key(&worker);
        }
        sleep_a_while(&worker);
    }
    if (worker.client)
        (void)hf_close(worker.client, TIMEOUT_MS);
    return atomic_load(&worker.failed) ? STATUS_OUTPUT : STATUS_OK;
}
