/* node.h - one simulated raft node: an engine with its disk, timers and peers.
 *
 * It does what a real node does with an update of the engine: store, send each
 * message once the writes before it are durable, apply, answer reads, take and
 * install snapshots. The state machine is a hash of the applied entries. */
#ifndef HF_TESTS_SIM_NODE_H
#define HF_TESTS_SIM_NODE_H

#include "raft/engine.h"
#include "raft/frames.h"
#include "raft/lost.h"
#include "raft/rounds.h"
#include "sim/checks.h"
#include "sim/network.h"
#include "sim/storage.h"

/* The first byte of a snapshot in a frame, instead of a message's format. */
#define SIM_NODE_SNAPSHOT 0xff

/* A frame that waits until the write `after` is durable. */
struct sim_outgoing {
    struct hf_dlist link;
    uint64_t after;
    unsigned to;
    uint64_t
        vote_term; /* the frame grants a vote in this term; 0: it does not */
    struct hf_buf frame;
};

struct sim_node {
    unsigned number; /* its id minus 1 */
    uint64_t id;
    struct sim_schedule *schedule;
    struct sim_network *network;
    struct hf_random *random;
    struct sim_checks *checks;
    struct hf_membership members;
    struct hf_engine_config config;
    uint32_t snapshot_every; /* entries; 0: never */
    int clock_percent;       /* how much its clock runs fast; negative: slow */
    bool is_up;
    hf_time stopped_until; /* as by SIGSTOP */
    /* From here on, what a crash loses. */
    struct hf_engine engine;
    struct hf_frames frames[SIM_NODES_MAX];
    struct hf_rounds rounds;
    struct hf_lost lost;
    struct hf_dlist outbox;
    struct sim_event timer;
    struct sim_event retry;         /* repeats rounds and snapshots */
    bool is_sending[SIM_NODES_MAX]; /* by peer: a snapshot is being sent */
    uint64_t durable_write;
    uint64_t applied, hash;
    uint64_t unchecked; /* first index that sim_checks_entries() has not seen */
    struct sim_event flushed;
    uint64_t flushed_write; /* durable; handled when the node runs */
    bool is_taking;         /* a snapshot is being written */
    struct sim_snapshot taking;
    struct sim_snapshot installing;
    /* What a crash keeps. */
    struct sim_storage storage;
};

/* Make a node of a new cluster; sim_node_start() starts it. */
void sim_node_init(struct sim_node *node, uint64_t id,
                   const struct hf_membership *members);
void sim_node_fini(struct sim_node *node);

/* sim_node_start() starts the node from what is on its disk. sim_node_crash()
 * ends it, and may lose writes that are not durable. */
void sim_node_start(struct sim_node *node);
void sim_node_crash(struct sim_node *node);

/* Step the engine, and do what its update asks for. The test fails if the
 * engine fails. */
enum hf_err sim_node_step(struct sim_node *node, struct hf_engine_event event);

/* Submit up to 16 commands. Returns HF_ESTATE if the node does not lead. */
enum hf_err sim_node_submit(struct sim_node *node, const uint64_t *commands,
                            size_t count);

/* Start a linearizable read, which must see everything that was acknowledged
 * before this call. Returns HF_ESTATE if the node cannot answer reads, or what
 * hf_rounds_add() returns. */
enum hf_err sim_node_read(struct sim_node *node);

/* The node notices that its connection to the leader was reset. */
void sim_node_lose_leader(struct sim_node *node);

/* A frame arrives. Returns what `deliver` of struct sim_network returns. */
hf_time sim_node_deliver(struct sim_node *node, unsigned from,
                         const uint8_t *data, size_t size);

/* ---- Between node.c and node_receive.c ----------------------------------*/

/* sim_node_send() queues a message until the write `after` is durable.
 * sim_node_send_outbox() sends queued frames in order, up to the first one
 * whose write is not durable. */
void sim_node_send(struct sim_node *node, const struct hf_message *message,
                   uint64_t after);
void sim_node_send_outbox(struct sim_node *node);
void sim_node_send_to_voters(struct sim_node *node, struct hf_message message);

/* sim_node_start_round() starts a round if a read needs one; with `again`, if
 * any read still waits. sim_node_answer_reads() answers the reads whose round
 * has ended and whose entries are applied. */
void sim_node_start_round(struct sim_node *node, bool again);
void sim_node_answer_reads(struct sim_node *node);

#endif
