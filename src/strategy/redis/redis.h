/* redis.h - redis://, redis+unix:// and rediss://: locks in one Redis server.
 *
 * Each command is one script on the server, which grants, queues or hands over
 * in one step (the .lua files). Two connections: one for commands, and one for
 * messages, from the first wait or watch on, or soon after the first lock that
 * is renewed. */
#ifndef HF_STRATEGY_REDIS_REDIS_H
#define HF_STRATEGY_REDIS_REDIS_H

#include "base/map.h"
#include "strategy/redis/heartbeat.h"
#include "strategy/redis/list.h"
#include "strategy/watches.h"

extern const struct hf_strategy hf_strategy_redis;
extern const struct hf_strategy hf_strategy_redis_unix;
extern const struct hf_strategy hf_strategy_rediss;

/* A request on its way, or held back. */
struct hf_redis_request {
    struct hf_redis_call call;
    struct hf_redis *redis;
    struct hf_request *request; /* NULL: nobody wants the answer any more */
    struct hf_dlist open;       /* among all requests */
    struct hf_dlist held_back;  /* until messages are heard, or the turn ends */
    struct hf_redis_list *list; /* LIST */
    hf_time sent;
    bool tried;   /* LOCK: without joining the queue */
    bool waiting; /* LOCK: the server has it in the queue */
};

struct hf_redis {
    struct hf_host *host;
    struct hf_redis_address address;
    struct hf_redis_identity identity;
    struct hf_redis_connection connection;
    unsigned wait_replicas;
    struct hf_dlist requests;

    /* batch.c */
    struct hf_dlist batched; /* requests: to be sent when the turn ends */
    struct hf_post batch_post;

    /* heartbeat.c */
    struct {
        struct hf_timer timer;
        struct hf_redis_call call;
        hf_time until;          /* it goes on, unless another waiter asks */
        hf_time interval_until; /* some waiter needs `interval_ms` until then */
        uint32_t interval_ms;
        bool running;
        bool sent; /* its reply is awaited */
    } heartbeat;

    /* pubsub.c */
    struct hf_redis_connection pubsub;
    bool renews_locks; /* it renews a lock, or did, or will */
    struct hf_timer
        pubsub_timer; /* the connection for messages is to be made */
    bool pubsub_ready;
    struct hf_dlist
        until_subscribed; /* requests: LOCKs that are to stand in line */
    bool contended;       /* the last LOCK was not granted at once */

    /* watch.c */
    struct hf_watches watches;
    struct hf_map watches_by_pattern;
    bool fetching, fetch_again;
    struct hf_redis_call fetch;
    struct hf_redis_call registration_call;
    bool registering;
    uint64_t part;        /* the look under way, or the last one */
    size_t part_size;     /* watches that it registers */
    uint64_t round;       /* what earlier parts registered is to be renewed */
    hf_time round_at;     /* when that began */
    struct hf_timer tick; /* while it watches: the next lease ends */
    hf_time tick_at;
};

/* redis.c: members of the strategies. */
void hf_redis_submit(void *self, struct hf_request *request);
void hf_redis_cancel(void *self, struct hf_request *request);

/* redis.c: send a LOCK that was held back, or a command by itself. Take its
 * reply. Answer and free a request. */
void hf_redis_request_send_lock(struct hf_redis_request *request);
void hf_redis_request_send(struct hf_redis_request *request);
void hf_redis_request_on_reply(struct hf_redis_request *request,
                               const redisReply *reply);
void hf_redis_request_answer(struct hf_redis_request *request);
void hf_redis_request_fail(struct hf_redis_request *request, enum hf_err err,
                           const char *text);

/* batch.c: hold back a LOCK that is asked for quickly, or an UNLOCK, until the
 * turn ends, or until something is to be sent behind it. */
void hf_redis_batch_add(struct hf_redis_request *request);
void hf_redis_batch_flush(struct hf_redis *redis);

/* pubsub.c: the connection for messages, which is made when it is first wanted.
 * Hold a LOCK back until grants are heard. Make the connection; false: out of
 * memory. Subscribe to a channel, or not any more, if it is up. */
void hf_redis_pubsub_hold_lock(struct hf_redis *redis,
                               struct hf_redis_request *request);
bool hf_redis_pubsub_open(struct hf_redis *redis);
enum hf_err hf_redis_pubsub_init(struct hf_redis *redis);
void hf_redis_pubsub_fini(struct hf_redis *redis);

/* This client keeps a lock, and is to know if that is broken: make the
 * connection soon. */
void hf_redis_pubsub_open_soon(struct hf_redis *redis);

void hf_redis_pubsub_subscribe(struct hf_redis *redis, struct hf_key channel);
void hf_redis_pubsub_unsubscribe(struct hf_redis *redis, struct hf_key channel);

/* watch.c: what is watched. */
enum hf_err hf_redis_watches_open(struct hf_redis *redis);
void hf_redis_watches_close(struct hf_redis *redis);
void hf_redis_watch_start(struct hf_redis *redis, struct hf_request *request);
void hf_redis_watch_stop(struct hf_redis *redis, uint64_t number);
void hf_redis_watch_cancel(struct hf_redis *redis, struct hf_request *request);

/* The newest event that the server has is `index`: read it, if it is wanted. */
void hf_redis_watches_catch_up(struct hf_redis *redis, uint64_t index);

/* Subscribe to what is watched; the server has subscribed to a channel; nothing
 * is subscribed to any more. */
void hf_redis_registration_subscribe_all(struct hf_redis *redis);
void hf_redis_registration_on_subscribed(struct hf_redis *redis,
                                         struct hf_key channel);
void hf_redis_registration_reset(struct hf_redis *redis);

/* Read what is new; register what is watched, all of it or what is not yet, and
 * look what ought to have ended; give up the watches that are not open yet. */
void hf_redis_watch_fetch(struct hf_redis *redis);
void hf_redis_registration_renew_all(struct hf_redis *redis);
void hf_redis_registration_send_new(struct hf_redis *redis);
void hf_redis_watches_fail(struct hf_redis *redis, enum hf_err err,
                           const char *text);

#endif
