/* apps.h - simulated applications that acquire, renew, update and release locks
 * of a quorum, each with one claim at a time. checks.h lists what must be true
 * of them. */
#ifndef HF_TESTS_QUORUM_APPS_H
#define HF_TESTS_QUORUM_APPS_H

#include "quorum/masters.h"

#define SIM_KEYS_MAX 3
#define SIM_APPS_MAX 16
#define SIM_ENDED_MAX 64

enum sim_app_state {
    SIM_APP_IDLE,
    SIM_APP_CLAIMS,
    SIM_APP_HOLDS,
    SIM_APP_ENDS,
};

struct sim_app {
    struct sim_apps *apps;
    struct sim_client *client;
    enum sim_app_state state;
    struct hf_coordinator *coordinator;
    unsigned key;
    uint32_t ttl_ms;
    uint64_t token;
    hf_time valid_until; /* by the clock of the client; 0: not valid */
    /* Simulated time: */
    hf_time locked_at, granted_at;
    hf_time give_up_at, renew_at, release_at;
    uint64_t locked_order; /* among the events of all applications */
    uint64_t queued_order; /* 0: not queued yet */
    bool updates;          /* an update is in progress */
    bool is_forced;
    uint32_t value, expected;
    struct sim_event timer; /* of the application */
    struct sim_event tick;  /* of the coordinator */
};

/* A claim whose end a majority has confirmed. */
struct sim_ended {
    struct hf_claim_id id;
    unsigned key;
    hf_time at;
};

/* Reads of a client. */
struct sim_reader {
    struct sim_apps *apps;
    struct sim_client *client;
    struct sim_event timer;
    bool is_reading;
    unsigned key;
    struct hf_claim_id id; /* to which replies are sent */
    uint32_t serial;
    hf_time started;    /* when the current round was sent */
    hf_time give_up_at; /* the read */
    uint32_t value;     /* of the valid holder at that time */
    unsigned replied;   /* bits of masters */
    struct hf_report reports[HF_QUORUM_MASTERS_MAX];
    uint32_t values[HF_QUORUM_MASTERS_MAX];
};

struct sim_stats {
    uint64_t grants, waits, renewals, updates, losses, refusals;
    uint64_t reads, undecided;
    uint64_t handovers, handover_ms, handover_max_ms;
};

struct sim_apps {
    struct sim_quorum *quorum;
    struct sim_app list[SIM_APPS_MAX];
    unsigned count;
    unsigned keys;
    bool is_ending;   /* start no further claims */
    bool is_scripted; /* the test starts and ends the claims */
    bool is_fair;     /* no faults: waiters are served in order */
    uint64_t order;
    uint64_t tokens[SIM_KEYS_MAX];
    struct {
        hf_time at;     /* 0: no release since the last grant */
        uint64_t order; /* claims queued before this count as handed over */
    } released[SIM_KEYS_MAX];
    struct sim_ended ended[SIM_ENDED_MAX];
    unsigned ended_count;
    struct sim_reader readers[SIM_CLIENTS_MAX];
    struct sim_stats stats;
};

struct sim_apps_opts {
    unsigned count;
    unsigned keys;
    bool is_scripted;
    bool is_fair;
};

void sim_apps_init(struct sim_apps *apps, struct sim_quorum *quorum,
                   const struct sim_apps_opts *opts);
void sim_apps_fini(struct sim_apps *apps);

struct hf_key sim_apps_key(unsigned index);

/* Acquire a key; `queue`: wait for it. The application is idle. */
void sim_app_lock(struct sim_app *app, unsigned key, bool queue);

/* Release, or withdraw. */
void sim_app_end(struct sim_app *app);

/* Returns true if the application holds its key by the clock of its client. */
bool sim_app_is_valid(const struct sim_app *app);

/* The process of the client dies; its connections break. */
void sim_apps_kill(struct sim_apps *apps, struct sim_client *client);

/* Let the applications release what they hold, and check what is left. All
 * masters are up and connected. */
void sim_apps_check_end(struct sim_apps *apps);

/* ---- reads.c ------------------------------------------------------------*/

void sim_reader_init(struct sim_reader *reader, struct sim_apps *apps,
                     struct sim_client *client);

/* Returns true if the reply was for this reader. */
bool sim_reader_receive(struct sim_reader *reader, unsigned master,
                        const struct hf_claim_id *id,
                        const struct hf_quorum_reply *reply);

/* The process of the client dies. */
void sim_reader_stop(struct sim_reader *reader);

#endif
