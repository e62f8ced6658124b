/* mongo.h - the strategies mongodb:// and mongodb+srv://.
 *
 * Each key is one document of a collection. Each command is one atomic pipeline
 * (a .json file), which the primary executes. Leases are timed by the clock of
 * the primary. Calls of libmongoc block, so worker threads make them. A wait or
 * a watch starts one more thread, which reads a change stream, unless the
 * server is standalone.
 *
 * This header is private to mongo.c, watch.c, waiters.c, expiry.c and sweep.c,
 * and to module.c, which exports the strategies. Everything here runs in the
 * client's context, except that a call may be freed in any thread after the
 * strategy was closed. */
#ifndef HF_STRATEGY_MONGO_MONGO_H
#define HF_STRATEGY_MONGO_MONGO_H

#include "base/map.h"
#include "base/siphash.h"
#include "strategy/mongo/in_doubt.h"
#include "strategy/mongo/query.h"
#include "strategy/mongo/stream.h"
#include "strategy/watches.h"

extern const struct hf_strategy hf_strategy_mongodb;
extern const struct hf_strategy hf_strategy_mongodb_srv;

#define HF_MONGO_GRANTS_KEPT 64

/* A request, or a command of the strategy itself, that a worker executes.
 * Meanwhile only that worker may touch `op`, `reply` and `query`. */
struct hf_mongo_call {
    struct hf_mongo_job job;
    struct hf_mongo *mongo;
    struct hf_request *request; /* NULL: given up, or the strategy's own call */
    struct hf_dlist open;       /* in hf_mongo.calls */
    hf_time sent;
    bool is_expiry_check;                         /* counted in expiry_checks */
    void (*on_reply)(struct hf_mongo_call *call); /* frees the call */
    struct hf_mongo_op op; /* a linearizable READ: ends a lease that is due */
    struct hf_mongo_reply reply;
    struct hf_mongo_query query;
};

/* A grant that the change stream reported. */
struct hf_mongo_grant {
    struct hf_nonce nonce;
    uint64_t token;
};

struct hf_mongo {
    struct hf_host *host;
    struct hf_mongo_workers *workers;
    struct hf_mongo_identity identity;
    struct hf_dlist calls;
    struct hf_mongo_in_doubt in_doubt;

    /* watch.c */
    struct hf_mongo_stream *stream; /* NULL: the server is standalone */
    uint64_t reported_until; /* cluster time of the newest dispatched change */
    struct hf_mongo_grant grants[HF_MONGO_GRANTS_KEPT]; /* ring of the newest */
    unsigned grant_count;
    struct hf_watches watches;
    struct hf_timer tick; /* the next expiry check or retry */
    bool has_tick;        /* `tick` was added to the host */

    /* waiters.c */
    struct hf_map waiters;  /* this client's claims in queues, by nonce */
    struct hf_heap retries; /* when waiters repeat their LOCKs */

    /* expiry.c */
    struct hf_seed seed;
    struct hf_map expiries; /* scheduled checks of watched keys, by key */
    struct hf_heap expiry_heap;
    unsigned expiry_checks; /* checks in flight */

    /* sweep.c */
    struct hf_timer sweep_timer;
    bool has_sweep_timer; /* `sweep_timer` was added to the host */
    unsigned sweep_postponed, sweep_failures; /* how many in a row */
};

/* ---- mongo.c ------------------------------------------------------------*/

/* Create a call without sending it. Returns NULL if out of memory. */
struct hf_mongo_call *hf_mongo_call_new(
    struct hf_mongo *mongo, struct hf_request *request,
    void (*on_reply)(struct hf_mongo_call *call));
void hf_mongo_call_free(struct hf_mongo_call *call);

/* Create a call with a query for `request`. If out of memory, answer the
 * request and return NULL. */
struct hf_mongo_call *hf_mongo_call_new_query(
    struct hf_mongo *mongo, struct hf_request *request,
    enum hf_mongo_scope scope, void (*on_reply)(struct hf_mongo_call *call));

/* Hand the call to a worker, which executes call->op or call->query. If no
 * worker can be started, answer the request with HF_EUNAVAIL, and free the
 * call. */
void hf_mongo_call_send_op(struct hf_mongo_call *call);
void hf_mongo_call_send_query(struct hf_mongo_call *call);

/* Answer the request, if the call still has one, and free the call. */
void hf_mongo_call_answer(struct hf_mongo_call *call);

/* ---- watch.c ------------------------------------------------------------*/

enum hf_err hf_mongo_watch_open(struct hf_mongo *mongo);
void hf_mongo_watch_close(struct hf_mongo *mongo);
void hf_mongo_watch_start(struct hf_mongo *mongo, struct hf_request *request);
void hf_mongo_watch_stop(struct hf_mongo *mongo, uint64_t number);

/* Make the change stream deliver the grant of a waiter. `time` is the time of
 * the reply that reported the claim as queued. Returns false if the grant might
 * not be pushed, because there is no stream, the stream is not live, or `time`
 * is 0 (unknown). */
bool hf_mongo_watch_grants(struct hf_mongo *mongo, uint64_t time);

/* Let the stream end after a while if this client has neither waiters nor
 * watches any more. */
void hf_mongo_watch_release_stream(struct hf_mongo *mongo);

/* Returns true if the grant of this nonce is among the last ones that the
 * stream reported. A grant may overtake the reply that reports the position of
 * its claim. */
bool hf_mongo_watch_was_granted(const struct hf_mongo *mongo,
                                const struct hf_nonce *nonce);

/* Set the timer to the next expiry check or retry. */
void hf_mongo_watch_set_tick(struct hf_mongo *mongo);

/* ---- waiters.c ----------------------------------------------------------*/

/* Record a claim of this client that is in a queue. Returns false if out of
 * memory. */
bool hf_mongo_waiters_add(struct hf_mongo *mongo, const struct hf_nonce *nonce);
void hf_mongo_waiters_remove(struct hf_mongo *mongo,
                             const struct hf_nonce *nonce);
bool hf_mongo_waiters_has(const struct hf_mongo *mongo,
                          const struct hf_nonce *nonce);

/* Let the waiter with `nonce` repeat its LOCK after `span_ms`. Does nothing if
 * there is no such waiter. Call hf_mongo_watch_set_tick() afterwards. */
void hf_mongo_waiters_retry(struct hf_mongo *mongo,
                            const struct hf_nonce *nonce, uint32_t span_ms);

/* Let all waiters repeat their LOCKs now. Call hf_mongo_watch_set_tick()
 * afterwards. */
void hf_mongo_waiters_retry_all(struct hf_mongo *mongo);

/* Nudge the waiters that are due, so that the client repeats their LOCKs. */
void hf_mongo_waiters_nudge(struct hf_mongo *mongo);
void hf_mongo_waiters_close(struct hf_mongo *mongo);

/* ---- expiry.c -----------------------------------------------------------*/

/* Check the lease of `key` after `span` milliseconds. A later call for the same
 * key replaces that time. */
void hf_mongo_expiry_set(struct hf_mongo *mongo, struct hf_key key,
                         uint32_t span);

/* Cancel the check of a key that is free. */
void hf_mongo_expiry_remove(struct hf_mongo *mongo, struct hf_key key);

/* Send checks for the leases that are due. */
void hf_mongo_expiry_check(struct hf_mongo *mongo);

/* When the next check is due. HF_NEVER if no check is scheduled, or if too many
 * checks are in flight. */
hf_time hf_mongo_expiry_next(const struct hf_mongo *mongo);

enum hf_err hf_mongo_expiry_open(struct hf_mongo *mongo);
void hf_mongo_expiry_close(struct hf_mongo *mongo);

/* ---- sweep.c ------------------------------------------------------------*/

/* Start the periodic sweeps, which end the leases of abandoned keys. Some
 * clients, chosen at random, sweep at once, which blocks for up to two seconds.
 * Can fail with HF_ENOMEM. */
enum hf_err hf_mongo_sweep_open(struct hf_mongo *mongo);
void hf_mongo_sweep_close(struct hf_mongo *mongo);

#endif
