/* faulty.h - a strategy that wraps another one and fails on cue, or at random.
 *
 * Between a client and the strategy in its URL lies a network: requests,
 * answers and pushes can be lost, delayed, repeated and so reordered. A request
 * is copied when it is sent, so it can arrive long after the client gave up.
 * The network belongs to no client, and continues while a client is stopped.
 *
 *     struct hf_faulty_net net = {.clock = ..., .shared_clock = true};
 *
 *     hf_faulty_use(&net);
 *     env.strategy = &hf_strategy_faulty;
 *     hf_client_open("memory:x", NULL, &env, &client);
 *     hf_faulty_cue(hf_faulty_of(client), HF_ON_LOCK, HF_LOSE_ANSWER, 1, 0);
 *
 * Without cues and odds everything arrives at once and in order.
 *
 * The server has its own clock, which may run fast or slow, so its stamps mean
 * nothing to the client. They are translated into what a remote server can
 * know: when the client sent one of its messages, and how long after the
 * arrival of that message the server granted the key.
 *
 * Not thread-safe. Requests that are delayed arrive only when the test calls
 * hf_faulty_step(). */
#ifndef HF_TESTS_LIB_FAULTY_H
#define HF_TESTS_LIB_FAULTY_H

#include "client/client.h"
#include "strategy/strategy.h"

/* hf_strategy_faulty_without_lookup does not serve LOOKUP, so the client
 * repeats LOCK instead. */
extern const struct hf_strategy hf_strategy_faulty;
extern const struct hf_strategy hf_strategy_faulty_without_lookup;

/* The time after which the client notices a loss. The request is then answered
 * with HF_EINDOUBT, as by a strategy whose connection has failed. */
#define HF_FAULTY_NOTICE_MS 200

/* The kind of message that a cue applies to. */
enum hf_faulty_what {
    HF_ON_LOCK = HF_COMMAND_LOCK, /* equal to enum hf_command_kind */
    HF_ON_UNLOCK = HF_COMMAND_UNLOCK,
    HF_ON_RENEW = HF_COMMAND_RENEW,
    HF_ON_UPDATE = HF_COMMAND_UPDATE,
    HF_ON_CANCEL = HF_COMMAND_CANCEL,
    HF_ON_FORCE = HF_COMMAND_FORCE,
    HF_ON_READ = HF_COMMAND_KINDS, /* ordered as enum hf_request_kind */
    HF_ON_LOOKUP,
    HF_ON_LIST,
    HF_ON_WATCH,
    HF_ON_UNWATCH,
    HF_ON_GRANT, /* a push */
    HF_ON_EVENT, /* a push */
    HF_ON_KINDS,
    HF_ON_ANY = HF_ON_KINDS,
};

enum hf_fault {
    HF_LOSE,        /* never arrives; the client notices if it is a request */
    HF_LOSE_ANSWER, /* executed; the answer is lost, which the client notices */
    HF_REFUSE,      /* answered HF_EUNAVAIL, and not delivered */
    HF_FORGET,      /* answered HF_EINDOUBT, and not delivered */
    HF_NO_MEMORY,   /* answered HF_ENOMEM, and not delivered */
    HF_STRAND, /* the client notices a loss, but the request arrives later */
    HF_DELAY,  /* the message arrives later */
    HF_DELAY_ANSWER,
    HF_REPEAT,        /* the message arrives twice, the second time later */
    HF_HIDE_ANCHOR,   /* the answer or push has no anchor */
    HF_CLOSE_SESSION, /* the session is closed before the command arrives, so
                         the answer has `session_gone` */
    HF_CLOSE_SESSION_AFTER, /* the same after the command was executed */
    HF_STALE, /* a local LOOKUP is answered as if no LOCK had been received */
    HF_STALL, /* submit() takes `ms`, as if it waited for a mutex */
};

/* The probability of each fault, per thousand messages that it can hit. */
struct hf_faulty_odds {
    unsigned lose, lose_answer, refuse, forget, repeat, strand, hide_anchor;
    unsigned stale;         /* only local LOOKUPs */
    unsigned close_session; /* only commands; before or after execution */
    unsigned lose_grant, repeat_grant, lose_event;
    unsigned slow;     /* the delay is up to slow_ms instead of quick_ms */
    uint32_t quick_ms; /* maximum delay, each way; 0: none */
    uint32_t slow_ms;
};

/* A cut lasts until it is removed, and affects messages in transit too. */
enum hf_faulty_cut {
    HF_CUT_NONE,
    HF_CUT_ALL,     /* nothing arrives, in either direction */
    HF_CUT_REFUSE,  /* new requests are answered HF_EUNAVAIL; those in transit
                       are lost */
    HF_CUT_ANSWERS, /* requests arrive, answers and pushes do not */
};

#define HF_FAULTY_ENDED_MAX 64

/* The network, and the server's clock. The caller sets the members marked
 * "given" and zeroes the others. */
struct hf_faulty_net {
    hf_time (*clock)(void *arg); /* given */
    void *arg;                   /* given */
    uint64_t seed;               /* given */
    bool shared_clock; /* given: client and server have the same clock */
    int rate_ppm;      /* given: how much faster the server's clock runs */
    void (*stall)(void *arg, uint32_t ms); /* given: moves the clock */
    struct hf_random random;
    struct hf_dlist packets; /* in transit to the server, by time */
    struct hf_dlist clients; /* struct hf_faulty */
    uint64_t order;
    uint64_t faults;      /* number of faults so far */
    unsigned incarnation; /* how often the server has lost its data */
    struct hf_nonce ended[HF_FAULTY_ENDED_MAX]; /* see hf_faulty_has_ended() */
    unsigned ended_count;
};

/* hf_faulty_net.clock of a test that runs in real time. */
hf_time hf_faulty_real_clock(void *arg);

/* Clients that are opened from now on use `net`. With NULL, no more clients may
 * be opened. */
void hf_faulty_use(struct hf_faulty_net *net);

/* hf_faulty_next() returns when the next request arrives; hf_faulty_step()
 * delivers the requests that are due. */
hf_time hf_faulty_next(const struct hf_faulty_net *net);
void hf_faulty_step(struct hf_faulty_net *net);

/* Restart the server without its data: nothing is held, no claim waits, and
 * tokens start over. Clients stay connected. */
void hf_faulty_forget(struct hf_faulty_net *net);

/* Returns true if an UNLOCK or a CANCEL of this claim has succeeded on the
 * server. Only the newest HF_FAULTY_ENDED_MAX such claims are known. */
bool hf_faulty_has_ended(const struct hf_faulty_net *net,
                         const uint8_t nonce[HF_NONCE_SIZE]);

/* The connection of a client to the network. */
struct hf_faulty;
struct hf_faulty *hf_faulty_of(struct hf_client *client);

/* Apply `fault` to the next `count` messages of kind `what`. `ms` is the delay
 * for HF_DELAY, HF_DELAY_ANSWER, HF_REPEAT, HF_STRAND and HF_STALL. Cues are
 * used in order: the first one that fits applies. */
void hf_faulty_cue(struct hf_faulty *faulty, enum hf_faulty_what what,
                   enum hf_fault fault, unsigned count, uint32_t ms);

/* hf_faulty_odds() copies the odds of random faults; NULL for no random faults.
 * hf_faulty_cut() sets or removes the cut. */
void hf_faulty_odds(struct hf_faulty *faulty,
                    const struct hf_faulty_odds *odds);
void hf_faulty_cut(struct hf_faulty *faulty, enum hf_faulty_cut cut);

/* Close the client's session at the server, by a CLOSE, and open another.
 * Commands of the old session that are in transit are not executed. */
void hf_faulty_close_session(struct hf_faulty *faulty);

/* hf_faulty_sent() returns how many messages of kind `what` were sent so far;
 * HF_ON_ANY counts all requests, but no pushes. hf_faulty_last() returns
 * `command` of the last request of kind `what`, with its pointers cleared,
 * because they may point to memory that was freed. */
unsigned hf_faulty_sent(const struct hf_faulty *faulty,
                        enum hf_faulty_what what);
struct hf_command hf_faulty_last(const struct hf_faulty *faulty,
                                 enum hf_faulty_what what);

#endif
