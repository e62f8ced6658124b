/* node.h - one node of a replicated lock table, without sockets, clock or
 * threads.
 *
 * A shell (the daemon, or a simulator) has the connections, the clock and the
 * threads. It reports what happens, and calls hf_node_turn() when it has
 * nothing more to report; the node acts through struct hf_node_ops. The node
 * accesses files through log/disk only, and no call except hf_node_open() waits
 * for the disk: slow work is a flush, an upkeep or a job, which the shell
 * begins, runs in a thread, and ends.
 *
 *     hf_node_set_time(node, now);               shell thread
 *     report input ...                           shell thread
 *     hf_node_turn(node, now);                   shell thread
 *     if (hf_node_flush_begin(node, &flush)) {   shell thread
 *         hf_wal_flush_run(&flush);              any thread
 *         hf_node_flush_end(node, &flush);       shell thread, then a turn
 *     }
 *
 * Always true:
 *   1. the result of a command is reported only after the leader has applied
 *      the command;
 *   2. a lease never expires early: each node measures it from when the node
 *      applied the grant or the last RENEW, or restored a snapshot, and only a
 *      leader that has applied an entry of its own term proposes an EXPIRE;
 *   3. a message of the engine is sent after the term, the vote and the entries
 *      that it depends on are durable. */
#ifndef HF_NODE_NODE_H
#define HF_NODE_NODE_H

#include "base/limits.h"
#include "base/siphash.h"
#include "base/time.h"
#include "log/disk.h"
#include "log/identity.h"
#include "log/wal.h"

struct hf_node;

struct hf_node_member {
    uint64_t id;
    const char *peer_address;   /* "host:port" where nodes connect */
    const char *client_address; /* "host:port" where clients connect */
};

/* 0 selects the default of members that have one. hf_node_open() copies
 * everything. */
struct hf_node_opts {
    struct hf_log_cluster cluster;
    uint64_t id;
    const struct hf_node_member *members; /* in increasing order of ids */
    size_t member_count;
    uint32_t election_ms;    /* default 500 */
    uint32_t heartbeat_ms;   /* default 100 */
    size_t history_bytes;    /* events kept for watches; default 16 MiB */
    size_t table_bytes;      /* a leader whose table is this large (see
                                hf_table_bytes()) refuses LOCK, UPDATE and
                                OPEN; default 1 GiB */
    struct hf_seed seed;     /* random: hash keys and election timeouts */
    uint64_t snapshot_bytes; /* least log between snapshots; default 16 MiB */
    uint32_t trailing;       /* entries kept before a snapshot; default 8192 */
    size_t log_bytes;        /* limit of the log in memory; default 256 MiB */
    size_t clients_max;      /* client connections; default and maximum:
                                HF_CLIENTS_MAX */
    uint32_t version;        /* newest table version that this node knows; 0:
                                HF_VERSION_NEWEST */
};

/* The services of the shell. None of them calls the node. */
struct hf_node_ops {
    /* Connections between nodes. The bytes are copied. `why` says why the node
     * refuses the connection. */
    void (*send_link)(void *arg, uint64_t link, const void *bytes, size_t size);
    void (*close_link)(void *arg, uint64_t link, const char *why);

    /* Connections of clients. pause_client() stops reading from a connection,
     * or resumes. */
    void (*send_client)(void *arg, uint64_t conn, const void *bytes,
                        size_t size);
    void (*close_client)(void *arg, uint64_t conn);
    void (*pause_client)(void *arg, uint64_t conn, bool stop_reading);

    /* The node cannot continue: end the process. */
    void (*stop)(void *arg, const struct hf_error *error);
};

/* Recover a node from its directory `disk`, which hf_log_directory_init() has
 * made, and start it. Blocks. `arg` is passed to all `ops`. `disk` and `ops`
 * are borrowed until hf_node_close(). */
enum hf_err hf_node_open(const struct hf_node_opts *opts,
                         const struct hf_node_ops *ops, void *arg,
                         struct hf_disk *disk, hf_time now,
                         struct hf_node **node, struct hf_error *error);

/* Free the node, without flushing; accepts NULL. No flush, upkeep or job may be
 * running. */
void hf_node_close(struct hf_node *node);

/* ---- Input: nodes -------------------------------------------------------
 *
 * Each node has one outgoing connection to every other member, and sends only
 * on that one; incoming connections are only read. A link is a connection
 * between nodes. The shell numbers the links; 0 is not used. */

/* The outgoing connection `link` to node `id` is established. */
void hf_node_on_peer_up(struct hf_node *node, uint64_t id, uint64_t link);

/* The connection to node `id` was lost, or an attempt to connect has failed.
 * `refused`: nothing listens at its address, so its process is gone. */
void hf_node_on_peer_down(struct hf_node *node, uint64_t id, bool refused);

/* An incoming connection, the link `id`, was opened, has received bytes, or was
 * closed. The node closes links that send no HELLO within HF_NODE_HELLO_MS and,
 * as the leader, links that are silent for HF_NODE_SILENT_MS. If there would be
 * more than HF_NODE_LINKS_MAX, it closes one, preferably without a HELLO. */
void hf_node_on_link_open(struct hf_node *node, uint64_t id);
void hf_node_on_link_data(struct hf_node *node, uint64_t id, const void *bytes,
                          size_t size);
void hf_node_on_link_closed(struct hf_node *node, uint64_t id);

/* The shell has closed an incoming connection at once, for lack of descriptors
 * or memory. The node only counts it. */
void hf_node_on_link_refused(struct hf_node *node);

/* ---- Input: clients, see clients.h --------------------------------------*/

void hf_node_on_client_open(struct hf_node *node, uint64_t conn);
void hf_node_on_client_data(struct hf_node *node, uint64_t conn,
                            const void *bytes, size_t size);
void hf_node_on_client_closed(struct hf_node *node, uint64_t conn);

/* The shell has closed a connection of a client at once, like
 * hf_node_on_link_refused(). It has sent HF_SERVER_REFUSAL (serve/server.h) if
 * it could. */
void hf_node_on_client_refused(struct hf_node *node);

/* `size` bytes of output wait in the queue of the socket of `conn`. */
void hf_node_on_client_unsent(struct hf_node *node, uint64_t conn, size_t size);

/* ---- Time ---------------------------------------------------------------*/

/* Set the time of the input that is reported next. The shell calls this before
 * it reports input or the end of a flush, an upkeep or a job, if time may have
 * passed since the last call or turn: deadlines and leases are counted from
 * `now`, which never decreases. */
void hf_node_set_time(struct hf_node *node, hf_time now);

/* Handle the messages of nodes, step the engine, apply entries, answer requests
 * and send. `now` never decreases. */
void hf_node_turn(struct hf_node *node, hf_time now);

/* Returns when the next turn is due if there is no input; HF_NEVER after the
 * node has failed. */
hf_time hf_node_deadline(const struct hf_node *node);

/* ---- Disk ---------------------------------------------------------------
 *
 * One flush, one upkeep and one job may run at the same time, each in a thread
 * of its own, because a flush must not wait for the others.
 * hf_node_flush_begin() and hf_node_upkeep_begin() return false if there is
 * nothing to do now. */

bool hf_node_flush_begin(struct hf_node *node, struct hf_wal_flush *flush);
void hf_node_flush_end(struct hf_node *node, const struct hf_wal_flush *flush);

bool hf_node_upkeep_begin(struct hf_node *node, struct hf_wal_upkeep *upkeep);
void hf_node_upkeep_end(struct hf_node *node,
                        const struct hf_wal_upkeep *upkeep);

/* A part of the work of writing, sending or receiving a snapshot. */
struct hf_node_job;

/* Returns NULL if there is nothing to do now, a job is running, memory is
 * short, or the node has failed. */
struct hf_node_job *hf_node_job_begin(struct hf_node *node);
void hf_node_job_run(struct hf_node_job *job);
void hf_node_job_end(struct hf_node *node, struct hf_node_job *job);

/* ---- Shutdown and status ------------------------------------------------*/

/* Hand the leadership over to another node, if this node leads. The shell
 * continues to call hf_node_turn() until hf_node_has_left() returns true, which
 * takes at most `election_ms`. */
void hf_node_shutdown(struct hf_node *node);
bool hf_node_has_left(const struct hf_node *node);

enum hf_node_role {
    HF_NODE_FOLLOWER = 1,
    HF_NODE_CANDIDATE,
    HF_NODE_LEADER,
};

struct hf_node_status_member {
    uint64_t id;
    const char *peer_address, *client_address;
    bool connected; /* this node is connected to it, or it is this node */
    uint64_t lag;   /* log entries that it lacks; 0 unless this node leads */
};

struct hf_node_status {
    uint64_t id;
    enum hf_node_role role;
    uint64_t term;
    uint64_t leader; /* 0: unknown */
    uint64_t commit, applied, snapshot;
    uint64_t first, last;          /* entries in the log; first > last: none */
    bool uncommitted_earlier_term; /* of those after `commit`, the first has a
                                      term before `term` */
    uint32_t version;              /* of the table */
    bool low_space; /* as a leader, this node refuses LOCK, UPDATE and OPEN */
    size_t holds, sessions, requests;
    size_t table_bytes, table_bytes_max;
    /* Counted since the start. `elections` are those that this node has won,
     * and `snapshots` those that it has made. */
    uint64_t applied_commands, forwarded, flushes, elections, snapshots;
    uint64_t links_refused; /* connections of nodes that were refused */
    struct hf_node_status_member members[HF_RAFT_VOTERS_MAX];
    size_t member_count;
};

/* Fill in `*status`. Its texts are valid until the node is closed. */
void hf_node_status(const struct hf_node *node, struct hf_node_status *status);

#endif
