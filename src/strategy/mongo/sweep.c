/* sweep.c - keys whose holders never came back: nobody asks for them, and no
 * server deletes what is held, so every client ends such leases now and then. */
#include <stdlib.h>

#include "strategy/mongo/mongo.h"

#define OPEN_MS 100   /* of a server's time, when a client opens */
#define LATER_MS 2000 /* and later on, each time */
#define AGAIN_MS                                                               \
    1000 /* where that was not enough, or not tried yet; and after a
                         failure, twice as long after each more */
#define SPAN_MAX_MS 3600000

/* A sweep takes longer than a lock. A program that ends within AGAIN_MS, such as
 * a command, never comes to its timer: one in so many sweeps when it opens. */
#define OPENERS 16

#define POSTPONED_MAX 60 /* consecutive postponements */
#define FAILURES_MAX 12  /* that are counted: 4096 times as long */

struct sweep {
    struct hf_mongo_job job;
    struct hf_mongo *mongo;
    struct hf_mongo_op op;
    int32_t max_ms;
    bool opens; /* the client has just made the index */
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
    bson_error_t why;
    mongoc_server_description_t *server =
        hf_mongo_server_select(client, &unused);

    sweep->swept = HF_MONGO_SWEPT_NOTHING;
    if (!server)
        return;
    if (!sweep->opens)
        (void)hf_mongo_handshake_create_index(client, context, &why);
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

/* Until the next sweep, which is `again` sooner where something is left. Each
 * client at a time of its own, so that not all come at once. */
static void set_sweep_timer(struct hf_mongo *mongo, bool again)
{
    int64_t keep_ms = hf_mongo_workers_context(mongo->workers)->address.keep_ms;
    uint64_t span =
        keep_ms / 4 < SPAN_MAX_MS ? (uint64_t)keep_ms / 4 : SPAN_MAX_MS;
    uint64_t sooner = (uint64_t)AGAIN_MS << mongo->sweep_failures;

    if (again && sooner < span)
        span = sooner;
    if (span < AGAIN_MS)
        span = AGAIN_MS;
    span += hf_random_below(mongo->host->ops->random(mongo->host),
                            (uint32_t)span / 4 + 1);
    hf_timer_set(mongo->host, &mongo->sweep_timer,
                 hf_time_add(mongo->host->ops->now(mongo->host), span));
}

/* A server that refuses or cannot execute sweeps is left alone for longer each
 * time. */
static void note_sweep_result(struct hf_mongo *mongo, enum hf_mongo_swept swept)
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

    note_sweep_result(sweep->mongo, sweep->swept);
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

/* While requests are under way the server has better things to do. */
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

/* Blocks for a round trip. Return true if nothing is left to be swept. */
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
    mongo->sweeps = true;
    set_sweep_timer(mongo,
                    hf_random_below(random, OPENERS) != 0 || !sweep_now(mongo));
    return HF_OK;
}

void hf_mongo_sweep_close(struct hf_mongo *mongo)
{
    if (mongo->sweeps)
        mongo->host->ops->timer_remove(mongo->host, &mongo->sweep_timer);
}
