/* apps.h - simulated applications, each with a client of the real library.
 *
 * An application opens raft: over app_net.h, with a clock of its own. It
 * acquires a key, renews, updates and reads it, releases it or lets it expire,
 * and watches all keys. A simulated resource beside the cluster accepts writes
 * with a token that is not smaller than the largest so far.
 *
 *   apps.c           clients, their clocks and what they do
 *   app_calls.c      their calls, recorded for hf-check
 *   app_intruder.c   their calls on locks that are not theirs
 *   app_checks.c     what must be true after every turn of a client, and at the
 *                    end */
#ifndef HF_TESTS_SIM_APPS_H
#define HF_TESTS_SIM_APPS_H

#include "client/client.h"
#include "hf-check/recorder.h"
#include "sim/app_net.h"
#include "sim/node_events.h"

#define APP_KEYS 3
#define APP_TTL_MAX_MS 3000   /* of most locks */
#define APP_LONG_TTL_MS 20000 /* longer than a session lives without a client */
#define APP_FORGED "forged"   /* a value that no lock ever has */
#define APP_ENDED 64

struct apps;

/* What names a grant. */
struct app_grant {
    unsigned key;
    uint64_t token; /* 0: none */
    uint8_t nonce[HF_NONCE_SIZE];
};

struct app {
    struct apps *all;
    unsigned number;
    uint32_t recorded_as; /* client in the history; new after each death */
    struct hf_client *client;
    struct hf_host *host;
    struct hf_net_transport transport;
    struct hf_post post;
    struct sim_event process, act;
    hf_time ahead;    /* what its clock shows at time 0 */
    int32_t drift;    /* of its clock, in parts per million */
    uint64_t session; /* the last one seen */
    unsigned lives;   /* clients opened so far */
    bool is_closing;  /* the transport neither connects nor sends */

    struct hf_lock *lock; /* NULL: no claim */
    bool is_claiming, is_held, is_releasing;
    bool is_idle; /* it lets this lock expire, unless is_ending */
    unsigned key;
    uint64_t token;
    char nonce[2 * HF_NONCE_SIZE + 1];
    size_t lock_op;
    uint8_t queued_nonce[HF_NONCE_SIZE]; /* of the last claim in a queue */
    hf_time deadline; /* validity as recorded, by its own clock */
    uint32_t ttl_ms;
    hf_time claimed_at;
    unsigned first_value; /* of the lock when it is granted */
    unsigned value;       /* of the lock, which each UPDATE increments */
    bool knows_value;     /* `value` is known */
    bool is_updating;

    struct hf_lock *forged; /* of a lock that is not its own; may be NULL */

    uint64_t read_link;  /* connection of the last read; 0: none */
    uint64_t read_index; /* what it has returned */

    uint64_t forced_token; /* of the last lock that was broken */
    hf_time forced_until;  /* when its lease ends at the latest */

    struct hf_watch *watch;
    uint64_t next_event; /* index that the watch reports next; 0: any */
    unsigned open_calls;
};

/* What all watches must agree on: the event with an index. */
struct app_event {
    uint32_t kind;
    uint64_t hash;
};

/* A claim that has surely ended, as its application was told. A node that has
 * applied the entry `index` must not know it. */
struct app_ended {
    struct hf_nonce nonce;
    unsigned key;
    uint64_t index;
};

struct apps {
    struct sim_nodes *nodes;
    const struct node_events *node_events; /* of the nodes, to check reads */
    struct app_net net;
    struct hf_random random;
    struct hf_recorder recorder;
    struct app list[SIM_APPS];
    struct app_ended ended[APP_ENDED]; /* the last ones */
    uint64_t ended_count;
    uint64_t commit; /* the highest commit index of a node */
    unsigned count, key_count;
    uint32_t last_recorded_as;
    bool is_ending;   /* release what is held, and start nothing */
    bool fence_only;  /* clocks are so wrong that two may hold a key */
    uint64_t last_ns; /* the last time in the history */
    uint64_t highest[APP_KEYS]; /* the largest token that the resource took */
    struct app_grant released;  /* the last one */
    struct app_event *events;   /* by index */
    size_t event_capacity;
    uint64_t grants, queued, renewals, updates, reads, writes, refused,
        events_seen, overlaps, sessions_lost, failed;
    uint64_t intrusions; /* that were refused */
    uint64_t local_reads;
    uint64_t compared_reads; /* compared with the events of the nodes */
    uint64_t forced;         /* held locks that were broken */
    unsigned open_forces;    /* calls that break a lock */
    hf_time forced_at;       /* when the last such call returned */
    uint64_t in_order;       /* grants of claims that had kept their position */
};

extern const char *const app_keys[APP_KEYS];

/* The seed decides how many applications there are, `count` at most. */
void apps_init(struct apps *apps, struct sim_nodes *nodes, uint64_t seed,
               unsigned count);
void apps_fini(struct apps *apps);

/* Start the clients. `drifts` has the rate error of each clock, in parts per
 * million. */
void apps_open(struct apps *apps, const int32_t *drifts);

/* End an application and its connections, as by SIGKILL, and start a new one.
 * With `silent`, the nodes do not notice. A paused application is left
 * alone. */
void apps_kill(struct apps *apps, unsigned number, bool silent);

/* Let an application do nothing for `ms`. */
void apps_pause(struct apps *apps, unsigned number, uint32_t ms);

/* Returns true if no application has a claim or an open call. */
bool apps_are_idle(const struct apps *apps);

extern const struct sim_clients_ops apps_clients_ops;

/* The time on the application's clock, and the first simulated time at which
 * that clock shows `local`. */
hf_time app_now(const struct app *app);
hf_time app_global(const struct app *app, hf_time local);

/* Handle what the application's client has to do, as soon as possible. */
void app_wake(struct app *app);

/* ---- app_calls.c --------------------------------------------------------*/

uint32_t app_below(struct app *app, uint32_t bound);

void app_claim(struct app *app);
void app_release(struct app *app);
void app_renew(struct app *app);
void app_update(struct app *app);
void app_read(struct app *app);
void app_write(struct app *app);
void app_watch(struct app *app);

/* Free the handle, which releases its lock in the background. */
void app_drop(struct app *app);

/* ---- app_intruder.c -----------------------------------------------------*/

/* Try to release, renew or update a lock of another application, or one that
 * was released. */
void app_intrude(struct app *app);

/* ---- app_checks.c -------------------------------------------------------*/

/* Call this after each turn of the application's client. */
void app_observe(struct app *app);

/* An application was told that the claim neither holds the key nor waits. */
void apps_end_claim(struct apps *apps, unsigned key, const uint8_t *nonce);

/* Call these after each turn of a node: the first one before the node can
 * crash, the second one if it still runs. */
void apps_note_commit(struct apps *apps, const struct sim_node *node);
void apps_check_ended(const struct apps *apps, const struct sim_node *node);

void app_on_event(const struct hf_event *event, void *arg);

/* The number of the connection that carries the client's requests; 0: none. */
uint64_t app_link_of(const struct app *app);

/* A read has returned `info`. It was sent over the connection `link`. */
void app_check_read(struct app *app, uint64_t link, const struct hf_info *info);

/* Check the history of all applications. */
void apps_check_history(struct apps *apps);

#endif
