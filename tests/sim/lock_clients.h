/* lock_clients.h - simulated clients of simulated nodes.
 *
 * They acquire, renew and release a few keys through node/requests, as the
 * client library does through the client protocol: a command that is not
 * answered is sent again, to any node, with its session and sequence; validity
 * is counted from the send or from the anchor of the grant. Acquisitions,
 * renewals and releases are recorded for hf-check. */
#ifndef HF_TESTS_SIM_LOCK_CLIENTS_H
#define HF_TESTS_SIM_LOCK_CLIENTS_H

#include "hf-check/recorder.h"
#include "node/requests.h"
#include "sim/nodes.h"

#define LOCK_CLIENTS_MAX 6
#define LOCK_KEYS_MAX 3
#define LOCK_TTL_MAX_MS 3000

struct lock_clients;

enum lock_step {
    STEP_IDLE, /* between claims */
    STEP_OPEN,
    STEP_LOCK,
    STEP_WAIT,    /* in the queue */
    STEP_LOOKUP,  /* looks up whether it is still in the queue */
    STEP_CONFIRM, /* has the key; renews it unless it is known to be valid */
    STEP_HOLD,
    STEP_RENEW,
    STEP_UNLOCK,
    STEP_CANCEL,
};

struct lock_client {
    struct lock_clients *all;
    unsigned number;
    unsigned node; /* where it is connected */
    int32_t drift; /* of its clock, in parts per million */
    enum lock_step step;
    struct sim_event wake;

    uint64_t session, sequence;
    struct hf_nonce secret;

    struct hf_node_request request;
    struct hf_buf bytes;
    bool is_asking;   /* a node has the request */
    bool is_answered; /* `outcome` is not handled yet */
    struct hf_node_outcome outcome;
    hf_time give_up; /* when to give up the command, by its own clock */

    unsigned key;
    struct hf_nonce nonce;
    uint32_t ttl_ms, lease_ms;
    uint64_t token;
    hf_time lock_sent, renew_sent; /* first sends, by its own clock */
    hf_time valid_until;           /* by its own clock */
    hf_time pushed_base; /* if has_base: earliest start of the lease */
    bool has_base;
    bool is_confirming; /* the RENEW of STEP_CONFIRM is under way */
    hf_time hold_until, wait_until;
    size_t lock_op, op; /* numbers of operations in the recorder */
    bool has_lock_op;   /* `lock_op` has not ended or been given up */
};

struct lock_clients {
    struct sim_nodes *nodes;
    struct hf_random random;
    struct hf_recorder recorder;
    struct lock_client list[LOCK_CLIENTS_MAX];
    unsigned count, key_count;
    bool is_ending; /* finish or cancel claims, and start none */
    uint64_t last_ns;
    uint64_t grants, handovers, anchors, renewals, reads;
};

/* The seed decides how many clients there are, `count` at most. */
void lock_clients_init(struct lock_clients *clients, struct sim_nodes *nodes,
                       uint64_t seed, unsigned count);
void lock_clients_fini(struct lock_clients *clients);

/* Call lock_clients_on_start() when a node has started, and
 * lock_clients_on_down() before it goes down. Requests to a node that goes down
 * are sent again. */
void lock_clients_on_start(struct lock_clients *clients, struct sim_node *node);
void lock_clients_on_down(struct lock_clients *clients, struct sim_node *node);

/* Returns true if all clients are idle. */
bool lock_clients_are_idle(const struct lock_clients *clients);

#endif
