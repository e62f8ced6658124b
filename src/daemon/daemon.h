/* daemon.h - run a node: sockets, clock and threads around src/node or
 * src/quorum.
 *
 * In each turn of the loop, input is reported to the node as it arrives; then
 * the node decides and sends. What depends on its mode is behind struct
 * hf_daemon_mode:
 *
 *     raft.c    a node of src/node. In each turn, an upkeep of the log or a
 *               part of a snapshot is started, each in a thread of its own
 *               (jobs.c), and the log is flushed (driver.c)
 *     quorum.c  a master of src/quorum. A thread writes its file
 *
 * The daemon decides nothing about locks, leaders or the log. */
#ifndef HF_DAEMON_DAEMON_H
#define HF_DAEMON_DAEMON_H

#include "daemon/config.h"
#include "daemon/dialer.h"
#include "daemon/listener.h"
#include "daemon/worker.h"
#include "node/node.h"
#include "quorum/node.h"

#define HF_DAEMON_SIGNALS 3 /* signals that stop a node */

enum hf_daemon_state {
    HF_DAEMON_RUNNING,
    HF_DAEMON_LEAVING, /* after a signal: the node gives up its leadership */
    HF_DAEMON_ENDED,   /* everything is being closed */
};

struct hf_daemon;

/* What a daemon does with its node. */
struct hf_daemon_mode {
    /* Make the node, and free it. */
    enum hf_err (*open)(struct hf_daemon *daemon, struct hf_error *error);
    void (*close)(struct hf_daemon *daemon);

    /* Start what the node needs besides its clients: listeners, connections,
     * threads. If that fails, close_peers() and stop() are called all the
     * same. */
    enum hf_err (*start)(struct hf_daemon *daemon, struct hf_error *error);

    /* The daemon ends: close the connections of nodes; then wait for the
     * threads. */
    void (*close_peers)(struct hf_daemon *daemon);
    void (*stop)(struct hf_daemon *daemon);

    /* Run the loop until all of its handles are closed: call hf_daemon_turn()
     * whenever daemon->dirty. Fails only before anything has run. */
    enum hf_err (*drive)(struct hf_daemon *daemon, struct hf_error *error);

    /* The node is ready: write a line to stderr. */
    void (*report_ready)(const struct hf_daemon *daemon);

    /* These are the functions of the node with such names. turn() also starts
     * jobs, and writes lines about changes. */
    void (*set_time)(struct hf_daemon *daemon, hf_time now);
    void (*turn)(struct hf_daemon *daemon, hf_time now);
    hf_time (*deadline)(const struct hf_daemon *daemon);
    void (*shutdown)(struct hf_daemon *daemon);
    bool (*has_left)(const struct hf_daemon *daemon);
    void (*on_client_open)(struct hf_daemon *daemon, uint64_t conn);
    void (*on_client_data)(struct hf_daemon *daemon, uint64_t conn,
                           const void *data, size_t size);
    void (*on_client_closed)(struct hf_daemon *daemon, uint64_t conn);
    void (*on_client_refused)(struct hf_daemon *daemon);
    void (*on_client_unsent)(struct hf_daemon *daemon, uint64_t conn,
                             size_t size);
};

extern const struct hf_daemon_mode hf_daemon_raft;
extern const struct hf_daemon_mode hf_daemon_quorum;

/* The threads that drive the loop of a raft node (driver.c). All but the handle
 * is under `mutex`. */
struct hf_driver {
    uv_async_t flushed; /* a flush has ended after its thread lost the loop */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t flushes; /* how many were started */
    bool is_offered;  /* the driver flushes; the standby may take the loop */
    bool is_watched;  /* the standby looks at the flushes; else it sleeps */
    bool has_flushed; /* a flush has ended that the node does not know of */
    bool has_ended;   /* all handles of the loop are closed */
};

/* The file of a master, and the thread that writes it (quorum.c). */
struct hf_daemon_master {
    struct hf_quorum_node *node;
    struct hf_config config; /* with the members of the file */
    struct hf_worker writer;
    struct hf_members_file file; /* that is being written, or was last */
    struct hf_error error;       /* of that; only the thread writes it */
    bool mark_failed, was_quiet; /* as it was reported */
};

struct hf_daemon {
    const struct hf_daemon_mode *mode;
    const struct hf_config *config;
    struct hf_disk *disk;
    struct hf_error error; /* why the daemon must end; HF_OK: no failure */
    enum hf_daemon_state state;
    uv_loop_t loop;
    uv_timer_t timer;     /* fires at the node's deadline */
    uv_prepare_t prepare; /* runs before the loop waits for input */
    uv_signal_t signals[HF_DAEMON_SIGNALS];
    hf_time armed; /* when `timer` is due; HF_NEVER: it is stopped */
    bool dirty;    /* the node has input, or its deadline has passed */
    bool has_workers;
    struct hf_random random;
    struct hf_streams streams;
    struct hf_listener clients;
    size_t clients_max;      /* connections that the node serves */
    struct hf_dlist backlog; /* clients whose unsent output has grown */

    struct hf_daemon_master master; /* mode quorum */

    /* Mode raft */
    struct hf_node *node;
    struct hf_listener links;
    struct hf_dialer dialer;
    struct hf_worker flusher, upkeeper, snapshotter;
    struct hf_driver driver;
    bool is_flushing; /* `flush` was started, and its end not yet reported */
    struct hf_wal_flush flush;
    uint64_t flush_ns; /* how long the last flush took */
    struct hf_wal_upkeep upkeep;
    struct hf_node_job *job;
    struct hf_node_status status; /* as it was reported */
    hf_time status_at;            /* when its `low_space` was compared */
    hf_time refusal_at;           /* when a refused link was last reported */
};

/* Run the node in the directory `disk` until a signal or a failure. Once
 * connections are accepted, writes "ready\n" to `ready_fd` and closes it,
 * unless it is -1. Returns HF_OK after SIGTERM, SIGINT or SIGHUP; a second
 * signal kills the process. */
enum hf_err hf_daemon_run(const struct hf_config *config, struct hf_disk *disk,
                          int ready_fd, struct hf_error *error);

/* ---- For the parts of the daemon ----------------------------------------*/

/* Call this before reporting input to the node. Sets the node's time, because
 * the loop may have waited since the last turn, and asks for a turn. */
void hf_daemon_begin_input(struct hf_daemon *daemon);

/* Let the node act on all input that was reported, if there is any. */
void hf_daemon_turn(struct hf_daemon *daemon);

/* connections.c: the services for the node. `arg` is the daemon. */
void hf_daemon_send_client(void *arg, uint64_t conn, const void *bytes,
                           size_t size);
void hf_daemon_close_client(void *arg, uint64_t conn);
void hf_daemon_pause_client(void *arg, uint64_t conn, bool stop_reading);
/* Raise the limit on open files as far as possible. Returns the number of
 * clients for which the descriptors suffice, at most HF_CLIENTS_MAX. */
size_t hf_daemon_clients_max(void);
/* Start to accept connections of clients. Returns HF_EUNAVAIL if the address is
 * in use, or HF_ESYSTEM. */
enum hf_err hf_daemon_listen(struct hf_daemon *daemon, struct hf_error *error);
/* Report to the node which clients have unsent output. */
void hf_daemon_report_backlog(struct hf_daemon *daemon);

/* driver.c: returns 0 or a negative errno value. */
int hf_daemon_open_driver(struct hf_daemon *daemon);
/* Run the loop until all of its handles are closed. Returns HF_ESYSTEM if a
 * thread cannot be started; then nothing has run. */
enum hf_err hf_daemon_drive(struct hf_daemon *daemon, struct hf_error *error);
/* Wait for the flush that is running in the other thread, if any, and report
 * its end to the node. */
void hf_daemon_await_flush(struct hf_daemon *daemon);

/* jobs.c: start the threads that run the jobs of a raft node. Returns
 * HF_ESYSTEM if a thread cannot be started. */
enum hf_err hf_daemon_open_workers(struct hf_daemon *daemon,
                                   struct hf_error *error);
/* Wait for the jobs that are running, and end the threads. */
void hf_daemon_close_workers(struct hf_daemon *daemon);
/* Start the jobs that the node has ready, on threads that are not busy. */
void hf_daemon_start_jobs(struct hf_daemon *daemon);

#endif
