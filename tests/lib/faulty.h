/* faulty.h - a strategy that wraps another and fails on cue, or by chance.
 *
 * Between a client and the strategy that its URL names lies a network: what is
 * asked, answered and pushed can be lost, delayed, repeated and so reordered.
 * A request is copied when it is sent, so it can arrive long after the client
 * gave it up. The network belongs to no client, and goes on while a client is
 * stopped.
 *
 *     struct hf_faulty_net net = {.clock = ..., .shared_clock = true};
 *
 *     hf_faulty_use(&net);
 *     env.strategy = &hf_strategy_faulty;
 *     hf_client_open("memory:x", NULL, &env, &client);
 *     hf_faulty_cue(hf_faulty_of(client), HF_ON_LOCK, HF_LOSE_ANSWER, 1, 0);
 *
 * Without cues and odds all arrives at once and in order.
 *
 * The server behind it has a clock of its own, which may run fast or slow. So
 * the instants that it stamps mean nothing here: they are translated into what
 * a server far away can know, when a message of this client's had been sent and
 * how long after its arrival the grant was made.
 *
 * One thread, one network at a time, one that the test steps by hand. */
#ifndef HF_TESTS_LIB_FAULTY_H
#define HF_TESTS_LIB_FAULTY_H

#include "client/client.h"
#include "strategy/strategy.h"

extern const struct hf_strategy hf_strategy_faulty;

/* How long it takes until the client hears that something was lost: the request
 * is answered HF_EINDOUBT, as by a strategy whose connection has failed. */
#define HF_FAULTY_NOTICE_MS 200

/* What a cue is about. */
enum hf_faulty_what {
    HF_ON_LOCK = HF_COMMAND_LOCK, /* and so on, as the commands are numbered */
    HF_ON_UNLOCK = HF_COMMAND_UNLOCK,
    HF_ON_RENEW = HF_COMMAND_RENEW,
    HF_ON_UPDATE = HF_COMMAND_UPDATE,
    HF_ON_CANCEL = HF_COMMAND_CANCEL,
    HF_ON_FORCE = HF_COMMAND_FORCE,
    HF_ON_READ = HF_COMMAND_KINDS,
    HF_ON_LIST,
    HF_ON_WATCH,
    HF_ON_UNWATCH,
    HF_ON_GRANT, /* a push */
    HF_ON_EVENT, /* a push */
    HF_ON_KINDS,
    HF_ON_ANY = HF_ON_KINDS,
};

enum hf_fault {
    HF_LOSE,        /* the request, or the push, never arrives; noticed */
    HF_LOSE_ANSWER, /* it is done, and the answer never arrives; noticed */
    HF_REFUSE,      /* answered HF_EUNAVAIL: surely not delivered */
    HF_FORGET,      /* answered HF_EINDOUBT, as by an unknown session */
    HF_NO_MEMORY,   /* answered HF_ENOMEM, and not done */
    HF_STRAND,      /* noticed as lost; it arrives later all the same */
    HF_DELAY,       /* it arrives later */
    HF_DELAY_ANSWER,
    HF_REPEAT,      /* it arrives, and once more later */
    HF_HIDE_ANCHOR, /* the answer, or the push, tells nothing of time */
    HF_STALL,       /* submit() itself takes `ms`, as where a mutex is busy */
};

/* What happens to everything that is sent, in a thousand. */
struct hf_faulty_odds {
    unsigned lose, lose_answer, refuse, forget, repeat, strand, hide_anchor;
    unsigned lose_grant, repeat_grant, lose_event;
    unsigned slow;     /* takes up to slow_ms instead of quick_ms */
    uint32_t quick_ms; /* each way; 0: at once */
    uint32_t slow_ms;
};

/* A cut goes on until it is ended; what is under way falls into it too. */
enum hf_faulty_cut {
    HF_CUT_NONE,
    HF_CUT_SILENT,   /* nothing arrives, either way */
    HF_CUT_REFUSING, /* requests are answered HF_EUNAVAIL */
    HF_CUT_DEAF,     /* requests arrive, answers and pushes do not */
};

#define HF_FAULTY_ENDED_MAX 64

/* The network, and the server's clock. Zeroed but for what is marked. */
struct hf_faulty_net {
    hf_time (*clock)(void *arg); /* given */
    void *arg;                   /* given */
    uint64_t seed;               /* given */
    bool shared_clock; /* given: stamps of the server mean the same here */
    int rate_ppm;      /* given: by how much the server's clock is fast */
    void (*stall)(void *arg, uint32_t ms); /* given: moves the clock */
    struct hf_random random;
    struct hf_dlist packets; /* on their way to the server, by instant */
    struct hf_dlist clients; /* struct hf_faulty */
    uint64_t order;
    uint64_t faults;      /* counted */
    unsigned incarnation; /* of the server: it has lost its data so often */
    struct hf_nonce ended[HF_FAULTY_ENDED_MAX]; /* the newest */
    unsigned ended_count;
};

/* From now on clients are opened onto `net`; NULL for none. */
void hf_faulty_use(struct hf_faulty_net *net);

/* When the next request arrives; and let all arrive that are due. */
hf_time hf_faulty_next(const struct hf_faulty_net *net);
void hf_faulty_step(struct hf_faulty_net *net);

/* The server restarts without its data: nobody holds anything, nobody waits,
 * and tokens start over. Clients stay connected. */
void hf_faulty_forget(struct hf_faulty_net *net);

/* Whether the server itself has carried out an UNLOCK or a CANCEL of this
 * claim, of late. */
bool hf_faulty_has_ended(const struct hf_faulty_net *net,
                         const uint8_t nonce[HF_NONCE_SIZE]);

/* What lies between this client and its strategy. */
struct hf_faulty;
struct hf_faulty *hf_faulty_of(struct hf_client *client);

/* Do `fault` to the next `count` of `what`. For HF_DELAY,
 * HF_DELAY_ANSWER, HF_REPEAT, HF_STRAND and HF_STALL `ms` says how much later. Cues are used up in order; the first that
 * fits is taken. */
void hf_faulty_cue(struct hf_faulty *faulty, enum hf_faulty_what what,
                   enum hf_fault fault, unsigned count, uint32_t ms);

/* NULL: none. Copied. */
void hf_faulty_odds(struct hf_faulty *faulty,
                    const struct hf_faulty_odds *odds);
void hf_faulty_cut(struct hf_faulty *faulty, enum hf_faulty_cut cut);

/* How many of `what` the client has sent, and the last of them. Its bytes are
 * gone: key, value, expected and note are empty. */
unsigned hf_faulty_sent(const struct hf_faulty *faulty,
                        enum hf_faulty_what what);
struct hf_command hf_faulty_last(const struct hf_faulty *faulty,
                                 enum hf_faulty_what what);

#endif
