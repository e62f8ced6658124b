/* redlock.h - redlock://a,b,c: a lock that a majority of independent Redis
 * servers holds, with the scripts of redis:.
 *
 * There is no queue: a waiter retries when a release is announced, and polls in
 * case the announcement was lost. Tokens come from the first server, and rise
 * as long as it is reachable. If another server has to take over, they may
 * fall, so HF_CAP_FENCE is not declared. */
#ifndef HF_STRATEGY_REDLOCK_REDLOCK_H
#define HF_STRATEGY_REDLOCK_REDLOCK_H

#include "strategy/redis/list.h"

extern const struct hf_strategy hf_strategy_redlock;

#define HF_REDLOCK_MAX 9            /* servers */
#define HF_REDLOCK_CANCELS_MAX 4096 /* pending cancels of one server */
#define HF_REDLOCK_SILENCE_MS 1000  /* silent servers are skipped after this */

struct hf_redlock_server {
    struct hf_redlock *redlock;
    struct hf_redis_address address;
    struct hf_redis_connection connection; /* for commands */
    struct hf_redis_connection pubsub;     /* opened when it is needed */
    bool is_subscribed_to_forced;          /* the server reports broken locks */
    struct hf_dlist cancels; /* CANCELs that the server has not answered */
    unsigned cancel_count;
};

struct hf_redlock {
    struct hf_host *host;
    struct hf_redis_identity identity;
    struct hf_redlock_server servers[HF_REDLOCK_MAX];
    unsigned count, majority;

    /* vote.c */
    struct hf_dlist votes;     /* votes that await a decision or replies */
    struct hf_dlist undecided; /* votes with a deadline */
    struct hf_timer vote_timer;
    hf_time vote_timer_at;

    struct hf_dlist in_doubt; /* in_doubt.c */

    /* waiters.c */
    struct hf_dlist waiters;
    struct hf_timer nudge_timer;
    bool nudge_pending;

    /* pubsub.c */
    char freed_channel[HF_REDIS_PREFIX_MAX]; /* prefix of a key's channel */
    struct hf_timer pubsub_timer;
    bool renews_locks; /* this client renews a lock, or did */
};

/* One server's part in a vote. */
struct hf_redlock_ballot {
    struct hf_redis_call call;
    struct hf_redis_call probe; /* LOCK: the READ or INCR after a refusal */
    struct hf_redlock_vote *vote;
    struct hf_redlock_server *server;
    bool is_sent;
    bool without_token;  /* LOCK: it was sent before its token was known */
    bool has_granted;    /* LOCK: the server granted the token of the vote */
    bool refused;        /* LOCK: the server has certainly not granted it */
    bool was_read;       /* the server has answered a READ */
    struct hf_info info; /* READ */
    struct hf_redis_list *list; /* LIST */
    struct hf_redis_list_result listed;
};

/* One request to all servers, and what they have replied so far. */
struct hf_redlock_vote {
    struct hf_dlist link;      /* in `votes` */
    struct hf_dlist undecided; /* in `undecided` */
    struct hf_redlock *redlock;
    struct hf_request *request; /* NULL once answered; replies may be pending */
    struct hf_command command;  /* a copy; its key is also a copy */
    enum hf_request_kind kind;
    hf_time sent;
    hf_time deadline;
    uint64_t token;       /* LOCK: token of the first grant, or a drawn one */
    uint32_t left_ms;     /* LOCK: what is left of the holder's lease */
    bool sent_to_all;     /* LOCK: no server is left to send it to */
    bool includes_silent; /* too few servers respond: send to silent ones */
    bool probed;          /* LOCK: probes were sent, after a refusal */
    bool young; /* LOCK: probes found a hold that is new or has just ended */
    bool token_drawn; /* LOCK: a token was requested without a grant */
    bool timed_out;   /* slow servers are not awaited any longer */
    unsigned sent_count;
    unsigned pending;        /* awaited replies to ballots */
    unsigned probes_pending; /* LOCK: awaited replies to probes */
    unsigned free;           /* LOCK: servers where probes found no holder */
    unsigned yes, fresh, no, lost;
    enum hf_err refusal;     /* the strongest refusal: see count_refusal() */
    uint64_t canceled_token; /* CANCEL: the token of the lock that it ended */
    unsigned in_doubt; /* UNLOCK: bits of servers that get a CANCEL instead */
    char *cause;
    struct hf_redlock_ballot ballots[]; /* one ballot for each server */
};

/* vote.c: send a request to the servers, count the replies, decide. A vote
 * frees itself when it is answered and its last reply has arrived.
 * hf_redlock_vote_cancel() answers the request without waiting for replies. */
struct hf_redlock_vote *hf_redlock_vote_new(struct hf_redlock *redlock,
                                            struct hf_request *request);
void hf_redlock_vote_start(struct hf_redlock_vote *vote);
void hf_redlock_vote_cancel(struct hf_redlock_vote *vote);
void hf_redlock_vote_on_timeout(struct hf_timer *timer);

/* Answer the vote if the replies so far allow it; otherwise a LOCK may be sent
 * to more servers. May free the vote. */
void hf_redlock_vote_decide(struct hf_redlock_vote *vote);

/* Answer the request of the vote. Does not free the vote. */
void hf_redlock_vote_answer(struct hf_redlock_vote *vote, enum hf_err err);

/* Keep `text` as the cause of an error answer, unless the vote already has a
 * cause. */
void hf_redlock_vote_set_cause(struct hf_redlock_vote *vote, const char *text);

/* Decide again in `ms`, with `timed_out` set. */
void hf_redlock_vote_set_timeout(struct hf_redlock_vote *vote, uint32_t ms);

/* Returns true if the server is up and responds. A silent server counts as well
 * if the vote includes silent servers. */
bool hf_redlock_vote_can_send(const struct hf_redlock_vote *vote,
                              const struct hf_redlock_server *server);

/* Send the request to one server. Returns false if that is not possible, or if
 * it was sent there before. */
bool hf_redlock_vote_send(struct hf_redlock_vote *vote,
                          struct hf_redlock_server *server);

/* Send the request to all servers to which it was not sent yet. */
void hf_redlock_vote_send_all(struct hf_redlock_vote *vote);

/* lock.c: count a grant of `token`: as a no if it differs from the token of the
 * vote, otherwise as a yes. `fresh` is set if this LOCK granted the lock, and
 * not an earlier one with the same nonce. */
void hf_redlock_lock_count_grant(struct hf_redlock_ballot *ballot,
                                 uint64_t token, bool fresh);

/* lock.c: answer a LOCK, or send it to more servers. */
void hf_redlock_lock_decide(struct hf_redlock_vote *vote);

/* cancels.c: CANCELs that a server must confirm. Each is sent at once if the
 * connection is up, and again on each new connection until it is answered. */
void hf_redlock_cancels_add(struct hf_redlock_server *server, struct hf_key key,
                            const struct hf_nonce *nonce);
void hf_redlock_cancels_send(struct hf_redlock_server *server);
void hf_redlock_cancels_fini(struct hf_redlock_server *server);

/* Drop the CANCELs of `nonce` that are not sent yet. Call this before sending a
 * LOCK with that nonce, because a CANCEL after it would end the new grant. */
void hf_redlock_cancels_supersede(struct hf_redlock_server *server,
                                  const struct hf_nonce *nonce);

/* in_doubt.c: the servers, as bits, that may hold a nonce's lock with a token
 * other than that of the vote. A LOCK adds the servers; the command that ends
 * the lock takes them from the list. */
void hf_redlock_in_doubt_add(const struct hf_redlock_vote *vote);
unsigned hf_redlock_in_doubt_take(struct hf_redlock *redlock,
                                  const struct hf_nonce *nonce);
void hf_redlock_in_doubt_fini(struct hf_redlock *redlock);

/* read.c: answer READ and LIST with those locks that a majority of servers
 * reports. hf_redlock_read_list_all() starts a listing on each server, and
 * hf_redlock_read_abandon_lists() stops those that have not finished. */
void hf_redlock_read_decide(struct hf_redlock_vote *vote);
void hf_redlock_read_decide_list(struct hf_redlock_vote *vote);
void hf_redlock_read_list_all(struct hf_redlock_vote *vote);
void hf_redlock_read_abandon_lists(struct hf_redlock_vote *vote);

/* waiters.c: the waiting claims of this client, by nonce. */
void hf_redlock_waiters_add(struct hf_redlock *redlock,
                            const struct hf_command *command);
void hf_redlock_waiters_remove(struct hf_redlock *redlock,
                               const struct hf_nonce *nonce);
void hf_redlock_waiters_fini(struct hf_redlock *redlock);

/* Make the waiters for `key` retry, after a short random delay. */
void hf_redlock_waiters_nudge(struct hf_redlock *redlock, struct hf_key key);
void hf_redlock_waiters_on_timer(struct hf_timer *timer);

/* On `server`, subscribe to the releases of every key that this client waits
 * for. */
void hf_redlock_waiters_subscribe(struct hf_redlock_server *server);

/* pubsub.c: subscribe to the releases of `key`, on all servers or on one.
 * hf_redlock_pubsub_subscribe() also opens the connections. */
void hf_redlock_pubsub_subscribe(struct hf_redlock *redlock, struct hf_key key);
void hf_redlock_pubsub_subscribe_server(struct hf_redlock_server *server,
                                        struct hf_key key);
void hf_redlock_pubsub_unsubscribe(struct hf_redlock *redlock,
                                   struct hf_key key);

/* Open the pub/sub connections after a short delay: this client renews a lock,
 * and must be notified if the lock is broken. */
void hf_redlock_pubsub_open_soon(struct hf_redlock *redlock);
void hf_redlock_pubsub_on_timer(struct hf_timer *timer);

#endif
