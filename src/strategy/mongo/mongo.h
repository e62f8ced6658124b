/* mongo.h - mongodb:// and mongodb+srv://: locks in a MongoDB collection, one
 * document a key.
 *
 * Each command is one step, which a server decides on its own clock
 * (the .json files). libmongoc's calls block, so worker threads make them;
 * from the first wait or watch on, one more thread hears what changes. */
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

/* A request, or a look of the strategy's own, on its way to a server and back.
 * Its thread touches `op`, `reply` and `query` alone. */
struct hf_mongo_call {
    struct hf_mongo_job job;
    struct hf_mongo *mongo;
    struct hf_request *request; /* NULL: nobody wants the answer */
    struct hf_dlist open;       /* among all calls */
    hf_time sent;
    bool is_expiry_check; /* a look of expiry.c */
    void (*on_reply)(struct hf_mongo_call *call);
    struct hf_mongo_op op;
    struct hf_mongo_reply reply;
    struct hf_mongo_query query;
};

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
    struct hf_mongo_stream *stream; /* NULL: a standalone server */
    uint64_t reported_until;        /* grants up to this time are told */
    struct hf_mongo_grant grants[HF_MONGO_GRANTS_KEPT]; /* the newest */
    unsigned grant_count;
    struct hf_watches watches;
    struct hf_timer tick; /* the next lease ends, or a claim looks again */
    bool ticks;           /* it has its place */

    /* waiters.c */
    struct hf_map waiters;  /* claims in a queue */
    struct hf_heap retries; /* those that are to look again */

    /* expiry.c */
    struct hf_seed seed;
    struct hf_map expiries; /* keys that are watched and held */
    struct hf_heap expiry_heap;
    unsigned expiry_checks; /* under way */

    /* sweep.c */
    struct hf_timer sweep_timer;
    bool sweeps;                              /* it has its place */
    unsigned sweep_postponed, sweep_failures; /* in a row */
};

/* mongo.c: a call, which is not sent yet; NULL: out of memory. */
struct hf_mongo_call *hf_mongo_call_new(
    struct hf_mongo *mongo, struct hf_request *request,
    void (*on_reply)(struct hf_mongo_call *call));
void hf_mongo_call_free(struct hf_mongo_call *call);

/* The same of a look, for a request; NULL: it was refused. */
struct hf_mongo_call *hf_mongo_call_new_query(
    struct hf_mongo *mongo, struct hf_request *request,
    enum hf_mongo_scope scope, void (*on_reply)(struct hf_mongo_call *call));

/* Send what it has: a question, or a look. */
void hf_mongo_call_send_op(struct hf_mongo_call *call);
void hf_mongo_call_send_query(struct hf_mongo_call *call);

/* Answer whoever wants it, as the request's answer says, and free the call. */
void hf_mongo_call_answer(struct hf_mongo_call *call);

/* watch.c */
enum hf_err hf_mongo_watch_open(struct hf_mongo *mongo);
void hf_mongo_watch_close(struct hf_mongo *mongo);
void hf_mongo_watch_start(struct hf_mongo *mongo, struct hf_request *request);
void hf_mongo_watch_stop(struct hf_mongo *mongo, uint64_t wanted);

/* A claim is in a queue, as a reply of this time says. False: no stream reports
 * its grant, now. */
bool hf_mongo_watch_grants(struct hf_mongo *mongo, uint64_t time);

/* Where nobody waits or watches any more, end the stream after a while. */
void hf_mongo_watch_release_stream(struct hf_mongo *mongo);

/* Whether the grant of this nonce was heard before its place in line was. */
bool hf_mongo_watch_was_granted(const struct hf_mongo *mongo,
                                const struct hf_nonce *nonce);

/* The timer, for what comes next. */
void hf_mongo_watch_set_tick(struct hf_mongo *mongo);

/* waiters.c: claims of this client in queues. False: out of memory. */
bool hf_mongo_waiters_add(struct hf_mongo *mongo, const struct hf_nonce *nonce);
void hf_mongo_waiters_remove(struct hf_mongo *mongo,
                             const struct hf_nonce *nonce);
bool hf_mongo_waiters_has(const struct hf_mongo *mongo,
                          const struct hf_nonce *nonce);

/* Have one look again after `span_ms`, or all of them now: hf_mongo_watch_set_tick()
 * follows. A nonce that does not wait is ignored. */
void hf_mongo_waiters_retry(struct hf_mongo *mongo,
                            const struct hf_nonce *nonce, uint32_t span_ms);
void hf_mongo_waiters_retry_all(struct hf_mongo *mongo);

/* Nudge those that are to look now. */
void hf_mongo_waiters_nudge(struct hf_mongo *mongo);
void hf_mongo_waiters_close(struct hf_mongo *mongo);

/* expiry.c: see that the lease of `key` ends after `span`, if it has not been put
 * off; and that it need not. */
void hf_mongo_expiry_set(struct hf_mongo *mongo, struct hf_key key,
                         uint32_t span);
void hf_mongo_expiry_remove(struct hf_mongo *mongo, struct hf_key key);

/* Look at what is due; and when the next is. */
void hf_mongo_expiry_check(struct hf_mongo *mongo);
hf_time hf_mongo_expiry_next(const struct hf_mongo *mongo);

enum hf_err hf_mongo_expiry_open(struct hf_mongo *mongo);
void hf_mongo_expiry_close(struct hf_mongo *mongo);

/* sweep.c: end the leases of clients that never came back, from now on. May
 * block for a round trip. */
enum hf_err hf_mongo_sweep_open(struct hf_mongo *mongo);
void hf_mongo_sweep_close(struct hf_mongo *mongo);

#endif
