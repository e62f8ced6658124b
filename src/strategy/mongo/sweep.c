/* sweep.c - end the leases of abandoned keys, whose holders died and which no
 * client asks for. No server deletes the document of a held key, so every
 * client sweeps from time to time. */
#include <stdlib.h>

#include "strategy/mongo/handshake.h"
#include "strategy/mongo/mongo.h"

#define OPEN_MS 100   /* maxTimeMS of the sweep when a client opens */
#define LATER_MS 2000 /* maxTimeMS of later sweeps */
#define SPAN_MAX_MS 3600000

/* Time until the first sweep of a client, and until the next one if keys are
 * left, or if a sweep was postponed. Doubled after each failure. */
#define RETRY_MS 1000

/* One in this many clients sweeps when it opens. A program that ends within
 * RETRY_MS, such as the command holdfast, never reaches its sweep timer. But
 * not every client sweeps, because a sweep takes longer than a LOCK. */
#define OPENERS 16

#define POSTPONED_MAX 60 /* consecutive postponements of a sweep */
#define FAILURES_MAX 12  /* doublings of RETRY_MS */

struct sweep {
    struct hf_mongo_job job;
    struct hf_mongo *mongo;
    struct hf_mongo_op op;
    int32_t max_ms;
    bool opens; /* runs while the client opens, just after createIndexes */
    enum hf_mongo_swept swept;
};

static struct sweep *sweep_of(struct hf_mongo_job *job)
{
    return HF_CONTAINER(job, struct sweep, job);
}

static void run_sweep(struct hf_mongo_job *job, mongoc_client_t *client,
                      const struct hf_mongo_context *context)
{
    struct sweep *sweep = sweep_of(job);
    struct hf_mongo_reply unused;
    bson_error_t fault;
    mongoc_server_description_t *server =
        hf_mongo_server_select(client, &unused);

    sweep->swept = HF_MONGO_SWEPT_NOTHING;
    if (!server)
        return;
    if (!sweep->opens)
        (void)hf_mongo_handshake_create_index(client, context, &fault);
    sweep->swept = hf_mongo_execute_sweep(&sweep->op, client, context, server,
                                          sweep->max_ms);
    mongoc_server_description_destroy(server);
}

static void drop_sweep(struct hf_mongo_job *job)
{
    struct sweep *sweep = sweep_of(job);

    hf_mongo_op_fini(&sweep->op);
    free(sweep);
}

/* Schedule the next sweep, early if `retry` is set. Add a random time, which
 * spreads the sweeps of many clients. */
static void set_sweep_timer(struct hf_mongo *mongo, bool retry)
{
    int64_t keep_ms = hf_mongo_workers_context(mongo->workers)->address.keep_ms;
    uint64_t span =
        keep_ms / 4 < SPAN_MAX_MS ? (uint64_t)keep_ms / 4 : SPAN_MAX_MS;
    uint64_t early = (uint64_t)RETRY_MS << mongo->sweep_failures;

    if (retry && early < span)
        span = early;
    if (span < RETRY_MS)
        span = RETRY_MS;
    span += hf_random_below(mongo->host->ops->random(mongo->host),
                            (uint32_t)span / 4 + 1);
    hf_timer_set(mongo->host, &mongo->sweep_timer,
                 hf_time_add(mongo->host->ops->now(mongo->host), span));
}

/* Schedule the next sweep according to the result of the last one. If the
 * server refuses sweeps or fails on them, wait longer each time. */
static void schedule_next_sweep(struct hf_mongo *mongo,
                                enum hf_mongo_swept swept)
{
    if (swept != HF_MONGO_SWEPT_NOTHING)
        mongo->sweep_failures = 0;
    else if (mongo->sweep_failures < FAILURES_MAX)
        mongo->sweep_failures++;
    set_sweep_timer(mongo, swept != HF_MONGO_SWEPT_ALL);
}

static void on_sweep_done(struct hf_mongo_job *job)
{
    struct sweep *sweep = sweep_of(job);

    schedule_next_sweep(sweep->mongo, sweep->swept);
    drop_sweep(job);
}

static struct sweep *new_sweep(struct hf_mongo *mongo, int32_t max_ms)
{
    struct sweep *sweep = calloc(1, sizeof(*sweep));

    if (!sweep)
        return NULL;
    sweep->mongo = mongo;
    sweep->max_ms = max_ms;
    sweep->job.run = run_sweep;
    sweep->job.done = on_sweep_done;
    sweep->job.drop = drop_sweep;
    if (hf_mongo_op_init_sweep(&sweep->op, &mongo->identity) == HF_OK)
        return sweep;
    free(sweep);
    return NULL;
}

/* Postpone the sweep if a call is in flight, because calls come first. Returns
 * true if it was postponed. After POSTPONED_MAX postponements the sweep runs
 * anyway. */
static bool postpone_sweep(struct hf_mongo *mongo)
{
    if (hf_dlist_is_empty(&mongo->calls) ||
        mongo->sweep_postponed++ >= POSTPONED_MAX) {
        mongo->sweep_postponed = 0;
        return false;
    }
    set_sweep_timer(mongo, true);
    return true;
}

static void on_sweep_timer(struct hf_timer *timer)
{
    struct hf_mongo *mongo = HF_CONTAINER(timer, struct hf_mongo, sweep_timer);
    struct sweep *sweep;

    if (postpone_sweep(mongo))
        return;
    sweep = new_sweep(mongo, LATER_MS);
    if (sweep && hf_mongo_workers_submit(mongo->workers, &sweep->job))
        return;
    if (sweep)
        drop_sweep(&sweep->job);
    set_sweep_timer(mongo, true);
}

/* Sweep, and wait for the result. Returns true if no abandoned keys are
 * left. */
static bool sweep_now(struct hf_mongo *mongo)
{
    struct sweep *sweep = new_sweep(mongo, OPEN_MS);
    bool complete = false;

    if (!sweep)
        return false;
    sweep->opens = true;
    if (hf_mongo_workers_await(mongo->workers, &sweep->job, LATER_MS)) {
        complete = sweep->swept == HF_MONGO_SWEPT_ALL;
        drop_sweep(&sweep->job);
    }
    return complete;
}

enum hf_err hf_mongo_sweep_open(struct hf_mongo *mongo)
{
    struct hf_random *random = mongo->host->ops->random(mongo->host);

    mongo->sweep_timer.fire = on_sweep_timer;
    if (mongo->host->ops->timer_add(mongo->host, &mongo->sweep_timer))
        return HF_ENOMEM;
    mongo->has_sweep_timer = true;
    set_sweep_timer(mongo,
                    hf_random_below(random, OPENERS) != 0 || !sweep_now(mongo));
    return HF_OK;
}

void hf_mongo_sweep_close(struct hf_mongo *mongo)
{
    if (mongo->has_sweep_timer)
        mongo->host->ops->timer_remove(mongo->host, &mongo->sweep_timer);
}
