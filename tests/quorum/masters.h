/* masters.h - simulated masters of a quorum, and clients that are connected to
 * them (conn.h). Messages are encoded and decoded as in production.
 *
 * A master that crashes loses everything but its mark, and is quiet for the
 * longest lease when it starts again. Making a mark durable takes a while.
 * Clocks of masters and clients have offsets and rates of their own. */
#ifndef HF_TESTS_QUORUM_MASTERS_H
#define HF_TESTS_QUORUM_MASTERS_H

#include "base/random.h"
#include "core/quorum/coordinator.h"
#include "core/quorum/master.h"
#include "core/quorum/message.h"
#include "quorum/conn.h"
#include "sim/schedule.h"

#define SIM_CLIENTS_MAX 8
#define SIM_LEASE_MAX_MS 4000

struct sim_quorum;

struct sim_clock {
    hf_time offset;
    int32_t drift; /* millionths */
};

struct sim_master {
    struct sim_quorum *quorum;
    unsigned index;
    struct sim_clock clock;
    struct hf_master master;
    uint64_t mark; /* durable */
    bool is_up;
    hf_time stopped_until; /* the process stands still */
    struct sim_event timer;
    struct sim_event mark_written;
    uint64_t next_mark; /* is being written */
};

/* A client and a master. */
struct sim_link {
    struct sim_client *client;
    unsigned master;
    struct sim_conn *conn; /* NULL: not connected */
    bool is_cut;           /* messages of both directions wait */
    struct sim_event reconnect;
};

struct sim_client {
    struct sim_quorum *quorum;
    unsigned index;
    struct sim_clock clock;
    struct hf_coordinators common;
    struct sim_link links[HF_QUORUM_MASTERS_MAX];
    hf_time stopped_until;
    void *receive_arg; /* set by the owner of the two callbacks below */
    /* Called for each reply and push; the client finds the claim by its id. */
    void (*receive)(struct sim_client *client, unsigned master,
                    const struct hf_claim_id *id,
                    const struct hf_quorum_reply *reply);
    void (*connected)(struct sim_client *client, unsigned master, bool is_up);
};

struct sim_quorum {
    struct sim_schedule schedule;
    struct hf_random random;
    struct sim_master masters[HF_QUORUM_MASTERS_MAX];
    unsigned master_count;
    struct sim_client clients[SIM_CLIENTS_MAX];
    unsigned client_count;
    struct hf_dlist conns;
    uint64_t connections;
    uint32_t delay_min_ms, delay_max_ms; /* of messages */
    uint32_t late_ms; /* maximum delay of requests of a broken connection */
    uint32_t mark_ms; /* maximum time to write a mark */
    uint64_t trace;   /* a hash of what was delivered */
    uint64_t requests, crashes, breaks;

    /* Called after a master has handled a request. May be NULL. */
    void (*handled)(struct sim_quorum *quorum, struct hf_key key);
    void *handled_arg;
};

struct sim_quorum_opts {
    uint64_t seed;
    unsigned masters;
    unsigned clients;
    bool drift; /* clocks run at different rates, within 1 % */
};

void sim_quorum_init(struct sim_quorum *quorum,
                     const struct sim_quorum_opts *opts);
void sim_quorum_fini(struct sim_quorum *quorum);

uint32_t sim_quorum_below(struct sim_quorum *quorum, uint32_t bound);

/* The time of a clock. */
hf_time sim_clock_now(const struct sim_quorum *quorum,
                      const struct sim_clock *clock);
/* When the clock will show `local`, or a little later. */
hf_time sim_clock_when(const struct sim_quorum *quorum,
                       const struct sim_clock *clock, hf_time local);

/* Send a request of the claim `id`. */
void sim_client_send(struct sim_client *client, unsigned master,
                     const struct hf_claim_id *id,
                     const struct hf_quorum_request *request);

/* Let time pass. */
void sim_quorum_run(struct sim_quorum *quorum, hf_time ms);

void sim_link_break(struct sim_link *link);
void sim_link_connect(struct sim_link *link);
void sim_master_crash(struct sim_master *master);
void sim_master_start(struct sim_master *master);

/* Returns true if the master is up and not quiet. */
bool sim_master_is_awake(const struct sim_master *master);

/* A packet has arrived (conn.c). */
void sim_master_receive(struct sim_conn *conn, struct sim_packet *packet);
void sim_client_receive(struct sim_conn *conn, struct sim_packet *packet);

#endif
