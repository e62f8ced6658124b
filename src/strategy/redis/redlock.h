/* redlock.h - redlock://a,b,c: a lock that a majority of independent Redis
 * servers hold, by the scripts of redis:.
 *
 * Nobody stands in line: who finds it held asks again when a release is
 * announced, and by and by. Tokens are the first server's own, and rise as long
 * as it lives: where another has to take its place they may not, so no fence
 * is declared. */
#ifndef HF_STRATEGY_REDIS_REDLOCK_H
#define HF_STRATEGY_REDIS_REDLOCK_H

#include "strategy/redis/list.h"

extern const struct hf_strategy hf_strategy_redlock;

#define HF_REDLOCK_MAX 9           /* servers */
#define HF_REDLOCK_OWED_MAX 4096   /* cancels owed to one server */
#define HF_REDLOCK_SILENCE_MS 1000 /* a server that hangs is not asked */

struct hf_redlock_server {
    struct hf_redlock *redlock;
    struct hf_redis_address address;
    struct hf_redis_link link;
    struct hf_redis_link news; /* of releases, from the first wait on; of broken
                                  locks, soon after the first that is renewed */
    bool hears_forced;         /* it has subscribed to broken locks */
    struct hf_list owed;       /* cancels that it has not answered */
    unsigned owed_count;
};

struct hf_redlock {
    struct hf_host *host;
    struct hf_redis_asker asker;
    char freed[HF_REDIS_PREFIX_MAX]; /* and a key: where it is announced */
    struct hf_redlock_server servers[HF_REDLOCK_MAX];
    unsigned count, majority;
    struct hf_list polls;     /* all that are under way */
    struct hf_list undecided; /* of them: not all is asked or heard */
    struct hf_timer impatience;
    hf_time impatient_at;
    struct hf_list doubts; /* locks that a server may hold by another token */
    struct hf_list waiters;
    struct hf_timer nudge;
    bool nudging;
    bool keeps; /* this client renews a lock, or did */
    struct hf_timer listen;
};

/* One server's say. */
struct hf_redlock_vote {
    struct hf_redis_call call;
    struct hf_redis_call probe; /* LOCK: a READ, after a server's no */
    struct hf_redlock_poll *poll;
    struct hf_redlock_server *server;
    bool asked;
    bool blind;                 /* LOCK: asked before the token was known */
    bool sure;                  /* LOCK: it has granted it by that token */
    bool refused;               /* LOCK: it surely did not grant it */
    bool was_read;              /* it has answered a READ */
    struct hf_info info;        /* READ */
    struct hf_redis_list *list; /* LIST */
    struct hf_redis_listed listed;
};

/* One request to all servers. */
struct hf_redlock_poll {
    struct hf_list link;
    struct hf_list undecided;
    struct hf_redlock *redlock;
    struct hf_request *request; /* NULL: nobody wants the answer any more */
    struct hf_command command;  /* its key is a copy, other bytes are not */
    enum hf_request_kind kind;
    hf_time sent;
    hf_time patient_until;
    uint64_t token;   /* LOCK: which the first server has given */
    uint32_t left_ms; /* LOCK: of the holder */
    bool asks_all;    /* LOCK: not only the first server */
    bool asks_silent; /* few servers respond: ask those that do not, too */
    bool probed;      /* LOCK: the servers are read, after a no */
    bool young;       /* LOCK: a hold there is new, or just ended */
    bool drawn;       /* LOCK: a token was asked for by itself */
    bool impatient;   /* no more waiting for those who are slow */
    unsigned asked;
    unsigned pending; /* replies */
    unsigned probing; /* LOCK: replies to what was asked besides */
    unsigned free;    /* LOCK: servers where those found no holder */
    unsigned yes, fresh, no, lost;
    enum hf_err why;  /* of the no's, the strongest */
    uint64_t granted; /* CANCEL: the token it held with */
    unsigned doubted; /* UNLOCK: bits of servers to be asked by nonce alone */
    char *cause;
    struct hf_redlock_vote votes[]; /* one for each server */
};

/* redlock_poll.c: ask, count, decide. A poll frees itself once its last reply
 * has come. */
struct hf_redlock_poll *hf_redlock_poll_new(struct hf_redlock *redlock,
                                            struct hf_request *request);
void hf_redlock_poll_begin(struct hf_redlock_poll *poll);
void hf_redlock_poll_cancel(struct hf_redlock_poll *poll);
void hf_redlock_decide(struct hf_redlock_poll *poll);
void hf_redlock_answer(struct hf_redlock_poll *poll, enum hf_err err);
void hf_redlock_note_cause(struct hf_redlock_poll *poll, const char *text);
void hf_redlock_on_impatience(struct hf_timer *timer);

/* Wait for those that were asked, but no longer than this. */
void hf_redlock_be_patient(struct hf_redlock_poll *poll, uint32_t ms);

/* Whether a poll may ask a server: it is up, and answers. */
bool hf_redlock_can_ask(const struct hf_redlock_poll *poll,
                        const struct hf_redlock_server *server);

/* Ask one server; false: it cannot be asked, or was. Ask all that are left. */
bool hf_redlock_ask(struct hf_redlock_poll *poll,
                    struct hf_redlock_server *server);
void hf_redlock_ask_all(struct hf_redlock_poll *poll);

/* redlock_lock.c: the replies to a LOCK. */
void hf_redlock_count_grant(struct hf_redlock_vote *vote, uint64_t token,
                            bool fresh);
void hf_redlock_decide_lock(struct hf_redlock_poll *poll);

/* redlock_owed.c: cancels, by nonce, that a server must answer. Each is sent
 * at once if the connection is up, and again on each new connection. */
void hf_redlock_owe_cancel(struct hf_redlock_server *server, struct hf_key key,
                           const struct hf_nonce *nonce);
void hf_redlock_send_owed(struct hf_redlock_server *server);
void hf_redlock_forget_owed(struct hf_redlock_server *server);

/* A LOCK of `nonce` is about to be sent: a cancel from before it that is not
 * on its way must not follow it. */
void hf_redlock_supersede_owed(struct hf_redlock_server *server,
                               const struct hf_nonce *nonce);

/* redlock_doubt.c: servers, as bits, that may hold the lock of a nonce by
 * another token than its own. A LOCK notes them, and who ends it takes them. */
void hf_redlock_note_doubts(const struct hf_redlock_poll *poll);
unsigned hf_redlock_take_doubts(struct hf_redlock *redlock,
                                const struct hf_nonce *nonce);
void hf_redlock_forget_doubts(struct hf_redlock *redlock);

/* redlock_look.c: READ and LIST, of what a majority agrees on. */
void hf_redlock_decide_read(struct hf_redlock_poll *poll);
void hf_redlock_decide_list(struct hf_redlock_poll *poll);
void hf_redlock_list_all(struct hf_redlock_poll *poll);
void hf_redlock_abandon_lists(struct hf_redlock_poll *poll);

/* redlock_wait.c: messages. Waiters are notified when a lock is released,
 * holders that renew when one is broken. */
void hf_redlock_add_waiter(struct hf_redlock *redlock,
                           const struct hf_command *command);
void hf_redlock_forget_waiter(struct hf_redlock *redlock,
                              const struct hf_nonce *nonce);
void hf_redlock_forget_waiters(struct hf_redlock *redlock);
void hf_redlock_on_nudge(struct hf_timer *timer);

/* This client keeps a lock: subscribe to broken locks soon. */
void hf_redlock_listen_soon(struct hf_redlock *redlock);
void hf_redlock_on_listen(struct hf_timer *timer);

#endif
