/* redis.h - redis://, redis+unix:// and rediss://: locks in one Redis server.
 *
 * Each command is one Lua script, which the server executes atomically: it
 * grants, queues or hands over the lock in one step. A client has a connection
 * for commands. It opens a second connection, for pub/sub messages, for its
 * first wait or watch, or shortly after it takes a lock that it renews. */
#ifndef HF_STRATEGY_REDIS_REDIS_H
#define HF_STRATEGY_REDIS_REDIS_H

#include "base/map.h"
#include "strategy/redis/heartbeat.h"
#include "strategy/redis/list.h"
#include "strategy/watches.h"

extern const struct hf_strategy hf_strategy_redis;
extern const struct hf_strategy hf_strategy_redis_unix;
extern const struct hf_strategy hf_strategy_rediss;

/* A request that is held back, or sent and not answered. */
struct hf_redis_request {
    struct hf_redis_call call;
    struct hf_redis *redis;
    struct hf_request *request; /* NULL: the request was canceled */
    struct hf_dlist open;       /* in `requests` */
    struct hf_dlist held_back;  /* in `batched` or `until_subscribed` */
    struct hf_redis_list *list; /* LIST */
    hf_time sent;
    bool tried;   /* LOCK: sent on the fast path, which does not queue */
    bool waiting; /* LOCK: the claim is in the server's queue */
};

struct hf_redis {
    struct hf_host *host;
    struct hf_redis_address address;
    struct hf_redis_identity identity;
    struct hf_redis_connection connection; /* for commands */
    unsigned wait_replicas;                /* ?wait_replicas= */
    struct hf_dlist requests; /* requests held back or not answered */
    bool contended;           /* the last LOCK was not granted at once */

    /* batch.c */
    struct hf_dlist batched; /* requests to send when the turn ends */
    struct hf_post batch_post;

    /* heartbeat.c */
    struct {
        struct hf_timer timer;
        struct hf_redis_call call;
        hf_time until; /* when the heartbeat stops, unless it is extended */
        hf_time interval_until; /* a waiter needs `interval_ms` until this */
        uint32_t interval_ms;
        bool running;
        bool sent; /* the last heartbeat is not answered yet */
    } heartbeat;

    /* pubsub.c */
    struct hf_redis_connection pubsub;
    bool pubsub_ready;            /* `pubsub` is up and subscribed */
    struct hf_timer pubsub_timer; /* opens `pubsub` */
    bool renews_locks;            /* this client has renewed a lock, or will */
    struct hf_dlist until_subscribed; /* LOCKs that wait for `pubsub_ready` */

    /* watch.c */
    struct hf_watches watches;
    struct hf_map watches_by_pattern;
    bool fetching, fetch_again;
    struct hf_redis_call fetch;
    struct hf_timer tick; /* runs while there are watches */
    hf_time tick_at;

    /* registration.c: watches are registered in parts of limited size. A round
     * registers all of them again. */
    struct hf_redis_call registration_call;
    bool registering; /* a part was sent, and is not answered yet */
    uint64_t part;    /* number of the last part */
    size_t part_size; /* number of watches in that part */
    uint64_t round;   /* number of the first part of this round */
    hf_time round_at; /* when the round began */
};

/* redis.c: members of struct hf_strategy. */
void hf_redis_submit(void *self, struct hf_request *request);
void hf_redis_cancel(void *self, struct hf_request *request);

/* redis.c: send a LOCK on the slow path. If it may queue, it is held back until
 * the pub/sub connection is up. */
void hf_redis_request_send_lock(struct hf_redis_request *request);

/* redis.c: send one command outside of a batch; a LOCK takes the fast path. */
void hf_redis_request_send(struct hf_redis_request *request);

/* redis.c: handle the reply to a command. `reply` is NULL if it was lost. */
void hf_redis_request_on_reply(struct hf_redis_request *request,
                               const redisReply *reply);

/* redis.c: answer a request, unless it was canceled, and free it. */
void hf_redis_request_answer(struct hf_redis_request *request);

/* redis.c: like hf_redis_request_answer(), with the error `err` and the cause
 * `text`. */
void hf_redis_request_fail(struct hf_redis_request *request, enum hf_err err,
                           const char *text);

/* batch.c: hold back a LOCK on the fast path, or an UNLOCK, until the turn
 * ends. */
void hf_redis_batch_add(struct hf_redis_request *request);

/* batch.c: send the batch now, because a command must be sent after it. */
void hf_redis_batch_flush(struct hf_redis *redis);

/* pubsub.c: the second connection, for pub/sub messages. */
enum hf_err hf_redis_pubsub_init(struct hf_redis *redis);
void hf_redis_pubsub_fini(struct hf_redis *redis);

/* Open the pub/sub connection, unless it is open. Returns false if out of
 * memory or timers. */
bool hf_redis_pubsub_open(struct hf_redis *redis);

/* Open the pub/sub connection after a short delay: this client renews a lock,
 * and must be notified if the lock is broken. */
void hf_redis_pubsub_open_soon(struct hf_redis *redis);

/* Hold back a LOCK until the pub/sub connection is up, so that the client does
 * not miss the message with its grant. Opens the connection if necessary. */
void hf_redis_pubsub_hold_lock(struct hf_redis *redis,
                               struct hf_redis_request *request);

/* Subscribe to `channel`. Does nothing while the pub/sub connection is down. */
void hf_redis_pubsub_subscribe(struct hf_redis *redis, struct hf_key channel);

/* Unsubscribe from `channel`. Does nothing while the pub/sub connection is
 * down. */
void hf_redis_pubsub_unsubscribe(struct hf_redis *redis, struct hf_key channel);

/* watch.c: watches, and the events that they receive. */
enum hf_err hf_redis_watches_open(struct hf_redis *redis);
void hf_redis_watches_close(struct hf_redis *redis);
void hf_redis_watch_start(struct hf_redis *redis, struct hf_request *request);
void hf_redis_watch_stop(struct hf_redis *redis, uint64_t number);
void hf_redis_watch_cancel(struct hf_redis *redis, struct hf_request *request);

/* Fail the watches that are not open yet. */
void hf_redis_watches_fail(struct hf_redis *redis, enum hf_err err,
                           const char *text);

/* Read new events from the server's stream. */
void hf_redis_watch_fetch(struct hf_redis *redis);

/* Fetch events if a watch has not received the event `index`, which is the
 * newest on the server. */
void hf_redis_watches_catch_up(struct hf_redis *redis, uint64_t index);

/* registration.c: subscribe to the channels of all watches, after the pub/sub
 * connection has come up. */
void hf_redis_registration_subscribe_all(struct hf_redis *redis);

/* Register the watches of `channel`, after the server has confirmed the
 * subscription. */
void hf_redis_registration_on_subscribed(struct hf_redis *redis,
                                         struct hf_key channel);

/* Mark all watches as neither subscribed nor registered, because the pub/sub
 * connection is down. */
void hf_redis_registration_reset(struct hf_redis *redis);

/* Register the watches that are not registered yet in this round. */
void hf_redis_registration_send_new(struct hf_redis *redis);

/* Begin a round: register all watches again. */
void hf_redis_registration_renew_all(struct hf_redis *redis);

#endif
