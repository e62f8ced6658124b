/* node.h - one node of a replicated lock table, without sockets, clock or
 * threads.
 *
 * A shell (the daemon, or a simulator) owns the connections, the clock and the
 * threads. It reports what happens, and calls hf_node_turn() when it has nothing
 * more to report; the node acts through struct hf_node_ops. Files are reached
 * through log/disk only, and except for hf_node_open() no call waits for them:
 * what takes time is handed out as a flush, an upkeep or a job, which the shell
 * runs in a thread and returns.
 *
 *     hf_node_set_time(node, now)            owner
 *     report input ...                       owner
 *     hf_node_turn(node, now)                owner
 *     if (hf_node_flush_begin(node, &flush)) owner
 *         hf_wal_flush_run(&flush)           any thread
 *     hf_node_flush_end(node, &flush)        owner; then the next turn
 *
 * Always true:
 *   1. a command is answered after the leader has applied it, never before;
 *   2. a lease never expires early: each node counts it from when it applied
 *      the grant, and only a leader that has applied an entry of its own term
 *      proposes its end;
 *   3. nothing that depends on a term, a vote or an entry is sent before that is
 *      durable. */
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
    const char *peer_address;   /* "host:port", for the shell */
    const char *client_address; /* "host:port", for clients */
};

/* Zero means the default where there is one. Everything is copied. */
struct hf_node_opts {
    struct hf_log_cluster cluster;
    uint64_t id;
    const struct hf_node_member *members; /* in increasing order of ids */
    size_t member_count;
    uint32_t election_ms;    /* default 500 */
    uint32_t heartbeat_ms;   /* default 100 */
    size_t history_bytes;    /* events kept for watches; default 16 MiB */
    struct hf_seed seed;     /* random: hash keys and election timeouts */
    uint64_t snapshot_bytes; /* log bytes between two snapshots, at least */
    uint32_t trailing;       /* entries kept before a snapshot */
    uint32_t version;        /* highest table version; default: of this build */
};

/* The services of the shell. None of them calls the node. */
struct hf_node_ops {
    /* Connections between nodes. The bytes are copied. `why` is NULL, or the
     * reason why the node refuses the connection. */
    void (*send_link)(void *arg, uint64_t link, const void *bytes, size_t size);
    void (*close_link)(void *arg, uint64_t link, const char *why);

    /* Connections of clients. */
    void (*send_client)(void *arg, uint64_t conn, const void *bytes,
                        size_t size);
    void (*close_client)(void *arg, uint64_t conn);
    void (*pause_client)(void *arg, uint64_t conn, bool stop_reading);

    /* The node cannot continue: end the process. */
    void (*stop)(void *arg, const struct hf_error *error);
};

/* Recover the directory, which hf_directory_init() has made, and start. Blocks.
 * `disk` is borrowed until hf_node_close(), and `ops` too. */
enum hf_err hf_node_open(const struct hf_node_opts *opts,
                         const struct hf_node_ops *ops, void *arg,
                         struct hf_disk *disk, hf_time now,
                         struct hf_node **node, struct hf_error *error);

/* Free the node, without flushing. No flush, upkeep or job may be running. */
void hf_node_close(struct hf_node *node);

/* ---- Input: nodes -------------------------------------------------------
 *
 * Each node has one outgoing connection to every other member, and sends on it
 * only; incoming connections are only read. Numbers of links are the shell's,
 * and not 0. */

void hf_node_on_peer_up(struct hf_node *node, uint64_t id, uint64_t link);

/* The connection to node `id` was lost, or an attempt to connect has failed.
 * `refused`: nothing listens at its address, so its process is gone. */
void hf_node_on_peer_down(struct hf_node *node, uint64_t id, bool refused);

void hf_node_on_link_open(struct hf_node *node, uint64_t id);
void hf_node_on_link_data(struct hf_node *node, uint64_t id, const void *bytes,
                          size_t size);
void hf_node_on_link_closed(struct hf_node *node, uint64_t id);

/* ---- Input: clients, see clients.h --------------------------------------*/

void hf_node_on_client_open(struct hf_node *node, uint64_t conn);
void hf_node_on_client_data(struct hf_node *node, uint64_t conn,
                            const void *bytes, size_t size);
void hf_node_on_client_closed(struct hf_node *node, uint64_t conn);

/* How many bytes wait in the socket's queue. */
void hf_node_on_client_unsent(struct hf_node *node, uint64_t conn, size_t size);

/* ---- Time ---------------------------------------------------------------*/

/* Set the clock, before other input is reported. Messages are handled by the next
 * turn, with its time. `now` never decreases. */
void hf_node_set_time(struct hf_node *node, hf_time now);

/* Submit, step, apply, answer, and send. `now` never decreases. */
void hf_node_turn(struct hf_node *node, hf_time now);

/* When the next turn is due if there is no input; HF_NEVER is possible. */
hf_time hf_node_deadline(const struct hf_node *node);

/* ---- Disk ---------------------------------------------------------------
 *
 * One flush, one upkeep and one job may run at the same time, in threads of
 * their own. A flush must not wait for the others. */

bool hf_node_flush_begin(struct hf_node *node, struct hf_wal_flush *flush);
void hf_node_flush_end(struct hf_node *node, const struct hf_wal_flush *flush);

bool hf_node_upkeep_begin(struct hf_node *node, struct hf_wal_upkeep *upkeep);
void hf_node_upkeep_end(struct hf_node *node,
                        const struct hf_wal_upkeep *upkeep);

/* A part of writing, sending or receiving a snapshot. */
struct hf_node_job;

/* NULL if there is nothing to do, or a job is running. */
struct hf_node_job *hf_node_job_begin(struct hf_node *node);
void hf_node_job_run(struct hf_node_job *job);
void hf_node_job_end(struct hf_node *node, struct hf_node_job *job);

/* ---- Shutdown and status ------------------------------------------------*/

/* Stop leading, if another node can take over. Turns go on until
 * hf_node_has_left(), which does not take longer than an election timeout. */
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
    bool connected; /* our connection to it is established; true for itself */
    uint64_t lag;   /* entries that it lacks; at a leader only */
};

struct hf_node_status {
    uint64_t id;
    enum hf_node_role role;
    uint64_t term;
    uint64_t leader; /* 0: unknown */
    uint64_t commit, applied, last, snapshot;
    uint32_t version; /* of the table */
    bool low_space;   /* LOCK, UPDATE and OPEN are refused */
    size_t holds, sessions, requests;
    uint64_t applied_commands, forwarded, flushes, elections, snapshots;
    struct hf_node_status_member members[HF_RAFT_VOTERS_MAX];
    size_t member_count;
};

/* Texts are valid until the node is closed. */
void hf_node_status(const struct hf_node *node, struct hf_node_status *status);

#endif
