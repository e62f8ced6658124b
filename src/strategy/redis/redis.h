/* redis.h - redis://, redis+unix:// and rediss://: locks in one Redis server.
 *
 * Each command is one script on the server, which grants, queues or hands over
 * in one step (the .lua files). Two connections: one for commands, and one for
 * messages, from the first wait or watch on, or soon after the first lock that
 * is renewed. */
#ifndef HF_STRATEGY_REDIS_REDIS_H
#define HF_STRATEGY_REDIS_REDIS_H

#include "base/map.h"
#include "strategy/redis/list.h"

extern const struct hf_strategy hf_strategy_redis;
extern const struct hf_strategy hf_strategy_redis_unix;
extern const struct hf_strategy hf_strategy_rediss;

/* A request on its way, or held back. */
struct hf_redis_request {
    struct hf_redis_call call;
    struct hf_redis *redis;
    struct hf_request *request; /* NULL: nobody wants the answer any more */
    struct hf_list open;        /* among all requests */
    struct hf_list held_back;   /* until messages are heard, or the turn ends */
    struct hf_redis_list *list; /* LIST */
    hf_time sent;
    bool tried;   /* LOCK: without joining the queue */
    bool waiting; /* LOCK: the server has it in the queue */
};

struct hf_redis {
    struct hf_host *host;
    struct hf_redis_address address;
    struct hf_redis_asker asker;
    struct hf_redis_link link;
    unsigned wait_replicas;
    struct hf_list requests;

    /* gather.c */
    struct hf_list gathered; /* requests: to be sent when the turn ends */
    struct hf_post gather;

    /* beat.c */
    struct {
        struct hf_timer timer;
        struct hf_redis_call call;
        hf_time until;       /* it goes on, unless another waiter asks */
        hf_time brief_until; /* some waiter needs `every_ms` until then */
        uint32_t every_ms;
        bool running;
        bool sent; /* its reply is awaited */
    } beat;

    /* news.c */
    struct hf_redis_link news;
    bool keeps;             /* it renews a lock, or did, or will */
    struct hf_timer listen; /* the connection for messages is to be made */
    bool hears_grants;
    struct hf_list until_heard; /* requests: LOCKs that are to stand in line */
    bool contended;             /* the last LOCK was not granted at once */

    /* watch.c */
    struct hf_list watches;
    struct hf_map watches_by_pattern;
    bool telling; /* a watch that goes now is freed later */
    bool fetching, fetch_again;
    struct hf_redis_call fetch;
    struct hf_redis_call look;
    bool looking;
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
void hf_redis_send_lock(struct hf_redis_request *request);
void hf_redis_send_alone(struct hf_redis_request *request);
void hf_redis_replied(struct hf_redis_request *request,
                      const redisReply *reply);
void hf_redis_answer(struct hf_redis_request *request);
void hf_redis_refuse(struct hf_redis_request *request, enum hf_err err,
                     const char *text);

/* gather.c: hold back a LOCK that is asked for quickly, or an UNLOCK, until the
 * turn ends, or until something is to be sent behind it. */
void hf_redis_gather(struct hf_redis_request *request);
void hf_redis_send_gathered(struct hf_redis *redis);

/* beat.c: a waiter for such a lease was told its position: show that this client
 * lives, for a while. How often it does, if it waits for such a lease too. */
enum hf_err hf_redis_beat_open(struct hf_redis *redis);
void hf_redis_beat_close(struct hf_redis *redis);
void hf_redis_beat_go_on(struct hf_redis *redis, uint32_t lease_ms);
uint32_t hf_redis_beat_every(const struct hf_redis *redis, uint32_t lease_ms);

/* news.c: the connection for messages, which is made when it is first wanted.
 * Hold a LOCK back until grants are heard. Make the connection; false: out of
 * memory. Subscribe to a channel, or not any more, if it is up. */
void hf_redis_news_hold(struct hf_redis *redis,
                        struct hf_redis_request *request);
bool hf_redis_news_open(struct hf_redis *redis);
enum hf_err hf_redis_listen_open(struct hf_redis *redis);
void hf_redis_listen_close(struct hf_redis *redis);

/* This client keeps a lock, and is to know if that is broken: make the
 * connection soon. */
void hf_redis_listen_soon(struct hf_redis *redis);

void hf_redis_news_subscribe(struct hf_redis *redis, struct hf_key channel);
void hf_redis_news_unsubscribe(struct hf_redis *redis, struct hf_key channel);

/* watch.c: what is watched. */
enum hf_err hf_redis_watches_open(struct hf_redis *redis);
void hf_redis_watches_close(struct hf_redis *redis);
void hf_redis_watch(struct hf_redis *redis, struct hf_request *request);
void hf_redis_unwatch(struct hf_redis *redis, uint64_t number);
void hf_redis_watch_cancel(struct hf_redis *redis, struct hf_request *request);

/* The newest event that the server has is `index`: read it, if it is wanted. */
void hf_redis_watches_catch_up(struct hf_redis *redis, uint64_t index);

/* Subscribe to what is watched; the server has subscribed to a channel; nothing
 * is subscribed to any more. */
void hf_redis_watches_subscribe(struct hf_redis *redis);
void hf_redis_watches_subscribed(struct hf_redis *redis, struct hf_key channel);
void hf_redis_watches_deaf(struct hf_redis *redis);

/* Read what is new; register what is watched, all of it or what is not yet, and
 * look what ought to have ended; give up the watches that are not open yet. */
void hf_redis_fetch(struct hf_redis *redis);
void hf_redis_look_due(struct hf_redis *redis);
void hf_redis_look_new(struct hf_redis *redis);
void hf_redis_refuse_watches(struct hf_redis *redis, enum hf_err err,
                             const char *text);

#endif
