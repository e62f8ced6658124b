/* quorum.c - a master of quorum: (src/quorum). It has clients only, so the loop
 * runs in the main thread; a worker writes its file. */
#include <inttypes.h>
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/master_file.h"
#include "daemon/notice.h"

/* ---- The mark -----------------------------------------------------------*/

static void run_mark_write(void *arg)
{
    struct hf_daemon *daemon = arg;
    struct hf_daemon_master *master = &daemon->master;

    master->error = (struct hf_error){0};
    (void)hf_master_file_write(&master->file, daemon->disk, &master->error);
}

static void report_mark(struct hf_daemon_master *master)
{
    bool failed = master->error.code != HF_OK;

    if (failed && !master->mark_failed)
        hf_notice("%s. Claims whose number needs a new mark are refused until "
                  "this succeeds.",
                  master->error.text);
    else if (!failed && master->mark_failed)
        hf_notice("the file " HF_MASTER_FILE " is written again");
    master->mark_failed = failed;
}

static void on_mark_written(void *arg)
{
    struct hf_daemon *daemon = arg;
    struct hf_daemon_master *master = &daemon->master;

    report_mark(master);
    hf_daemon_begin_input(daemon);
    hf_quorum_node_on_mark(master->node, master->file.mark,
                           master->error.code == HF_OK);
}

static void write_mark(void *arg, uint64_t mark)
{
    struct hf_daemon *daemon = arg;

    daemon->master.file.mark = mark;
    hf_worker_start(&daemon->master.writer, run_mark_write, on_mark_written,
                    daemon);
}

/* ---- Startup and shutdown -----------------------------------------------*/

static const struct hf_quorum_node_ops node_ops = {
    .send_client = hf_daemon_send_client,
    .close_client = hf_daemon_close_client,
    .pause_client = hf_daemon_pause_client,
    .write_mark = write_mark,
};

static enum hf_err make_node(struct hf_daemon *daemon, struct hf_error *error)
{
    struct hf_daemon_master *master = &daemon->master;
    struct hf_quorum_node_opts opts = {
        .members = &master->file.members,
        .id = master->file.node,
        .mark = master->file.mark,
        .table_bytes = (size_t)daemon->config->table_mib << 20,
        .clients_max = daemon->clients_max,
    };
    enum hf_err err;

    if (hf_random_bytes(&daemon->random, &opts.seed, sizeof(opts.seed)))
        return hf_error_set(error, HF_ESYSTEM,
                            "the kernel has no random numbers");
    err = hf_quorum_node_new(&opts, &node_ops, daemon, hf_time_now(),
                             &master->node);
    return err ? hf_error_set_code(error, err) : HF_OK;
}

/* Write the first mark before clients can connect, so that no claim is refused
 * for lack of it. */
static enum hf_err write_first_mark(struct hf_daemon *daemon,
                                    struct hf_error *error)
{
    struct hf_daemon_master *master = &daemon->master;
    uint64_t mark = hf_quorum_node_wanted_mark(master->node);
    enum hf_err err;

    if (mark == 0)
        return HF_OK;
    master->file.mark = mark;
    err = hf_master_file_write(&master->file, daemon->disk, error);
    if (!err)
        hf_quorum_node_on_mark(master->node, mark, true);
    return err;
}

static enum hf_err open_master(struct hf_daemon *daemon, struct hf_error *error)
{
    struct hf_daemon_master *master = &daemon->master;
    enum hf_err err;

    master->config = *daemon->config;
    daemon->config = &master->config;
    err = hf_master_file_open(&master->file, &master->config, daemon->disk,
                              error);
    if (!err)
        err = make_node(daemon, error);
    if (err)
        return err;
    err = write_first_mark(daemon, error);
    if (err)
        hf_quorum_node_free(master->node);
    return err;
}

static void close_master(struct hf_daemon *daemon)
{
    hf_quorum_node_free(daemon->master.node);
}

static enum hf_err start_master(struct hf_daemon *daemon,
                                struct hf_error *error)
{
    int rc = hf_worker_open(&daemon->master.writer, &daemon->loop);

    if (rc)
        return hf_error_set(error, HF_ESYSTEM, "cannot start a thread: %s",
                            strerror(-rc));
    daemon->has_workers = true;
    return HF_OK;
}

static void close_no_peers(struct hf_daemon *daemon)
{
    (void)daemon;
}

static void stop_master(struct hf_daemon *daemon)
{
    if (daemon->has_workers)
        hf_worker_close(&daemon->master.writer);
}

static enum hf_err drive_master(struct hf_daemon *daemon,
                                struct hf_error *error)
{
    (void)error;
    while (uv_run(&daemon->loop, daemon->dirty ? UV_RUN_NOWAIT : UV_RUN_ONCE) !=
           0) {
        if (daemon->dirty)
            hf_daemon_turn(daemon);
    }
    return HF_OK;
}

static void report_master_ready(const struct hf_daemon *daemon)
{
    const struct hf_config_member *self =
        hf_config_find(daemon->config, daemon->config->node);
    struct hf_quorum_node_status status;

    hf_quorum_node_status(daemon->master.node, &status);
    hf_notice("ready: master of %zu, clients at %s",
              daemon->config->member_count, self->client.text);
    if (status.quiet_ms > 0)
        hf_notice("quiet for %" PRIu32 " ms, because the leases of the last "
                  "process are forgotten",
                  status.quiet_ms);
}

/* ---- The mode -----------------------------------------------------------*/

static void set_master_time(struct hf_daemon *daemon, hf_time now)
{
    hf_quorum_node_set_time(daemon->master.node, now);
}

static void turn_master(struct hf_daemon *daemon, hf_time now)
{
    struct hf_daemon_master *master = &daemon->master;
    struct hf_quorum_node_status status;

    hf_quorum_node_turn(master->node, now);
    hf_quorum_node_status(master->node, &status);
    if (master->was_quiet && status.quiet_ms == 0)
        hf_notice("no longer quiet");
    master->was_quiet = status.quiet_ms > 0;
}

static hf_time master_deadline(const struct hf_daemon *daemon)
{
    return hf_quorum_node_deadline(daemon->master.node);
}

/* A master has no office to hand over. */
static void shut_master_down(struct hf_daemon *daemon)
{
    (void)daemon;
}

static bool master_has_left(const struct hf_daemon *daemon)
{
    (void)daemon;
    return true;
}

static void on_quorum_client_open(struct hf_daemon *daemon, uint64_t conn)
{
    hf_quorum_node_on_client_open(daemon->master.node, conn);
}

static void on_quorum_client_data(struct hf_daemon *daemon, uint64_t conn,
                                  const void *data, size_t size)
{
    hf_quorum_node_on_client_data(daemon->master.node, conn, data, size);
}

static void on_quorum_client_closed(struct hf_daemon *daemon, uint64_t conn)
{
    hf_quorum_node_on_client_closed(daemon->master.node, conn);
}

static void on_quorum_client_refused(struct hf_daemon *daemon)
{
    hf_quorum_node_on_client_refused(daemon->master.node);
}

static void on_quorum_client_unsent(struct hf_daemon *daemon, uint64_t conn,
                                    size_t size)
{
    hf_quorum_node_on_client_unsent(daemon->master.node, conn, size);
}

const struct hf_daemon_mode hf_daemon_quorum = {
    .open = open_master,
    .close = close_master,
    .start = start_master,
    .close_peers = close_no_peers,
    .stop = stop_master,
    .drive = drive_master,
    .report_ready = report_master_ready,
    .set_time = set_master_time,
    .turn = turn_master,
    .deadline = master_deadline,
    .shutdown = shut_master_down,
    .has_left = master_has_left,
    .on_client_open = on_quorum_client_open,
    .on_client_data = on_quorum_client_data,
    .on_client_closed = on_quorum_client_closed,
    .on_client_refused = on_quorum_client_refused,
    .on_client_unsent = on_quorum_client_unsent,
};
