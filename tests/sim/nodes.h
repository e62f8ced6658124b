/* nodes.h - whole nodes over a simulated clock, network and disk.
 *
 * The disk of a node survives a crash of the node. Connections are like those
 * of TCP: bytes arrive in order and without gaps until the connection breaks.
 * The test, or a seed, decides when nodes crash, stop or are cut off, and how
 * long messages and flushes take. To test more than TCP allows, messages may
 * also be lost, repeated or overtaken. */
#ifndef HF_TESTS_SIM_NODES_H
#define HF_TESTS_SIM_NODES_H

#include "base/dlist.h"
#include "base/random.h"
#include "node/hooks.h"
#include "node/node.h"
#include "sim/schedule.h"
#include "sim/sim_disk.h"

#define SIM_NODES 5

struct sim_nodes;

/* A connection from one node to another. */
struct sim_conn {
    struct sim_nodes *nodes;
    unsigned from, to;
    uint64_t link;       /* 0: not connected */
    uint64_t hello_link; /* the last link on which a HELLO was sent */
    bool is_cut;
    bool is_refused;      /* the next attempt to connect is refused */
    hf_time last;         /* when the last bytes in order arrive */
    hf_time hello;        /* when the first bytes arrive */
    struct hf_dlist sent; /* bytes that have not arrived, */
    size_t queued;        /* and their number */
    struct sim_event connect;
};

struct sim_node {
    struct sim_nodes *nodes;
    unsigned number; /* from 0; its id is one more */
    struct sim_disk *disk;
    struct hf_disk *attached;
    struct hf_node *node; /* NULL: it is down */
    hf_time paused_until;
    hf_time disk_hangs_until; /* no flush ends before this */
    hf_time ahead;            /* what its clock shows at time 0 */
    int32_t drift;            /* of its clock, in parts per million */
    uint32_t version; /* table version it announces; 0: nodes->opts.version */
    uint32_t flush_ms, slow_disk_ms; /* of its disk; 0: those of nodes->odds */
    bool is_crashing;
    struct sim_event turn, flush_end, upkeep_end, job_end;
    struct hf_wal_flush flush;
    struct hf_wal_upkeep upkeep;
    struct hf_node_job *job;
    bool is_flushing, has_upkeep;
    const char *refused;   /* why it last refused a connection */
    struct hf_error error; /* why it has stopped, if it has */
};

/* `lose`, `repeat` and `overtake` are probabilities per thousand messages. */
struct sim_nodes_odds {
    unsigned lose, repeat, overtake;
    uint32_t delay_ms;     /* the longest delay of most messages */
    uint32_t slow_ms;      /* the longest delay of one message in a hundred */
    uint32_t flush_min_ms; /* what each flush takes at least, on top */
    uint32_t flush_ms;     /* the longest time of most flushes */
    uint32_t slow_disk_ms; /* the longest time of one flush in fifty */
    uint32_t job_ms;
};

/* The connections of clients, if the nodes have clients; see node.h. Called
 * with sim_nodes.arg. */
struct sim_clients_ops {
    void (*send)(void *arg, struct sim_node *node, uint64_t conn,
                 const void *bytes, size_t size);
    void (*close)(void *arg, struct sim_node *node, uint64_t conn);
    void (*pause)(void *arg, struct sim_node *node, uint64_t conn, bool stop);
};

struct sim_nodes {
    struct sim_schedule schedule;
    struct hf_random random;
    struct sim_node list[SIM_NODES];
    unsigned count;
    struct sim_conn conns[SIM_NODES][SIM_NODES]; /* [from][to] */
    uint64_t last_link;
    struct sim_nodes_odds odds;
    uint64_t segment_size;    /* change it before the first start */
    struct hf_node_opts opts; /* read at each start of a node */
    struct hf_node_member members[SIM_NODES];
    uint64_t hash; /* of everything that was sent */

    /* Called when a node has started, after every turn, and before it goes
     * down; may be NULL. */
    void (*on_start)(void *arg, struct sim_node *node);
    void (*on_turn)(void *arg, struct sim_node *node);
    void (*on_down)(void *arg, struct sim_node *node);
    /* Called when a node sends to another one; may be NULL. The first bytes of
     * a connection begin with a HELLO. */
    void (*on_send)(void *arg, struct sim_node *node, unsigned to,
                    bool is_first, const void *bytes, size_t size);
    const struct sim_clients_ops *clients; /* may be NULL */
    void *arg;
};

/* Create `count` nodes, which do not run yet. `seed` initialises
 * nodes->random. */
void sim_nodes_init(struct sim_nodes *nodes, unsigned count, uint64_t seed);
void sim_nodes_fini(struct sim_nodes *nodes);

/* Start a node that is down. sim_nodes_try_start() returns false if the node
 * cannot start, and its `error` says why; for the others, that is a failure. */
bool sim_nodes_try_start(struct sim_nodes *nodes, unsigned number);
void sim_nodes_start(struct sim_nodes *nodes, unsigned number);
void sim_nodes_start_all(struct sim_nodes *nodes);

/* Crash a node. `pattern` says what its disk keeps of what was not synced. The
 * other nodes see their connections to it closed and refused, unless `silent`
 * is set. */
void sim_nodes_crash(struct sim_nodes *nodes, unsigned number,
                     enum sim_crash pattern, bool silent);

/* Let the node do nothing for `ms`. */
void sim_nodes_pause(struct sim_nodes *nodes, unsigned number, uint32_t ms);

/* Let nothing arrive from `from` at `to` until sim_nodes_heal(), which ends all
 * cuts. */
void sim_nodes_cut(struct sim_nodes *nodes, unsigned from, unsigned to);
void sim_nodes_heal(struct sim_nodes *nodes);

/* Break the connection from `from` to `to`. `from` connects again later.
 * sim_nodes_refuse() lets that be refused once, as by a firewall. */
void sim_nodes_reset(struct sim_nodes *nodes, unsigned from, unsigned to);
void sim_nodes_refuse(struct sim_nodes *nodes, unsigned from, unsigned to);

/* Give the node a turn at once. Call this after submitting something to it. */
void sim_nodes_wake(struct sim_nodes *nodes, unsigned number);

/* Simulate `ms`, or less if `done`, which may be NULL, returns true before
 * that. Returns true if `done` did. */
bool sim_nodes_run(struct sim_nodes *nodes, uint32_t ms,
                   bool (*done)(void *arg), void *arg);

/* The time on the node's clock. */
hf_time sim_node_now(const struct sim_node *node);

/* Returns the running node that leads in the highest term, or NULL. */
struct sim_node *sim_nodes_leader(struct sim_nodes *nodes);

#endif
