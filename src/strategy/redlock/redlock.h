/* redlock.h - redlock://a,b,c: a lock that a majority of independent Redis
 * servers hold, by the scripts of redis:.
 *
 * Nobody stands in line: who finds it held asks again when a release is
 * announced, and by and by. Tokens are the first server's own, and rise as long
 * as it lives: where another has to take its place they may not, so no fence
 * is declared. */
#ifndef HF_STRATEGY_REDLOCK_REDLOCK_H
#define HF_STRATEGY_REDLOCK_REDLOCK_H

#include "strategy/redis/list.h"

extern const struct hf_strategy hf_strategy_redlock;

#define HF_REDLOCK_MAX 9            /* servers */
#define HF_REDLOCK_CANCELS_MAX 4096 /* cancels owed to one server */
#define HF_REDLOCK_SILENCE_MS 1000  /* a server that hangs is not asked */

struct hf_redlock_server {
    struct hf_redlock *redlock;
    struct hf_redis_address address;
    struct hf_redis_connection connection;
    struct hf_redis_connection
        pubsub;              /* of releases, from the first wait on; of broken
                                  locks, soon after the first that is renewed */
    bool hears_forced;       /* it has subscribed to broken locks */
    struct hf_dlist cancels; /* cancels that it has not answered */
    unsigned cancel_count;
};

struct hf_redlock {
    struct hf_host *host;
    struct hf_redis_identity identity;
    char freed_channel
        [HF_REDIS_PREFIX_MAX]; /* and a key: where it is announced */
    struct hf_redlock_server servers[HF_REDLOCK_MAX];
    unsigned count, majority;
    struct hf_dlist votes;     /* all that are under way */
    struct hf_dlist undecided; /* of them: not all is asked or heard */
    struct hf_timer vote_timer;
    hf_time vote_timer_at;
    struct hf_dlist
        in_doubt; /* locks that a server may hold by another token */
    struct hf_dlist waiters;
    struct hf_timer nudge_timer;
    bool nudge_pending;
    bool keeps; /* this client renews a lock, or did */
    struct hf_timer listen;
};

/* One server's say. */
struct hf_redlock_ballot {
    struct hf_redis_call call;
    struct hf_redis_call probe; /* LOCK: a READ, after a server's no */
    struct hf_redlock_vote *vote;
    struct hf_redlock_server *server;
    bool is_sent;
    bool without_token;         /* LOCK: asked before the token was known */
    bool has_granted;           /* LOCK: it has granted it by that token */
    bool refused;               /* LOCK: it surely did not grant it */
    bool was_read;              /* it has answered a READ */
    struct hf_info info;        /* READ */
    struct hf_redis_list *list; /* LIST */
    struct hf_redis_list_result listed;
};

/* One request to all servers. */
struct hf_redlock_vote {
    struct hf_dlist link;
    struct hf_dlist undecided;
    struct hf_redlock *redlock;
    struct hf_request *request; /* NULL: nobody wants the answer any more */
    struct hf_command command;  /* its key is a copy, other bytes are not */
    enum hf_request_kind kind;
    hf_time sent;
    hf_time deadline;
    uint64_t token;       /* LOCK: which the first server has given */
    uint32_t left_ms;     /* LOCK: of the holder */
    bool sent_to_all;     /* LOCK: not only the first server */
    bool includes_silent; /* few servers respond: ask those that do not, too */
    bool probed;          /* LOCK: the servers are read, after a no */
    bool young;           /* LOCK: a hold there is new, or just ended */
    bool token_drawn;     /* LOCK: a token was asked for by itself */
    bool timed_out;       /* no more waiting for those who are slow */
    unsigned sent_count;
    unsigned pending;        /* replies */
    unsigned probes_pending; /* LOCK: replies to what was asked besides */
    unsigned free;           /* LOCK: servers where those found no holder */
    unsigned yes, fresh, no, lost;
    enum hf_err refusal;     /* of the no's, the strongest */
    uint64_t canceled_token; /* CANCEL: the token it held with */
    unsigned in_doubt; /* UNLOCK: bits of servers to be asked by nonce alone */
    char *cause;
    struct hf_redlock_ballot ballots[]; /* one for each server */
};

/* vote.c: ask, count, decide. A vote frees itself once its last reply
 * has come. */
struct hf_redlock_vote *hf_redlock_vote_new(struct hf_redlock *redlock,
                                            struct hf_request *request);
void hf_redlock_vote_start(struct hf_redlock_vote *vote);
void hf_redlock_vote_cancel(struct hf_redlock_vote *vote);
void hf_redlock_vote_decide(struct hf_redlock_vote *vote);
void hf_redlock_vote_answer(struct hf_redlock_vote *vote, enum hf_err err);
void hf_redlock_vote_set_cause(struct hf_redlock_vote *vote, const char *text);
void hf_redlock_vote_on_timeout(struct hf_timer *timer);

/* Wait for those that were asked, but no longer than this. */
void hf_redlock_vote_set_timeout(struct hf_redlock_vote *vote, uint32_t ms);

/* Whether a vote may ask a server: it is up, and answers. */
bool hf_redlock_vote_can_send(const struct hf_redlock_vote *vote,
                              const struct hf_redlock_server *server);

/* Ask one server; false: it cannot be asked, or was. Ask all that are left. */
bool hf_redlock_vote_send(struct hf_redlock_vote *vote,
                          struct hf_redlock_server *server);
void hf_redlock_vote_send_all(struct hf_redlock_vote *vote);

/* lock.c: the replies to a LOCK. */
void hf_redlock_lock_count_grant(struct hf_redlock_ballot *ballot,
                                 uint64_t token, bool fresh);
void hf_redlock_lock_decide(struct hf_redlock_vote *vote);

/* cancels.c: cancels, by nonce, that a server must answer. Each is sent
 * at once if the connection is up, and again on each new connection. */
void hf_redlock_cancels_add(struct hf_redlock_server *server, struct hf_key key,
                            const struct hf_nonce *nonce);
void hf_redlock_cancels_send(struct hf_redlock_server *server);
void hf_redlock_cancels_fini(struct hf_redlock_server *server);

/* A LOCK of `nonce` is about to be sent: a cancel from before it that is not
 * on its way must not follow it. */
void hf_redlock_cancels_supersede(struct hf_redlock_server *server,
                                  const struct hf_nonce *nonce);

/* in_doubt.c: servers, as bits, that may hold the lock of a nonce by
 * another token than its own. A LOCK notes them, and who ends it takes them. */
void hf_redlock_in_doubt_add(const struct hf_redlock_vote *vote);
unsigned hf_redlock_in_doubt_take(struct hf_redlock *redlock,
                                  const struct hf_nonce *nonce);
void hf_redlock_in_doubt_fini(struct hf_redlock *redlock);

/* read.c: READ and LIST, of what a majority agrees on. */
void hf_redlock_read_decide(struct hf_redlock_vote *vote);
void hf_redlock_read_decide_list(struct hf_redlock_vote *vote);
void hf_redlock_read_list_all(struct hf_redlock_vote *vote);
void hf_redlock_read_abandon_lists(struct hf_redlock_vote *vote);

/* waiters.c: messages. Waiters are notified when a lock is released,
 * holders that renew when one is broken. */
void hf_redlock_waiters_add(struct hf_redlock *redlock,
                            const struct hf_command *command);
void hf_redlock_waiters_remove(struct hf_redlock *redlock,
                               const struct hf_nonce *nonce);
void hf_redlock_waiters_fini(struct hf_redlock *redlock);
void hf_redlock_waiters_on_timer(struct hf_timer *timer);

/* This client keeps a lock: subscribe to broken locks soon. */
void hf_redlock_listen_soon(struct hf_redlock *redlock);
void hf_redlock_on_listen(struct hf_timer *timer);

#endif
