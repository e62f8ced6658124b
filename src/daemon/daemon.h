/* daemon.h - run a node: sockets, clock and threads around src/node.
 *
 * In each turn of the loop, input is reported to the node as it arrives; then
 * hf_node_turn() decides and sends; then a flush, an upkeep of the log or a
 * part of a snapshot is started, each in a thread of its own. The daemon
 * decides nothing about locks, leaders or the log. */
#ifndef HF_DAEMON_DAEMON_H
#define HF_DAEMON_DAEMON_H

#include "daemon/config.h"
#include "daemon/dialer.h"
#include "daemon/listener.h"
#include "daemon/worker.h"
#include "node/node.h"

enum hf_daemon_state {
    HF_DAEMON_RUNNING,
    HF_DAEMON_LEAVING, /* after a signal: the node gives up its leadership */
    HF_DAEMON_ENDED,   /* everything is being closed */
};

struct hf_daemon {
    const struct hf_config *config;
    struct hf_disk *disk;
    struct hf_node *node;
    struct hf_error error; /* why the daemon must end; HF_OK: no failure */
    enum hf_daemon_state state;
    uv_loop_t loop;
    uv_prepare_t prepare; /* runs before the loop waits for input */
    uv_timer_t timer;     /* fires at the node's deadline */
    uv_signal_t signals[3];
    hf_time armed; /* when `timer` is due */
    bool dirty;    /* the node has input, or its deadline has passed */
    bool has_workers;
    struct hf_random random;
    struct hf_streams streams;
    struct hf_listener clients, links;
    struct hf_dlist recent_links; /* incoming, the longest silent one first */
    struct hf_dlist backlog;      /* clients whose unsent output has grown */
    struct hf_dialer dialer;
    struct hf_worker flusher, upkeeper, snapshotter;
    struct hf_wal_flush flush;
    struct hf_wal_upkeep upkeep;
    struct hf_node_job *job;
    struct hf_node_status status; /* as of the last check for changes */
    hf_time status_at;
    hf_time refusal_at; /* when a refused link was last reported */
};

/* Run the node in the directory `disk` until a signal or a failure. Once
 * connections are accepted, writes "ready\n" to `ready_fd` and closes it,
 * unless it is -1. Returns HF_OK after SIGTERM, SIGINT or SIGHUP. */
enum hf_err hf_daemon_run(const struct hf_config *config, struct hf_disk *disk,
                          int ready_fd, struct hf_error *error);

/* ---- For the parts of the daemon ----------------------------------------*/

/* connections.c: the functions that the node calls. */
extern const struct hf_node_ops hf_daemon_ops;
/* Start to accept connections of clients and peers. Returns HF_EUNAVAIL if
 * an address is in use, or HF_ESYSTEM. */
enum hf_err hf_daemon_listen(struct hf_daemon *daemon, struct hf_error *error);
/* Report to the node which clients have unsent output. */
void hf_daemon_report_backlog(struct hf_daemon *daemon);

/* jobs.c: start the threads that run the jobs of the node. Returns HF_ESYSTEM
 * if a thread cannot be started. */
enum hf_err hf_daemon_open_workers(struct hf_daemon *daemon,
                                   struct hf_error *error);
/* Wait for the jobs that are running, and end the threads. */
void hf_daemon_close_workers(struct hf_daemon *daemon);
/* Start the jobs that the node has ready, on threads that are not busy. */
void hf_daemon_start_jobs(struct hf_daemon *daemon);

#endif
